"""The thread that runs the loop of a sender, and its end.

The thread is a daemon: another kind would hang the exit of a program that forgot to
close its sender, for as long as an outage lasts. The exit waits up to `EXIT_WAIT_S`
instead, while the thread goes on; what is left then is lost, and logged. A sender
that is collected as garbage before is closed by that, and its thread still sends what
was taken.
"""

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.threads import JoinableThread
from txaware.publish.publisher import checked_setting
from txaware.publish.send_batch import Extra, OnDone, SentFuture
from txaware.publish.send_limits import Retries, SendLimits
from txaware.publish.send_way import Pause, SendsBatches

if TYPE_CHECKING:
    from txaware.publish.send_loop import SendLoop

EXIT_WAIT_S = 5.0

logger = logging.getLogger(__name__)


class Background:
    """A sender's loop with its thread, for as long as its owner lives.

    An interrupt (Ctrl-C) may end any call of the main thread: a message is then in, or
    not, and the next call of any thread goes on.
    """

    def __init__(
        self,
        name: str,
        way: Callable[[], SendsBatches],
        limits: SendLimits,
        retries: Retries,
        *,
        clock_s: Callable[[], float],
        pause: Pause | None = None,
    ) -> None:
        # An event loop takes long to import, and most programs have none.
        from txaware.publish.send_loop import SendLoop

        loop = SendLoop(limits, retries, way, clock_s=clock_s, pause=pause)
        self.machine = loop.machine
        self._most_bytes = limits.queue_limit_bytes
        self.lock = loop.lock
        self._loop = loop
        self._process_id = os.getpid()
        # Neither the thread nor the exit holds on to the owner, which could then never
        # be collected as garbage.
        at_exit = functools.partial(_finish_at_exit, name, loop, self._process_id)
        self.thread = JoinableThread(
            target=_run, args=(loop, at_exit), name=f"sender {name}", daemon=True
        )
        try:
            self.thread.start()
            atexit.register(at_exit)
            forgotten = weakref.finalize(self, _close, loop, self._process_id)
            forgotten.atexit = False
        except BaseException:
            loop.close_soon()
            raise

    def put(
        self,
        topic: str,
        payload: bytes,
        key: bytes | None,
        size_bytes: int,
        now_s: float,
        extra: Extra | None = None,
        on_done: OnDone | None = None,
        number: int | None = None,
        when_full: str = "wait",
    ) -> SentFuture | None:
        """Takes a message; None where there is no room for it, unless it waits.

        The thread of the loop, in a callback, never waits: no other thread makes room.
        """
        lock = self.lock
        if lock.is_forked:
            lock.require_not_forked()
        with lock:
            machine = self.machine
            if (
                machine.is_tight or machine.held_bytes + size_bytes > self._most_bytes
            ) and not self._has_room(topic, size_bytes, when_full):
                return None
            return machine.put(
                topic, payload, key, size_bytes, now_s, extra, on_done, number
            )

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until all messages taken before are over, and their callers told.

        False after the time-out.
        """
        self.lock.require_not_forked()
        self.lock.require_another_thread("flush")
        check_flush_timeout(timeout_s)
        return _flush(self._loop, timeout_s)

    def close(self) -> None:
        """Takes no more messages, and waits until all that were taken are over."""
        self.lock.require_another_thread("close")
        _close(self._loop, self._process_id)
        self.thread.join()

    def _has_room(self, topic: str, size_bytes: int, when_full: str) -> bool:
        """Makes room for a message, or waits for it, under the lock."""
        machine = self.machine
        machine.unblock(threading.get_ident())
        machine.require_open()
        while not machine.has_room(topic, size_bytes):
            if when_full == "drop_oldest" and machine.drop_oldest(topic):
                continue
            if when_full != "wait" or threading.current_thread() is self.thread:
                machine.counts["refused"] += 1
                return False
            self._wait_for_room()
            machine.require_open()
        return True

    def _wait_for_room(self) -> None:
        machine, caller = self.machine, threading.get_ident()
        machine.block(caller)
        try:
            self.lock.wait()
        finally:
            machine.unblock(caller)


def check_flush_timeout(timeout_s: object) -> None:
    """Raises `BadRequest` for what is no time to wait for a flush."""
    if timeout_s is not None:
        checked_setting("timeout_s", timeout_s, least=0)


def _run(loop: "SendLoop", at_exit: functools.partial[None]) -> None:
    loop.run_in_thread()
    atexit.unregister(at_exit)


def _flush(loop: "SendLoop", timeout_s: float | None) -> bool:
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    with loop.lock:
        flush = loop.machine.flush()
        while not loop.machine.is_flushed(flush):
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            loop.lock.wait(left_s)
        return True


def _close(loop: "SendLoop", process_id: int) -> None:
    # In a forked child a thread that is not there may hold the lock.
    if os.getpid() == process_id:
        loop.close_soon()


def _finish_at_exit(name: str, loop: "SendLoop", process_id: int) -> None:
    _close(loop, process_id)
    if os.getpid() == process_id and not _flush(loop, EXIT_WAIT_S):
        logger.error(
            "%d messages to %s were lost: their sender was not closed, and they could "
            "not be sent within %s s",
            *(loop.machine.waiting, name, EXIT_WAIT_S),
        )
