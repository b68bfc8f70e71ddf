"""Crashes at every write of the journal, and real ones by kill -9."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from coordinator.errors import TransactionConflict, Unavailable
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.fake_disk import Crash, FakeDisk
from tests.support.python_process import PythonProcess

COMPACT_BYTES = 700
STEPS = 200


@attrs.define
class Known:
    """What a client knows when its coordinator crashes."""

    committed: set[int] = attrs.field(factory=set)
    invalid: set[int] = attrs.field(factory=set)
    outliving: set[int] = attrs.field(factory=set)
    persisted: set[int] = attrs.field(factory=set)
    asked_to_commit: set[int] = attrs.field(factory=set)
    given: list[int] = attrs.field(factory=list)


class Workload:
    """One client with several transactions open, the same for the same seed."""

    def __init__(self, disk: FakeDisk, clock: Clock, seed: int) -> None:
        self.known = Known()
        self._clock = clock
        self._random = random.Random(seed)
        self._open: list[Transaction] = []
        stand_in: Any = disk
        journal = FileJournal(stand_in, compact_bytes=COMPACT_BYTES)
        self._coordinator = EmbeddedCoordinator(
            journal, clock_ms=clock, settle_grace_s=0, timeout_s=2000
        )

    def run(self) -> None:
        steps = [self._start] * 4 + [self._commit] * 5 + [self._checkpoint]
        steps += [self._persist, self._invalidate, self._abort, self._snapshot]
        steps += [self._truncate]
        for _ in range(STEPS):
            self._clock.advance_s(self._random.choice([0, 0.001, 4]))
            self._random.choice(steps)()
        self._coordinator.close()

    def _one(self) -> Transaction | None:
        if not self._open:
            return None
        tx = self._open.pop(self._random.randrange(len(self._open)))
        self.known.persisted.discard(tx.transaction_id)
        return tx

    def _start(self) -> None:
        outlives = self._random.random() < 0.4
        tx = self._coordinator.start_short(outlives_process=outlives)
        self.known.given.append(tx.transaction_id)
        if outlives:
            self.known.outliving.add(tx.transaction_id)
        self._open.append(tx)

    def _commit(self) -> None:
        tx = self._one()
        if tx is None:
            return
        try:
            self._coordinator.can_commit(tx, [b"k%d" % self._random.randrange(3)])
            self.known.asked_to_commit.add(tx.transaction_id)
            self._coordinator.commit(tx)
        except TransactionConflict:
            self._coordinator.abort(tx)
        else:
            self.known.committed |= set(tx.pointers)

    def _checkpoint(self) -> None:
        tx = self._one()
        if tx is not None:
            tx = self._coordinator.checkpoint(tx)
            self.known.given.append(tx.write_pointer)
            self._open.append(tx)

    def _persist(self) -> None:
        tx = self._one()
        if tx is not None:
            self._coordinator.persist(tx)
            self.known.persisted.add(tx.transaction_id)
            self._open.append(tx)

    def _invalidate(self) -> None:
        tx = self._one()
        if tx is not None:
            assert self._coordinator.invalidate(tx)
            self.known.invalid |= set(tx.pointers)

    def _abort(self) -> None:
        tx = self._one()
        if tx is not None:
            self._coordinator.abort(tx)

    def _snapshot(self) -> None:
        snapshot = self._coordinator.snapshot()
        self.known.given.append(snapshot.transaction_id)
        assert set(snapshot.invalids) >= self.known.invalid

    def _truncate(self) -> None:
        gone = {p for p in self.known.invalid if self._random.random() < 0.3}
        self.known.invalid -= gone
        self._coordinator.truncate_invalid_tx(gone)


def outcome(coordinator: EmbeddedCoordinator, transaction_id: int) -> bool:
    """How a client settles a commit whose answer it never got."""
    if coordinator.invalidate(transaction_id):
        return False
    snapshot = coordinator.snapshot()
    if transaction_id in snapshot.invalids:
        return False
    return snapshot.is_visible(transaction_id)


def check(disk: FakeDisk, clock: Clock, known: Known) -> None:
    """Everything that was acknowledged holds, now and after another crash."""
    settled: dict[int, bool] = {}
    for _ in range(2):
        stand_in: Any = disk
        journal = FileJournal(stand_in, compact_bytes=COMPACT_BYTES)
        coordinator = EmbeddedCoordinator(journal, clock_ms=clock, timeout_s=2000)
        snapshot = coordinator.snapshot()
        assert all(snapshot.transaction_id > pointer for pointer in known.given)
        assert all(snapshot.is_visible(pointer) for pointer in known.committed)
        assert known.invalid <= set(snapshot.invalids)
        for pointer in known.persisted:
            live_on = not settled and pointer in known.outliving
            kept = snapshot.in_progress if live_on else snapshot.invalids
            assert pointer in kept
            assert not snapshot.is_visible(pointer)
        for kept in (snapshot.in_progress, snapshot.invalids):
            assert list(kept) == sorted(set(kept))
        for pointer in [*known.asked_to_commit, *known.persisted]:
            answer = outcome(coordinator, pointer)
            assert answer == settled.setdefault(pointer, answer)
            assert answer or pointer not in known.committed
        journal.close()
        disk = next(disk.after_a_crash())


def crash_at(operation: int) -> Callable[[int, str], None]:
    def before(number: int, _: str) -> None:
        if number >= operation:
            raise Crash

    return before


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_a_crash_at_every_write_of_the_journal_keeps_what_was_acknowledged(
    seed: int, every: Callable[[int], Iterator[int]]
) -> None:
    for crashed_at in every(0):
        disk, clock = FakeDisk(), Clock()
        disk.before = crash_at(crashed_at)
        workload: Workload | None = None
        try:
            workload = Workload(disk, clock, seed)
            workload.run()
        except (Crash, Unavailable):
            known = workload.known if workload else Known()
            for found in disk.after_a_crash():
                check(found, clock, known)
        else:
            break
    assert crashed_at > 60, "the workload writes too little to be a test"


WORKER = """
import sys, threading
from coordinator.embedded.coordinator import EmbeddedCoordinator

coordinator = EmbeddedCoordinator.open(sys.argv[1])
out = threading.Lock()

def tell(what, pointer):
    with out:
        print(what, pointer, flush=True)

def run(name):
    number = 0
    while True:
        number += 1
        tx = coordinator.start_short()
        tell("began", tx.transaction_id)
        coordinator.can_commit(tx, [b"%s %d" % (name, number)])
        if number % 7 == 0:
            coordinator.invalidate(tx)
            tell("invalid", tx.transaction_id)
        else:
            coordinator.commit(tx)
            tell("committed", tx.transaction_id)

for name in (b"a", b"b", b"c", b"d"):
    threading.Thread(target=run, args=(name,), daemon=True).start()
threading.Event().wait()
"""


def killed_after(directory: Path, lines: int) -> list[tuple[str, int]]:
    """What a loaded coordinator had said when it was killed after so many lines."""
    with PythonProcess(
        [sys.executable, "-c", WORKER, str(directory)], stdout=subprocess.PIPE
    ) as worker:
        try:
            assert worker.stdout is not None
            said = [worker.stdout.readline() for _ in range(lines)]
            worker.send_signal(signal.SIGKILL)
            said += worker.stdout.readlines()
        finally:
            worker.kill()
    words = [line.decode().split() for line in said if line.endswith(b"\n")]
    return [(what, int(pointer)) for what, pointer in words]


def rounds_of_kill_9(directory: Path, rounds: int) -> None:
    told: dict[str, set[int]] = {"began": set(), "committed": set(), "invalid": set()}
    for round_number in range(rounds):
        before = set(told["began"])
        for what, pointer in killed_after(directory, 20 + 37 * round_number % 400):
            assert what != "began" or pointer not in before, "a pointer given twice"
            told[what].add(pointer)
        with EmbeddedCoordinator.open(directory) as coordinator:
            seen = coordinator.snapshot()
            assert all(seen.is_visible(pointer) for pointer in told["committed"])
            assert told["invalid"] <= set(seen.invalids)
            assert not seen.in_progress
            for pointer in told["began"] - told["committed"] - told["invalid"]:
                outcome(coordinator, pointer)


def test_kill_9_under_load_loses_nothing_and_gives_no_pointer_twice(
    tmp_path: Path,
) -> None:
    rounds_of_kill_9(tmp_path, 8)


@pytest.mark.soak
def test_two_hundred_rounds_of_kill_9(tmp_path: Path) -> None:
    rounds_of_kill_9(tmp_path, 200)
