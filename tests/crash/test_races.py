"""Threads that end one transaction at the same moment: exactly one of them does."""

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionConflict, TransactionNotInProgress
from coordinator.transaction import Transaction
from tests.support.concurrency import at_once
from tests.support.coordinators import commit_changes

ROUNDS = 150


@pytest.fixture(params=["memory", "durable"])
def embedded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[EmbeddedCoordinator]:
    if request.param == "memory":
        yield EmbeddedCoordinator()
    else:
        with EmbeddedCoordinator.open(tmp_path) as coordinator:
            yield coordinator


def test_a_commit_and_an_invalidation_never_both_take_place(
    embedded: EmbeddedCoordinator,
) -> None:
    for _ in range(ROUNDS):
        tx = embedded.start_short()
        committed, invalidated = at_once(
            partial(embedded.commit, tx),
            partial(embedded.invalidate, tx),
        )
        seen = embedded.snapshot()
        if invalidated is True:
            assert isinstance(committed, TransactionNotInProgress)
            assert tx.transaction_id in seen.invalids
        else:
            assert (committed, invalidated) == (None, False)
            assert seen.is_visible(tx.transaction_id)
        assert not seen.in_progress


def test_of_several_ends_and_checkpoints_one_end_wins_and_nothing_stays(
    embedded: EmbeddedCoordinator,
) -> None:
    for _ in range(ROUNDS):
        tx = embedded.start_short()
        answers = at_once(
            partial(embedded.commit, tx),
            partial(embedded.commit, tx),
            partial(embedded.checkpoint, tx),
            partial(embedded.abort, tx),
        )
        assert sum(answer is None for answer in answers[:2]) <= 1
        checkpointed = answers[2]
        assert isinstance(checkpointed, Transaction | TransactionNotInProgress)
        seen = embedded.snapshot()
        assert not seen.in_progress
        assert not seen.invalids


def test_two_that_changed_one_key_never_both_commit(
    embedded: EmbeddedCoordinator,
) -> None:
    for number in range(ROUNDS):
        key = b"%d" % number
        pair = [embedded.start_short(), embedded.start_short()]

        one, two = at_once(*(partial(commit_changes, embedded, tx, key) for tx in pair))
        refused = [answer for answer in (one, two) if answer is not None]
        assert len(refused) == 1
        assert isinstance(refused[0], TransactionConflict)
        for tx in pair:
            embedded.abort(tx)


def test_every_snapshot_taken_under_load_is_consistent(
    embedded: EmbeddedCoordinator,
) -> None:
    """A pair is committed one after the other; nobody sees the second one alone."""
    pairs: list[tuple[int, int]] = []
    over = threading.Event()
    failures: list[str] = []

    def write() -> None:
        while not over.is_set():
            one = embedded.start_short()
            embedded.commit(one)
            two = embedded.start_short()
            pairs.append((one.transaction_id, two.transaction_id))
            embedded.commit(two)

    def read() -> None:
        chance = random.Random(1)
        while len(pairs) < 100 and not failures:
            snapshot = embedded.snapshot()
            for one, two in chance.sample(pairs, min(5, len(pairs))):
                if snapshot.is_visible(two) and not snapshot.is_visible(one):
                    failures.append(f"{two} without {one}")
            if list(snapshot.in_progress) != sorted(set(snapshot.in_progress)):
                failures.append("not ascending")

    writers = [threading.Thread(target=write) for _ in range(3)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in readers:
        thread.join(60)
    over.set()
    for thread in writers:
        thread.join(60)
    assert not failures
    assert len(pairs) >= 100
