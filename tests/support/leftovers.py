"""Threads that tests leave running are named at the end, and fail the run."""

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Generator
from typing import Any

import pytest

PATIENCE_S = 10
EXIT_S = 60

LEFT = "left threads"

_seen: dict[threading.Thread, str] = {}
_of_workers: list[object] = []


def _others() -> list[threading.Thread]:
    return [
        each
        for each in threading.enumerate()
        if not each.daemon and each is not threading.main_thread()
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    for thread in _others():
        _seen.setdefault(thread, item.nodeid)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails where a thread would keep the process from its end, or a worker's did."""
    left = []
    for thread in _others():
        thread.join(PATIENCE_S)
        if thread.is_alive():
            left.append(thread)
    for thread in left:
        since = _seen.get(thread)
        sys.stderr.write(f"\n{thread.name} is still running, since {since}\n")
        frame = sys._current_frames().get(thread.ident or 0)
        sys.stderr.writelines(traceback.format_stack(frame))
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[LEFT] = len(left)
    if (left or _of_workers) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended, which cannot fail the run by itself."""
    if getattr(node, "workeroutput", {}).get(LEFT):
        _of_workers.append(node)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints every stack and exits, where the interpreter does not come to its end.

    A worker waits for the others, and is ended then.
    """
    if hasattr(config, "workerinput"):
        return
    stderr = os.fdopen(os.dup(2), "w")
    faulthandler.dump_traceback_later(EXIT_S, exit=True, file=stderr)
