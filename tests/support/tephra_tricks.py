"""What tests do to a real Tephra: roll its log, lose its answers, end its process."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator.java import py4j_client
from coordinator.tephra import TephraCoordinator
from coordinator.tephra import thrift_pool as pool

PATIENCE_S = 20.0


def roll_log(coordinator: TephraCoordinator) -> None:
    """Takes a snapshot, after which the next edit is the first of a new log."""
    java = coordinator.jvm.view.java.lang
    parameters = coordinator.jvm.gateway.new_array(java.Class, 1)
    parameters[0] = java.Boolean.TYPE
    manager = coordinator._tephra.manager
    snapshot = manager.getClass().getDeclaredMethod("doSnapshot", parameters)
    snapshot.setAccessible(True)
    arguments = coordinator.jvm.gateway.new_array(java.Object, 1)
    arguments[0] = False
    snapshot.invoke(manager, arguments)


def crash(coordinator: TephraCoordinator) -> None:
    """Kills the JVM and starts another on the same directory."""
    coordinator.jvm.kill()
    coordinator.reconnect()


def lose_answers(monkeypatch: pytest.MonkeyPatch, call: str) -> list[str]:
    """From now on this call is done but its answer lost; answers what was sent."""
    sent: list[str] = []

    def losing(ask: Callable[..., Any]) -> Callable[..., Any]:
        def lost(connection: Any, message: str | bytes, *rest: Any) -> str | bytes:
            answer: str | bytes = ask(connection, message, *rest)
            text = message if isinstance(message, str) else message.decode("latin-1")
            if call in text:
                sent.append(call)
                raise ConnectionResetError("the answer was lost")
            return answer

        return lost

    for kind in (py4j_client._JvmConnection, pool._Connection):
        monkeypatch.setattr(kind, "ask", losing(kind.ask))
    return sent


@contextmanager
def python(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of its own, which is killed at the end at the latest."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Looks again and again; fails when it takes too long."""
    look = threading.Event()
    for _ in range(int(patience_s / 0.01)):
        if condition():
            return
        look.wait(0.01)
    raise AssertionError(f"not within {patience_s} s")


def is_running(pid: int) -> bool:
    """Whether there is such a process, zombies excepted."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not os.path.exists("/proc/self/stat")
