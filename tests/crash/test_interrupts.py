"""Ctrl-C at any moment of a commit: nobody hangs, and its outcome can be told."""

import random
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionRefused
from coordinator.resolve_outcome import settle
from tests.support.concurrency import until
from tests.support.interrupts import Moments

ROUNDS = 400


# An interrupt where Python lets weak references go is reported there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("call", ["commit", "invalidate", "persist"])
def test_interrupts_hang_nobody_and_leave_no_doubt(tmp_path: Path, call: str) -> None:
    moments, over = Moments(random.Random(7)), threading.Event()
    done = [0] * 4
    yes: set[int] = set()
    no: set[int] = set()

    def work(place: int) -> None:
        while not over.is_set():
            tx = coordinator.start_short()
            coordinator.can_commit(tx, [b"%d" % place])
            coordinator.commit(tx)
            done[place] += 1

    with EmbeddedCoordinator.open(tmp_path) as coordinator:
        others = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in others:
            thread.start()
        for number in range(ROUNDS):
            tx = coordinator.start_short()
            coordinator.can_commit(tx, [b"main %d" % number])
            method = partial(getattr(coordinator, call), tx)
            moments.interrupt(method)
            if settle(coordinator, tx.transaction_id, open_for_s=lambda: 0):
                yes.add(tx.transaction_id)
            else:
                no.add(tx.transaction_id)
        before = list(done)
        with suppress(TransactionRefused):
            coordinator.commit(coordinator.start_short())
        assert until(
            lambda: all(now > then for now, then in zip(done, before, strict=True))
        ), "a thread hangs, or has ended"
        over.set()
        for thread in others:
            thread.join(20)
            assert not thread.is_alive(), "a thread hangs"
        seen = coordinator.snapshot()
        assert not seen.in_progress
    with EmbeddedCoordinator.open(tmp_path) as coordinator:
        after = coordinator.snapshot()
    for snapshot in (seen, after):
        assert all(snapshot.is_visible(pointer) for pointer in yes)
        assert no <= set(snapshot.invalids)
    assert no
    assert yes or call != "commit"
