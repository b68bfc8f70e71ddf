"""The thread that publishes a backlog, one batch at a time, and its end.

The thread is a daemon: another kind would hang the exit of a program that forgot to
close its publisher, for as long as an outage lasts. The exit waits up to `EXIT_WAIT_S`
instead, while the thread goes on; what is left then is lost, and logged. A publisher
that is collected as garbage before is closed by that, and its thread still publishes
what was taken.
"""

import atexit
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

import tenacity

from coordinator.threads import JoinableThread
from txaware.errors import MisusedTransaction, PublisherClosed
from txaware.model.interfaces import Payload
from txaware.publish.send_queue import QueueLimits, SendQueue, WaitingMessage

EXIT_WAIT_S = 5.0

# Makes the retries for one batch from the time when its last message was taken.
Retrying = Callable[[float], tenacity.Retrying]
# Publishes a batch with such retries.
PublishBatch = Callable[[list[Payload], tenacity.Retrying], object]

logger = logging.getLogger(__name__)


class Background:
    """A backlog with its thread, for as long as its publisher lives."""

    def __init__(
        self,
        publish: PublishBatch,
        topic: str,
        *,
        limits: QueueLimits,
        retrying: Retrying,
        clock_s: Callable[[], float],
    ) -> None:
        self._backlog = SendQueue(limits, clock_s)
        self._process_id = os.getpid()
        # Neither the thread nor the exit holds on to the publisher, which could then
        # never be collected as garbage.
        at_exit = functools.partial(
            _finish_at_exit, topic, self._backlog, self._process_id
        )
        self._thread = JoinableThread(
            target=_publish_all,
            args=(publish, topic, self._backlog, retrying, at_exit),
            name=f"publisher of {topic}",
            daemon=True,
        )
        try:
            self._thread.start()
            atexit.register(at_exit)
            forgotten = weakref.finalize(self, _close, self._backlog, self._process_id)
            forgotten.atexit = False
        except BaseException:
            self._backlog.close()
            raise

    def __len__(self) -> int:
        return len(self._backlog)

    @property
    def dropped_messages(self) -> int:
        """The number of messages that found no room, or were taken and given up."""
        return self._backlog.refused_messages + self._backlog.lost_messages

    def put(
        self,
        message: Payload,
        size_bytes: int,
        *,
        future: Future[None] | None = None,
        waits: bool,
    ) -> bool:
        """Takes a message; False where there is no room for it, unless it `waits`.

        The thread of the backlog, in a callback of a future, never waits: no other
        thread makes room.
        """
        self._require_same_process()
        waits = waits and threading.current_thread() is not self._thread
        return self._backlog.put(message, size_bytes, future=future, waits=waits)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until all messages taken before are over; False after the time-out."""
        self._require_same_process()
        self._require_another_thread("flush")
        return self._backlog.flush(timeout_s)

    def close(self) -> None:
        """Takes no more messages, and waits until all that were taken are over."""
        self._require_another_thread("close")
        _close(self._backlog, self._process_id)
        self._thread.join()

    def _require_same_process(self) -> None:
        if os.getpid() != self._process_id:
            raise PublisherClosed(
                "the thread of this publisher stayed behind in the parent process; "
                "make a publisher after the fork"
            )

    def _require_another_thread(self, call: str) -> None:
        if threading.current_thread() is self._thread:
            raise MisusedTransaction(
                f"{call}() in a callback of a future would wait for itself"
            )


def _publish_all(
    publish: PublishBatch,
    topic: str,
    backlog: SendQueue,
    retrying: Retrying,
    at_exit: Callable[[], None],
) -> None:
    losing = False
    while batch := backlog.take():
        wanted = [waiting for waiting in batch if _is_wanted(waiting)]
        error = _attempt(publish, wanted, retrying)
        if error is not None:
            # An outage is one warning, however many batches it costs.
            level = logging.DEBUG if losing else logging.WARNING
            lost = len(wanted)
            logger.log(level, "%d messages to %s were given up: %r", lost, topic, error)
        losing = error is not None
        for waiting in wanted:
            _settle(waiting, error)
        backlog.over(batch, lost_messages=len(wanted) if losing else 0)
    atexit.unregister(at_exit)


def _is_wanted(waiting: WaitingMessage) -> bool:
    if waiting.future is None:
        return True
    try:
        return waiting.future.set_running_or_notify_cancel()
    except RuntimeError:
        # Somebody else has set the result of the future; that takes nothing back.
        return True


def _attempt(
    publish: PublishBatch, batch: list[WaitingMessage], retrying: Retrying
) -> BaseException | None:
    if not batch:
        return None
    messages = [waiting.message for waiting in batch]
    try:
        publish(messages, retrying(batch[-1].taken_s))
    except BaseException as error:
        # Whatever it is, the thread goes on: others wait for it.
        return error
    return None


def _settle(waiting: WaitingMessage, error: BaseException | None) -> None:
    if waiting.future is None:
        return
    try:
        if error is None:
            waiting.future.set_result(None)
        else:
            waiting.future.set_exception(error)
    except BaseException:
        logger.exception("a future could not be told how its message ended")


def _close(backlog: SendQueue, process_id: int) -> None:
    # In a forked child a thread that is not there may hold the lock of the backlog.
    if os.getpid() == process_id:
        backlog.close()


def _finish_at_exit(topic: str, backlog: SendQueue, process_id: int) -> None:
    _close(backlog, process_id)
    if os.getpid() == process_id and not backlog.flush(EXIT_WAIT_S):
        logger.error(
            "%d messages to %s were lost: their publisher was not closed, and they "
            "could not be published within %s s",
            *(len(backlog), topic, EXIT_WAIT_S),
        )
