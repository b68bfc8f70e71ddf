"""What a coordinator still knows of ended transactions: restarts, copies, bounds."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.group_commit import End
from coordinator.embedded.history import History
from coordinator.embedded.journal import MemoryJournal
from coordinator.embedded.records import (
    Aborted,
    Invalidated,
    Reached,
    Record,
    Reserved,
    Truncated,
    decode_records,
    encode_records,
)
from coordinator.errors import Unavailable
from coordinator.outcome import Aborts, Outcome
from coordinator.remote.calls import ROOT
from coordinator.remote.server import CoordinatorRoutes
from coordinator.transaction import Transaction
from tests.support.coordinators import remote
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.store.journaled_table import FORMAT, SECOND_FORMAT
from txaware.store.keys import JOURNAL
from txaware.store.leveldb import ROWS
from txaware.store.leveldb_binding import leveldb


def outcomes(site: Site, *txs: Transaction) -> list[str]:
    return [site.embedded.coordinator.outcome(tx).value for tx in txs]


def test_outcomes_are_known_after_a_crash(lasting: Site) -> None:
    """Also of an abort that no batch had carried, and in a journal written anew."""
    coordinator = lasting.messaging.coordinator
    first, committed, invalid, later = (coordinator.start_short() for _ in range(4))
    coordinator.abort(first)  # before any batch
    commit(lasting.messaging, committed)
    coordinator.invalidate(invalid)
    later = coordinator.checkpoint(later)
    coordinator.persist(later)
    coordinator.abort(later)
    coordinator.persist(coordinator.start_short())
    expected = ["rolled back", "committed", "rolled back", "rolled back"]
    for _ in range(2):
        coordinator = lasting.crash().coordinator
        assert outcomes(lasting, first, committed, invalid, later) == expected
        pointer = later.checkpoint_write_pointers[0]
        assert coordinator.outcome(pointer) is Outcome.ROLLED_BACK
        tx = coordinator.start_short()
        lasting.crash()
        assert outcomes(lasting, tx) == ["rolled back"]  # without any record


def test_a_history_written_anew_knows_the_same() -> None:
    history = History()
    listed: list[Record] = [
        Reached(10, 10),
        Reserved(99),
        Aborted(11),  # before anybody said that outcomes are known
        Truncated((0, 12)),
        Aborted(20),
        Truncated((15,)),
    ]
    for record in listed:
        history.apply(record)
    again = History()
    for record in history.records():
        again.apply(record)
    assert again.knows_outcomes
    assert again.aborts == history.aborts == Aborts([20], forgotten=15)


class Earlier(MemoryJournal):
    """The journal of a version that kept no outcomes."""

    def __init__(self) -> None:
        super().__init__()
        for record in (Reached(10, 10), Reserved(50), Truncated((20,)), Aborted(40)):
            self.history.apply(record)


def test_what_an_earlier_version_ended_is_forgotten() -> None:
    coordinator = EmbeddedCoordinator(Earlier(), clock_ms=Clock())
    for pointer in (15, 20, 30, 40):
        assert coordinator.outcome(pointer) is Outcome.FORGOTTEN
    tx = coordinator.start_short()
    coordinator.commit(tx)
    assert coordinator.outcome(tx) is Outcome.COMMITTED


def made_earlier(directory: Path) -> None:
    """As the version before left it, which did not say that outcomes are known."""
    with closing(leveldb().DB(str(directory / ROWS))) as db:
        for key, value in list(db.iterator(prefix=JOURNAL)):
            records = decode_records(value)
            kept = [each for each in records if not isinstance(each, Truncated)]
            db.put(key, encode_records(kept))
        db.put(FORMAT, SECOND_FORMAT)


def test_the_last_of_an_earlier_version_stays_invalid(durable: Site) -> None:
    """Its pointer is the bound of what is forgotten, and is not forgotten itself."""
    messaging = durable.messaging
    messaging.create_topic("t")
    last = messaging.coordinator.start_short()
    messaging.publish("t", [b"never"], transaction=last)
    messaging.coordinator.invalidate(last)
    messaging.close()
    made_earlier(durable.directory)
    for _ in range(3):
        messaging = durable.open()
        assert messaging.coordinator.outcome(last) is Outcome.ROLLED_BACK
        assert not messaging.poll("t", isolation="committed")
        assert not messaging.check().problems
        messaging.close()


class InDoubt(MemoryJournal):
    """Keeps everything, and says of invalidations that this is not known."""

    def submit(self, *records: Record, end: End | None = None) -> Callable[[], None]:
        for record in records:
            self.history.apply(record)
        if end is None or not isinstance(records[0], Invalidated):
            return super().submit(*records, end=end)
        end.submitted = True
        end.on_written(Unavailable("nobody knows"))
        return self.append

    def append(self, *records: Record) -> None:
        for record in records:
            self.history.apply(record)
        super().append()

    def note(self, _: int, record: Record) -> None:
        self.history.apply(record)


def test_a_commit_takes_back_an_invalidation_in_doubt_with_its_checkpoints() -> None:
    journal, clock = InDoubt(), Clock()
    coordinator = EmbeddedCoordinator(journal, clock_ms=clock)
    tx = coordinator.checkpoint(coordinator.start_short())
    coordinator.invalidate(tx)
    coordinator.commit(tx)
    again = EmbeddedCoordinator(journal, clock_ms=clock)
    assert [again.outcome(each) for each in tx.pointers] == [Outcome.COMMITTED] * 2


def test_of_very_many_aborts_the_oldest_are_forgotten() -> None:
    aborts = Aborts(most=16)
    for pointer in range(1, 18):
        aborts.add([pointer])
    assert aborts.forgotten == 3
    assert list(aborts) == list(range(4, 18))
    aborts.add([2, 5, 18])
    assert list(aborts) == list(range(4, 19))


def test_who_writes_elsewhere_is_told_before_it_does() -> None:
    inner = EmbeddedCoordinator()
    told: list[tuple[int, tuple[str, ...]]] = []
    inner.barrier.on_write_elsewhere(lambda tx, names: told.append((tx, tuple(names))))
    routes = CoordinatorRoutes(inner)
    tx = inner.start_short()
    for participants, expected in [
        ("", "(unnamed)"),
        ('"participants": ["a", "b"]', "a b"),
        ('"participants": null', "(unnamed)"),
        ('"participants": []', ""),
    ]:
        body = f"{{{participants}}}".encode()
        path = f"{ROOT}/{tx.transaction_id}/persist"
        assert routes.answer("POST", path, body).status == 200
        names = tuple(expected.split())
        assert told == ([(tx.transaction_id, names)] if names else [])
        told.clear()
    assert remote(inner).checkpoint(tx).checkpoint_write_pointers
    assert not told, "nobody but the coordinator needs a checkpoint on disk"


@pytest.mark.parametrize("wrong", ['"a"', "[1]", '[""]', '["' + "x" * 1001 + '"]'])
def test_names_that_are_none_are_refused(wrong: str) -> None:
    inner = EmbeddedCoordinator()
    tx = inner.start_short()
    path = f"{ROOT}/{tx.transaction_id}/persist"
    body = f'{{"participants": {wrong}}}'.encode()
    assert CoordinatorRoutes(inner).answer("POST", path, body).status == 400


class Interrupted(Exception):
    """Ends a copy in the middle."""


def test_a_copy_that_goes_on_after_a_crash_of_its_source_is_sound(
    durable: Site, tmp_path: Path
) -> None:
    """What was lost and aborted after the copy's moment is lost there anyway."""
    messaging = durable.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    gone = messaging.coordinator.start_short()
    messaging.coordinator.abort(gone)
    messaging.close()
    source, target = f"leveldb:{durable.directory}", f"leveldb:{tmp_path}/copy"

    def stop(rows: int, part: float | None) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        txaware.copy(source, target, progress=stop, clock_ms=durable.clock)
    messaging = durable.open()
    later = messaging.coordinator.start_short()
    messaging.coordinator.abort(later)
    messaging = durable.crash()
    last = messaging.coordinator.start_short()
    messaging.coordinator.abort(last)
    messaging.close()
    txaware.copy(f"leveldb:{durable.directory}", target, clock_ms=durable.clock)
    report = check_directory(tmp_path / "copy", Settings())
    assert report.is_clean, report.problems
    with txaware.connect(target, clock_ms=durable.clock) as copy:
        assert copy.coordinator.outcome(gone) is Outcome.ROLLED_BACK
