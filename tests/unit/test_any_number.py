"""Transactions of any size: what grows with a caller's list is walked to its end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.history import History
from coordinator.embedded.records import Checkpointed, Committed, Started
from coordinator.interfaces import (
    Cargo,
    Coordinator,
    JoinedCargo,
    Loading,
    OnBatchEnd,
    load,
)
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.fake_leveldb import FakeDirectory
from tests.support.store_load import Store
from txaware.errors import Unavailable
from txaware.model.messages import Receipt
from txaware.service.write.message_cargo import RowCargo
from txaware.service.write.topic_writer import TopicWriter
from txaware.store.leveldb import LevelDbTable
from txaware.store.memory import MemoryTable

MANY = 30_000


@pytest.fixture
def store() -> Iterator[Store]:
    clock = Clock()
    opened = Store(LevelDbTable("fake", FakeDirectory().open, clock_ms=clock), clock)
    yield opened
    opened.close()


class OfTopic:
    """One message for a topic, as a transaction publishes it."""

    def __init__(self, writer: TopicWriter) -> None:
        self.writer = writer
        self.was_told = self.is_unsure = False

    def loading(self) -> Loading:
        return self.writer.loading(1, self._rows, self._unsure)

    def _rows(self, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        return [(key, b"") for key in keys]

    def _unsure(self) -> None:
        self.is_unsure = True


class Participant:
    """One whose row the commit carries."""

    transaction_aware_name = "one of many"
    flushes_last = True

    def __init__(self, number: int) -> None:
        self.row = (b"row%d" % number, b"")
        self.ended = ""

    def start_tx(self, tx: Transaction) -> None:
        """Remembers nothing."""

    def update_tx(self, tx: Transaction) -> None:
        """Remembers nothing."""

    def get_tx_changes(self) -> tuple[bytes, ...]:
        return self.row[:1]

    def commit_cargo(self, coordinator: Coordinator) -> Cargo:
        return RowCargo([self.row])

    def commit_tx(self) -> bool:
        raise AssertionError("the commit carries the row")

    def post_tx_commit(self) -> None:
        self.ended += "committed"

    def rollback_tx(self) -> bool:
        self.ended += "rolled back"
        return True


def submitting(taken: list[Any]) -> Callable[[Sequence[Any], OnBatchEnd], Any]:
    """What takes rows, and has the commit on disk at once."""

    def submit(rows: Sequence[Any], told: OnBatchEnd) -> Callable[[], None]:
        taken.extend(rows)
        wake = told(None)
        assert wake is not None
        wake()
        return lambda: None

    return submit


def test_a_commit_carries_messages_for_any_number_of_topics() -> None:
    table, rows = MemoryTable(clock_ms=Clock()), list[Any]()
    topics = [OfTopic(TopicWriter(table)) for _ in range(MANY)]
    cargo = JoinedCargo(topics)

    def refuse(_: Sequence[Any], __: OnBatchEnd) -> None:
        raise Unavailable("away")

    assert load(cargo, lambda rows, told: None) is None
    with pytest.raises(Unavailable):
        load(cargo, refuse)
    assert not any(topic.writer._in_flight for topic in topics)
    assert load(cargo, submitting(rows)) is not None
    assert len(rows) == MANY
    assert not any(topic.writer._in_flight for topic in topics)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_has_any_number_of_participants(
    store: Store, commits: bool
) -> None:
    participants = [Participant(number) for number in range(MANY)]
    context = TransactionContext(store.coordinator, *participants)
    context.start()
    context.join(participants[MANY // 2])  # which takes part already
    if commits:
        context.finish()
        assert store.table.get(b"row%d" % (MANY - 1)) == b""
    else:
        context.abort()
    ended = "committed" if commits else "rolled back"
    assert {one.ended for one in participants} == {ended}


def test_a_transaction_has_any_number_of_functions_for_its_end(store: Store) -> None:
    called: list[int] = []

    def fail() -> None:
        called.append(1)
        raise OSError

    context = TransactionContext(store.coordinator)
    context.start()
    for _ in range(MANY):
        context.on_commit(fail)
    with pytest.raises(ExceptionGroup) as caught:
        context.finish()
    assert len(called) == len(caught.value.exceptions) == MANY


def test_a_journal_has_any_number_of_checkpoints() -> None:
    history, added = History(), History()
    history.apply(Started(1, 0))
    for pointer in range(2, MANY + 2):
        history.apply(Checkpointed(1, pointer))
        history.apply(Checkpointed(1, pointer))  # an interrupt has it written twice
    for record in history.records():
        added.apply(record)
    assert [*added.checkpoints[1]] == [*range(2, MANY + 2)]
    history.apply(Committed(1, frozenset()))
    assert not history.checkpoints


def test_a_transaction_has_any_number_of_checkpoints() -> None:
    coordinator = EmbeddedCoordinator()
    tx = coordinator.start_short()
    for _ in range(MANY // 10):  # each of them copies those before
        tx = coordinator.checkpoint(tx)
    assert len(tx.checkpoint_write_pointers) == MANY // 10
    coordinator.commit(tx)
    assert coordinator.snapshot().is_visible(tx.write_pointer)


def test_a_reference_names_any_number_of_receipts(store: Store) -> None:
    service, tx = store.service, store.coordinator.start_short()
    receipts: list[Receipt] = [
        service.store("a", [b"x"], transaction=tx, attempt=b"%d" % number)
        for number in range(MANY)
    ]
    service.publish("a", [], transaction=tx, receipts=receipts)
    store.coordinator.commit(tx)
    assert len(service.poll("a", limit=MANY)) == min(MANY, 10_000)
