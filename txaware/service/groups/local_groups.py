"""The groups of this process's store: members, heartbeats, and the moves between."""

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import (
    BadRequest,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    MemberFenced,
    TopicNotFound,
)
from txaware.model.groups import (
    Assignment,
    Beat,
    GroupDescription,
    GroupMember,
    GroupName,
    GroupSettings,
    GroupStart,
    Joined,
    NamedPartition,
    Partition,
    PartitionPosition,
    checked_assignment,
    checked_client,
    checked_counter,
    checked_group_place,
    checked_group_start,
    checked_group_topic,
    checked_map,
    checked_member,
    checked_member_topics,
    checked_named,
    checked_session_s,
    group_name,
)
from txaware.model.messages import MessageId
from txaware.model.metrics import GroupShare
from txaware.model.partitions import name_of_rows, partition_name
from txaware.model.requests import checked_flag, checked_snapshot, checked_wait_s
from txaware.model.start_places import BEGINNING, of_one, place_of
from txaware.model.topics import TopicName, checked_namespace
from txaware.service.groups.group_change import GroupChanges, Moves
from txaware.service.groups.membership import Change, Membership
from txaware.service.local import LocalService
from txaware.service.read.reading import Reading
from txaware.service.store_context import StoreContext
from txaware.service.wakeups import Signal, WouldWait
from txaware.store.group_table import GroupRow, MemberRow
from txaware.store.kinds import GROUPS, POSITIONS
from txaware.store.versioned_rows import VersionedRows, without_pointer

log = logging.getLogger(__name__)

# A member whose connection is lost is heard again in that time, or its session is over.
LOST_S = 1.0
# A topic may go while a change is made; then it is made again without it.
TOPIC_TRIES = 10


@attrs.frozen
class Look:
    """One look at a group for a heartbeat, and when to look again at the latest.

    `again` hears the same heartbeat once more, and returns the pause of a look then;
    None, with nothing done, where that may find something else.
    """

    beat: Beat
    is_news: bool
    signal: Signal
    seen: int
    pause_s: float
    again: Callable[[], float | None]


class LiveGroup:
    """A group that this process knows; its lock orders all changes of its row.

    Without a `state` it has to be read. `topics` counts the changes of topics at which
    partitions were counted last, `users` those who have the lock or wait for it, and
    `pointer` is that of its last change, if it was made here.
    """

    def __init__(self, name: GroupName) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.signal = Signal()
        self.state: Membership | None = None
        self.topics: int | None = None
        self.pointer: int | None = None
        self.users = 0


class LocalGroups:
    """`GroupService` over one table and one coordinator.

    Nothing runs by itself: whoever asks for a group finds the sessions that are over,
    the partitions that were let go and the topics that have changed, and goes one step.
    Members that wait look again when the next session ends.
    """

    def __init__(self, store_context: StoreContext, service: LocalService) -> None:
        self._service = service
        self._topics = service.handles.topics
        self._settings = store_context.settings
        self._clock_ms = store_context.clock_ms
        self._elapsed_ms = store_context.table.clock.elapsed_ms
        self._reads_wait = store_context.table.reads_wait
        self._rows = VersionedRows(store_context.table)
        self._retention = store_context.versions
        self._judge = Reading(store_context).judge
        self._changes = GroupChanges(store_context)
        self._lock = threading.Lock()
        self._live: dict[GroupName, LiveGroup] = {}
        self._last_incarnation = 0
        self._process = secrets.token_hex(8)
        self._topics.on_change.append(self._topics_changed)

    def _topics_changed(self) -> None:
        """Has members that wait look again."""
        for live in list(self._live.values()):
            live.signal.notify()

    # ---- operators
    def create_group(
        self,
        group: str,
        *,
        session_s: float | None = None,
        heartbeat_s: float | None = None,
        ephemeral: bool | None = None,
        assignment: Assignment | None = None,
    ) -> GroupDescription:
        """Creates a group, or changes what is named of one that exists."""
        named: dict[str, Any] = {}
        if session_s is not None:
            named["session_ms"] = _ms(session_s, "session_s")
        if heartbeat_s is not None:
            named["heartbeat_ms"] = _ms(heartbeat_s, "heartbeat_s")
        if ephemeral is not None:
            named["ephemeral"] = checked_flag("ephemeral", ephemeral)
        if assignment is not None:
            named["assignment"] = checked_assignment(assignment)
        with self._locked(group) as live:
            state = self._current(live) or self._new(live)
            settings = attrs.evolve(state.row.settings, **named)
            return self._set(live, state, settings)

    def group(self, group: str) -> GroupDescription:
        """Describes a group, its members, and what these have."""
        with self._locked(group) as live:
            return _described(live.name, self._caught_up(live).row)

    def groups(self, namespace: str = "default") -> list[GroupDescription]:
        """Describes the groups of a namespace, in order of their names."""
        prefix = GROUPS.prefix + f"{checked_namespace(namespace)}:".encode("ascii")
        found = []
        for key, _ in self._rows.first_of_each(prefix, without_pointer):
            with suppress(GroupNotFound):
                name = GROUPS.name_of(without_pointer(key))
                found.append(self.group(f"{name.namespace}:{name.name}"))
        return found

    def shares(self) -> dict[tuple[str, str], GroupShare]:
        """Counts members by group and topic, of the groups that are known here.

        It reads nothing and changes nothing; any thread may ask.
        """
        now_s, found = self._now_s(), dict[tuple[str, str], GroupShare]()
        for live in list(self._live.values()):
            state = live.state
            if state is not None:
                for topic, share in state.shares(now_s).items():
                    shown = str(TopicName(topic, live.name.namespace))
                    found[live.name.name, shown] = share
        return found

    def delete_group(self, group: str) -> None:
        """Deletes a group that has no members; its positions stay."""
        with self._locked(group) as live:
            members = len(self._caught_up(live).row.members)
            if members:
                raise GroupInUse(
                    f"group {live.name} has {members} members; it is deleted when they "
                    f"have left"
                )
            self._delete(live)

    def assign_group(
        self, group: str, members: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> GroupDescription:
        """Assigns partitions to members, by topic; the assignment becomes `own`."""
        own = checked_map(members)
        with self._locked(group) as live:
            state = self._current(live) or self._new(live)
            settings = attrs.evolve(state.row.settings, assignment="own")
            return self._set(live, state, settings, own)

    def rewind_group(
        self, group: str, topic: str, *, to: GroupStart | Mapping[str, GroupStart]
    ) -> list[PartitionPosition]:
        """Moves a group in a topic, or in the partitions of it that `to` names."""
        with self._locked(group) as live:
            name = checked_group_topic(topic)
            places = self._places_of(live.name, name, to)
            moves = [(pair, partial(_always, at)) for pair, at in places.items()]
            self._move(live.name, moves)
            state = self._state(live)
            if state is not None:
                state.rewind(places)
            live.signal.notify()
        log.info("group %s was rewound in %s", live.name, name)
        return [PartitionPosition(*pair, at) for pair, at in places.items()]

    # ---- members
    def join_group(
        self,
        group: str,
        member: str | None = None,
        *,
        static: bool = False,
        topics: Sequence[str] = (),
        partitions: Sequence[NamedPartition] = (),
        start: GroupStart | None = None,
        session_s: float | None = None,
        client: str | None = None,
        own_positions: bool = False,
        is_here: bool = True,
    ) -> Joined:
        """Makes a member; see the port. One that `is_here` ends with this process."""
        name = secrets.token_hex(8) if member is None else checked_member(member)
        row = MemberRow(
            name=name,
            incarnation=0,
            topics=checked_member_topics(topics),
            partitions=checked_named(partitions),
            start=checked_group_start(start),
            session_ms=0 if session_s is None else _ms(session_s, "session_s"),
            is_static=checked_flag("static", static),
            since_ms=self._clock_ms(),
            client=checked_client(client),
            own_positions=checked_flag("own_positions", own_positions),
            process=self._process if is_here else None,
        )
        with self._locked(group) as live:
            self._require_topics(live.name, row)
            state = self._current(live) or self._new(live)
            return self._joined(live, state, row)

    def _joined(self, live: LiveGroup, state: Membership, row: MemberRow) -> Joined:
        settings, name = state.row.settings, row.name
        most = self._settings.max_members_per_group
        if name not in state.row.members and len(state.row.members) >= most:
            raise GroupFull(
                f"group {live.name} has {most:,} members, and may not have more "
                f"(max_members_per_group)"
            )
        row = attrs.evolve(row, session_ms=row.session_ms or settings.session_ms)
        self._step(
            live,
            state,
            lambda counts: state.joining(row, counts),
            also=row.all_topics,
            joining=name,
        )
        incarnation = state.row.members[name].incarnation
        return Joined(
            name,
            incarnation,
            state.row.generation,
            settings.heartbeat_of(row.session_ms),
            self._positions(live.name, state.to_assign(name, ())),
        )

    def heartbeat(
        self,
        group: str,
        member: str,
        *,
        incarnation: int,
        generation: int,
        owned: Sequence[NamedPartition] = (),
        wait_s: float = 0,
    ) -> Beat:
        """Keeps a member's session, and tells it what to take and what to leave."""
        ends_s = self._now_s() + checked_wait_s(wait_s)
        is_first = True
        while True:
            look = self.look(
                group,
                member,
                incarnation=incarnation,
                generation=generation,
                owned=owned,
                is_first=is_first,
            )
            left_s = min(ends_s - self._now_s(), look.pause_s)
            if look.is_news or left_s <= 0:
                return look.beat
            look.signal.wait(look.seen, left_s)
            is_first = False

    def look(
        self,
        group: str,
        member: str,
        *,
        incarnation: int,
        generation: int,
        owned: Sequence[NamedPartition] = (),
        is_first: bool = True,
        at_once: bool = False,
        allow: Callable[[Collection[TopicName]], object] | None = None,
    ) -> Look:
        """Looks once for a heartbeat, whose member is heard with the first look.

        With `at_once` it raises `WouldWait` where it would wait, with nothing done.
        `allow` is asked first, with the topics that the member has joined.
        """
        checked_member(member)
        checked_counter(incarnation, what="incarnation")
        checked_counter(generation, what="generation")
        held = set(checked_named(owned))
        with self._locked(group, at_once=at_once) as live:
            state = self._known(live, at_once=at_once)
            # First, so that a rewind or a move from here on is not missed.
            seen, now_s = live.signal.count, self._now_s()
            if allow is not None and (known := state.row.members.get(member)):
                namespace = live.name.namespace
                allow([TopicName(topic, namespace) for topic in known.all_topics])
            row = state.require(member, incarnation)
            if at_once and self._is_behind(live, state):
                raise WouldWait
            if is_first:
                state.heard(member, now_s)
            if not at_once:
                state = self._caught_up(live)
                row = state.require(member, incarnation)
            state.holds(member, generation, held)
            if state.is_due:
                if at_once:
                    raise WouldWait
                self._settle(live, state)
            assign = state.to_assign(member, held)
            rewound = state.rewound.get(member, set()) & held
            if at_once and (assign or rewound):
                raise WouldWait  # positions are read
            # Of one that it does not hold yet, it may have taken an earlier position.
            state.rewound.get(member, set()).difference_update(rewound)
            beat = Beat(
                state.row.generation,
                self._positions(live.name, assign),
                [NamedPartition(*pair) for pair in state.to_revoke(member, held)],
                self._positions(live.name, sorted(rewound)),
            )
            is_news = beat.generation != generation or bool(
                beat.assign or beat.revoke or beat.rewound
            )
            # A member that waits is heard again before its session ends.
            beat_s = state.row.settings.heartbeat_of(row.session_ms) / 1000
            again_s = min(state.heard_s[member] + beat_s, state.next_end_s() or now_s)
            pause_s = max(0, again_s - now_s)
            again = partial(self._heard_again, live, seen, member, beat_s)
            return Look(beat, is_news, live.signal, seen, pause_s, again)

    def _heard_again(
        self, live: LiveGroup, seen: int, member: str, beat_s: float
    ) -> float | None:
        """Hears a member that was seen, unless something was told since.

        All that a look depends on is told by the signal, but for what has to be read.
        """
        if not live.lock.acquire(blocking=False):
            return None
        try:
            state = live.state
            if live.signal.count != seen or state is None:
                return None
            if self._is_behind(live, state):
                return None
            now_s = self._now_s()
            state.heard(member, now_s)
            return max(0, min(beat_s, (state.next_end_s() or now_s) - now_s))
        finally:
            live.lock.release()

    def lost(self, group: str, member: str, *, incarnation: int) -> None:
        """Notes that the connection of a member is lost: it may be no more.

        One that lives is heard again soon.
        """
        with self._locked(group) as live:
            state = self._state(live)
            if state is not None and state.is_member(member, incarnation):
                state.hurry(member, self._now_s() + LOST_S)
                live.signal.notify()  # others look again when that session ends

    def leave_group(
        self, group: str, member: str, *, incarnation: int | None = None
    ) -> None:
        """Ends a membership at once; one that is over already is no error."""
        name = checked_member(member)
        if incarnation is not None:
            checked_counter(incarnation, what="incarnation")
        with self._locked(group) as live:
            state = self._caught_up(live)
            if name not in state.row.members:
                return
            if incarnation is not None:
                state.require(name, incarnation)
            self._end(live, state, [name], f"{name} left")

    def member_positions(
        self,
        group: str,
        member: str,
        *,
        incarnation: int,
        partitions: Sequence[NamedPartition],
        transaction: Transaction | None = None,
    ) -> list[PartitionPosition]:
        """Returns where partitions stand; refuses those that the member has not."""
        checked_snapshot(transaction)
        pairs = checked_named(partitions)
        checked_member(member)
        checked_counter(incarnation, what="incarnation")
        with self._locked(group) as live:
            state = self._caught_up(live)
            state.require(member, incarnation)
            for pair in pairs:
                owner = state.row.owners.get(pair)
                if owner is None or owner.member != member:
                    has = "nobody" if owner is None else owner.member
                    raise MemberFenced(
                        f"partition {pair[1]} of {pair[0]} is not {member}'s: {has} "
                        f"has it"
                    )
            if transaction is not None:
                pairs = self._seen(live, transaction, state, member, pairs)
        # A move from here on conflicts with whoever commits by these positions.
        return self._positions(live.name, pairs, transaction)

    def _seen(
        self,
        live: LiveGroup,
        tx: Transaction,
        state: Membership,
        member: str,
        pairs: tuple[Partition, ...],
    ) -> tuple[Partition, ...]:
        """Leaves out what the member got after a snapshot: its commit would conflict.

        Nearly always the last change of the group is in the snapshot.
        """
        if live.pointer is not None and tx.is_visible(live.pointer):
            return pairs
        row = self._read(live.name, tx)
        if row is None:
            return ()
        then, now = row.members.get(member), state.row.members[member]
        if then is None or then.incarnation != now.incarnation:
            return ()
        return tuple(p for p in pairs if row.owners.get(p) == state.row.owners[p])

    # ---- the state of a group; all of it under the group's lock
    @contextmanager
    def _locked(self, group: str, *, at_once: bool = False) -> Iterator[LiveGroup]:
        name = group_name(group)
        with self._lock:
            live = self._live.get(name)
            if live is None:
                live = self._live[name] = LiveGroup(name)
            live.users += 1
        try:
            if not live.lock.acquire(blocking=not at_once):
                raise WouldWait
            try:
                yield live
            finally:
                live.lock.release()
        finally:
            with self._lock:
                live.users -= 1
                if not live.users and live.state is None:
                    del self._live[name]

    def _state(self, live: LiveGroup) -> Membership | None:
        """Returns the state of a group; None where there is no such group."""
        if live.state is None:
            row = self._read(live.name)
            if row is None:
                return None
            state = Membership(row, self._now_s())
            state.rewind(row.owners)  # they may not have heard of the last one
            for name, member in row.members.items():
                is_of_another = member.process not in (None, self._process)
                if is_of_another and not member.is_static:  # its process has ended
                    state.hurry(name, self._now_s())
            live.state, live.topics = state, None
        return live.state

    def _known(self, live: LiveGroup, *, at_once: bool) -> Membership:
        if at_once and live.state is None:
            raise WouldWait
        state = self._state(live)
        if state is None:
            raise GroupNotFound(f"there is no group {live.name}")
        return state

    def _current(self, live: LiveGroup) -> Membership | None:
        """Returns the state, without members whose sessions are over; None for none."""
        state = self._state(live)
        if state is None:
            return None
        self._go_on(live, state)
        return self._state(live)

    def _caught_up(self, live: LiveGroup) -> Membership:
        """Returns the state, as `_current` does, of a group that there has to be."""
        state = self._current(live)
        if state is None:
            raise GroupNotFound(f"there is no group {live.name}")
        return state

    def _new(self, live: LiveGroup) -> Membership:
        """Returns the state of a group that is to be created."""
        most = self._settings.max_groups_per_namespace
        namespace = live.name.namespace
        prefix = GROUPS.prefix + f"{namespace}:".encode("ascii")
        names = self._rows.first_of_each(prefix, without_pointer)
        if sum(1 for _ in names) >= most:
            raise GroupFull(
                f"namespace {namespace} has {most:,} groups, and may not have more "
                f"(max_groups_per_namespace)"
            )
        return Membership(GroupRow(), self._now_s())

    def _read(self, name: GroupName, tx: Transaction | None = None) -> GroupRow | None:
        """Returns the row of a group, as a transaction or a fresh snapshot sees it."""
        prefix = GROUPS.prefix_of(name)
        if not self._rows.has_any(prefix):
            return None
        version = self._retention.as_seen(
            tx, self._judge, lambda judge: self._rows.visible(prefix, judge)
        )
        return None if version is None else GROUPS.read(version)

    def _is_behind(self, live: LiveGroup, state: Membership) -> bool:
        """Tells whether sessions are over, or topics have changed since a look."""
        if live.topics != self._topics.changes:
            return True
        ends_s = state.next_end_s()
        return ends_s is not None and ends_s <= self._now_s()

    def _go_on(self, live: LiveGroup, state: Membership) -> None:
        """Ends sessions that are over, and follows changes of topics."""
        if not self._is_behind(live, state):
            return
        gone = state.expired(self._now_s())
        if gone:
            ended = " and ".join(f"the session of {name} ended" for name in gone)
            self._end(live, state, gone, ended)
        else:
            self._settle(live, state)

    def _end(
        self, live: LiveGroup, state: Membership, names: list[str], why: str
    ) -> None:
        """Has members be members no more; an ephemeral group goes with the last."""
        for name in names:
            had = state.row.owned_by(name)
            log.info("group %s: %s, with %d partitions", live.name, why, len(had))
        if state.row.settings.ephemeral and not state.row.members.keys() - set(names):
            self._delete(live)
            return
        self._step(live, state, lambda counts: state.leaving(names, counts, why=why))

    def _settle(self, live: LiveGroup, state: Membership) -> None:
        """Moves what may move by now."""
        self._step(live, state, state.settling)

    def _set(
        self,
        live: LiveGroup,
        state: Membership,
        settings: GroupSettings,
        own: Mapping[str, Mapping[str, list[int]]] | None = None,
    ) -> GroupDescription:
        self._step(live, state, lambda counts: state.setting(settings, counts, own=own))
        return _described(live.name, state.row)

    def _step(
        self,
        live: LiveGroup,
        state: Membership,
        make: Callable[[Mapping[str, int]], Change],
        *,
        also: Collection[str] = (),
        joining: str | None = None,
    ) -> None:
        """Makes a change, writes it with its positions, and takes it over."""
        topics = {*also, *state.row.left}
        for member in state.row.members.values():
            topics |= member.all_topics
        for _ in range(TOPIC_TRIES):
            version = self._topics.version()
            counts = {t: self._partitions(live.name, t) for t in topics}
            change = make(counts)
            row = change.row
            if row.generation != state.row.generation:
                row = attrs.evolve(row, began_ms=self._clock_ms())
            try:
                if row != state.row or change.touched or joining is not None:
                    row = self._write(
                        live, state, attrs.evolve(change, row=row), joining
                    )
            except TopicNotFound:
                continue
            except BaseException:
                live.state = None  # nobody knows what is kept: it is read again
                live.signal.notify()
                raise
            break
        else:
            raise TopicNotFound(f"a topic of group {live.name} comes and goes")
        is_new = row is not state.row
        for line in state.changed(attrs.evolve(change, row=row), self._now_s()):
            log.info("group %s: %s", live.name, line)
        # What was counted while a topic changed is counted again at the next look.
        is_sure = version == self._topics.version()
        live.state, live.topics = state, version if is_sure else None
        if is_new:
            live.signal.notify()

    def _write(
        self, live: LiveGroup, state: Membership, change: Change, joining: str | None
    ) -> GroupRow:
        moves = [
            (pair, partial(self._position_or_start, live.name, state, change.row, pair))
            for pair in (*change.moved, *change.touched)
            if not change.row.members[change.row.owners[pair].member].own_positions
        ]

        def row(tx: Transaction) -> GroupRow:
            if joining is None:
                return change.row
            return self._numbered(state.row, change.row, joining, tx)

        written = self._changes.write(
            live.name, Moves(live.name, row, self._by_topic(live.name, moves))
        )
        live.pointer = written.pointer
        assert written.row is not None
        return written.row

    def _delete(self, live: LiveGroup) -> None:
        self._changes.write(live.name, Moves(live.name, lambda _: None, ()))
        live.state = None
        live.signal.notify()
        log.info("group %s is deleted", live.name)

    def _move(
        self,
        name: GroupName,
        moves: Sequence[tuple[Partition, Callable[[Transaction], MessageId]]],
    ) -> None:
        """Moves positions alone."""
        moved = Moves(None, lambda _: None, self._by_topic(name, moves))
        self._changes.write(name, moved)

    def _by_topic(
        self,
        name: GroupName,
        moves: Sequence[tuple[Partition, Callable[[Transaction], MessageId]]],
    ) -> tuple[tuple[TopicName, Callable[[Transaction], MessageId]], ...]:
        return tuple((rows_of(name, pair), position) for pair, position in moves)

    def _numbered(
        self, before: GroupRow, row: GroupRow, joining: str, tx: Transaction
    ) -> GroupRow:
        """Gives the member that joins an incarnation above all before it.

        It is about the time of the transaction, so that it also rises where the group
        was deleted in between, and nothing is known of those before.
        """
        given = [member.incarnation for member in before.members.values()]
        last = max(self._last_incarnation, *given, 0)
        number = max(last + 1, tx.transaction_id // POINTERS_PER_MS)
        self._last_incarnation = number
        member = attrs.evolve(row.members[joining], incarnation=number)
        return attrs.evolve(row, members={**row.members, joining: member})

    # ---- topics and positions
    def _partitions(self, name: GroupName, topic: str) -> int:
        """Returns how many partitions a topic has; 0 where there is no such topic."""
        try:
            return self._topics.get(TopicName(topic, name.namespace)).partitions
        except TopicNotFound:
            return 0

    def _require_topics(self, name: GroupName, row: MemberRow) -> None:
        """Raises where a topic does not exist, or has not so many partitions."""
        for topic in row.topics:
            self._topics.get(TopicName(topic, name.namespace))
        for topic, number in row.partitions:
            self._require_partition(name, topic, number)

    def _require_partition(self, name: GroupName, topic: str, number: int) -> None:
        found = self._topics.get(TopicName(topic, name.namespace))
        if number >= found.partitions:
            raise TopicNotFound(
                f"topic {found.topic} has no partition {number}; it has "
                f"{found.partitions}"
            )

    def _places_of(
        self,
        name: GroupName,
        topic: str,
        to: GroupStart | Mapping[str, GroupStart],
    ) -> dict[Partition, MessageId]:
        """Returns where partitions stand from then on."""
        self._require_partition(name, topic, 0)
        if isinstance(to, Mapping):
            starts = {(topic, _whole(n)): checked_group_place(s) for n, s in to.items()}
        else:
            start = checked_group_place(to)
            count = self._partitions(name, topic)
            starts = {(topic, number): start for number in range(count)}
        found = {}
        for pair, start in sorted(starts.items(), key=lambda item: item[0]):
            self._require_partition(name, *pair)
            found[pair] = self._place(name, pair, start)
        return found

    def _place(self, name: GroupName, pair: Partition, start: GroupStart) -> MessageId:
        topic = partition_name(TopicName(pair[0], name.namespace), pair[1])
        return of_one(place_of(self._service, topic, start), topic) or BEGINNING

    def _position_or_start(
        self,
        name: GroupName,
        state: Membership,
        row: GroupRow,
        pair: Partition,
        tx: Transaction,
    ) -> MessageId:
        """Returns where a partition stands, or where its group begins with it.

        A partition that was added later begins at its first message.
        """
        [found] = self._positions(name, [pair], tx)
        if found.position is not None:
            return found.position
        if not state.row.knows(*pair):
            return BEGINNING
        start = row.members[row.owners[pair].member].start
        return self._place(name, pair, start)

    def _positions(
        self,
        name: GroupName,
        pairs: Sequence[Partition],
        transaction: Transaction | None = None,
    ) -> list[PartitionPosition]:
        """Returns where partitions stand, all as one snapshot sees them."""
        if not pairs:
            return []
        prefixes = [
            POSITIONS.prefix_of((name.name, rows_of(name, pair))) for pair in pairs
        ]
        versions = self._retention.as_seen(
            transaction,
            self._judge,
            lambda judge: [self._rows.visible(prefix, judge) for prefix in prefixes],
        )
        return [
            PartitionPosition(*pair, None if found is None else POSITIONS.read(found))
            for pair, found in zip(pairs, versions, strict=True)
        ]

    def _now_s(self) -> float:
        return self._elapsed_ms() / 1000


def rows_of(name: GroupName, pair: Partition) -> TopicName:
    """Returns the name by which the rows of a partition are kept."""
    return name_of_rows(TopicName(pair[0], name.namespace), pair[1])


def _described(name: GroupName, row: GroupRow) -> GroupDescription:
    settings = row.settings
    return GroupDescription(
        group=name.name,
        session_ms=settings.session_ms,
        heartbeat_ms=settings.heartbeat_of(settings.session_ms),
        ephemeral=settings.ephemeral,
        assignment=settings.assignment,
        generation=row.generation,
        generation_ms=row.began_ms,
        why=row.why,
        topics=dict(row.topics),
        members=[
            GroupMember(
                member=member.name,
                incarnation=member.incarnation,
                static=member.is_static,
                since_ms=member.since_ms,
                session_ms=member.session_ms,
                topics=sorted(member.all_topics),
                partitions=[NamedPartition(*p) for p in row.owned_by(member.name)],
                client=member.client,
            )
            for _, member in sorted(row.members.items())
        ],
    )


def _always(position: MessageId, _: Transaction) -> MessageId:
    return position


def _whole(number: object) -> int:
    """Reads the number of a partition, which JSON has as text."""
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadRequest(f"a partition is named by its number, not '{number}'")
    return number


def _ms(seconds: float, what: str) -> int:
    return round(checked_session_s(seconds, what=what) * 1000)
