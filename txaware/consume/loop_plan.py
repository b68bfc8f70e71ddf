"""What a loop over a topic is made of, checked and put together: `subscribe`."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from coordinator.brief_errors import briefly
from coordinator.callbacks import check_function
from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.participants import checked_participant
from txaware.consume.batches import MOST_BYTES, Handler, HandlesAtOnce, MessageBatches
from txaware.consume.consumer import Consumer
from txaware.consume.cursors import Group
from txaware.consume.inbox import Inbox, KeepsPositions
from txaware.consume.loop_member import LoopMember, PartitionReader
from txaware.consume.poison import Publish
from txaware.consume.shared_batches import PartitionWork, SharedBatches
from txaware.consume.subscribe_options import Delivery, SubscriberCounts
from txaware.consume.subscriber import Subscriber
from txaware.errors import BadRequest, PartitionNeeded
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.group_service import GroupService
from txaware.model.groups import checked_session_s
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId
from txaware.model.partitions import full_name, named_partition, parsed_rows
from txaware.model.start_places import BEGINNING, StartAt


def _nothing() -> None:
    """Does nothing."""


@attrs.frozen
class PartitionHandler:
    """Handles the messages of a partition, and begins the transactions for them.

    `begin` makes each transaction of participants and a `timeout_s`; `at_once` handles
    several messages of a transaction at once. `close` lets go of what was opened.
    """

    handler: Handler
    begin: Callable[..., TransactionContext] | None = None
    at_once: HandlesAtOnce | None = None
    close: Callable[[], object] = _nothing


@attrs.frozen(kw_only=True)
class LoopPlan:
    """Holds all that a loop is made of, and makes each of its parts.

    Without a `group` the position ends with the process. Where one of the participants
    is a database that decides, the position and the tries lie there, and `publish`
    brings dead letters to its outbox. With `groups` the loop of a group shares the
    topic, as a member of its own.
    """

    service: MessagingService
    coordinator: Coordinator
    topic: str
    handler: Handler = attrs.field()
    delivery: Delivery
    group: str | None = None
    start: StartAt = None
    inclusive: bool = True
    participants: tuple[TransactionAware, ...] = attrs.field(
        default=(), converter=tuple
    )
    shares_journal: bool = False
    clock_s: Callable[[], float] = time.monotonic
    clock_ms: ClockMs = system_clock_ms
    sleep: Callable[[float], object] | None = None
    begin: Callable[..., TransactionContext] | None = None
    """Makes each transaction of participants and a `timeout_s`, if not as usual."""
    target: str | None = None
    """The topic that the handler publishes to: while it is missing, no message is given
    up."""
    publish: Publish | None = None
    at_once: HandlesAtOnce | None = None
    """Handles several messages of a transaction at once."""
    message_limit_bytes: int = MOST_BYTES
    """No dead letter is larger."""
    groups: GroupService | None = None
    client: str | None = None
    static: str | None = None
    """The name of the member, in place of one that is new each time."""
    session_s: float | None = attrs.field(
        default=None, converter=attrs.converters.optional(checked_session_s)
    )
    concurrency: int = 1
    """The number of partitions that a member handles at once."""
    in_partition: Callable[[int], PartitionHandler] | None = None
    """Makes what handles another partition than the first in another way."""
    require_newest: Callable[[], object] = _nothing
    """Is called before the loop joins its group anew, and may raise."""
    counts: SubscriberCounts = attrs.field(factory=SubscriberCounts, init=False)

    @handler.validator
    def _check_handler(self, _: object, handler: object) -> None:
        check_function(handler, what="handler")

    def check(self) -> None:
        """Raises what would go wrong in each batch: it is refused now or never."""
        for participant in self.participants:
            checked_participant(participant)
        if self.concurrency > 1 and self.participants:
            raise BadRequest(
                f"{self.participants[0].transaction_aware_name} takes part in one "
                f"transaction at a time, and concurrency={self.concurrency} has "
                f"several: say concurrency=1"
            )
        dead_letters = self.delivery.dead_letter_topic
        if dead_letters is not None:
            self.service.topic(dead_letters)
            if parsed_rows(dead_letters) == parsed_rows(self.topic):
                raise BadRequest(
                    f"dead letters of {self.topic} would come back to it for ever"
                )

    def subscriber(self) -> Subscriber:
        """Makes the loop."""
        consumer = self._consumer()
        first = PartitionHandler(self.handler, self.begin, self.at_once)
        return Subscriber(
            consumer,
            self._batches(consumer, full_name(self.topic), first),
            self.delivery,
            coordinator=self.coordinator,
            counts=self.counts,
            sleep=self.sleep,
            shared=self._shared(first),
            concurrency=self.concurrency,
        )

    @property
    def _database(self) -> KeepsPositions | None:
        return deciding(self.participants)

    @property
    def _place(self) -> dict[str, Any]:
        return {"start": self.start, "inclusive": self.inclusive}

    def _consumer(self) -> Consumer | Inbox:
        """Returns what reads the topic as long as no group shares it."""
        if self._database is not None and self.group is not None:
            inbox = (self.service, self._database, self.topic)
            try:
                return Inbox(*inbox, group=self.group, **self._place)
            except PartitionNeeded:  # then it is shared, and each begins there
                return Inbox(*inbox, group=self.group)
        return Consumer(
            self.service,
            self.coordinator,
            self.topic,
            group=self.group,
            shares_journal=self.shares_journal,
            clock_ms=self.clock_ms,
            clock_s=self.clock_s,
            **self._place,
        )

    def _batches(
        self,
        reader: Consumer | Inbox | PartitionReader,
        rows: str,
        by: PartitionHandler,
    ) -> MessageBatches:
        """Returns the batches of a partition, or of a topic that has one."""
        group = None
        if self.group is not None:
            group = Group(self.service, self.group, rows, None, self.shares_journal)
        return MessageBatches(
            reader,
            by.handler,
            self.delivery,
            counts=self.counts,
            topic=rows,
            group=group,
            service=self.service,
            coordinator=self.coordinator,
            participants=self.participants,
            shares_journal=self.shares_journal,
            clock_s=self.clock_s,
            clock_ms=self.clock_ms,
            begin=by.begin,
            target=self.target,
            database=self._database,
            publish=self.publish,
            at_once=by.at_once,
            message_limit_bytes=self.message_limit_bytes,
        )

    def _shared(self, first: PartitionHandler) -> SharedBatches | None:
        """Returns the batches of a member, where loops of a group share the topic."""
        groups, group = self.groups, self.group
        if (
            groups is None
            or group is None
            or named_partition(self.topic)[1] is not None
        ):
            return None

        def member() -> LoopMember:
            return LoopMember(
                self.service,
                groups,
                self.coordinator,
                group,
                topics=[self.topic],
                start=start_of_group(self.topic, **self._place),
                session_s=self.session_s,
                static=self.static,
                client=self.client,
                own_positions=self._database is not None,
                shares_journal=self.shares_journal,
                clock_s=self.clock_s,
            )

        def work(number: int, member: LoopMember) -> PartitionWork:
            by = first if self.in_partition is None else self.in_partition(number)
            return self._work(group, number, member, by)

        return SharedBatches(
            member, work, full_name(self.topic), require_newest=self.require_newest
        )

    def _work(
        self, group: str, number: int, member: LoopMember, by: PartitionHandler
    ) -> PartitionWork:
        """Returns a partition's work; its position lies where a database decides."""
        reader = member.reader((parsed_rows(self.topic).name, number), self.clock_ms)
        is_whole = member.partitions(self.topic) == 1
        rows = full_name(self.topic) if is_whole else reader.name
        if self._database is None:
            batches = self._batches(reader, rows, by)
            return PartitionWork(batches, reader.stands_at, by.close)
        inbox = Inbox(
            self.service, self._database, reader.name, group=group, **self._place
        )
        return PartitionWork(
            self._batches(inbox, rows, by),
            lambda: inbox.position or BEGINNING,
            by.close,
            begins=self.start is not None,
        )


_DELIVERY = {field.name for field in attrs.fields(Delivery)}


@briefly
def subscribe(
    service: MessagingService,
    coordinator: Coordinator,
    topic: str,
    handler: Handler,
    **options: Any,
) -> Subscriber:
    """Makes a subscriber that calls `handler(message)` for every message of a topic.

    Each call comes in a transaction, which also moves the position; what joins the
    transaction commits with it. `message` has an `id` and a `payload`. `options` are
    those of `Delivery` and of `LoopPlan`.
    """
    delivery = {name: options.pop(name) for name in _DELIVERY & options.keys()}
    plan = LoopPlan(
        service=service,
        coordinator=coordinator,
        topic=topic,
        handler=handler,
        delivery=Delivery(**delivery),
        **options,
    )
    plan.check()
    return plan.subscriber()


def deciding(participants: Iterable[TransactionAware]) -> KeepsPositions | None:
    """Returns the database among participants that decides their blocks, if any."""
    for participant in participants:
        if isinstance(participant, KeepsPositions) and participant.decides:
            return participant
    return None


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
