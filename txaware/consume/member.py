"""A member of a group: polls its share of topics, which changes while it runs."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, cast

from coordinator.brief_errors import briefly
from coordinator.callbacks import check_function
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.consume.cursors import GroupPosition
from txaware.consume.heartbeats import Heartbeats, News
from txaware.consume.held_partition import (
    HeldPartition,
    InGroup,
    MemberReading,
    stand_by,
)
from txaware.consume.message_wait import MessageWait
from txaware.consume.partition_share import PartitionShare
from txaware.errors import (
    BadRequest,
    GroupNotFound,
    MemberFenced,
    MisusedTransaction,
    TransactionConflict,
    TransactionRefused,
)
from txaware.model.group_service import GroupService
from txaware.model.groups import (
    Assignment,
    GroupName,
    GroupStart,
    NamedPartition,
    Owned,
    Partition,
    PartitionPosition,
    checked_group_place,
    checked_group_start,
    checked_member,
    checked_session_s,
    owned_by_topic,
)
from txaware.model.interfaces import COMMITTED, UNCOMMITTED, MessagingService
from txaware.model.messages import Message, MessageId
from txaware.model.requests import checked_flag, checked_limit, checked_wait_s
from txaware.model.start_places import BEGINNING, place_in_partition, place_of
from txaware.model.topics import DEFAULT_NAMESPACE, TopicName

log = logging.getLogger(__name__)

MOST_LAG = 10_000

# Called with what a member got or lost, by topic.
OnPartitions = Callable[[dict[str, list[int]]], object]
# Returns the partitions of each member, by topic, of what each has joined and of how
# many partitions the topics have.
Strategy = Callable[
    [Mapping[str, Sequence[str]], Mapping[str, int]],
    Mapping[str, Mapping[str, Sequence[int]]],
]
# A place to go to: as a start, or as a time.
To = GroupStart | datetime


def group_and_topics(
    group: str, topics: Iterable[str]
) -> tuple[GroupName, tuple[str, ...]]:
    """Returns a group and topics of one namespace, which any of them may name."""
    if isinstance(topics, str):
        raise BadRequest(f"topics are a list of names, not {topics!r}")
    names = [TopicName.parse(topic) for topic in topics]
    parsed = GroupName.parse(group)
    spaces = {name.namespace for name in names} or {parsed.namespace}
    if ":" in group:
        spaces.add(parsed.namespace)
    if len(spaces) > 1:
        raise BadRequest(
            f"a group and its topics are of one namespace, not of "
            f"{' and '.join(sorted(spaces))}"
        )
    return GroupName(parsed.name, spaces.pop()), tuple(name.name for name in names)


class Member:
    """A member of a group, which gets its share of topics, each message once.

    In a transaction of its thread, `poll` sees that snapshot, and the positions move
    with the commit. Outside, it sees what is committed, and `commit` saves how far it
    has come. `with messaging.member(...) as m:` joins the group, and leaves it.

    Partitions come and go between polls: `poll` takes up what it got and lets go what
    others should have, with `on_assigned` and `on_revoked`, in the thread that calls
    it. A thread of the member's own keeps its session alive meanwhile. Where the member
    was held up for longer than its session, others have its partitions; what it still
    has under way cannot be committed, and its next poll joins anew.

    One thread at a time may poll.
    """

    def __init__(
        self,
        service: MessagingService,
        groups: GroupService,
        coordinator: Coordinator,
        group: str,
        *,
        topics: Iterable[str] = (),
        start: To | None = None,
        session_s: float | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        static: str | None = None,
        autocommit: bool = False,
        assignment: Assignment | Strategy | None = None,
        poll_interval_s: float = 300,
        client: str | None = None,
        own_positions: bool = False,
        shares_journal: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        name, shared = group_and_topics(group, topics)
        self._group = f"{name.namespace}:{name.name}"
        self._in_group = InGroup(service, name, shares_journal)
        self._service = service
        self._groups = groups
        self._coordinator = coordinator
        self._topics = [*dict.fromkeys(shared)]
        self._named: list[NamedPartition] = []
        self._start = checked_group_start(_in_ms(start))
        self._session_s = None if session_s is None else checked_session_s(session_s)
        self._on_assigned = _callback(on_assigned, what="on_assigned")
        self._on_revoked = _callback(on_revoked, what="on_revoked")
        self._static = None if static is None else checked_member(static)
        self._autocommit = checked_flag("autocommit", autocommit)
        self._assignment = assignment
        self._client = client
        self._own_positions = own_positions
        self._clock_s = clock_s
        self._share = PartitionShare(self._in_group)
        self._held = self._share.held
        self._led = 0
        self._lock = threading.RLock()
        self._is_open = self._is_closed = False
        self._heartbeats = Heartbeats(
            groups,
            self._group,
            poll_interval_s=_checked_interval_s(poll_interval_s),
            clock_s=clock_s,
        )
        self._wait = MessageWait(service, self._heartbeats.changed, clock_s=clock_s)
        guard(self)

    # ---- joining and leaving
    def __enter__(self) -> Self:
        """Joins the group."""
        with self._lock:
            if self._is_open or self._is_closed:
                raise MisusedTransaction(f"{self} has joined already; make another")
            if isinstance(self._assignment, str):
                self._groups.create_group(self._group, assignment=self._assignment)
            self._join()
            self._is_open = True
            self._heartbeats.polls(is_polling=False)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Leaves the group; saves first what was polled, with `autocommit`."""
        self.close(commits=kind is None)

    def close(self, *, commits: bool = True, leaves: bool = False) -> None:
        """Lets go of everything, and leaves the group; a static member stays in it.

        A static member that is started again within its session goes on where it was,
        unless it `leaves`.
        """
        with self._lock:
            if self._is_closed or not self._is_open:
                self._is_closed = True
                return
            try:
                if commits and self._autocommit and not self._heartbeats.fenced:
                    self._commit(self._ahead())
                if self._held:
                    self._on_revoked(self._share.shown_all(self._held))
            finally:
                self._is_closed = True
                self._held.clear()
                self._heartbeats.close()
                self._wait.close()
                if leaves or self._static is None:
                    self._leave()

    def _leave(self) -> None:
        beats = self._heartbeats
        try:
            self._groups.leave_group(
                self._group, beats.member, incarnation=beats.incarnation
            )
        except (TransactionRefused, GroupNotFound) as error:
            log.debug("%s had gone already: %s", self, error)

    def _join(self) -> None:
        joined = self._groups.join_group(
            self._group,
            self._static or self._heartbeats.member or None,
            static=self._static is not None,
            topics=self._topics,
            partitions=self._named,
            start=self._start,
            session_s=self._session_s,
            client=self._client,
            own_positions=self._own_positions,
        )
        self._heartbeats.joined(joined, [one.named for one in self._held.values()])

    def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Joins one more topic; with a `partition` that one alone, which it names.

        Whoever else joined the topic shares it with this member.
        """
        self._require_outside("add_topic")
        with self._lock:
            self._require_open()
            name, before = self._name_of(topic), (self._topics, self._named)
            if partition is None:
                self._topics = [*dict.fromkeys([*self._topics, name])]
            else:
                named = NamedPartition(name, partition)
                self._named = [*dict.fromkeys([*self._named, named])]
            try:
                self._join()
            except BaseException:  # or it could never join anew
                self._topics, self._named = before
                raise

    # ---- what it has
    @property
    def member(self) -> str:
        """The name by which the group knows the member."""
        return self._heartbeats.member

    @property
    def incarnation(self) -> int:
        """The number of its last joining, which rises each time."""
        return self._heartbeats.incarnation

    @property
    def generation(self) -> int:
        """The last generation of the group that the member has taken up."""
        return self._heartbeats.generation

    @property
    def assignment(self) -> Owned:
        """The partitions that it holds, by topic, as the last poll took them up."""
        return self._share.shown_all(self._held)

    def position(self, topic: str, partition: int = 0) -> MessageId | None:
        """Returns the message that the next poll of a partition follows.

        Of a partition that it does not hold, it is what the group has saved.
        """
        pair = self._name_of(topic), partition
        with self._lock:
            context = current_transaction(self._coordinator)
            held = self._held.get(pair)
            if held is not None and context is not None:
                reading = self._reading(context)
                if pair in reading.places:
                    return _or_none(self._place_in(reading, pair))
            if held is not None:
                return _or_none(held.position)
        return self._saved(pair)

    def lag(self) -> dict[str, dict[int, int]]:
        """Counts the committed messages that it has yet to poll, 10,000 at most."""
        with self._lock:
            held = [(one.pair, one.position) for one in self._held.values()]
        found: dict[str, dict[int, int]] = {}
        for (topic, number), position in sorted(held, key=lambda one: one[0]):
            page = self._service.poll(
                self._in_group.rows((topic, number)),
                start=position,
                inclusive=False,
                limit=MOST_LAG,
                isolation=COMMITTED,
            )
            found.setdefault(self._share.shown(topic), {})[number] = len(page)
        return found

    # ---- polling
    @briefly
    def poll(self, timeout_s: float = 0, limit: int = 100) -> list[Message]:
        """Returns messages of all its partitions, in the order of each.

        It waits for the first one, up to `timeout_s`; in a block it looks at the
        snapshot of the block, and does not wait. Before, it takes up what it got and
        lets go what it lost, unless it has polled in the block already.
        """
        checked_wait_s(timeout_s)
        checked_limit(limit)
        with self._polling():
            context = current_transaction(self._coordinator)
            if context is not None:
                return self._poll_in(context, limit)
            if self._autocommit and not self._heartbeats.fenced:
                self._commit(self._ahead())
            until_s = self._clock_s() + timeout_s
            while True:
                self._take_up()
                found = self._look(limit)
                left_s = until_s - self._clock_s()
                if found or left_s <= 0:
                    return found
                self._wait_on(left_s)

    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll or to take up; comes before a block.

        Returns False after the time-out.
        """
        self._require_outside("wait")
        checked_wait_s(timeout_s)
        with self._polling():
            until_s = self._clock_s() + timeout_s
            while not self._has_news:
                if self._look(1, moves=False):
                    return True
                left_s = until_s - self._clock_s()
                if left_s <= 0:
                    return False
                self._wait_on(left_s)
            return True

    @contextmanager
    def _polling(self) -> Iterator[None]:
        with self._lock:
            self._require_open()
            self._heartbeats.polls(is_polling=True)
            try:
                yield
            finally:
                self._heartbeats.polls(is_polling=False)

    @property
    def _has_news(self) -> bool:
        return self._heartbeats.news is not None or self._heartbeats.fenced is not None

    def _wait_on(self, left_s: float) -> None:
        """Waits until there may be a message, or there is news."""
        starts = self._share.starts()
        self._wait.wait(starts, left_s, until=lambda: self._has_news)

    def _look(self, limit: int, *, moves: bool = True) -> list[Message]:
        """Polls what is committed, from where it stands."""
        move_to = self._move_to if moves else _nowhere
        return self._share.pages(limit, move_to=move_to, isolation=COMMITTED)

    def _move_to(self, pair: Partition, position: MessageId) -> None:
        self._held[pair].position = position

    def places(self) -> dict[Partition, MessageId]:
        """Returns where each partition that it holds stands."""
        with self._lock:
            return {pair: one.position for pair, one in self._held.items()}

    def one_by_one(
        self, page: Iterable[Message], before: Mapping[Partition, MessageId]
    ) -> Iterator[Message]:
        """Yields what was just polled, and stands behind each message meanwhile.

        `before` are the places of before that poll. Who does not ask for the next one
        leaves the member there.
        """
        with self._lock:
            after = self.places()
            # What was taken up by that poll began at what was saved.
            held = self._held.items()
            self._stand({pair: before.get(pair, one.saved) for pair, one in held})
        for message in page:
            pair = self._name_of(cast(str, message.topic)), message.partition
            self._stand({pair: message.id})
            yield message
        self._stand(after)

    def _stand(self, places: Mapping[Partition, MessageId]) -> None:
        with self._lock:
            for pair, position in places.items():
                if pair in self._held:
                    self._held[pair].position = position

    # ---- polling in a block
    def _poll_in(self, context: TransactionContext, limit: int) -> list[Message]:
        if any(one.is_ahead for one in self._held.values()):
            raise MisusedTransaction(
                f"{self}: what was polled outside transactions is not saved, and would "
                f"come again in {context}; commit() or rollback() it first"
            )
        reading = self._reading(context)
        return self._share.pages(
            limit,
            move_to=partial(self._move_in, context, reading),
            place_of=partial(self._place_in, reading),
            # What moved here after the snapshot is polled from the next block on.
            among=[pair for pair in reading.places if pair in self._held],
            transaction=context.transaction,
            isolation=UNCOMMITTED,
        )

    def _reading(self, context: TransactionContext) -> MemberReading:
        """Returns what a block knows of its positions; at first it takes up news."""
        key = (MemberReading, id(self))

        def make() -> MemberReading:
            self._take_up()
            return MemberReading(str(self), self._read_and_stand)

        try:
            reading = context.joined(key, make)
        except (MemberFenced, GroupNotFound) as error:
            self._heartbeats.fenced = self._heartbeats.fenced or error
            reading = context.joined(key, make)
        return reading

    def _read(
        self, tx: Transaction | None, *, among: Iterable[Partition] | None = None
    ) -> Sequence[PartitionPosition]:
        pairs = self._held if among is None else among
        named = [self._held[pair].named for pair in pairs]
        if not named:
            return []
        return self._groups.member_positions(
            self._group,
            self._heartbeats.member,
            incarnation=self._heartbeats.incarnation,
            partitions=named,
            transaction=tx,
        )

    def _read_and_stand(
        self, tx: Transaction, *, among: Iterable[Partition] | None = None
    ) -> Sequence[PartitionPosition]:
        places = self._read(tx, among=among)
        for place in places:
            self._held[place.pair].stand_in_block(place.position)
        return places

    def _place_in(self, reading: MemberReading, pair: Partition) -> MessageId:
        moved = reading.moved.get(pair)
        position = reading.places[pair] if moved is None else moved.position
        return place_in_partition(position, pair[1])

    def _move_in(
        self,
        context: TransactionContext,
        reading: MemberReading,
        pair: Partition,
        position: MessageId,
    ) -> None:
        """Moves a partition with the commit of a block."""
        moved = reading.moved.get(pair)
        if moved is None:
            read = reading.places[pair]
            make = partial(self._in_group.position, pair, read)
            moved = context.joined((GroupPosition, id(self), pair), make)
            if not reading.moved:
                held = [*self._held.values()]
                reading.after_commit(partial(stand_by, held, reading.moved))
            reading.moved[pair] = moved
        moved.move(position)

    # ---- saving
    def commit(self, topic: str | None = None, partition: int | None = None) -> None:
        """Saves what was polled outside transactions, of a topic or a partition alone.

        It raises `TransactionConflict` or `MemberFenced` where somebody else has a
        partition by now, or moved the group in it. Nothing is saved then.
        """
        self._require_outside("commit")
        with self._lock:
            self._require_open()
            ahead = self._ahead()
            if topic is not None:
                name = self._joined_name(topic)
                ahead = [one for one in ahead if one.topic == name]
            if partition is not None:
                ahead = [one for one in ahead if one.number == partition]
            self._commit(ahead)

    def rollback(self) -> None:
        """Goes back to what is saved, after polls outside transactions."""
        self._require_outside("rollback")
        with self._lock:
            for one in self._held.values():
                one.position = one.saved

    def _ahead(self) -> list[HeldPartition]:
        return [one for one in self._held.values() if one.is_ahead]

    def _commit(self, ahead: Sequence[HeldPartition]) -> None:
        if not ahead:
            return
        context = TransactionContext(self._coordinator)
        try:
            with context:
                tx = context.transaction
                reading = context.joined(
                    (MemberReading, id(self)),
                    lambda: MemberReading(str(self), self._read),
                )
                for one in ahead:
                    self._save(context, reading, one)
                log.debug("%s saves with %s", self, tx)
        except MemberFenced as error:
            self._heartbeats.fenced = self._heartbeats.fenced or error
            raise
        except TransactionConflict:
            for one in ahead:
                self._go_back(one)
            raise
        for one in ahead:
            one.saved = one.position

    def _save(
        self, context: TransactionContext, reading: MemberReading, one: HeldPartition
    ) -> None:
        now = reading.places.get(one.pair) or BEGINNING
        if now == one.position:
            return  # an earlier try, whose answer was lost, has saved it
        if now != one.saved:
            raise TransactionConflict(
                f"{self}: partition {one.number} of {one.topic} was moved by somebody "
                f"else since it was polled here, from {one.saved} to {now}; nothing "
                f"was saved, and the next poll goes on from there"
            )
        make = partial(self._in_group.position, one.pair, reading.places[one.pair])
        position = context.joined((GroupPosition, id(self), one.pair), make)
        position.move(one.position)

    def _go_back(self, one: HeldPartition) -> None:
        """Stands where the group has saved its position by now."""
        one.stand(self._saved(one.pair))

    def _saved(self, pair: Partition) -> MessageId | None:
        """Returns where the group stands in a partition by now."""
        rows = self._in_group.rows(pair)
        found = self._service.position(self._in_group.name.name, rows)
        return None if found is None else place_in_partition(found, pair[1])

    # ---- going elsewhere
    def rewind(self, topic: str, *, to: To | Mapping[Any, To]) -> None:
        """Moves the group in a topic; an id is what comes next for everybody.

        It is at once, and no part of a block.
        """
        self._require_outside("rewind")
        named: Any = (
            {str(number): _in_ms(one) for number, one in to.items()}
            if isinstance(to, Mapping)
            else _in_ms(to)
        )
        with self._lock:
            name = self._name_of(topic)
            for place in self._groups.rewind_group(self._group, name, to=named):
                if (held := self._held.get(place.pair)) is not None:
                    held.stand(place.position)

    def seek(self, topic: str, *place: int | To) -> None:
        """Goes on from another place: `seek(topic, id)`, `seek(topic, 3, id)`.

        Outside transactions `commit` saves it; in a block, its commit.
        """
        if len(place) not in (1, 2):
            raise BadRequest("seek takes a topic, a partition if need be, and a place")
        pair = self._name_of(topic), cast(int, place[0]) if len(place) == 2 else 0
        start = checked_group_place(_in_ms(place[-1]))
        with self._lock:
            held = self._held.get(pair)
            if held is None:
                raise MisusedTransaction(
                    f"{self} does not hold partition {pair[1]} of {topic}"
                )
            rows = self._in_group.rows(pair)
            place_there = place_of(self._service, rows, start)
            position = place_in_partition(place_there, pair[1])
            context = current_transaction(self._coordinator)
            if context is None:
                held.position = position
            else:
                self._move_in(context, self._reading(context), pair, position)

    def pause(self, topic: str) -> None:
        """Polls nothing of a topic until `resume`; its partitions stay."""
        self._share.paused.add(self._joined_name(topic))

    def resume(self, topic: str) -> None:
        """Polls a topic again."""
        self._share.paused.discard(self._joined_name(topic))

    # ---- taking up
    def _take_up(self) -> None:
        """Takes up what the heartbeats brought: lets go, takes, and says so."""
        beats = self._heartbeats
        if beats.fenced is not None:
            self._join_anew(beats.fenced)
        if (news := beats.news) is not None:
            self._take(news)
        self._lead()

    def _take(self, news: News) -> None:
        lost = [one.pair for one in news.revoke if one.pair in self._held]
        if lost:
            # First, so that a callback may still commit what it lost.
            self._on_revoked(self._share.shown_all(lost))
        for pair in lost:
            del self._held[pair]
        got = [one for one in news.assign if one.pair not in self._held]
        for place in got:
            self._held[place.pair] = HeldPartition.of(place)
        for place in news.rewound:
            if (held := self._held.get(place.pair)) is not None:
                self._rewound(held)
        self._share.count()
        self._heartbeats.took_up(news, [one.named for one in self._held.values()])
        if got:
            log.info("%s has %s", self, owned_by_topic(one.pair for one in got))
            self._on_assigned(self._share.shown_all(one.pair for one in got))

    def _rewound(self, one: HeldPartition) -> None:
        """Follows a rewind of somebody else; its own are known, and come again here."""
        saved = self._saved(one.pair)
        if (saved or BEGINNING) != one.saved:
            one.stand(saved)
            one.rewound = one.saved

    def _join_anew(self, why: Exception) -> None:
        log.warning("%s joins anew: %s", self, why)
        lost = [*self._held]
        self._held.clear()
        if lost:
            self._on_revoked(self._share.shown_all(lost))
        self._require_name(why)
        self._join()

    def _require_name(self, why: Exception) -> None:
        """Raises where another process has the static name by now: it was newer.

        To join again would fence that one, which would do the same, without an end.
        """
        if self._static is None or not isinstance(why, MemberFenced):
            return
        for one in self._groups.group(self._group).members:
            if one.member == self._static and one.incarnation > self.incarnation:
                raise MemberFenced(
                    f"static member {one.member} was started again as incarnation "
                    f"{one.incarnation}, and this process is incarnation "
                    f"{self.incarnation}, which is over: one process at a time has a "
                    f"static name"
                ) from why

    def _lead(self) -> None:
        """Assigns by a function of the program, if this member is the first of all.

        It does so once in each generation.
        """
        strategy, generation = self._assignment, self._heartbeats.generation
        if strategy is None or isinstance(strategy, str) or generation == self._led:
            return
        self._led = generation
        group = self._groups.group(self._group)
        names = sorted(one.member for one in group.members)
        if names[:1] != [self.member]:
            return
        joined = {one.member: tuple(one.topics) for one in group.members}
        self._groups.assign_group(self._group, strategy(joined, group.topics))

    # ---- names
    def _name_of(self, topic: str) -> str:
        """Returns the name of a topic within the namespace of the group."""
        name, namespace = TopicName.parse(topic), self._in_group.name.namespace
        if name.namespace not in (namespace, DEFAULT_NAMESPACE) or (
            name.namespace != namespace and ":" in topic
        ):
            raise BadRequest(
                f"{topic} is of another namespace than group {self._in_group.name}"
            )
        return name.name

    def _joined_name(self, topic: str) -> str:
        """Returns the name of a topic that it has joined, or been given by a map."""
        name = self._name_of(topic)
        known = {*self._topics, *(one.topic for one in self._named)}
        if name not in known and all(name != pair[0] for pair in [*self._held]):
            raise BadRequest(
                f"{self} has not joined topic {topic} "
                f"({', '.join(sorted(known)) or 'none yet'})"
            )
        return name

    def _require_open(self) -> None:
        if self._is_closed or not self._is_open:
            raise MisusedTransaction(
                f"{self} has {'left' if self._is_closed else 'not joined'}: "
                f"with messaging.member(...) as m: joins"
            )

    def _require_outside(self, call: str) -> None:
        context = current_transaction(self._coordinator)
        if context is not None:
            raise MisusedTransaction(
                f"{call}() of {self} comes outside transactions, and {context} is open "
                f"here"
            )

    def __str__(self) -> str:
        name = self._heartbeats.member or self._static or "(not joined)"
        return f"member {name} of group {self._in_group.name}"

    def __repr__(self) -> str:
        return f"<Member: {self}>"


def _callback(call: OnPartitions | None, *, what: str) -> OnPartitions:
    """Returns a callback, or one that does nothing."""
    if call is None:
        return _nobody
    check_function(call, what=what)
    return call


def _checked_interval_s(seconds: object) -> float:
    """Returns the time between polls; raises `BadRequest` for what is none."""
    if isinstance(seconds, int | float) and seconds is not True and seconds > 0:
        return seconds
    raise BadRequest(
        f"poll_interval_s is a number of seconds above 0, not {seconds!r:.100}"
    )


def _nobody(_: object) -> None:
    """Tells nobody."""


def _nowhere(_: Partition, __: MessageId) -> None:
    """Moves nothing."""


def _in_ms(to: Any) -> Any:
    """Returns a time as ms since 1970, and all else as it is."""
    if not isinstance(to, datetime):
        return to
    if to.tzinfo is None:
        raise BadRequest(f"a time needs a time zone: {to!r}")
    return int(to.timestamp() * 1000)


def _or_none(position: MessageId) -> MessageId | None:
    return None if position == BEGINNING else position
