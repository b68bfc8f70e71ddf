"""Batches that are parts of one request end before its error comes."""

import threading
from typing import Any

import pytest

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from txaware.errors import BadRequest, NotWritten, Unavailable, changed_nothing
from txaware.store.together import at_once, submitting, wait_for_all

PATIENCE_S = 30


def failing() -> None:
    raise NotWritten("the disk is full")


def test_what_was_submitted_is_waited_for_before_the_error_of_the_rest() -> None:
    ended: list[str] = []
    waits: list[Wait] = [failing, lambda: ended.append("second")]
    told = "a part of it is written, and then: too many"
    with pytest.raises(Unavailable, match=told), submitting(waits):
        raise BadRequest("too many")
    assert ended == ["second"]


def test_an_error_before_anything_was_submitted_stays_as_it_is() -> None:
    with pytest.raises(BadRequest), submitting([]):
        raise BadRequest("too many")


def test_no_error_of_a_part_says_that_nothing_changed() -> None:
    with pytest.raises(Unavailable) as in_part:
        wait_for_all([failing, lambda: None])
    assert not changed_nothing(in_part.value)
    with pytest.raises(NotWritten) as in_all:
        wait_for_all([failing, failing])
    assert changed_nothing(in_all.value)


class Slow:
    """A table whose batch is on disk once that of another is under way."""

    def __init__(self, other: threading.Event) -> None:
        self.is_under_way = threading.Event()
        self._other = other

    def _write(self) -> Unavailable | None:
        self.is_under_way.set()
        in_time = self._other.wait(PATIENCE_S)
        return None if in_time else Unavailable("nobody wrote the other one meanwhile")

    def submit(self, _: object, on_written: OnWritten) -> Wait:
        def wait() -> None:
            on_written(self._write())

        return wait

    def hand_over(self, rows: object, on_written: OnWritten) -> None:
        threading.Thread(target=self.submit(rows, on_written), daemon=True).start()


def test_batches_of_several_shards_are_written_at_the_same_time() -> None:
    never = threading.Event()
    first, last = Slow(never), Slow(never)
    first._other, last._other = last.is_under_way, first.is_under_way
    told: list[Unavailable | None] = []
    tables: Any = [first, last]
    wait_for_all([submit([], told.append) for submit in at_once(tables)])
    assert told == [None, None]


def test_a_batch_that_another_thread_wrote_in_vain_is_told() -> None:
    class Broken(Slow):
        def hand_over(self, _: object, on_written: OnWritten) -> None:
            on_written(Unavailable("the disk is full"))

    done = threading.Event()
    done.set()
    tables: Any = [Broken(done), Slow(done)]
    waits = [submit([], lambda _: None) for submit in at_once(tables)]
    with pytest.raises(Unavailable, match="a part of it is written, and then: the di"):
        wait_for_all(waits)
