"""The loop that hands the messages of a topic to a handler, each in one transaction."""

import logging
import threading
from collections.abc import Callable

from coordinator.brief_errors import briefly
from coordinator.context import current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.retry import retry_on_conflict
from coordinator.threads import Event
from txaware.consume.batches import MessageBatches
from txaware.consume.consumer import Consumer
from txaware.consume.inbox import Inbox
from txaware.consume.loop_retry import retrying
from txaware.consume.shared_batches import SharedBatches
from txaware.consume.subscribe_options import (
    Delivery,
    SubscriberCounts,
    SubscriberMetrics,
)
from txaware.errors import (
    MisusedTransaction,
    PartitionNeeded,
    ProducerFenced,
    TxAwareError,
)

log = logging.getLogger(__name__)


class Subscriber:
    """The loop that polls, handles and moves on, made by `subscribe`.

    Each batch is one transaction. What the handler does in it (through `participants`,
    or anything else that joined) commits with the position, or not at all. When it
    fails, the batch comes again, and the message that failed is tried alone.

    While it runs, a loop of a group is a member of it, and shares the topic with the
    other members: each has some of the partitions, and who has none stands by. Without
    a `run`, in a topic of one partition, it is as a consumer of the group.
    """

    def __init__(
        self,
        consumer: Consumer | Inbox,
        batches: MessageBatches,
        delivery: Delivery,
        *,
        coordinator: Coordinator,
        counts: SubscriberCounts,
        sleep: Callable[[float], object] | None = None,
        shared: SharedBatches | None = None,
        concurrency: int = 1,
    ) -> None:
        self.consumer = consumer
        self._batches: MessageBatches | SharedBatches = batches
        self._shared = shared
        self._concurrency = concurrency
        self._delivery = delivery
        self._coordinator = coordinator
        self._counts = counts
        self._sleep = sleep
        self._closed: threading.Event = Event()
        self._stops: set[threading.Event] = set()
        self._turn = threading.RLock()
        guard(self)

    def run(self, stop: threading.Event | None = None) -> None:
        """Handles messages until `stop` is set or `close` is called.

        With nothing to do it waits for messages. After a failure it pauses, longer each
        time, and tries again. It raises interrupts only, and no `Exception` but two:
        `ProducerFenced`, as another process goes on with its work, and
        `PartitionNeeded`, as the topic has several partitions and it has no group.
        """
        self._require_none_open()
        stop = Event() if stop is None else stop
        self._stops.add(stop)
        if self._shared is not None:
            self._batches = self._shared
        try:
            if self._concurrency > 1 and self._shared is not None:
                self._run_in_threads(stop)
            else:
                self._run((stop, self._closed), self.run_once)
        finally:
            self._stops.discard(stop)
            if not self._stops:
                self._leave()

    def _run(self, stops: tuple[threading.Event, ...], once: Callable[[], int]) -> None:
        batches = self._batches
        again = retrying(
            self.consumer if batches is not self._shared else batches,
            first_pause_s=self._delivery.first_pause_s,
            longest_pause_s=self._delivery.longest_pause_s,
            stops=stops,
            sleep=lambda pause_s: self._pause(pause_s, stops[0]),
            may_pass=_may_pass,
            fate=lambda: self._batches.fate,
        )
        idle = False  # then waiting is enough: no transaction begins in vain
        while not any(one.is_set() for one in stops):
            idle = not again(self._wait if idle else once)

    def _run_in_threads(self, stop: threading.Event) -> None:
        """Runs batches of several partitions at once, in this thread and in others."""
        inner, failed = Event(), list[BaseException]()
        self._stops.add(inner)

        def run() -> None:
            try:
                self._run((inner, stop, self._closed), self._once)
            except BaseException as error:
                failed.append(error)
                stop.set()

        threads = [
            threading.Thread(target=run, name=f"{self!r} {number}", daemon=True)
            for number in range(1, self._concurrency)
        ]
        try:
            for thread in threads:
                thread.start()
            self._run((stop, self._closed), self._once)
        finally:
            inner.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            self._stops.discard(inner)
        if failed:
            raise failed[0]

    @briefly
    def run_once(self) -> int:
        """Runs one transaction, and returns how many messages it went past.

        That is 0 where nothing was there. After a conflict, for example with another
        member of the group, it begins again from the newer position. It raises the
        error of a failure, and remembers the failure for the next call.
        """
        with self._turn:
            return self._once()

    def _once(self) -> int:
        if self._closed.is_set():
            raise MisusedTransaction("the subscriber is closed")
        once = retry_on_conflict(sleep=self._sleep or self._closed.wait)
        try:
            return once(self._batches.one)()
        except PartitionNeeded:
            if self._shared is None or self._batches is self._shared:
                raise
        self._batches = self._shared
        return once(self._shared.one)()

    def metrics(self) -> SubscriberMetrics:
        """Returns what the subscriber has counted so far."""
        return self._counts.metrics

    def close(self) -> None:
        """Ends every `run`; when it returns, no handler is at work."""
        self._closed.set()
        for stop in tuple(self._stops):
            stop.set()
        with self._turn:
            self._leave()

    def _leave(self) -> None:
        """Leaves the group; others take over at once."""
        if self._shared is None:
            return
        try:
            self._shared.close()
        except TxAwareError as error:
            log.warning("%r could not leave its group: %s", self._shared, error)

    def _wait(self) -> bool:
        return self._batches.wait(self._delivery.idle_wait_s)

    def _pause(self, pause_s: float, stop: threading.Event) -> None:
        (self._sleep or stop.wait)(pause_s)

    def _require_none_open(self) -> None:
        context = current_transaction(self._coordinator)
        if context is not None:
            raise MisusedTransaction(
                f"a subscriber begins transactions of its own, and {context} is open "
                f"here"
            )


def _may_pass(error: BaseException) -> bool:
    """Tells whether a failure may be over at the next try."""
    stays = (ProducerFenced, PartitionNeeded)
    return isinstance(error, Exception) and not isinstance(error, stays)
