"""Threads whose `join` is interrupted, as by Ctrl-C."""

import os
import signal
import threading

import pytest

from coordinator.threads import JoinableThread
from tests.support.concurrency import until
from tests.support.http_raw import long_poll, publish, serving
from tests.support.interrupts import (
    interrupted,
)

SOON_S = 0.1
PATIENCE_S = 60


@pytest.mark.usefixtures("interrupts")
def test_a_join_after_an_interrupted_one_waits() -> None:
    go_on = threading.Event()
    thread = JoinableThread(target=go_on.wait, args=(PATIENCE_S,))
    thread.start()
    for _ in range(2):
        interrupted(thread.join)
        assert thread.is_alive()
    threading.Timer(SOON_S, go_on.set).start()
    thread.join()
    assert go_on.is_set()
    assert not thread.is_alive()
    thread.join()


def test_a_thread_that_fails_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("threading.excepthook", told.append)
    thread = JoinableThread(target=int, args=("x",))
    thread.start()
    thread.join()
    assert len(told) == 1


def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    go_on = threading.Event()
    thread = JoinableThread(target=go_on.wait, args=(PATIENCE_S,))
    thread.start()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        thread.join()
        os._exit(42)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    go_on.set()
    thread.join()


@pytest.mark.usefixtures("interrupts")
def test_a_server_whose_end_is_interrupted_has_ended() -> None:
    """Its store may be closed then, and the program come to its end."""
    with serving() as here, here.connect() as raw, here.connect() as polls:
        raw.send(publish()[:-1])
        polls.send(long_poll(20_000))
        assert until(lambda: here.in_flight == 2)
        interrupted(here.server.close)
        assert "txaware-http" not in [each.name for each in threading.enumerate()]
