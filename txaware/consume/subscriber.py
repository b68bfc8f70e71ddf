"""The loop that hands the messages of a topic to a handler, each in one transaction."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.brief_errors import briefly
from coordinator.callbacks import check_function
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.participants import checked_participant
from coordinator.retry import retry_on_conflict
from coordinator.threads import Event
from txaware.consume.batches import MOST_BYTES, Handler, HandlesAtOnce, MessageBatches
from txaware.consume.consumer import Consumer
from txaware.consume.cursors import Group
from txaware.consume.inbox import Inbox, KeepsPositions
from txaware.consume.loop_retry import retrying
from txaware.consume.poison import Publish
from txaware.consume.subscribe_options import Delivery, SubscriberMetrics
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    PartitionNeeded,
    ProducerFenced,
)
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import MessagingService
from txaware.model.partitions import full_name, parsed_rows
from txaware.model.start_places import StartAt


class Subscriber:
    """The loop that polls, handles and moves on, made by `subscribe`.

    Each batch is one transaction. What the handler does in it (through `participants`,
    or anything else that joined) commits with the position, or not at all. When it
    fails, the batch comes again, and the message that failed is tried alone.
    """

    def __init__(
        self,
        consumer: Consumer | Inbox,
        batches: MessageBatches,
        delivery: Delivery,
        *,
        coordinator: Coordinator,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.consumer = consumer
        self._batches = batches
        self._delivery = delivery
        self._coordinator = coordinator
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
        `PartitionNeeded`, as the topic has several partitions and it reads one.
        """
        self._require_none_open()
        stop = Event() if stop is None else stop
        self._stops.add(stop)
        again = retrying(
            self.consumer,
            first_pause_s=self._delivery.first_pause_s,
            longest_pause_s=self._delivery.longest_pause_s,
            stops=(stop, self._closed),
            sleep=lambda pause_s: self._pause(pause_s, stop),
            may_pass=_may_pass,
            fate=lambda: self._batches.fate,
        )
        try:
            idle = False  # then waiting is enough: no transaction begins in vain
            while not (stop.is_set() or self._closed.is_set()):
                idle = not again(self._wait if idle else self.run_once)
        finally:
            self._stops.discard(stop)

    @briefly
    def run_once(self) -> int:
        """Runs one transaction, and returns how many messages it went past.

        That is 0 where nothing was there. After a conflict, for example with another
        member of the group, it begins again from the newer position. It raises the
        error of a failure, and remembers the failure for the next call.
        """
        with self._turn:
            if self._closed.is_set():
                raise MisusedTransaction("the subscriber is closed")
            once = retry_on_conflict(sleep=self._sleep or self._closed.wait)
            return once(self._batches.one)()

    def metrics(self) -> SubscriberMetrics:
        """Returns what the subscriber has counted so far."""
        return self._batches.metrics

    def close(self) -> None:
        """Ends every `run`; when it returns, no handler is at work."""
        self._closed.set()
        for stop in tuple(self._stops):
            stop.set()
        with self._turn:
            pass

    def _wait(self) -> bool:
        return self.consumer.wait(self._delivery.idle_wait_s)

    def _pause(self, pause_s: float, stop: threading.Event) -> None:
        (self._sleep or stop.wait)(pause_s)

    def _require_none_open(self) -> None:
        context = current_transaction(self._coordinator)
        if context is not None:
            raise MisusedTransaction(
                f"a subscriber begins transactions of its own, and {context} is open "
                f"here"
            )


def deciding(participants: Iterable[TransactionAware]) -> KeepsPositions | None:
    """Returns the database among participants that decides their blocks, if any."""
    for participant in participants:
        if isinstance(participant, KeepsPositions) and participant.decides:
            return participant
    return None


def _may_pass(error: BaseException) -> bool:
    """Tells whether a failure may be over at the next try."""
    stays = (ProducerFenced, PartitionNeeded)
    return isinstance(error, Exception) and not isinstance(error, stays)


def subscribe(
    service: MessagingService,
    coordinator: Coordinator,
    topic: str,
    handler: Handler,
    *,
    group: str | None = None,
    start: StartAt = None,
    inclusive: bool = True,
    participants: Iterable[TransactionAware] = (),
    shares_journal: bool = False,
    clock_s: Callable[[], float] = time.monotonic,
    clock_ms: ClockMs = system_clock_ms,
    sleep: Callable[[float], object] | None = None,
    begin: Callable[..., TransactionContext] | None = None,
    target: str | None = None,
    publish: Publish | None = None,
    at_once: HandlesAtOnce | None = None,
    message_limit_bytes: int = MOST_BYTES,
    **options: Any,
) -> Subscriber:
    """Makes a subscriber that calls `handler(message)` for every message of a topic.

    Each call comes in a transaction, which also moves the position; what joins the
    transaction commits with it. `message` has an `id` and a `payload`. `options` are
    those of `Delivery`. Without a `group` the position ends with the process. `begin`
    makes each transaction of participants and a `timeout_s`, other than the usual one.
    While the topic `target`, which the handler publishes to, is missing, no message is
    given up. Where one of the participants is a database that decides, the position and
    the tries lie there, and `publish` brings dead letters to its outbox. `at_once`
    handles several messages of a transaction at once. No dead
    letter is larger than `message_limit_bytes`.
    """
    check_function(handler, what="handler")
    delivery, participants = Delivery(**options), tuple(participants)
    for participant in participants:
        checked_participant(participant)
    if delivery.dead_letter_topic is not None:
        service.topic(delivery.dead_letter_topic)  # it is refused now or never
        if parsed_rows(delivery.dead_letter_topic) == parsed_rows(topic):
            raise BadRequest(f"dead letters of {topic} would come back to it for ever")
    place: dict[str, Any] = {"start": start, "inclusive": inclusive}
    database = deciding(participants)
    consumer: Consumer | Inbox
    if database is not None and group is not None:
        consumer = Inbox(service, database, topic, group=group, **place)
    else:
        consumer = Consumer(
            service,
            coordinator,
            topic,
            group=group,
            shares_journal=shares_journal,
            clock_ms=clock_ms,
            clock_s=clock_s,
            **place,
        )
    name, shared = full_name(topic), None
    if group is not None:
        shared = Group(service, group, name, None, shares_journal)
    batches = MessageBatches(
        consumer,
        handler,
        delivery,
        topic=name,
        group=shared,
        service=service,
        coordinator=coordinator,
        participants=participants,
        shares_journal=shares_journal,
        clock_s=clock_s,
        clock_ms=clock_ms,
        begin=begin,
        target=target,
        database=database,
        publish=publish,
        at_once=at_once,
        message_limit_bytes=message_limit_bytes,
    )
    return Subscriber(consumer, batches, delivery, coordinator=coordinator, sleep=sleep)
