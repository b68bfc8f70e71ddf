"""The lives of a coordinator: in a directory that is copied, or opened twice."""

import shutil
from pathlib import Path

import pytest

from coordinator.embedded import coordinator as embedded
from coordinator.embedded import history, lives
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import Disk, FileJournal, JournalFile
from coordinator.embedded.history import KNOWN_ABOVE
from coordinator.embedded.lives import MOST_PER_MS, NO_PLACE
from coordinator.embedded.records import (
    Closed,
    Committed,
    Lived,
    Reached,
    Record,
    Reserved,
    Started,
    Truncated,
    decode_records,
    encode_records,
)
from coordinator.errors import (
    BadRequest,
    TransactionNotInProgress,
    TransactionRefused,
)
from coordinator.outcome import Outcome
from coordinator.transaction import POINTERS_PER_MS, Transaction
from coordinator.transaction_status import NEVER, standing

pytestmark = pytest.mark.usefixtures("copies_are_told")
NOW_MS = 1_800_000_000_000


@pytest.fixture(autouse=True)
def salts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two lives have the same salt, which they could have by chance."""
    drawn = iter(range(1000, 900_000, 1000))
    monkeypatch.setattr(embedded, "new_salt", lambda: next(drawn))


def opened(directory: Path) -> EmbeddedCoordinator:
    """Every life begins at the same moment, which is the worst one for a pointer."""
    return EmbeddedCoordinator.open(directory, clock_ms=lambda: NOW_MS)


def committed(coordinator: EmbeddedCoordinator, *, over_network: bool = False) -> int:
    tx = coordinator.start_short(outlives_process=over_network)
    coordinator.can_commit(tx, [])
    coordinator.commit(tx)
    return tx.transaction_id


def copied(source: Path) -> Path:
    return Path(shutil.copytree(source, source.with_name(f"{source.name}-copy")))


def test_what_was_begun_after_a_copy_is_unknown_to_it_at_each_opening(
    tmp_path: Path,
) -> None:
    source = tmp_path / "data"
    with opened(source) as first:
        before = committed(first)
    copy = copied(source)
    with opened(source) as original:
        later, life = committed(original), original.life_of(before)
        assert original.life_of(later) not in (life, "")
        named = original.life_of(later)
    for _ in range(3):
        with opened(copy) as coordinator:
            committed(coordinator)
            assert coordinator.outcome(later) is Outcome.FORGOTTEN
            assert coordinator.outcome(later, life=named) is Outcome.FORGOTTEN
            assert coordinator.outcome(before, life=life) is Outcome.COMMITTED
            assert coordinator.outcome(before, life=named) is Outcome.FORGOTTEN
            assert standing(coordinator, later).state == NEVER
            for call in (coordinator.commit, coordinator.invalidate):
                with pytest.raises(TransactionNotInProgress, match="put back from a"):
                    call(Transaction(later, 0))


def test_a_copy_of_one_that_goes_on_knows_no_end_of_what_was_open_then(
    tmp_path: Path,
) -> None:
    source = tmp_path / "data"
    original = opened(source)
    known = committed(original)
    tx = original.start_short(outlives_process=True)
    original.persist(tx)
    mine = original.start_short()
    named = original.start_short(outlives_process=True)
    original.can_commit(named, [])
    original.prepare(named, "kept")
    copy = copied(source)
    later = original.start_short()  # of those pointers that are reserved already
    for each in (tx, mine, later):
        original.can_commit(each, [])
        original.commit(each)
    for _ in range(2):
        with opened(copy) as coordinator:
            outcomes = {each: coordinator.outcome(each) for each in (tx, mine, later)}
            assert set(outcomes.values()) == {Outcome.FORGOTTEN}
            assert coordinator.outcome(known) is Outcome.COMMITTED
            with pytest.raises(TransactionNotInProgress):
                coordinator.commit(tx)
            assert [one.name for one in coordinator.prepared()] == ["kept"]
    original.commit_prepared("kept")
    original.close()
    with opened(source) as original:
        assert {original.outcome(each) for each in outcomes} == {Outcome.COMMITTED}


def test_a_crash_in_place_is_no_copy_and_neither_is_a_new_name(tmp_path: Path) -> None:
    source = tmp_path / "data"
    killed = opened(source)
    tx = killed.start_short(outlives_process=True)
    killed.persist(tx)
    lost = killed.start_short()
    killed._journal.close()  # it dies before anything else is written
    moved = source.rename(tmp_path / "moved")
    (moved / "LOCK").chmod(0o640)  # as somebody does who moves a directory
    with opened(moved) as coordinator:
        assert coordinator.outcome(lost) is Outcome.ROLLED_BACK
        coordinator.can_commit(tx, [])
        coordinator.commit(tx)


def test_two_copies_that_run_at_once_give_out_pointers_of_their_own(
    tmp_path: Path,
) -> None:
    source = tmp_path / "data"
    opened(source).close()
    with opened(source) as original, opened(copied(source)) as clone:
        found = [{committed(one) for _ in range(1000)} for one in (original, clone)]
        assert not found[0] & found[1]
        for one, theirs in ((original, found[1]), (clone, found[0])):
            assert {one.outcome(pointer) for pointer in theirs} == {Outcome.FORGOTTEN}


def test_a_life_is_on_disk_before_its_first_pointer_and_says_which_are_its_own(
    tmp_path: Path,
) -> None:
    coordinator = opened(tmp_path)
    assert isinstance(coordinator._journal, FileJournal)
    (life,) = JournalFile(Disk(copied(tmp_path)), compact_bytes=0).history.lives
    pointers = [coordinator.snapshot().transaction_id for _ in range(MOST_PER_MS + 1)]
    assert pointers[0] == life.first
    assert pointers == sorted(set(pointers))
    assert pointers[-1] == life.first + POINTERS_PER_MS  # the next ms: ids are ahead
    assert all(
        coordinator.life_of(pointer) == f"{life.life:016x}" for pointer in pointers
    )
    for other in (life.first - 1, life.first + MOST_PER_MS, pointers[-1] + 1):
        assert coordinator.outcome(other) is Outcome.FORGOTTEN
        assert coordinator.life_of(other) == ""
    coordinator.close()


def test_the_past_of_an_earlier_version_is_one_life_without_a_name(
    tmp_path: Path,
) -> None:
    first = NOW_MS * POINTERS_PER_MS
    done, going_on = first + 1, first + 2
    journal = FileJournal.open(tmp_path)
    records: list[Record] = [
        Reached(first, first),
        Reserved(first + 100),
        Truncated((KNOWN_ABOVE, first)),
        Started(done, NOW_MS + 60_000, outlives_process=True),
        Committed(done),
        Started(going_on, NOW_MS + 60_000, outlives_process=True),
        Closed(going_on),
    ]
    journal.append(*records)
    journal.close()
    with opened(tmp_path) as coordinator:
        coordinator.can_commit(Transaction(going_on, 0), [])
        coordinator.commit(Transaction(going_on, 0))
        mine = committed(coordinator)
    for _ in range(2):
        with opened(tmp_path) as coordinator:
            for pointer in (done, going_on):
                assert coordinator.life_of(pointer) == ""
                assert coordinator.outcome(pointer) is Outcome.COMMITTED
                assert coordinator.outcome(pointer, life="") is Outcome.COMMITTED
                assert coordinator.outcome(pointer, life="1" * 16) is Outcome.FORGOTTEN
            assert coordinator.outcome(mine, life="") is Outcome.FORGOTTEN
            assert coordinator.outcome(going_on + 1) is Outcome.FORGOTTEN


@pytest.mark.parametrize("yes", [True, False])
def test_a_person_decides_what_nobody_knows_and_it_stays_so(
    tmp_path: Path, yes: bool
) -> None:
    source = tmp_path / "data"
    opened(source).close()
    copy = copied(source)
    with opened(source) as original:
        pointer = committed(original)
        life = original.life_of(pointer)
        with pytest.raises(TransactionRefused, match="is committed: only what nobody"):
            original.decide(pointer, committed=yes, life=life)
    with opened(copy) as coordinator:
        for wrong in ("1", "x" * 16, "ABCDEF0123456789", "0" * 16):
            with pytest.raises(BadRequest, match="16 hex digits"):
                coordinator.decide(pointer, committed=yes, life=wrong)
        coordinator.decide(pointer, committed=yes, life=life)
        assert coordinator.outcome(pointer) is Outcome.FORGOTTEN  # of whichever life
        own = coordinator.life_of(coordinator.start_short())
        with pytest.raises(TransactionRefused, match="which goes on"):
            coordinator.decide(2**62, committed=yes, life=own)
    expected = Outcome.COMMITTED if yes else Outcome.ROLLED_BACK
    journal = JournalFile(Disk(copy), compact_bytes=1)
    journal.fold([])  # it is written anew, in few records
    journal.close()
    with opened(copy) as coordinator:
        assert coordinator.outcome(pointer, life=life) is expected
        with pytest.raises(TransactionRefused):
            coordinator.decide(pointer, committed=not yes, life=life)


def test_the_oldest_lives_are_forgotten_with_their_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lives, history):
        monkeypatch.setattr(module, "MOST_LIVES", 3)
    pointers = []
    for _ in range(5):
        with opened(tmp_path) as coordinator:
            pointers.append(committed(coordinator))
    with opened(tmp_path) as coordinator:
        found = [coordinator.outcome(pointer) for pointer in pointers]
    assert found == [Outcome.FORGOTTEN] * 3 + [Outcome.COMMITTED] * 2


def test_a_life_that_gave_out_nothing_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as coordinator:
        pointer = committed(coordinator)
    for _ in range(5):
        opened(tmp_path).close()
    journal = JournalFile(Disk(tmp_path), compact_bytes=1 << 20)
    first, _ = journal.history.lives
    assert first.first == pointer == first.last
    journal.close()


def test_the_records_of_lives_can_be_read_again() -> None:
    written = [Lived(2**63, 5, 7, -1, NO_PLACE), Lived(1, 8, 0, 999_000, b"p" * 16)]
    assert list(decode_records(encode_records(written))) == written
