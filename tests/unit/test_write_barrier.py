"""The write barrier: writes of a transaction go in, and its end waits for them."""

import threading
from collections.abc import Callable

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.errors import TransactionNotInProgress, TransactionRefused
from coordinator.transaction import Transaction


class Writer:
    """A thread that is inside the barrier until it is told to leave."""

    def __init__(self, barrier: WriteBarrier, tx: Transaction) -> None:
        self._leave = threading.Event()
        entered = threading.Event()

        def write() -> None:
            entry = barrier.enter(tx.transaction_id)
            entered.set()
            self._leave.wait()
            barrier.leave(entry)

        self._thread = threading.Thread(target=write)
        self._thread.start()
        entered.wait()

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def in_a_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(call())
        except TransactionRefused as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


@pytest.fixture
def coordinator() -> EmbeddedCoordinator:
    return EmbeddedCoordinator(timeout_s=30)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_waits_for_a_write_and_lets_no_other_in(
    coordinator: EmbeddedCoordinator, end: str
) -> None:
    tx, barrier = coordinator.start_short(), coordinator.barrier
    writer = Writer(barrier, tx)
    thread, ended = in_a_thread(lambda: getattr(coordinator, end)(tx))
    for _ in range(5000):
        if coordinator.open_transactions()[0].end_asked:
            break
        threading.Event().wait(0.001)
    assert not ended
    try:
        with pytest.raises(TransactionNotInProgress, match="it is ending"):
            barrier.enter(tx.transaction_id)
    finally:
        writer.leave()
    thread.join(10)
    assert ended == [None]


def test_an_invalidation_does_not_wait(coordinator: EmbeddedCoordinator) -> None:
    tx = coordinator.start_short()
    writer = Writer(coordinator.barrier, tx)
    assert coordinator.invalidate(tx)
    assert coordinator.barrier.is_writing(tx.transaction_id)
    writer.leave()
    assert not coordinator.barrier.is_writing(tx.transaction_id)


def test_two_that_end_one_transaction_are_both_told_when_the_write_is_done(
    coordinator: EmbeddedCoordinator,
) -> None:
    tx = coordinator.start_short()
    writer = Writer(coordinator.barrier, tx)
    threads = [
        in_a_thread(lambda: coordinator.commit(tx)),
        in_a_thread(lambda: coordinator.abort(tx)),
    ]
    threading.Event().wait(0.05)
    writer.leave()
    for thread, _ in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not coordinator.open_transactions()


def test_the_gate_knows_whose_pointers_are_whose(
    coordinator: EmbeddedCoordinator,
) -> None:
    tx, barrier = coordinator.start_short(), coordinator.barrier
    assert barrier.owns(tx.transaction_id)
    assert barrier.owns(tx.transaction_id + 10**9)  # it will give that one out some day
    assert not barrier.owns(7)
    assert not barrier.owns(tx.transaction_id + 2 * 86_400 * 10**9)
    assert barrier.gave_out(tx.transaction_id)
    assert not barrier.gave_out(tx.transaction_id + 10**9)
