"""Changes of a table over HTTP: cut to requests that the server takes, or refused."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import txaware
from tests.support.doubles import Recorder
from tests.support.http_served import ServedStore, served
from txaware.client import HttpTables
from txaware.client.server_info import ServerInfo
from txaware.errors import ParticipantFailed, RequestTooLarge, TransactionNotInProgress
from txaware.messaging import Messaging
from txaware.model.interfaces import Row
from txaware.model.rows import RowChange
from txaware.tables import Table

REQUEST_BYTES = 40_000


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(request_limit_bytes=REQUEST_BYTES) as opened:
        opened.messaging.create_topic("t")
        yield opened


@pytest.fixture
def client(store: ServedStore) -> Iterator[Messaging]:
    with txaware.connect(store.url) as opened:
        yield opened


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The keys of each request that was made."""
    made: list[list[bytes]] = []
    save = HttpTables.save_rows

    def noted(self: HttpTables, table: str, changes: Any, **options: Any) -> None:
        made.append([change.key for change in changes])
        save(self, table, changes, **options)

    monkeypatch.setattr(HttpTables, "save_rows", noted)
    return made


def fill(table: Table, count: int = 1500) -> None:
    for number in range(count):
        table.put(b"%d" % number, bytes(40))


def rows_of(store: ServedStore) -> list[Row]:
    return list(store.messaging.table("v").items())


# In bytes, as many and as large as they come.
TABLES: dict[str, list[int]] = {
    "one that JSON would make too large": [REQUEST_BYTES * 9 // 10],
    "some large ones": [REQUEST_BYTES // 2, REQUEST_BYTES * 9 // 10, 10_000, 1],
    "small ones": [10] * 1500,
    "empty ones": [0] * 1500,
}


@pytest.mark.parametrize("sizes", TABLES.values(), ids=TABLES)
def test_a_transaction_changes_more_rows_than_a_request_takes(
    store: ServedStore, client: Messaging, sizes: list[int]
) -> None:
    rows = [(b"%05d" % number, bytes(size)) for number, size in enumerate(sizes)]
    table = client.table("v")
    with client.transaction():
        for key, value in rows:
            table.put(key, value)
        client.publisher("t").publish(b"beside")
        assert rows_of(store) == []
    assert rows_of(store) == rows
    assert store.committed() == [b"beside"]
    with client.transaction():
        for key, _ in rows:
            table.delete(key)
    assert rows_of(store) == []


def test_a_row_that_expires_does_so_however_large_it_is(client: Messaging) -> None:
    table = client.table("v")
    table.put(b"small", b"s", ttl_s=1000)
    table.put(b"large", bytes(REQUEST_BYTES * 9 // 10), ttl_s=1e-9)
    assert table.get(b"small") == b"s"
    while table.get(b"large") is not None:
        pass


def test_a_row_that_no_request_can_carry_is_refused_when_it_is_put(
    store: ServedStore, client: Messaging
) -> None:
    largest = ServerInfo(request_bytes=REQUEST_BYTES).largest_row_bytes
    key, table = b"k" * 8000, client.table("v")
    with client.transaction():
        with pytest.raises(RequestTooLarge, match=r"a row of .* with its key"):
            table.put(key, bytes(largest - len(key) + 1))
        with pytest.raises(RequestTooLarge, match="a value of"):
            table.put(b"", bytes(largest))
        table.put(key, bytes(largest - len(key)))
        client.publisher("t").publish(b"beside")
    assert rows_of(store) == [(key, bytes(largest - len(key)))]
    assert store.committed() == [b"beside"]


def test_keys_that_no_commit_can_name_are_refused_when_they_are_put(
    store: ServedStore, client: Messaging
) -> None:
    table, many = client.table("v"), 5000
    with client.transaction():
        with pytest.raises(RequestTooLarge, match="the keys of"):
            fill(table, many)
        table.put(b"0", b"w")  # which is named already
    assert 1500 < len(rows_of(store)) < many
    assert client.table("v").get(b"0") == b"w"
    apart = client.table("apart", conflicts="none")
    with client.transaction():
        fill(apart, many)
    assert len(list(store.messaging.table("apart").items())) == many


def test_all_pieces_are_taken_back_where_the_transaction_fails(
    store: ServedStore, client: Messaging, pieces: list[list[bytes]]
) -> None:
    tx = client.transaction()
    tx.join(Recorder(commit_tx=False, flushes_last=True))
    with pytest.raises(ParticipantFailed), tx:
        fill(client.table("v"))
    assert len(pieces) > 3
    assert tx.status.value == "aborted"  # and not invalidated: nothing is left
    assert rows_of(store) == []


def test_a_piece_that_is_refused_leaves_nothing_of_those_before(
    store: ServedStore,
    client: Messaging,
    pieces: list[list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save = HttpTables.save_rows

    def refused(self: HttpTables, table: str, changes: Any, **options: Any) -> None:
        if len(pieces) == 2:
            raise RequestTooLarge("the limit was lowered meanwhile")
        save(self, table, changes, **options)

    monkeypatch.setattr(HttpTables, "save_rows", refused)
    tx = client.transaction()
    with pytest.raises(RequestTooLarge), tx:
        fill(client.table("v"))
    assert tx.status.value == "aborted"
    assert rows_of(store) == []


def test_changes_that_do_not_fit_are_refused_before_they_are_sent(
    client: Messaging,
) -> None:
    tables: Any = client._parts.tables
    tx = client.coordinator.start_short()
    changes = [RowChange(b"%d" % number, bytes(10_000)) for number in range(5)]
    with pytest.raises(RequestTooLarge, match=r"cut_rows\(\)"):
        tables.save_rows("v", changes, transaction=tx)
    for piece in tables.cut_rows(changes):
        tables.save_rows("v", piece, transaction=tx)
    client.coordinator.abort(tx)


def test_a_large_row_for_a_transaction_that_has_ended_is_refused(
    client: Messaging,
) -> None:
    tables: Any = client._parts.tables
    tx = client.coordinator.start_short()
    client.coordinator.invalidate(tx)
    with pytest.raises(TransactionNotInProgress):
        tables.save_rows("v", [RowChange(b"k", bytes(35_000))], transaction=tx)


def test_asyncio_cuts_them_too(store: ServedStore) -> None:
    async def run() -> None:
        async with txaware.connect_async(store.url) as messaging:
            table = await messaging.table("v")
            async with messaging.transaction():
                for number in range(4):
                    await table.put(b"%d" % number, bytes(35_000))
                with pytest.raises(RequestTooLarge):
                    await table.put(b"k" * 5000, bytes(35_000))

    asyncio.run(run())
    assert rows_of(store) == [(b"%d" % number, bytes(35_000)) for number in range(4)]
