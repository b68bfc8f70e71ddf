"""Rows in SQLite with messages: out through an outbox, in through an inbox."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.transaction import Status
from tests.support.concurrency import at_once, in_threads
from tests.support.messagings import committed, payloads
from txaware import Outgoing, participants
from txaware.errors import BadRequest, MisusedTransaction, TransactionConflict
from txaware.messaging import Messaging
from txaware.participants import Sqlite
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.sqlite_outbox import SqliteOutbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The user's file."""
    return tmp_path / "shop.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    """Opens connections to it, as a user does."""
    with ExitStack() as stack:

        def connect(**options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = sqlite3.connect(path, **options)
            stack.callback(connection.close)
            connection.execute("CREATE TABLE IF NOT EXISTS orders (who TEXT)")
            return connection

        yield connect


@pytest.fixture
def connection(opened: Callable[..., sqlite3.Connection]) -> sqlite3.Connection:
    return opened()


@pytest.fixture
def shop(messaging: Messaging, connection: sqlite3.Connection) -> Sqlite:
    """A participant whose relay works only when it is asked to."""
    return participants.sqlite(messaging, connection, relay=False)


def order(messaging: Messaging, shop: Sqlite, who: str) -> None:
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES (?)", (who,))
        messaging.publisher("t").publish(who.encode())


def orders(connection: sqlite3.Connection) -> list[str]:
    return [who for (who,) in connection.execute("SELECT who FROM orders")]


def waiting(connection: sqlite3.Connection) -> int:
    [count] = connection.execute("SELECT count(*) FROM txaware_outbox").fetchone()
    return int(count)


def test_rows_and_messages_commit_together_and_are_carried_over_once(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    order(messaging, shop, "ann")
    assert committed(messaging) == []
    assert shop.relay() == 1
    order(messaging, shop, "bob")
    order(messaging, shop, "eve")
    assert shop.relay() == 2
    assert shop.relay() == 0
    assert committed(messaging) == [b"ann", b"bob", b"eve"]
    assert orders(connection) == ["ann", "bob", "eve"]
    assert waiting(connection) == 0


def test_a_block_that_raises_leaves_neither_row_nor_message(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        messaging.transaction(shop) as tx,
    ):
        connection.execute("INSERT INTO orders VALUES ('ann')")
        messaging.publisher("t").publish(b"ann")
        assert 1 / 0
    assert tx.status is Status.ABORTED
    assert (orders(connection), waiting(connection)) == ([], 0)


def test_a_savepoint_that_is_rolled_back_takes_its_messages_along(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    with messaging.transaction(shop):
        messaging.publisher("t").publish(b"kept")
        connection.execute("SAVEPOINT mine")
        messaging.publisher("t").publish(b"gone")
        connection.execute("ROLLBACK TO mine")
    shop.relay()
    assert committed(messaging) == [b"kept"]


def test_a_commit_that_the_database_refuses_undoes_the_block(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("CREATE TABLE people (name TEXT PRIMARY KEY)")
    connection.execute(
        "CREATE TABLE paid (name REFERENCES people DEFERRABLE INITIALLY DEFERRED)"
    )
    called: list[str] = []
    with (  # noqa: PT012
        pytest.raises(sqlite3.IntegrityError),
        messaging.transaction(shop) as tx,
    ):
        tx.on_commit(lambda: called.append("commit"))
        tx.on_rollback(lambda: called.append("rollback"))
        connection.execute("INSERT INTO paid VALUES ('nobody')")
        messaging.publisher("t").publish(b"nobody paid")
    assert (called, waiting(connection)) == (["rollback"], 0)
    assert tx.status is Status.ABORTED
    order(messaging, shop, "ann")
    assert orders(connection) == ["ann"]


def test_keys_headers_expiry_and_order_arrive_as_they_were_published(
    messaging: Messaging, shop: Sqlite
) -> None:
    messaging.create_topic("ns:other")
    with messaging.transaction(shop):
        first = Outgoing(b"1", key=b"ann", headers={"source": b"till"})
        messaging.publisher("t").publish(first)
        messaging.publisher("ns:other").publish(b"o")
        messaging.publisher("t").publish(Outgoing(b"2", expire_after_s=60))
        messaging.publisher("t").publish(b"")
    shop.relay()
    page = messaging.poll("t")
    assert payloads(page) == [b"1", b"2", b""]
    assert (page[0].key, page[0].headers) == (b"ann", {"source": b"till"})
    assert committed(messaging, "ns:other") == [b"o"]


def test_the_relay_of_the_process_carries_over_by_itself_and_at_the_end(
    tmp_path: Path, opened: Callable[..., sqlite3.Connection]
) -> None:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("t")
        shop = participants.sqlite(messaging, opened())
        order(messaging, shop, "ann")
        assert messaging.wait("t", start=None, timeout_s=30)
        order(messaging, shop, "bob")
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        assert committed(messaging) == [b"ann", b"bob"]


def test_what_another_process_left_is_carried_over_from_the_first_use(
    messaging: Messaging, shop: Sqlite, opened: Callable[..., sqlite3.Connection]
) -> None:
    order(messaging, shop, "ann")
    participants.sqlite(messaging, opened())
    assert messaging.wait("t", start=None, timeout_s=30)
    assert committed(messaging) == [b"ann"]


def test_two_relays_of_one_file_carry_each_message_over_once(
    messaging: Messaging, shop: Sqlite, path: Path
) -> None:
    relays = [OutboxRelay(messaging, SqliteOutbox(path), batch_rows=3) for _ in "ab"]
    for number in range(40):
        order(messaging, shop, str(number))
    in_threads(lambda relay: relay.carry_over(), relays)
    for relay in relays:
        relay.carry_over()
        relay.close()
    assert committed(messaging) == [b"%d" % number for number in range(40)]


def test_a_file_that_was_restored_loses_nothing_that_is_new(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    """The places of the rows are used again, and their tokens are not."""
    for who in ("ann", "bob", "eve"):
        order(messaging, shop, who)
    shop._relay._carry_batch()  # published, and not removed yet
    with connection:  # as if the file was of an hour ago
        connection.execute("DELETE FROM txaware_outbox WHERE id > 1")
    order(messaging, shop, "new")
    order(messaging, shop, "newer")
    shop.relay()
    assert committed(messaging)[-2:] == [b"new", b"newer"]


def test_messages_are_handled_once_with_the_rows_that_they_make(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    messaging.create_topic("bills")
    messaging.publish("t", [b"ann", b"bob", b"eve"])
    inbox = shop.consumer("t", group="g")
    assert inbox.wait(30)
    with messaging.transaction(shop):
        for message in [*inbox.poll(1), *inbox.poll(1)]:
            who = message.payload.decode()
            connection.execute("INSERT INTO orders VALUES (?)", (who,))
            messaging.publisher("bills").publish(b"to " + message.payload)
    with pytest.raises(ZeroDivisionError), messaging.transaction(shop):  # noqa: PT012
        assert payloads(inbox.poll()) == [b"eve"]
        assert 1 / 0
    assert inbox.position is not None
    with messaging.transaction(shop):
        assert payloads(inbox.poll()) == [b"eve"]
    assert not inbox.wait(0)
    shop.relay()
    assert orders(connection) == ["ann", "bob"]
    assert committed(messaging, "bills") == [b"to ann", b"to bob"]
    later = shop.consumer("t", group="another", start="next")
    with messaging.transaction(shop):
        assert later.poll() == []


def test_an_inbox_is_polled_in_a_block_of_its_database(
    messaging: Messaging, shop: Sqlite, opened: Callable[..., sqlite3.Connection]
) -> None:
    inbox = shop.consumer("t", group="g")
    with pytest.raises(MisusedTransaction, match="none is open here"):
        inbox.poll()
    with (
        messaging.transaction(),
        pytest.raises(MisusedTransaction, match="none is open here"),
    ):
        inbox.poll()


def test_others_read_in_its_block_and_change_nothing(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    table = messaging.table("accounts")
    table.put(b"ann", b"5")
    with messaging.transaction(shop, table):
        assert table.get(b"ann") == b"5"
        connection.execute("INSERT INTO orders VALUES ('ann')")
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match=r"accounts.* cannot change in it"),
        messaging.transaction(shop),
    ):
        connection.execute("INSERT INTO orders VALUES ('bob')")
        table.put(b"ann", b"4")
    assert (orders(connection), table.get(b"ann")) == (["ann"], b"5")


def test_a_participant_is_in_one_block_at_a_time(
    messaging: Messaging, opened: Callable[..., sqlite3.Connection]
) -> None:
    shop = participants.sqlite(messaging, opened(check_same_thread=False), relay=False)
    with messaging.transaction(shop):
        [error] = at_once(lambda: order(messaging, shop, "bob"))
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
    assert isinstance(error, MisusedTransaction)
    assert "a connection has one at a time" in str(error)
    assert orders(shop.connection) == ["ann"]


def test_two_that_decide_and_one_that_comes_late_are_refused(
    messaging: Messaging, shop: Sqlite, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        other = participants.sqlite(messaging, connection, relay=False)
    with (
        pytest.raises(MisusedTransaction, match="cannot decide it as well"),
        messaging.transaction(shop, other),
    ):
        pass
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="begin with that one"),
        messaging.transaction() as tx,
    ):
        messaging.publisher("t").publish(b"early")
        tx.join(shop)
    connection.close()
    assert committed(messaging) == []
    with (  # noqa: SIM117
        txaware.connect("memory:") as another,
        pytest.raises(MisusedTransaction, match="opened with"),
    ):
        with another.transaction(shop):
            pass


def test_a_transaction_that_is_open_already_is_refused_and_stays(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection
) -> None:
    connection.execute("INSERT INTO orders VALUES ('mine')")
    with (
        pytest.raises(MisusedTransaction, match="began before the block"),
        messaging.transaction(shop),
    ):
        pass
    connection.commit()
    assert orders(connection) == ["mine"]


@pytest.mark.parametrize("ends", ["commit", "rollback", "with"])
def test_a_block_whose_transaction_was_ended_inside_of_it_is_refused(
    messaging: Messaging, shop: Sqlite, connection: sqlite3.Connection, ends: str
) -> None:
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="was ended inside"),
        messaging.transaction(shop),
    ):
        messaging.publisher("t").publish(b"1")
        connection.execute("INSERT INTO orders VALUES ('1')")
        if ends == "with":
            with connection:
                pass
        else:
            getattr(connection, ends)()
        connection.execute("INSERT INTO orders VALUES ('2')")
        messaging.publisher("t").publish(b"2")
    shop.relay()
    kept = [] if ends == "rollback" else ["1"]
    assert orders(connection) == kept
    assert committed(messaging) == [who.encode() for who in kept]


@pytest.mark.parametrize("options", [{"isolation_level": None}, {}], ids=str)
def test_the_ways_of_a_connection_do_not_matter(
    messaging: Messaging,
    opened: Callable[..., sqlite3.Connection],
    options: dict[str, Any],
) -> None:
    connection = opened(**options)
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    shop = participants.sqlite(messaging, connection, relay=False)
    messaging.publish("t", [b"1"])
    inbox = shop.consumer("t", group="g")
    for _ in "ab":
        with messaging.transaction(shop):
            inbox.poll()
    order(messaging, shop, "ann")
    with messaging.transaction(shop):
        assert inbox.poll() == []
    assert shop.relay() == 1


def test_what_cannot_work_is_one_sentence(messaging: Messaging) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(BadRequest, match="open a file"):
        participants.sqlite(messaging, connection)
    connection.close()
    wrong: Any = "shop.db"
    with pytest.raises(BadRequest, match="no connection of sqlite3"):
        participants.sqlite(messaging, wrong)


def test_what_others_stored_is_refused_in_its_block(
    messaging: Messaging, shop: Sqlite
) -> None:
    with (
        messaging.transaction(shop),
        pytest.raises(MisusedTransaction, match="cannot be published in a block"),
    ):
        messaging.publisher("t").publish_stored([])


def test_its_block_publishes_nothing_before_the_commit(
    messaging: Messaging, shop: Sqlite
) -> None:
    with messaging.transaction(shop) as tx:
        messaging.publisher("t").publish(b"a")
        for flush in (tx.flush, messaging.publisher("t").flush):
            with pytest.raises(MisusedTransaction, match="cannot be flushed before"):
                flush()


def test_a_relay_that_meets_another_leaves_the_batch_to_it(
    messaging: Messaging, shop: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(messaging, shop, "ann")

    def refuse(*_: object) -> None:
        monkeypatch.undo()
        raise TransactionConflict("another one was faster")

    monkeypatch.setattr(shop._relay, "_carried", refuse)
    assert shop.relay() == 1
    assert committed(messaging) == [b"ann"]


def test_an_interrupt_behind_the_commit_of_the_file_undoes_nothing(
    messaging: Messaging, shop: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        messaging.transaction(shop) as tx,
    ):
        tx.on_commit(lambda: called.append("commit"))
        tx.on_rollback(lambda: called.append("rollback"))
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        monkeypatch.setattr(type(messaging.coordinator), "commit", interrupted)
    monkeypatch.undo()
    assert (orders(shop.connection), called) == (["ann"], ["commit"])
    assert tx.status is Status.COMMITTED
