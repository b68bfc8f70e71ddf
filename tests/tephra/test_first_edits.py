"""Who may answer before the first edit of a log is flushed: nobody."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.errors import Unavailable
from coordinator.tephra.tephra_coordinator import FirstEdits

PATIENCE_S = 20.0


class Log:
    """Stands for Tephra's log: an edit flushes it, when the test lets it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.edits = 0
        self.flushes_at = 1
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def roll(self, name: str) -> None:
        """A new file, with an edit in it that is not flushed."""
        (self.directory / name).touch()

    def edit(self) -> None:
        self.edits += 1
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        if self.edits >= self.flushes_at:
            for path in self.directory.glob("txlog.*"):
                path.write_bytes(b"edit")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_each_new_log_gets_one_edit_and_old_ones_none(log: Log) -> None:
    log.roll("txlog.1")
    first_edits = FirstEdits(log.directory, log.edit)
    first_edits.flush()
    assert log.edits == 0
    log.roll("txlog.2")
    (log.directory / "snapshot.3").touch()
    for _ in range(3):
        first_edits.flush()
    assert log.edits == 1
    log.roll("txlog.1000")
    first_edits.flush()
    assert log.edits == 2


def test_a_log_with_a_name_before_the_others_is_new_too(log: Log) -> None:
    log.roll("txlog.5")
    first_edits = FirstEdits(log.directory, log.edit)
    log.roll("txlog.4")
    first_edits.flush()
    assert log.edits == 1


def test_nobody_returns_before_the_edit_is_done(log: Log) -> None:
    first_edits = FirstEdits(log.directory, log.edit)
    log.roll("txlog.1")
    log.may_end.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(first_edits.flush)
        assert log.begun.wait(PATIENCE_S)
        others = [pool.submit(first_edits.flush) for _ in range(3)]
        with pytest.raises(TimeoutError):
            others[0].result(0.05)
        assert not any(one.done() for one in (first, *others))
        log.may_end.set()
        for one in (first, *others):
            one.result(PATIENCE_S)
    assert log.edits == 1


def test_an_edit_that_flushed_nothing_is_followed_by_another(log: Log) -> None:
    first_edits = FirstEdits(log.directory, log.edit)
    log.roll("txlog.1")
    log.flushes_at = 3
    first_edits.flush()
    assert log.edits == 3


def test_a_log_that_is_never_written_is_unavailable(log: Log) -> None:
    first_edits = FirstEdits(log.directory, log.edit)
    log.roll("txlog.1")
    log.flushes_at = 10_000
    with pytest.raises(Unavailable, match=r"txlog\.1"):
        first_edits.flush()
    with pytest.raises(Unavailable):
        first_edits.flush()


def test_a_log_that_was_removed_meanwhile_counts_as_flushed(log: Log) -> None:
    def remove() -> None:
        (log.directory / "txlog.1").unlink()

    first_edits = FirstEdits(log.directory, remove)
    log.roll("txlog.1")
    first_edits.flush()


def test_a_failed_edit_leaves_the_log_to_the_next_call(log: Log) -> None:
    def fail() -> None:
        raise Unavailable("away")

    edits = [fail]
    first_edits = FirstEdits(
        log.directory, lambda: (edits.pop() if edits else log.edit)()
    )
    log.roll("txlog.1")
    with pytest.raises(Unavailable):
        first_edits.flush()
    first_edits.flush()
    assert log.edits == 1
