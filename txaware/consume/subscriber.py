"""The loop that hands the messages of a topic to a handler, each in one transaction."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

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
from txaware.consume.loop_member import LoopMember, PartitionReader
from txaware.consume.loop_retry import retrying
from txaware.consume.poison import Publish
from txaware.consume.shared_batches import PartitionWork, SharedBatches
from txaware.consume.subscribe_options import (
    Delivery,
    SubscriberCounts,
    SubscriberMetrics,
)
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    PartitionNeeded,
    ProducerFenced,
    TxAwareError,
)
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.group_service import GroupService
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId
from txaware.model.partitions import full_name, named_partition, parsed_rows
from txaware.model.start_places import BEGINNING, StartAt

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


def _nothing() -> None:
    """Does nothing."""


@attrs.frozen
class PartitionHandler:
    """What handles the messages of a partition, and begins the transactions for them.

    `begin` makes each transaction of participants and a `timeout_s`; `at_once` handles
    several messages of a transaction at once. `close` lets go of what was opened.
    """

    handler: Handler
    begin: Callable[..., TransactionContext] | None = None
    at_once: HandlesAtOnce | None = None
    close: Callable[[], object] = _nothing


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
    groups: GroupService | None = None,
    client: str | None = None,
    static: str | None = None,
    session_s: float | None = None,
    concurrency: int = 1,
    in_partition: Callable[[int], PartitionHandler] | None = None,
    require_newest: Callable[[], object] = _nothing,
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

    With `groups` the loop of a group shares the topic, as a member with a name of its
    own (or a `static` one) and a session of `session_s`, and handles up to
    `concurrency` partitions at once. `in_partition` makes what handles another
    partition than the first in another way. `require_newest` is called before it joins
    anew, and may raise.
    """
    check_function(handler, what="handler")
    delivery, participants = Delivery(**options), tuple(participants)
    for participant in participants:
        checked_participant(participant)
    if concurrency > 1 and participants:
        raise BadRequest(
            f"{participants[0].transaction_aware_name} takes part in one transaction "
            f"at a time, and concurrency={concurrency} has several: say concurrency=1"
        )
    if delivery.dead_letter_topic is not None:
        service.topic(delivery.dead_letter_topic)  # it is refused now or never
        if parsed_rows(delivery.dead_letter_topic) == parsed_rows(topic):
            raise BadRequest(f"dead letters of {topic} would come back to it for ever")
    place: dict[str, Any] = {"start": start, "inclusive": inclusive}
    database = deciding(participants)
    name, counts = full_name(topic), SubscriberCounts()
    consumer: Consumer | Inbox
    if database is not None and group is not None:
        try:
            consumer = Inbox(service, database, topic, group=group, **place)
        except PartitionNeeded:  # then it is shared, and each begins there
            consumer = Inbox(service, database, topic, group=group)
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

    def made(
        reader: Consumer | Inbox | PartitionReader, rows: str, by: PartitionHandler
    ) -> MessageBatches:
        shared = None
        if group is not None:
            shared = Group(service, group, rows, None, shares_journal)
        return MessageBatches(
            reader,
            by.handler,
            delivery,
            counts=counts,
            topic=rows,
            group=shared,
            service=service,
            coordinator=coordinator,
            participants=participants,
            shares_journal=shares_journal,
            clock_s=clock_s,
            clock_ms=clock_ms,
            begin=by.begin,
            target=target,
            database=database,
            publish=publish,
            at_once=by.at_once,
            message_limit_bytes=message_limit_bytes,
        )

    first = PartitionHandler(handler, begin, at_once)
    batches = made(consumer, name, first)
    shared = None
    if groups is not None and group is not None and named_partition(topic)[1] is None:

        def member(group: str = group, groups: GroupService = groups) -> LoopMember:
            return LoopMember(
                service,
                groups,
                coordinator,
                group,
                topics=[topic],
                start=start_of_group(topic, **place),
                session_s=session_s,
                static=static,
                client=client,
                own_positions=database is not None,
                shares_journal=shares_journal,
                clock_s=clock_s,
            )

        def work(number: int, member: LoopMember) -> PartitionWork:
            by = first if in_partition is None else in_partition(number)
            reader = member.reader((parsed_rows(topic).name, number), clock_ms)
            rows = name if member.partitions(topic) == 1 else reader.name
            if database is None or group is None:
                return PartitionWork(made(reader, rows, by), reader.stands_at, by.close)
            inbox = Inbox(service, database, reader.name, group=group, **place)
            return PartitionWork(
                made(inbox, rows, by), lambda: inbox.position or BEGINNING, by.close
            )

        shared = SharedBatches(member, work, name, require_newest=require_newest)
    return Subscriber(
        consumer,
        batches,
        delivery,
        coordinator=coordinator,
        counts=counts,
        sleep=sleep,
        shared=shared,
        concurrency=concurrency,
    )


def start_of_group(topic: str, *, start: StartAt, inclusive: bool) -> Any:
    """Returns the place where a group begins; an id is what comes next there."""
    if isinstance(start, Mapping):
        raise BadRequest(
            f"a group that shares {topic} begins at one place in all partitions; "
            f"rewind_group moves it to others"
        )
    if isinstance(start, MessageId) and not inclusive:
        return start.after()
    return start
