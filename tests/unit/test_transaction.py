"""Visibility: exactly what Tephra's Transaction answers, by its own rules."""

import attrs
import pytest
from hypothesis import given

from coordinator.transaction import (
    NO_POINTER,
    Transaction,
    TransactionType,
    VisibilityLevel,
)
from tests.support.strategies import pointers, transactions

LEVELS = list(VisibilityLevel)


def tx(read: int, own: int, invalid: list[int], in_progress: list[int]) -> Transaction:
    return Transaction(own, read, invalids=invalid, in_progress=in_progress)


def by_the_book(tx: Transaction, pointer: int) -> bool:
    excluded = pointer in list(tx.in_progress) or pointer in list(tx.invalids)
    own = pointer in (
        tx.write_pointer,
        tx.transaction_id,
        *tx.checkpoint_write_pointers,
    )
    hidden = (
        tx.visibility_level is VisibilityLevel.SNAPSHOT_EXCLUDE_CURRENT
        and pointer == tx.write_pointer
    )
    return (pointer <= tx.read_pointer and not excluded) or (own and not hidden)


@given(transactions, pointers)
def test_visibility_is_as_the_book_says(tx: Transaction, pointer: int) -> None:
    asked = {
        pointer,
        *tx.pointers,
        *tx.invalids,
        *tx.in_progress,
        tx.read_pointer,
        tx.write_pointer,
    }
    for one in asked:
        assert tx.is_visible(one) == by_the_book(tx, one)
        excluded = one in list(tx.in_progress) or one in list(tx.invalids)
        assert tx.is_excluded(one) == excluded


@pytest.mark.parametrize(
    ("snapshot", "pointer", "visible"),
    [
        (tx(3, 3, [], [2]), 2, False),
        (tx(3, 3, [2], []), 2, False),
        (tx(3, 3, [], []), 2, True),
        (tx(3, 3, [], []), 4, False),
        (tx(1, 2, [], []), 2, True),
    ],
)
def test_scenarios_27_to_31_decide_by_pointer(
    snapshot: Transaction, pointer: int, visible: bool
) -> None:
    assert snapshot.is_visible(pointer) is visible


def test_only_exclude_current_hides_the_pointer_written_with_now() -> None:
    checkpointed = tx(1, 5, [], []).with_checkpoint(9)
    assert checkpointed.pointers == (5, 9)
    assert checkpointed.write_pointer == 9
    assert checkpointed.transaction_id == 5
    for level in LEVELS:
        seen = attrs.evolve(checkpointed, visibility_level=level)
        assert seen.is_visible(5)
        hides = level is VisibilityLevel.SNAPSHOT_EXCLUDE_CURRENT
        assert seen.is_visible(9) is not hides


def test_an_invalid_pointer_of_its_own_is_still_seen_by_its_holder() -> None:
    assert tx(9, 5, [5], []).is_visible(5)


def test_bounds_name_the_first_in_progress_and_what_is_surely_visible() -> None:
    assert tx(8, 10, [], [4, 6]).first_in_progress == 4
    assert tx(8, 10, [], [4, 6]).visibility_upper_bound == 3
    assert tx(8, 10, [], []).first_in_progress == NO_POINTER
    assert tx(8, 10, [], []).visibility_upper_bound == 8
    assert tx(20, 10, [], []).visibility_upper_bound == 9


def test_a_snapshot_is_frozen_and_knows_when_it_began() -> None:
    begun = Transaction(1_700_000_000_123_000_007, 1)
    assert begun.start_ms == 1_700_000_000_123
    assert begun.type is TransactionType.SHORT
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        begun.read_pointer = 2  # type: ignore[misc]
