"""A member of a group as loops use it: partition by partition, a transaction each."""

from collections.abc import Mapping
from functools import partial

from coordinator import tracing
from coordinator.context import TransactionContext, current_transaction
from txaware.consume.consumer import ExpiredUnseen, is_ahead
from txaware.consume.held_partition import MemberReading
from txaware.consume.member import Member
from txaware.errors import (
    GroupNotFound,
    MemberFenced,
    MisusedTransaction,
)
from txaware.model.clock import ClockMs
from txaware.model.groups import Partition
from txaware.model.interfaces import UNCOMMITTED
from txaware.model.messages import MessageId, Page, end_of, in_topic, page_of


class LoopMember(Member):
    """A member whose partitions are read one by one, also in several threads at once.

    Its caller takes up news by `take_up`, while no block reads any partition.
    """

    def reader(self, pair: Partition, clock_ms: ClockMs) -> "PartitionReader":
        """Returns what reads a partition in blocks."""
        return PartitionReader(self, pair, clock_ms)

    @property
    def has_news(self) -> bool:
        """True when there is something to take up."""
        return self._has_news

    @property
    def is_fenced(self) -> bool:
        """True when the membership is over; `take_up` joins anew."""
        return self._heartbeats.fenced is not None

    def take_up(self) -> None:
        """Takes up what is new: lets go, takes, or joins anew."""
        with self._lock:
            self._take_up()

    def fence(self, error: Exception) -> None:
        """Notes that the service does not know the member, or what it has, any more."""
        self._heartbeats.fenced = self._heartbeats.fenced or error

    def polls(self, *, is_polling: bool) -> None:
        """Notes that the loop is at work, or from now on is not."""
        self._heartbeats.polls(is_polling=is_polling)

    def partitions(self, topic: str) -> int:
        """Tells how many partitions a topic has that it holds one of."""
        return self._share.partitions(self._name_of(topic))

    def holds(self, pair: Partition) -> bool:
        """Tells whether it holds a partition, as it has taken it up."""
        return pair in self._held

    def has(self, pair: Partition) -> bool:
        """Asks the service whether a partition is still that of this member."""
        if pair not in self._held or self.is_fenced:
            return False
        try:
            self._read(None, among=[pair])
        except (MemberFenced, GroupNotFound) as error:
            self.fence(error)
            return False
        return True

    def with_messages(self, places: Mapping[Partition, MessageId]) -> set[Partition]:
        """Returns the partition that has messages behind the oldest of these places.

        Where this service stops at a row that a transaction may see, it is all of them.
        """
        found, stops = self._share.first_behind(places)
        if found or not stops:
            return found
        snapshot = self._coordinator.snapshot()
        can_go_on = any(snapshot.is_visible(pointer) for pointer in stops)
        return set(places) if can_go_on else set()

    def wait_behind(
        self, places: Mapping[Partition, MessageId], timeout_s: float
    ) -> None:
        """Waits until there may be a message behind these places, or there is news."""
        starts = self._share.starts(places)
        self._wait.wait(starts, timeout_s, until=lambda: self._has_news)


class PartitionReader:
    """The reader of one partition of a member, in blocks that are for it alone."""

    def __init__(self, member: LoopMember, pair: Partition, clock_ms: ClockMs) -> None:
        self._member = member
        self._pair = pair
        self._topic = member._share.shown(pair[0])
        self.name = member._in_group.rows(pair)
        self._expired = ExpiredUnseen(f"{member} in {self.name}", clock_ms)

    def stands_at(self) -> MessageId:
        """Returns the message after which the next block goes on."""
        return self._member._held[self._pair].position

    def poll(self, limit: int = 100) -> Page:
        """Returns the next messages; the partition moves with the commit of the block.

        What moved to the member after the snapshot is polled in the next block.
        """
        member, pair = self._member, self._pair
        context = self._context()
        reading = self._reading(context)
        if pair not in reading.places:
            return Page([], next_id=self.stands_at())
        position = member._place_in(reading, pair)
        operation = tracing.begin_operation()
        page = member._service.poll(
            self.name,
            start=position,
            inclusive=False,
            limit=limit,
            transaction=context.transaction,
            isolation=UNCOMMITTED,
        )
        if operation is not None and page:
            operation.received("poll", self.name, [one.headers for one in page])
        self._expired.look(position, page)
        if is_ahead(page, position):
            member._move_in(context, reading, pair, page.next)
        return page_of(in_topic(page, self._topic, pair[1]), end_of(page))

    def seek(self, start: MessageId, *, inclusive: bool = True) -> None:
        """Goes on from another place, with the block."""
        place = start.before() if inclusive else start
        context = self._context()
        self._member._move_in(context, self._reading(context), self._pair, place)

    def _context(self) -> TransactionContext:
        context = current_transaction(self._member._coordinator)
        if context is None:
            raise MisusedTransaction(f"{self} reads in blocks only")
        return context

    def _reading(self, context: TransactionContext) -> MemberReading:
        member, pair = self._member, self._pair
        read = partial(member._read_and_stand, among=[pair])
        return context.joined(
            (MemberReading, id(member), pair), lambda: MemberReading(str(member), read)
        )

    def __repr__(self) -> str:
        return f"<{self._member} in {self.name}>"
