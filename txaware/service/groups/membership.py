"""A group as it stands: sessions, who has to let go, and the next step; pure."""

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

import attrs

from txaware.errors import MemberFenced
from txaware.model.groups import GroupSettings, Partition
from txaware.model.metrics import GroupShare
from txaware.service.groups.assignment import STRATEGIES, Question, Wish
from txaware.store.group_table import GroupRow, MemberRow, Owner


@attrs.frozen
class Change:
    """A new row of a group, with the partitions that get another owner with it.

    The position of each of them is written in the same transaction, and so is that of
    `touched` ones, whose owner stays but is another incarnation: whoever read them
    before can commit nothing more.
    """

    row: GroupRow
    moved: tuple[Partition, ...] = ()
    touched: tuple[Partition, ...] = ()
    target: Mapping[Partition, str] = attrs.field(factory=dict)


class Membership:
    """The row of a group, and what is known beside it as long as its server lives.

    A partition has one owner, in the row. The target says who should have it. It moves
    once its owner has let it go, or is no member any more; until then its owner is told
    to leave it. A heartbeat says what a member holds; it says nothing of what the
    member got in a generation that it has not heard of.

    Time is passed in, as seconds that have elapsed. After a restart every session
    begins anew.
    """

    def __init__(self, row: GroupRow, now_s: float) -> None:
        self.row = row
        self.target: Mapping[Partition, str] = {
            pair: owner.member for pair, owner in row.owners.items()
        }
        self.heard_s = dict.fromkeys(row.members, now_s)
        self.let_go: set[Partition] = set()
        self.rewound: dict[str, set[Partition]] = {}
        self._index()

    def _index(self) -> None:
        """Orders ends and shares anew, so that a look does not walk all members.

        No session ends before its bound. A bound may be too early, as most ends only
        move later: `next_end_s` corrects those that are due.
        """
        self._bounds = {n: self.ends_s(n, row) for n, row in self.row.members.items()}
        self._ends = [(end_s, name) for name, end_s in self._bounds.items()]
        heapify(self._ends)
        self._owned: dict[str, list[Partition]] = {}
        for pair, owner in sorted(self.row.owners.items(), key=lambda item: item[0]):
            self._owned.setdefault(owner.member, []).append(pair)

    # ---- members
    def require(self, member: str, incarnation: int) -> MemberRow:
        """Returns a member by its incarnation; raises why it is none (any more)."""
        row = self.row.members.get(member)
        if row is None:
            raise MemberFenced(
                f"{member} is no member of the group: its session ended, or it left; "
                f"join again"
            )
        if row.incarnation != incarnation:
            raise MemberFenced(
                f"member {member} has joined again, as incarnation {row.incarnation}; "
                f"incarnation {incarnation} is over"
            )
        return row

    def is_member(self, member: str, incarnation: int) -> bool:
        """Tells whether an incarnation is the present one of a member."""
        row = self.row.members.get(member)
        return row is not None and row.incarnation == incarnation

    def hurry(self, member: str, end_s: float) -> None:
        """Has the session of a member end by then, unless it is heard before."""
        row = self.row.members[member]
        session_s = row.session_ms / 1000
        self.heard_s[member] = min(self.heard_s[member], end_s - session_s)
        bound_s = self.ends_s(member, row)
        if bound_s < self._bounds[member]:
            self._bounds[member] = bound_s
            heappush(self._ends, (bound_s, member))

    def heard(self, member: str, now_s: float) -> None:
        """Begins a new session of a member."""
        self.heard_s[member] = now_s

    def expired(self, now_s: float) -> list[str]:
        """Returns the members whose sessions are over."""
        return sorted(
            name
            for name, row in self.row.members.items()
            if self.ends_s(name, row) <= now_s
        )

    def next_end_s(self) -> float | None:
        """Returns when the next session ends, unless its member is heard before."""
        while self._ends:
            bound_s, name = self._ends[0]
            if self._bounds[name] != bound_s:
                heappop(self._ends)  # it was hurried since
                continue
            end_s = self.ends_s(name, self.row.members[name])
            if end_s <= bound_s:
                return end_s
            self._bounds[name] = end_s
            heapreplace(self._ends, (end_s, name))
        return None

    def ends_s(self, name: str, row: MemberRow) -> float:
        """Returns when the session of a member ends."""
        return self.heard_s[name] + row.session_ms / 1000

    def shares(self, now_s: float) -> dict[str, GroupShare]:
        """Counts members, and partitions without one, by topic."""
        row, heard_s = self.row, self.heard_s
        heard = {
            name: one
            for name, one in row.members.items()
            if heard_s.get(name, now_s) + one.session_ms / 1000 > now_s
        }
        found = {}
        for topic, partitions in row.topics.items():
            joined = [name for name, one in heard.items() if topic in one.all_topics]
            owners = [o.member for pair, o in row.owners.items() if pair[0] == topic]
            found[topic] = GroupShare(
                members=len(joined),
                standing_by=len(set(joined) - set(owners)),
                unowned=partitions - sum(owner in heard for owner in owners),
                generation=row.generation,
            )
        return found

    # ---- heartbeats
    def holds(self, member: str, generation: int, owned: Collection[Partition]) -> None:
        """Notes what a member holds, as it knows it in a generation."""
        for pair in self._owned.get(member, ()):
            if pair in owned:
                self.let_go.discard(pair)
            elif generation >= self.row.owners[pair].since:
                self.let_go.add(pair)

    def to_assign(self, member: str, owned: Collection[Partition]) -> list[Partition]:
        """Returns what a member has and does not hold."""
        return [
            pair
            for pair in self._owned.get(member, ())
            if pair not in owned and self.target.get(pair) == member
        ]

    def to_revoke(self, member: str, owned: Collection[Partition]) -> list[Partition]:
        """Returns what a member holds and should leave."""
        return sorted(pair for pair in owned if not self.is_to_keep(member, pair))

    def is_to_keep(self, member: str, pair: Partition) -> bool:
        """Tells whether a member has a partition, and is to keep it."""
        owner = self.row.owners.get(pair)
        is_owner = owner is not None and owner.member == member
        return is_owner and self.target.get(pair) == member

    @property
    def is_due(self) -> bool:
        """True when a partition was let go that somebody else should have."""
        return any(
            pair in self.row.owners
            and self.row.owners[pair].member != self.target.get(pair)
            for pair in self.let_go
        )

    def rewind(self, pairs: Iterable[Partition]) -> None:
        """Notes that the owners of partitions have to hear of a rewind."""
        for pair in pairs:
            owner = self.row.owners.get(pair)
            if owner is not None:
                self.rewound.setdefault(owner.member, set()).add(pair)

    # ---- changes
    def joining(self, member: MemberRow, counts: Mapping[str, int]) -> Change:
        """Returns the change by which a member joins, or joins again.

        A new incarnation keeps what the one before it had.
        """
        members = {**self.row.members, member.name: member}
        old = self.row.members.get(member.name)
        why = f"{member.name} joined"
        if old is not None and old.joined != member.joined:
            why = f"{member.name} changed what it reads"
        mine = set(self.row.owned_by(member.name))
        # Nothing is held any more: what was to be left is free.
        return self._change(members, counts, why=why, let_go=mine, touched=mine)

    def leaving(
        self, names: Iterable[str], counts: Mapping[str, int], *, why: str
    ) -> Change:
        """Returns the change by which members are members no more."""
        gone = set(names)
        members = {n: row for n, row in self.row.members.items() if n not in gone}
        return self._change(members, counts, why=why)

    def settling(self, counts: Mapping[str, int], *, why: str = "") -> Change:
        """Returns the change that moves what may move by now."""
        why = why or "partitions changed hands"
        return self._change(self.row.members, counts, why=why)

    def setting(
        self,
        settings: GroupSettings,
        counts: Mapping[str, int],
        *,
        own: Mapping[str, Mapping[str, list[int]]] | None = None,
    ) -> Change:
        """Returns the change to other settings, or to another own assignment.

        Of a group that is not there yet it is the first.
        """
        row = attrs.evolve(
            self.row, settings=settings, own=self.row.own if own is None else own
        )
        why = "it is assigned otherwise" if row.generation else "it was created"
        return self._change(row.members, counts, why=why, row=row)

    def _change(
        self,
        members: Mapping[str, MemberRow],
        counts: Mapping[str, int],
        *,
        why: str,
        let_go: Collection[Partition] = (),
        touched: Collection[Partition] = (),
        row: GroupRow | None = None,
    ) -> Change:
        row = row or self.row
        topics: set[str] = set()
        for member in members.values():
            topics |= member.all_topics
        known = {topic: counts.get(topic, 0) for topic in sorted(topics)}
        target = self._aim(row, members, known)
        free = {*self.let_go, *let_go}
        generation = row.generation + 1
        owners: dict[Partition, Owner] = {}
        moved = []
        for pair in sorted({*row.owners, *target}):
            if pair[1] >= known.get(pair[0], 0):
                continue  # its topic is gone
            now, aimed = row.owners.get(pair), target.get(pair)
            if now is not None and now.member not in members:
                now = None
            if now is not None and (now.member == aimed or pair not in free):
                owners[pair] = now
            elif aimed is not None:
                owners[pair] = Owner(aimed, generation)
                moved.append(pair)
        joined = {name: one.joined for name, one in row.members.items()}
        is_new = (
            row.generation == 0
            or joined != {name: one.joined for name, one in members.items()}
            or dict(row.topics) != known
            or dict(row.owners) != owners
        )
        left = {
            topic: count
            for topic, count in {**row.left, **row.topics}.items()
            if topic not in known and counts.get(topic, 0)
        }
        new = attrs.evolve(row, members=members, topics=known, owners=owners, left=left)
        if is_new:
            new = attrs.evolve(new, generation=generation, why=why)
        same = [pair for pair in sorted(touched) if pair in owners]
        kept = tuple(pair for pair in same if pair not in moved)
        return Change(new, tuple(moved), kept, target)

    def _aim(
        self,
        row: GroupRow,
        members: Mapping[str, MemberRow],
        counts: Mapping[str, int],
    ) -> Mapping[Partition, str]:
        wishes = {
            name: Wish(frozenset(one.topics), frozenset(one.partitions))
            for name, one in members.items()
        }
        question = Question(wishes, counts, self.target, row.own)
        return STRATEGIES[row.settings.assignment](question)

    def changed(self, change: Change, now_s: float) -> list[str]:
        """Takes over a change that is kept; returns the sentences for the log."""
        before = self.row
        self.row, self.target = change.row, change.target
        moved = set(change.moved)
        self.let_go = {
            pair
            for pair in self.let_go
            if pair not in moved and pair in self.row.owners
        }
        self.heard_s = {
            name: self.heard_s.get(name, now_s) for name in self.row.members
        }
        for name, row in self.row.members.items():
            old = before.members.get(name)
            if old is None or old.incarnation != row.incarnation:
                self.heard_s[name] = now_s
                self.rewound.pop(name, None)
        for name in self.rewound.keys() - self.row.members.keys():
            del self.rewound[name]
        self._index()
        return _moves_in_words(before, self.row, change.moved)


def _moves_in_words(
    before: GroupRow, now: GroupRow, moved: Iterable[Partition]
) -> list[str]:
    """Says who lost what to whom."""
    lines = []
    for pair in moved:
        old, new = before.owners.get(pair), now.owners[pair]
        lost = "" if old is None else f", which {old.member} had"
        lines.append(f"{new.member} has partition {pair[1]} of {pair[0]}{lost}")
    return lines
