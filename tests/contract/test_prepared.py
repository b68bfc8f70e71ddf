"""Prepared transactions: in progress for everybody until their name ends them."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import txaware
from coordinator.context import TransactionContext
from coordinator.errors import (
    MisusedTransaction,
    PreparedExists,
    PreparedNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionPrepared,
)
from coordinator.outcome import Outcome
from coordinator.transaction_status import OPEN, standings
from tests.support.coordinators import commit_changes
from tests.support.doubles import Recorder
from tests.support.messagings import Site, committed
from txaware import participants
from txaware.errors import BadRequest
from txaware.messaging import Messaging

Step = Callable[[TransactionContext], object]
NAMES = ["", "x" * 201, "two\nlines", "é", 5, None]


def as_order_7(tx: TransactionContext) -> None:
    """Prepares it under the name that most tests use."""
    tx.prepare("order-7")


def prepared(messaging: Messaging, name: str = "order-7") -> int:
    """Prepares a row, a message and a position, and answers the transaction."""
    messaging.publish("t", [b"read"])
    with messaging.transaction() as tx:
        (read,) = messaging.consumer("t", group="g").poll(limit=1)
        assert read.payload == b"read"
        messaging.table("accounts").put(b"ann", b"5")
        messaging.publisher("t").publish(b"ann has 5")
        tx.prepare(name)
    return tx.transaction.transaction_id


def run(messaging: Messaging, *steps: Step) -> None:
    """Takes steps in a block."""
    with messaging.transaction() as tx:
        for step in steps:
            step(tx)


def seen(messaging: Messaging) -> tuple[bytes | None, list[bytes], bool]:
    """What others see: the row, the messages, and whether the group has moved."""
    row = messaging.table("accounts").get(b"ann")
    moved = messaging.position("g", "t") is not None
    return row, committed(messaging), moved


BEFORE = (None, [b"read"], False)


def test_nobody_sees_it_before_its_commit(messaging: Messaging) -> None:
    pointer = prepared(messaging)
    assert seen(messaging) == BEFORE
    (entry,) = messaging.prepared()
    assert (entry.name, entry.transaction_id) == ("order-7", pointer)
    assert entry.principal in (None, "anybody")
    assert abs(entry.since - datetime.now(UTC)).total_seconds() < 10**9
    assert entry.since.timestamp() * 1000 == entry.since_ms
    assert messaging.coordinator.outcome(pointer) is Outcome.IN_PROGRESS
    messaging.commit_prepared("order-7")
    assert seen(messaging) == (b"5", [b"read", b"ann has 5"], True)
    assert messaging.prepared() == []
    assert messaging.coordinator.outcome(pointer) is Outcome.COMMITTED
    assert messaging.check().is_clean


def test_nobody_ever_sees_it_after_its_rollback(messaging: Messaging) -> None:
    pointer = prepared(messaging)
    messaging.rollback_prepared("order-7")
    messaging.publish("t", [b"next"])
    assert seen(messaging) == (None, [b"read", b"next"], False)
    assert messaging.prepared() == []
    assert messaging.coordinator.outcome(pointer) is Outcome.ROLLED_BACK
    messaging.table("accounts").put(b"ann", b"1")
    messaging.clean_up()
    assert messaging.table("accounts").get(b"ann") == b"1"


def test_readers_stop_before_it_and_go_around_its_rows(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    table.put(b"ann", b"1")
    pointer = prepared(messaging)
    messaging.publish("t", [b"behind"])
    page = messaging.poll("t", isolation="committed")
    assert [message.payload for message in page] == [b"read"]
    assert page.blocked_by is not None
    assert page.blocked_by.pointer == pointer
    table.put(b"bob", b"2")
    assert list(table.items()) == [(b"ann", b"1"), (b"bob", b"2")]
    messaging.commit_prepared("order-7")
    assert committed(messaging)[1:] == [b"ann has 5", b"behind"]
    assert table.get(b"ann") == b"5"


@pytest.mark.parametrize("end", ["commit_prepared", "rollback_prepared"])
def test_its_keys_are_reserved_until_its_end(messaging: Messaging, end: str) -> None:
    table = messaging.table("accounts")
    with messaging.transaction() as tx:
        table.put(b"ann", b"5")
        tx.prepare("order-7")
    for _ in range(2):
        with pytest.raises(TransactionConflict):
            table.put(b"ann", b"6")
    table.put(b"bob", b"6")
    getattr(messaging, end)("order-7")
    table.put(b"ann", b"7")
    assert list(table.items()) == [(b"ann", b"7"), (b"bob", b"6")]


def test_who_began_before_its_commit_conflicts_with_it(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    with messaging.transaction() as tx:
        table.put(b"ann", b"5")
        tx.prepare("order-7")
    later = messaging.coordinator.start_short()
    messaging.commit_prepared("order-7")
    with pytest.raises(TransactionConflict):
        messaging.coordinator.can_commit(later, [b"table:accounts:ann"])
    messaging.coordinator.abort(later)


def test_only_its_name_ends_it(messaging: Messaging) -> None:
    pointer, coordinator = prepared(messaging), messaging.coordinator
    tx = coordinator.snapshot()
    with pytest.raises(
        TransactionPrepared, match=f"{pointer} is prepared as 'order-7'"
    ):
        coordinator.invalidate(pointer)
    for call in (coordinator.commit, coordinator.abort, coordinator.checkpoint):
        with pytest.raises(TransactionPrepared):
            call(_of(tx, pointer))
    with pytest.raises(TransactionNotInProgress, match="is prepared"):
        messaging.publish("t", [b"more"], transaction=pointer)
    assert seen(messaging) == BEFORE
    messaging.rollback_prepared("order-7")


def _of(tx: txaware.Transaction, pointer: int) -> txaware.Transaction:
    return txaware.Transaction(pointer, tx.read_pointer)


def test_names_are_of_one_at_a_time(messaging: Messaging) -> None:
    for call in (messaging.commit_prepared, messaging.rollback_prepared):
        with pytest.raises(PreparedNotFound, match="is prepared as 'order-7'"):
            call("order-7")
    table = messaging.table("accounts")
    with messaging.transaction() as tx:
        table.put(b"ann", b"5")
        tx.prepare("order-7")
    with pytest.raises(PreparedExists, match="another one has that name"):
        run(messaging, lambda tx: table.put(b"bob", b"5"), as_order_7)
    messaging.commit_prepared("order-7")
    assert list(table.items()) == [(b"ann", b"5")]
    with messaging.transaction() as tx:
        table.put(b"eve", b"5")
        tx.prepare("order-7")
    messaging.commit_prepared("order-7")
    assert table.get(b"eve") == b"5"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_name_is_refused(messaging: Messaging, name: str) -> None:
    calls: list[Callable[[str], object]]
    calls = [messaging.commit_prepared, messaging.rollback_prepared]
    for call in calls:
        with pytest.raises(BadRequest, match="name of a prepared transaction"):
            call(name)
    publisher = messaging.publisher("t")
    with pytest.raises(BadRequest, match="name of a prepared transaction"):
        run(
            messaging,
            lambda tx: publisher.publish(b"x"),
            lambda tx: tx.prepare(name),
        )
    assert committed(messaging) == []


def test_it_is_the_last_call_of_its_block(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    steps: list[Step] = [lambda tx: table.put(b"ann", b"5"), as_order_7]
    with pytest.raises(MisusedTransaction, match=r"prepare.. is the last call of its"):
        run(messaging, *steps, lambda tx: table.put(b"ann", b"6"))
    assert table.get(b"ann") is None
    messaging.commit_prepared("order-7")
    assert table.get(b"ann") == b"5"


def test_an_error_behind_it_leaves_it_prepared(messaging: Messaging) -> None:
    publisher = messaging.publisher("t")
    with pytest.raises(ZeroDivisionError):
        run(
            messaging,
            lambda tx: publisher.publish(b"x"),
            as_order_7,
            lambda tx: 1 / 0,
        )
    messaging.commit_prepared("order-7")
    assert committed(messaging) == [b"x"]


def test_a_conflict_refuses_it_and_undoes_all(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    other = messaging.coordinator.start_short()
    steps: list[Step] = [
        lambda tx: table.put(b"ann", b"5"),
        lambda tx: messaging.publisher("t").publish(b"x"),
        lambda tx: commit_changes(messaging.coordinator, other, b"table:accounts:ann"),
    ]
    with pytest.raises(TransactionConflict):
        run(messaging, *steps, as_order_7)
    assert messaging.prepared() == []
    assert (committed(messaging), table.get(b"ann")) == ([], None)


def test_a_participant_has_to_let_go_of_it(messaging: Messaging) -> None:
    recorder = Recorder("theirs")
    with pytest.raises(MisusedTransaction, match="theirs cannot take part in a trans"):
        run(messaging, lambda tx: tx.join(recorder), as_order_7)
    assert recorder.log[-1] == "rollback_tx theirs"
    assert messaging.prepared() == []


class LetsGo(Recorder):
    """A participant that knows prepared transactions."""

    def post_tx_prepare(self) -> None:
        self._answer("post_tx_prepare")


def test_a_participant_writes_and_then_lets_go(messaging: Messaging) -> None:
    recorder = LetsGo("theirs", changes=[b"k"])
    called: list[str] = []
    with messaging.transaction(recorder) as tx:
        tx.on_commit(lambda: called.append("commit"))
        tx.on_rollback(lambda: called.append("rollback"))
        tx.prepare("order-7")
    calls = [line.removesuffix(" theirs") for line in recorder.log]
    assert calls == ["start_tx", "get_tx_changes", "commit_tx", "post_tx_prepare"]
    messaging.commit_prepared("order-7")
    assert called == []
    assert len(recorder.log) == len(calls)


def test_a_stored_reference_and_checkpoints_are_prepared_too(
    messaging: Messaging,
) -> None:
    table = messaging.table("accounts")
    with messaging.transaction() as tx:
        messaging.publisher("t", buffer_limit_bytes=100).publish_all([b"x" * 60] * 9)
        table.put(b"ann", b"1")
        tx.checkpoint()
        table.put(b"ann", b"2")
        tx.prepare("large")
    assert committed(messaging) == []
    messaging.commit_prepared("large")
    assert committed(messaging) == [b"x" * 60] * 9
    assert table.get(b"ann") == b"2"


@pytest.mark.in_process
def test_it_never_times_out_and_never_hangs(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10**9)
    pointer = prepared(messaging)
    for _ in range(3):
        site.clock.advance_s(100 * 86_400)
        assert messaging.table("accounts").get(b"ann") is None
        messaging.clean_up()
        messaging.prune()
    (found,) = standings(messaging.coordinator, OPEN)
    assert (found.transaction_id, found.stage) == (pointer, "prepared")
    assert found.expires_ms is None
    assert not found.is_hanging(before_ms=site.clock() + 10**9)
    metrics = messaging.metrics()
    assert metrics.prepared_transactions == 1
    assert metrics.oldest_prepared_ms == messaging.prepared()[0].since_ms
    messaging.commit_prepared("order-7")
    assert seen(messaging) == (b"5", [b"read", b"ann has 5"], True)
    assert messaging.metrics().prepared_transactions == 0
    assert messaging.metrics().oldest_prepared_ms is None


@pytest.mark.parametrize("how", ["open", "crash"])
@pytest.mark.parametrize("end", ["commit_prepared", "rollback_prepared"])
def test_it_is_there_in_the_next_process(lasting: Site, how: str, end: str) -> None:
    lasting.messaging.create_topic("t")
    pointer = prepared(lasting.messaging)
    before = lasting.messaging.prepared()
    for _ in range(2):
        lasting.clock.advance_s(86_400)
        messaging = getattr(lasting, how)()
        assert messaging.prepared() == before
        assert seen(messaging) == BEFORE
        with pytest.raises(TransactionConflict):
            messaging.table("accounts").put(b"ann", b"0")
        with pytest.raises(TransactionPrepared):
            messaging.coordinator.invalidate(pointer)
    getattr(messaging, end)("order-7")
    expected = (b"5", [b"read", b"ann has 5"], True)
    if end == "rollback_prepared":
        expected = (None, [b"read"], False)  # type: ignore[assignment]
    assert seen(messaging) == expected
    messaging = getattr(lasting, how)()
    assert messaging.prepared() == []
    assert seen(messaging) == expected
    messaging.table("accounts").put(b"ann", b"0")
    assert messaging.check().is_clean


def test_any_process_ends_it(durable: Site) -> None:
    durable.messaging.create_topic("t")
    prepared(durable.messaging)
    program = (
        "import sys, txaware\n"
        "with txaware.connect(sys.argv[1]) as messaging:\n"
        "    (entry,) = messaging.prepared()\n"
        "    messaging.commit_prepared(entry.name)\n"
    )
    with durable.messaging.serve() as server:
        subprocess.run([sys.executable, "-c", program, server.url], check=True)
    assert seen(durable.messaging) == (b"5", [b"read", b"ann has 5"], True)


def test_a_fenced_producer_leaves_what_it_prepared(messaging: Messaging) -> None:
    producer = messaging.producer("loader-7")
    with producer.transaction() as tx:
        messaging.publisher("t").publish(b"of the first")
        tx.prepare("batch-1")
    newer = messaging.producer("loader-7")
    assert newer.commits == 0
    assert [one.name for one in messaging.prepared()] == ["batch-1"]
    with pytest.raises(TransactionConflict), newer.transaction():
        messaging.publisher("t").publish(b"too early")
    messaging.commit_prepared("batch-1")
    with newer.transaction():
        messaging.publisher("t").publish(b"of the second")
    assert newer.commits == 2
    assert committed(messaging) == [b"of the first", b"of the second"]


@pytest.mark.in_process
def test_files_change_with_its_commit(site: Site) -> None:
    messaging = site.messaging
    with participants.files(messaging, site._directory / "out") as files:
        with messaging.transaction() as tx:
            files.write("a", b"new")
            tx.prepare("order-7")
        assert files.read("a") is None
        assert files.smallest_pointer() == tx.transaction.transaction_id
        with (
            pytest.raises(TransactionConflict, match="in the way of 'a', which"),
            messaging.transaction(),
        ):
            files.write("a/below", b"never")
        messaging.commit_prepared("order-7")
        assert files.read("a") == b"new"
        assert files.smallest_pointer() is None


def test_queues_take_no_part_in_it(tmp_path: object) -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_queue("mail")
        queue = messaging.queue("mail")
        why = re.compile("cannot take part in a transaction that is prepared")
        with pytest.raises(MisusedTransaction, match=why):
            run(messaging, lambda tx: queue.push(b"x"), as_order_7)
        assert queue.pop(wait_s=0) is None
