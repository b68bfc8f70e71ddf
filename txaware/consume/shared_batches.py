"""The batches of a loop that shares a topic with the other loops of its group."""

import logging
import threading
from collections.abc import Callable

import attrs

from txaware.consume.batches import MessageBatches
from txaware.consume.loop_member import LoopMember
from txaware.errors import MemberFenced, ProducerFenced
from txaware.model.groups import Partition
from txaware.model.messages import MessageId

log = logging.getLogger(__name__)

# So many batches of partitions that are known to have more come between two looks.
BATCHES_A_LOOK = 4


@attrs.define(eq=False)
class PartitionWork:
    """A partition that a loop has, with what handles its messages.

    `place` tells the message after which it goes on, as it is committed, and `close`
    lets go of what was opened for it. The first batch comes without a message too where
    that writes down at what place it `begins`.
    """

    batches: MessageBatches
    place: Callable[[], MessageId]
    close: Callable[[], object]
    begins: bool = False


# Makes what handles the messages of a partition, by its number.
MakesWork = Callable[[int, LoopMember], PartitionWork]


class SharedBatches:
    """The batches of a loop that is a member of its group: of what it has, one by one.

    Each batch is of one partition, and no two at once are of the same one, so order is
    kept in each. A partition with more messages is soon next again; a look for messages
    comes every so often, so that no other one starves. What the group takes or gives is
    taken up between batches, when none is at work.
    """

    def __init__(
        self,
        open_member: Callable[[], LoopMember],
        make_work: MakesWork,
        topic: str,
        *,
        require_newest: Callable[[], object],
    ) -> None:
        self._open_member = open_member
        self._make_work = make_work
        self._topic = topic
        self._require_newest = require_newest
        self._member: LoopMember | None = None
        self._work: dict[Partition, PartitionWork] = {}
        self._ready: dict[Partition, None] = {}
        self._busy: dict[Partition, int] = {}
        self._since_look = 0
        self._is_closing = False
        self._changed = threading.Condition()
        self._waiting = threading.Lock()
        self._last = threading.local()

    @property
    def fate(self) -> str:
        """The fate of the messages of this thread's last failure."""
        return getattr(self._last, "fate", "again")

    def one(self) -> int:
        """Runs one transaction of the partition whose turn it is."""
        self._last.fate = "again"
        with self._changed:
            member = self._joined()
            pair = self._next(member)
            if pair is None:
                member.polls(is_polling=bool(self._busy))
                return 0
            self._busy[pair] = threading.get_ident()
            work = self._work[pair]
        more = True
        try:
            passed = work.batches.one()
            more = work.batches.has_more
        except MemberFenced as error:
            log.info("%s does not have partition %d any more: %s", self, pair[1], error)
            member.fence(error)
            return 0
        except ProducerFenced:
            if member.has(pair):
                raise
            # Whoever has the partition now has a newer instance of its producer.
            return 0
        finally:
            self._last.fate = work.batches.fate
            with self._changed:
                del self._busy[pair]
                member.polls(is_polling=bool(self._busy))
                if more and member.holds(pair):
                    self._ready[pair] = None
                self._changed.notify_all()
                if self._is_closing and not self._busy:
                    self._leave()
        return passed

    def wait(self, timeout_s: float) -> bool:
        """Waits until a partition has messages, or there is news of the group."""
        if not self._waiting.acquire(blocking=False):
            with self._changed:  # another thread of the loop waits for all of them
                return self._changed.wait_for(self._has_ready, timeout_s)
        try:
            with self._changed:
                member = self._joined()
                if not self._has_ready():
                    self._look(member)
                if self._has_ready():
                    return True
                places = self._places(member)
            member.wait_behind(places, timeout_s)
            with self._changed:
                if not member.has_news and not self._has_ready():
                    self._look(member)
                member.polls(is_polling=bool(self._busy))
                self._changed.notify_all()
                return member.has_news or self._has_ready()
        finally:
            self._waiting.release()

    def close(self) -> None:
        """Lets go of all partitions once no batch is at work, and leaves the group.

        In a handler it is done at the end of the batch.
        """
        with self._changed:
            me = threading.get_ident()
            self._is_closing = True
            self._changed.wait_for(
                lambda: all(one == me for one in self._busy.values())
            )
            if not self._busy:
                self._leave()

    def _leave(self) -> None:
        self._is_closing = False
        member, self._member = self._member, None
        self._ready.clear()
        self._drop(set(self._work))
        if member is not None:
            member.close(leaves=True)

    def _joined(self) -> LoopMember:
        """Returns the member, which has taken up what is new; it joins first."""
        member = self._member
        if member is None:
            self._require_newest()
            member = self._open_member()
            member.__enter__()
            self._member = member
        member.polls(is_polling=True)
        if member.has_news:
            # A partition is let go when its batch has ended.
            self._changed.wait_for(lambda: not self._busy)
            if member.is_fenced:
                self._require_newest()
            member.take_up()
        held = member.places().keys()
        if held != self._work.keys():
            self._drop(self._work.keys() - held)
            for pair in held - self._work.keys():
                self._work[pair] = self._make_work(pair[1], member)
                if self._work[pair].begins:
                    self._ready[pair] = None
        return member

    def _next(self, member: LoopMember) -> Partition | None:
        """Returns the partition that comes next; None where there is nothing."""
        self._since_look += 1
        if not self._has_ready() or self._since_look > BATCHES_A_LOOK:
            self._look(member)
        for pair in self._ready:
            if pair not in self._busy:
                del self._ready[pair]
                return pair
        return None

    def _has_ready(self) -> bool:
        return any(pair not in self._busy for pair in self._ready)

    def _look(self, member: LoopMember) -> None:
        """Finds the partitions that have a message which the loop has not handled."""
        self._since_look = 0
        places = self._places(member)
        free = {pair: at for pair, at in places.items() if pair not in self._busy}
        for pair in member.with_messages(free) if free else ():
            self._ready.setdefault(pair)

    def _places(self, member: LoopMember) -> dict[Partition, MessageId]:
        """Returns where each partition stands that it has."""
        return {pair: self._work[pair].place() for pair in member.places()}

    def _drop(self, pairs: set[Partition]) -> None:
        for pair in pairs:
            self._ready.pop(pair, None)
            self._work.pop(pair).close()

    def __repr__(self) -> str:
        return f"<{self._member or 'a loop that has not joined'} over {self._topic}>"
