"""Rows handed over by an event loop, which are led once its turn is over."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.embedded.group_commit import End, GroupCommit
from coordinator.errors import Unavailable
from coordinator.threads import turns
from tests.support.gated_destination import PATIENCE_S, GatedDestination, Told


@pytest.fixture
def turn() -> Iterator[list[Callable[[], object]]]:
    """What this thread, as an event loop, calls when its turn is over."""
    later: list[Callable[[], object]] = []
    turns.call_soon = lambda call, *args: later.append(lambda: call(*args))
    yield later
    turns.call_soon = None


@pytest.fixture
def memory() -> GatedDestination:
    memory = GatedDestination()
    memory.go_on.set()
    return memory


def handed_over(journal: GroupCommit, *rows: int) -> list[Told]:
    told = []
    for row in rows:
        told.append(Told())
        journal.hand_over([row], End(told[-1]))
    return told


def test_what_a_turn_hands_over_is_one_batch(
    turn: list[Any], memory: GatedDestination
) -> None:
    journal = GroupCommit(memory)
    told = handed_over(journal, 1, 2, 3)
    assert len(turn) == 1
    assert not memory.batches
    turn.pop()()
    told[-1].wait()
    assert memory.batches == [[1, 2, 3]]
    assert [each.errors for each in told] == [[None]] * 3
    journal.close()


def test_without_turns_a_batch_is_led_at_once(memory: GatedDestination) -> None:
    memory.go_on.clear()
    journal = GroupCommit(memory)
    (first,) = handed_over(journal, 1)
    memory.go_on.set()
    first.wait()
    assert memory.batches[0][0] == 1
    journal.close()


def test_a_thread_that_waits_leads_what_was_handed_over(
    turn: list[Any], memory: GatedDestination
) -> None:
    """The turn may last long, and nobody else waits for its end."""
    journal = GroupCommit(memory)
    (told,) = handed_over(journal, 1)
    other = threading.Thread(target=journal.submit(rows=[2]))
    other.start()
    other.join(PATIENCE_S)
    told.wait()
    assert memory.batches == [[1, 2]]
    turn.pop()()  # finds nothing to do
    (later,) = handed_over(journal, 3)
    turn.pop()()
    later.wait()
    assert memory.batches == [[1, 2], [3]]
    journal.close()


def test_a_close_before_the_end_of_the_turn_writes_it(
    turn: list[Any], memory: GatedDestination
) -> None:
    journal = GroupCommit(memory)
    (told,) = handed_over(journal, 1)
    journal.close()
    told.wait()
    assert memory.batches == [[1]]
    turn.pop()()
    assert told.errors == [None]


def test_turns_are_those_of_one_thread(
    turn: list[Any], memory: GatedDestination
) -> None:
    journal = GroupCommit(memory)
    told: list[Told] = []
    other = threading.Thread(target=lambda: told.extend(handed_over(journal, 1)))
    other.start()
    other.join(PATIENCE_S)
    told[0].wait()
    assert not turn
    journal.close()


def test_a_closed_journal_without_a_messaging_names_none(
    memory: GatedDestination,
) -> None:
    journal = GroupCommit(memory)
    journal.close()
    with pytest.raises(Unavailable, match=r"^the coordinator is closed; make another$"):
        journal.submit(rows=[1])
