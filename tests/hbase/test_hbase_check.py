"""A check of a store in HBase: beside its owner, and with what only HBase can break."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.embedded.records import encode_records
from tests.support.check_setting import PREFIX, SETTINGS, commit_some, invalid_rows
from tests.support.cli_runs import run, run_json
from tests.support.messagings import commit
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.reports import Report
from txaware.service.check.checking import check_table
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import HeadCell, StoreHead
from txaware.store.hbase.key_check import KeyCheck
from txaware.store.hbase.salting import bucket_of
from txaware.store.hbase.scanner import stored_keys
from txaware.store.hbase.schema import HEAD_KEY, MESSAGES, META
from txaware.store.hbase.view import HBaseView
from txaware.store.keys import JOURNAL, MESSAGE, STATE, row_key

pytestmark = pytest.mark.hbase


@pytest.fixture
def connections(hbase_url: str) -> Iterator[HBaseConnections]:
    found = HBaseConnections(HBaseAddress.parse(hbase_url))
    yield found
    found.close()


@contextmanager
def filled(url: str, **options: Any) -> Iterator[Messaging]:
    """A store with some of everything, in use."""
    with txaware.connect(url, settings=SETTINGS, **options) as messaging:
        messaging.create_topic("orders")
        messaging.create_topic("sales:deleted")
        messaging.publish("sales:deleted", [b"gone"])
        messaging.delete_topic("sales:deleted")
        messaging.publish("orders", [b"plain" * 30] * 100)
        commit_some(messaging)
        yield messaging


def put(
    connections: HBaseConnections, kind: str, key: bytes, value: bytes, time_ms: int
) -> None:
    """Writes a cell as no program of ours would."""
    mutation = connections.structs.Mutation(column=WHOLE, value=value)
    table = connections.address.table(kind)
    connections.repeat(
        lambda client: client.mutateRowTs(table, key, [mutation], time_ms, {})
    )


def put_head(connections: HBaseConnections, value: bytes) -> None:
    mutation = connections.structs.Mutation(column=WHOLE, value=value)
    table = connections.address.table(META)
    connections.repeat(lambda client: client.mutateRow(table, HEAD_KEY, [mutation], {}))


def head_of(connections: HBaseConnections) -> StoreHead:
    head = HeadCell(connections).read()
    assert head is not None
    return head


def kinds(report: Report) -> set[str]:
    return {problem.kind for problem in report.problems}


def test_a_sound_store_is_clean_and_all_of_it_is_counted(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url):
        pass
    report = check_table(KeyCheck(connections))
    assert report.problems == ()
    counts = report.counts
    assert counts["topics"] == 2
    assert counts["messages"] == 101
    assert counts["references"] == 1
    assert counts["payloads"] == 20
    assert counts["positions"] == 1
    assert counts["rows of older generations"] == 1


def test_it_is_read_beside_its_owner_who_goes_on(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url) as messaging:
        before = head_of(connections)
        assert check_table(KeyCheck(connections)).is_clean
        assert run("check", "--data", hbase_url).stdout.splitlines()[-1] == "clean"
        assert head_of(connections) == before
        messaging.publish("orders", [b"another"])
        assert messaging.check().is_clean
        (found,) = run_json("--url", hbase_url, "check")
        assert found["counts"]["messages"] == 102
        assert found["counts"]["owners"] == 1


def test_rows_of_a_batch_that_are_still_on_their_way_are_seen(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url) as messaging:
        messaging.publish("orders", [b"last"])
        table, head = connections.address.table(MESSAGES), head_of(connections)
        pages = list(stored_keys(connections, MESSAGES))
        (last,) = [key for page in pages for key, ms in page if ms == head.time_ms]
        connections.repeat(lambda client: client.deleteAllRow(table, last, {}))
        view = HBaseView(connections)
        values = [value for _, value in view.scan(MESSAGE + PREFIX, limit=1000)]
        assert values[-1] == b"\0last"
        assert view.get(MESSAGE + last[1:]) == b"\0last"
        assert check_table(KeyCheck(connections)).counts["messages"] == 102


def test_a_row_in_another_bucket_is_a_problem(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url):
        pass
    key = MESSAGE + PREFIX + row_key(1_000)
    bucket, time_ms = bucket_of(key), head_of(connections).time_ms - 1
    put(connections, MESSAGES, bytes([bucket]) + key[1:], b"\0a", time_ms)
    assert check_table(KeyCheck(connections)).is_clean
    wrong = bytes([(bucket + 1) % 16]) + key[1:]
    put(connections, MESSAGES, wrong, b"\0a", time_ms)
    report = check_table(KeyCheck(connections))
    assert "bucket" in kinds(report)
    assert report.problems[0].key == key.hex()


def test_a_cell_above_the_last_batch_is_a_problem(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url):
        pass
    later_ms = head_of(connections).time_ms + 1
    key = MESSAGE + PREFIX + row_key(1_000)
    salted = bytes([bucket_of(key)]) + key[1:]
    put(connections, MESSAGES, salted, b"\0a", later_ms)
    put(connections, META, STATE + b"time", b"x" * 8, later_ms)
    report = check_table(KeyCheck(connections))
    assert kinds(report) == {"timestamp"}
    assert {problem.key for problem in report.problems} == {
        key.hex(),
        (STATE + b"time").hex(),
    }


def test_an_entry_of_the_journal_above_the_last_batch_is_a_problem(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url):
        pass
    head = head_of(connections)
    entry = JOURNAL + (head.batch + 1).to_bytes(8, "big")
    put(connections, META, entry, encode_records([]), head.time_ms)
    report = check_table(KeyCheck(connections))
    assert kinds(report) == {"batch"}
    assert report.problems[0].key == entry.hex()


def test_names_of_the_stores_own_rows_are_known(
    hbase_url: str, connections: HBaseConnections
) -> None:
    with filled(hbase_url):
        pass
    put(connections, META, b"\0other", b"a", 1)
    assert kinds(check_table(KeyCheck(connections))) == {"key"}


@pytest.mark.parametrize("damage", ["cut", "format", "record"])
def test_a_damaged_head_is_told(
    hbase_url: str, connections: HBaseConnections, damage: str
) -> None:
    with filled(hbase_url) as messaging:
        messaging.publish("orders", [b"inline"])
    head = head_of(connections)
    assert head.inline
    data = head.to_bytes()
    put_head(
        connections,
        {
            "cut": data[:20],
            "format": b"\7" + data[1:],
            "record": data[:-1] + bytes([data[-1] ^ 1]),
        }[damage],
    )
    try:
        result = run("check", "--data", hbase_url, code=1)
    finally:
        put_head(connections, data)
    assert f"head {HEAD_KEY.hex()}: " in result.stdout
    assert check_table(KeyCheck(connections)).is_clean


def test_a_store_that_nobody_opened_has_nothing_to_check(
    connections: HBaseConnections,
) -> None:
    head = HeadCell(connections).read()
    if head is not None:  # of a store that another test has used
        table = connections.address.table(META)
        connections.repeat(lambda client: client.deleteAllRow(table, HEAD_KEY, {}))
    with pytest.raises(BadRequest, match="nobody has opened it yet"):
        check_table(KeyCheck(connections))


def test_it_tells_the_least_transaction_that_each_topic_needs(hbase_url: str) -> None:
    with filled(hbase_url) as messaging:
        needed = invalid_rows(messaging)
        messaging.publish("orders", [b"after"])
        assert messaging.check().needed == needed
        lines = run("check", "--data", hbase_url).stdout.splitlines()
        for topic, pointer in needed.items():
            assert (
                f"topic {topic} needs transaction {pointer} to be remembered" in lines
            )
        messaging.clean_up()
        assert messaging.check().needed == {}


def test_a_coordinator_elsewhere_is_asked_what_is_invalid(hbase_url: str) -> None:
    with (
        txaware.connect("memory:") as decider,
        decider.serve() as server,
        EmbeddedCoordinator() as unasked,
    ):
        with filled(hbase_url, coordinator=server.url) as messaging:
            open_now = messaging.coordinator.start_short()
            needed = invalid_rows(messaging)
            assert messaging.check().needed == needed
            commit(messaging, open_now)
        (told,) = run_json("--coordinator", server.url, "check", "--data", hbase_url)
        assert told["needed"] == needed
        assert told["least_needed"] == min(needed.values())
        (silent,) = run_json("check", "--data", hbase_url)
        assert silent["needed"] is None
        assert unasked.invalid_size() == 0
