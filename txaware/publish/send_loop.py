"""The loop of a sender: it sends what its machine decides, and tells what came of it.

It is one coroutine for all topics, in the event loop of its caller or of a thread.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from coordinator import tracing
from txaware.errors import Unavailable
from txaware.model.labels import unpacked
from txaware.model.messages import MessageId
from txaware.model.requests import Payloads
from txaware.publish.send_batch import FINISHED, SendBatch, SendLock
from txaware.publish.send_limits import NEVER_S, Retries, SendLimits
from txaware.publish.send_machine import Actions, SendMachine
from txaware.publish.send_way import LEAST_TRY_S, Pause, SendRequest, SendsBatches

logger = logging.getLogger(__name__)


async def _pause(event: asyncio.Event, seconds: float) -> None:
    """Waits for the time of the loop."""
    handle = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        handle.cancel()


def _record_sent(
    operation: tracing.TracedOperation,
    topic: str,
    payloads: Payloads,
    outcome: MessageId | BaseException,
) -> None:
    """Has a span tell of a try of a batch."""
    labels = payloads.labels
    packed = () if labels is None else labels.headers
    operation.sent(
        topic,
        (unpacked(one) for one in packed if one),
        count=len(payloads),
        error=outcome if isinstance(outcome, BaseException) else None,
    )


class SendLoop:
    """A machine, the way to the store, and the loop between them."""

    def __init__(
        self,
        limits: SendLimits,
        retries: Retries,
        way: Callable[[], SendsBatches],
        *,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Pause | None = None,
    ) -> None:
        self.lock = SendLock()
        self.machine = SendMachine(limits, retries, lock=self.lock, wake=self.wake)
        self.clock_s = clock_s
        self._way = way
        self._pause = pause or _pause
        # Topics that lost the last batch: an outage is one warning, whatever it costs.
        self._losing: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._is_woken = True
        self._is_closing = self._is_over = False
        self._changes: dict[asyncio.Future[None], None] = {}

    def wake(self) -> None:
        """Has the loop take a turn soon; called under the lock.

        It is noted last: an interrupt (Ctrl-C) before that has the next call wake it.
        """
        if self._is_woken:
            return
        if self._loop is not None and self._event is not None:
            if asyncio._get_running_loop() is self._loop:
                self._event.set()
            else:
                self._loop.call_soon_threadsafe(self._event.set)
        self._is_woken = True

    def close_soon(self) -> None:
        """Has the loop end once all that was taken is over."""
        with self.lock:
            if self._is_over:
                return
            self._is_woken = False
            self.wake()
            self.machine.close()
            self._is_closing = True

    async def changed(self) -> None:
        """Waits in the event loop of this one until messages are over."""
        if self._is_over:
            return
        change = asyncio.get_running_loop().create_future()
        self._changes[change] = None
        try:
            await change
        finally:
            self._changes.pop(change, None)

    def run_in_thread(self) -> None:
        """Runs the loop in an event loop of this thread."""
        asyncio.run(self.run())

    async def run(self) -> None:
        """Sends until it is closed and all is over.

        Whatever ends it before, nobody waits for a message in vain.
        """
        try:
            await self._run()
        except BaseException as error:
            self._abandon(error)
            raise
        finally:
            self.lock.thread_id = None  # another thread may get the number

    def _abandon(self, error: BaseException) -> None:
        waiting = self.machine.waiting
        why = f"its loop has ended: {error!r}"
        if isinstance(error, asyncio.CancelledError):
            why = "it was not closed before its event loop ended"
        if waiting:
            logger.error("%d messages were lost by their sender: %s", waiting, why)
        with self.lock:
            self._is_over = self._is_woken = True
            over = self.machine.abandon(Unavailable(f"the sender sends no more: {why}"))
        self._notify_over(over)

    async def _run(self) -> None:
        event = asyncio.Event()
        way = self._way()
        with self.lock:
            self._loop, self._event = asyncio.get_running_loop(), event
            self.lock.thread_id = threading.get_ident()
        try:
            while True:
                with self.lock:
                    event.clear()
                    self._is_woken = False
                    actions = self.machine.turn(self.clock_s())
                    is_over = self._is_closing and not self.machine.waiting
                    self._is_over = is_over
                self._perform(way, actions)
                if is_over:
                    return
                await self._until(event, actions.next_s)
        finally:
            await way.close()

    def _perform(self, way: SendsBatches, actions: Actions) -> None:
        self._notify_over(actions)
        for topic in actions.count:
            self._begin_count(way, topic)
        for batch in actions.send:
            self._begin(way, batch)

    def _notify_over(self, actions: Actions) -> None:
        for batch in actions.over:
            self._log_loss(batch)
            batch.notify_callers()
        if actions.settled:
            with self.lock:
                self.machine.callers_notified(actions.settled)
        if actions.over and self._changes:
            changes, self._changes = self._changes, {}
            for change in changes:
                if not change.done():
                    change.set_result(None)

    def _begin(self, way: SendsBatches, batch: SendBatch) -> None:
        now_s, machine = self.clock_s(), self.machine
        left_s = batch.last_s + machine.limits.give_up_after_s - now_s
        assert batch.producer is not None
        assert batch.base is not None
        payloads = batch.request(machine.limits.compression)
        operation = tracing.begin_operation()

        def callback(outcome: MessageId | BaseException) -> None:
            if operation is not None:
                _record_sent(operation, batch.topic, payloads, outcome)
            with self.lock:
                if self._is_over:
                    return
                self.wake()
                if isinstance(outcome, BaseException):
                    machine.failed(batch, outcome, self.clock_s())
                else:
                    machine.stored(batch, outcome, self.clock_s())

        request = SendRequest(
            batch.topic,
            batch.partition,
            payloads,
            batch.producer,
            batch.base,
            max(left_s, LEAST_TRY_S),
        )
        try:
            way.send(request, callback)
        except BaseException as error:  # whatever it is, the loop goes on
            callback(error)

    def _begin_count(self, way: SendsBatches, topic: str) -> None:
        def callback(outcome: int | BaseException) -> None:
            with self.lock:
                if self._is_over:
                    return
                self.wake()
                if isinstance(outcome, BaseException):
                    self.machine.not_counted(topic, outcome, self.clock_s())
                else:
                    self.machine.counted(topic, outcome, self.clock_s())

        try:
            way.count(topic, callback)
        except BaseException as error:
            callback(error)

    async def _until(self, event: asyncio.Event, time_s: float) -> None:
        if event.is_set():
            await asyncio.sleep(0)  # answers come meanwhile
            return
        left_s = time_s - self.clock_s()
        if time_s == NEVER_S:
            await event.wait()
        elif left_s > 0:
            await self._pause(event, left_s)

    def _log_loss(self, batch: SendBatch) -> None:
        if batch.state is not FINISHED:
            return
        if batch.error is None:
            self._losing.discard(batch.topic)
            return
        level = logging.DEBUG if batch.topic in self._losing else logging.WARNING
        self._losing.add(batch.topic)
        lost = (batch.cut_count, batch.topic, batch.error)
        logger.log(level, "%d messages to %s were given up: %r", *lost)
