"""Owners that write by chance while calls fail and come late, and what may be read.

Each batch has a row that nobody touches again, so that a view says which batches it is
made of. What it has to look like follows from those.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import attrs

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import (
    MANY,
    Fault,
    Request,
    answer_lost,
    comes_late,
    in_part,
    not_sent,
    refused,
)
from tests.support.hbase_owners import (
    ADDRESS,
    Contents,
    Owner,
    close,
    contents,
    database_of,
    made,
)
from txaware.errors import NotWritten, Unavailable
from txaware.model.interfaces import Write
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.head import StoreHead
from txaware.store.hbase.schema import HEAD_KEY, META
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import MESSAGE, PAYLOAD, POSITION, TOPIC, pointer_key, row_key

DATA, MARKS = b"ns:t:\0\0\0\1", MESSAGE + b"ns:marks:\0\0\0\1"
KEYS = [
    *(MESSAGE + DATA + row_key(1_700_000_000_000 + 40_000 * n) for n in range(6)),
    *(PAYLOAD + DATA + pointer_key(n) + row_key(1) for n in range(3)),
    *(POSITION + b"g:ns:t" + pointer_key(n) for n in range(3)),
    *(TOPIC + b"ns:%d" % n for n in range(3)),
]
SKEWS_S = [0, 0, 0.5, -0.5, 30, -30]
JUMPS_S = [0, 0, 0, 0.001, 0.001, 1, -5, 3600, -3600]


class Wrong(AssertionError):
    """A view that must not be."""


@attrs.define(eq=False)
class Living:
    """A process that thinks that the store is its own."""

    owner: Owner
    table: HBaseTable
    seen: set[int] = attrs.field(factory=set)

    @property
    def is_whole(self) -> bool:
        """Whether all that it began is settled."""
        return not database_of(self.table)._broken


class World:
    """A store, processes, and what all of them were told."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        random.seed(seed)  # how long is waited between tries
        self.clock = Clock()
        self.hbase = made(FakeHBase(self.clock))
        self.living: list[Living] = []
        self.batches: dict[int, dict[bytes, bytes | None]] = {}
        self.told: set[int] = set()  # and those that anybody has read
        self.never: set[int] = set()
        self.unknown: set[int] = set()
        self.counts = {"told": 0, "never": 0, "unknown": 0, "views": 0, "blocked": 0}
        self.wrong: Wrong | None = None
        self._number = 0
        self._nested = self._calm = False
        self._pool = ThreadPoolExecutor(1)

    def run(self, steps: int) -> None:
        """Lets things happen, and then looks at what is left."""
        try:
            for _ in range(steps):
                self._step()
                self._require_right()
            self._end()
            self._require_right()
        finally:
            for one in self.living:
                one.owner.way.crashed = True
                close(one.table)
            self._pool.shutdown()

    def _require_right(self) -> None:
        """What was seen while a call was on its way is no error of that call."""
        if self.wrong is not None:
            raise self.wrong

    def _step(self) -> None:
        chance = self.chance
        self.clock.advance_s(chance.choice(JUMPS_S))
        for one in [one for one in self.living if not self._owns(one)]:
            if chance.random() < 0.2:  # sooner or later whoever was taken over goes
                self.living.remove(one)
                close(one.table)
        if not self.living or chance.random() < 0.06:
            self._open()
        elif chance.random() < 0.03:
            one = self.living.pop(chance.randrange(len(self.living)))
            close(one.table)
        elif chance.random() < 0.15:
            self._world()
        elif chance.random() < 0.3:
            self._read(chance.choice(self.living))
        else:
            self._write(chance.choice(self.living))

    def _world(self) -> None:
        late = self.hbase.late
        if late and self.chance.random() < 0.8:
            self.hbase.arrive(self.chance.randrange(len(late)))
        else:
            self.hbase.flush()

    def _open(self) -> None:
        """A new owner, in whose way may be others who live on."""
        chance = self.chance
        clock = Clock(self.clock.now_ms + int(1000 * chance.choice(SKEWS_S)))
        owner = Owner(self.hbase, clock, patience_s=chance.choice([0, 0, 3]))
        owner.meanwhile = self._world
        owner.way.fault = self._faults(owner, one_in=60)
        try:
            found = Living(owner, owner.table())
        except Unavailable:
            return
        self.living = [*self.living[-2:], found]
        owner.way.fault = self._faults(owner, one_in=80)
        self._read(found)

    def _write(self, one: Living) -> None:
        number, self._number = self._number, self._number + 1
        one.owner.clock.advance_s(self.chance.choice(JUMPS_S))
        writes = self._writes(number)
        self.batches[number] = dict(writes)
        try:
            one.table.submit(writes)()
        except NotWritten:
            self.never.add(number)
            self.counts["never"] += 1
        except Unavailable:
            self.unknown.add(number)
            self.counts["unknown"] += 1
        else:
            self.told.add(number)
            self.counts["told"] += 1
            return
        self._read(one)  # which settles it
        if self.hbase.late and self.chance.random() < 0.5:
            self.hbase.arrive(len(self.hbase.late) - 1)

    def _writes(self, number: int) -> list[Write]:
        size = self.chance.choice([0, 5, 5, 60, 300])
        value = b"\0%d " % number + b"x" * size
        keys = self.chance.sample(KEYS, self.chance.randint(1, 6))
        changes: list[Write] = [
            (key, None if self.chance.random() < 0.25 else value) for key in keys
        ]
        return [(MARKS + row_key(number), value), *changes]

    def _faults(
        self, owner: Owner, *, one_in: int
    ) -> Callable[[int, Request], Fault | None]:
        """Now and then a call goes wrong, and perhaps those that follow it."""
        left, kinds = [0], [refused, not_sent]

        def fault(number: int, request: Request) -> Fault | None:
            self._look_around(0.6 if request.name in MANY else 0.1)
            if left[0] and not self._calm:
                left[0] -= 1
                return self.chance.choice(kinds)
            is_of_head = (
                request.name == "checkAndPut"
            )  # few of the calls, and the worst
            if self._calm or self.chance.randrange(
                one_in // 4 if is_of_head else one_in
            ):
                return None
            left[0] = self.chance.choice([0, 0, 0, 1, 3, 15])
            if is_of_head and self.chance.random() < 0.5:
                return comes_late
            return self.chance.choice(
                [not_sent, refused, answer_lost, comes_late, in_part(self.chance)]
            )

        return fault

    def _look_around(self, likely: float) -> None:
        """Others read, write and take over while a call is on its way."""
        if self._nested or not self.living or self.chance.random() > likely:
            return
        self._nested = True
        try:
            what = self.chance.random()
            if what < 0.02:
                self._pool.submit(self._open).result()
            elif what < 0.15 and len(self.living) > 1:
                others = [one for one in self.living if one.is_whole][-1:]
                for one in others:
                    if not one.table.journal._writing.locked():
                        self._pool.submit(self._write, one).result()
            elif what < 0.3:
                self._world()
            else:
                one = self.chance.choice(self.living)
                self._pool.submit(self._read, one).result()
        finally:
            self._nested = False

    def _read(self, one: Living) -> None:
        is_last = self._owns(one)
        ended = self.told | self.unknown
        told = set(self.told)
        nested, self._nested = self._nested, True  # it is several scans
        self._calm = self.chance.random() < 0.7  # of very many calls
        try:
            view = contents(database_of(one.table))
        except Unavailable:
            self.counts["blocked"] += 1
            return
        finally:
            self._nested, self._calm = nested, False
        self.counts["views"] += 1
        try:
            self._judge(one, view, must=told if is_last else set(), exact=False)
        except Wrong as wrong:
            self.wrong = self.wrong or wrong
            return
        if is_last:
            self.never |= ended - one.seen

    def _owns(self, one: Living) -> bool:
        row = self.hbase.getRow(ADDRESS.table(META), HEAD_KEY, {})
        head = StoreHead.from_bytes(row[0].columns[WHOLE].value)
        is_its: bool = head.owner == database_of(one.table)._ownership.owner
        return is_its

    def _judge(
        self, one: Living, view: Contents, *, must: set[int], exact: bool
    ) -> None:
        made_of = {
            int.from_bytes(key[-10:-2], "big") for key in view if key.startswith(MARKS)
        }
        _require("is lost", must - made_of)
        _require("vanished", one.seen - made_of)
        _require("came after all", made_of & self.never)
        one.seen = made_of
        self.told |= made_of
        expected = self._expected(made_of)
        missing = {key for key in expected if key not in view}
        may_miss = set[bytes]()
        if not exact:  # of a batch that is not seen yet, deletions are
            for number in self.batches.keys() - made_of - self.never:
                may_miss |= self.batches[number].keys()
        _require("has rows missing", missing - may_miss)
        _require("has other rows", {k for k in view if view[k] != expected.get(k)})

    def _expected(self, made_of: set[int]) -> Contents:
        rows = self.hbase.tables[b"t_messages"]
        times = {}
        for key, row in rows.items():
            if key[1:].startswith(MARKS[1:]):
                cells = next(iter(row.cells.values()))
                times[int.from_bytes(key[-10:-2], "big")] = max(cells)
        _require("came at one time", len(times) - len(set(times.values())))
        found: Contents = {}
        for number in sorted(made_of, key=lambda number: times[number]):
            for key, value in self.batches[number].items():
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    def _end(self) -> None:
        """All that is late comes; then a last owner, and one after it."""
        for _ in range(2):
            owner = Owner(self.hbase, Clock(self.clock.now_ms))
            found = Living(owner, owner.table())
            told = set(self.told)
            view = contents(database_of(found.table))
            self._judge(found, view, must=told, exact=True)
            self.never |= self.unknown - found.seen
            while self.hbase.late:
                self.hbase.arrive(self.chance.randrange(len(self.hbase.late)))
                with suppress(Unavailable):
                    again = contents(database_of(found.table))
                    self._judge(found, again, must=told, exact=True)
            assert found.table.status() == "OK"
            self.hbase.flush()
            found.table.close()


def _require(what: str, found: object) -> None:
    if found:
        raise Wrong(f"a view {what}: {found}")
