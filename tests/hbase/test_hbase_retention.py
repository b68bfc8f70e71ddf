"""What is removed from HBase, by what a major compaction leaves of its files."""

import random
from collections.abc import Callable, Iterator

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.doubles import Clock
from tests.support.messagings import table_of
from txaware.local_hbase import HBaseAdmin, LocalHBase
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.model.topics import TopicName, data_prefix
from txaware.store.columns import EXPIRY, encode_expiry, value_head
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.ownership import Ownership
from txaware.store.hbase.schema import MESSAGES, PAYLOADS
from txaware.store.hbase.table import HBaseTable
from txaware.store.hbase.writing import CALL_ROWS, Writing, WrittenRows
from txaware.store.keys import MESSAGE, PAYLOAD, row_key

pytestmark = pytest.mark.hbase

ROWS, ROW_BYTES = 2000, 1000
EXPIRE_MS = 10_000
ALL_BYTES = ROWS * ROW_BYTES
KEPT = 100
PREFIX = MESSAGE + data_prefix(TopicName("t"), 1)
Files = Callable[[str], int]


def incompressible(count: int = ROWS) -> list[bytes]:
    """What cannot be compressed."""
    made = random.Random(count)
    return [made.randbytes(ROW_BYTES) for _ in range(count)]


@pytest.fixture
def clock() -> Clock:
    return Clock(system_clock_ms())


@pytest.fixture
def messaging(hbase_url: str, clock: Clock) -> Iterator[Messaging]:
    """A store with a topic `t` of ten seconds, and nothing else."""
    quiet = Settings(janitor_interval_s=0)
    with txaware.connect(hbase_url, settings=quiet, clock_ms=clock) as found:
        found.create_topic("t", ttl_s=10)
        yield found


@pytest.fixture
def written_bytes(hbase: LocalHBase, hbase_admin: HBaseAdmin, hbase_url: str) -> Files:
    """How large the files of a table are, once all of it is in files."""
    address = HBaseAddress.parse(hbase_url)

    def measure(kind: str) -> int:
        table = address.table(kind).decode()
        hbase_admin.flush(table)
        return hbase.file_bytes(table)

    return measure


@pytest.fixture
def compacted_bytes(
    hbase: LocalHBase, hbase_admin: HBaseAdmin, hbase_url: str, written_bytes: Files
) -> Files:
    """The same after a major compaction, when the old files are gone."""
    address = HBaseAddress.parse(hbase_url)

    def measure(kind: str) -> int:
        table, before = address.table(kind).decode(), written_bytes(kind)
        hbase_admin.major_compact(table)
        until(lambda: hbase.file_bytes(table) < before, timeout_s=10)
        after = hbase.file_bytes(table)
        print(f"{table}: {before:,} bytes, {after:,} after a major compaction")
        return after

    return measure


def rows(messaging: Messaging, prefix: bytes = MESSAGE) -> int:
    return len(table_of(messaging).scan(prefix, limit=10 * ROWS))


def test_messages_that_expire_by_themselves_need_no_clean_up(
    hbase_url: str, written_bytes: Files, compacted_bytes: Files
) -> None:
    connections = HBaseConnections(HBaseAddress.parse(hbase_url))
    now_ms = system_clock_ms()
    table = HBaseTable(
        HBaseDatabase(
            connections,
            Ownership(connections),
            Writing(connections, now_ms=system_clock_ms, expiry_grace_ms=0),
        ),
        clock_ms=system_clock_ms,
        sync_limit_bytes=1 << 20,
    )
    try:
        expiring = value_head(None, more={EXPIRY: encode_expiry(now_ms + EXPIRE_MS)})
        made = incompressible()
        table.submit(
            [
                (
                    PREFIX + row_key(now_ms, number),
                    (b"\0" if number < KEPT else expiring) + payload,
                )
                for number, payload in enumerate(made)
            ]
        )()
        assert len(table.scan(PREFIX, limit=ROWS, max_bytes=1 << 30)) == ROWS
        assert written_bytes(MESSAGES) > ALL_BYTES
        left = table.scan
        assert until(
            lambda: len(left(PREFIX, limit=ROWS, max_bytes=1 << 30)) == KEPT,
            timeout_s=2 * EXPIRE_MS / 1000,
        )
        kept_bytes = KEPT * ROW_BYTES
        assert kept_bytes < compacted_bytes(MESSAGES) < 2 * kept_bytes
    finally:
        table.close()


def test_messages_past_the_time_to_live_go_in_calls_of_bounded_size(
    messaging: Messaging,
    clock: Clock,
    written_bytes: Files,
    compacted_bytes: Files,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messaging.publish("t", incompressible())
    clock.advance_s(11)
    messaging.publish("t", incompressible(KEPT))
    assert written_bytes(MESSAGES) > ALL_BYTES
    sizes: list[int] = []
    put: Callable[..., None] = Writing._put

    def noting(
        writing: Writing, group: object, call: WrittenRows, time_ms: int
    ) -> None:
        sizes.append(len(call.mutations))
        put(writing, group, call, time_ms)

    monkeypatch.setattr(Writing, "_put", noting)
    assert messaging.clean_up().expired_messages == ROWS
    assert max(sizes) <= CALL_ROWS
    assert rows(messaging) == KEPT
    kept_bytes = KEPT * ROW_BYTES
    assert kept_bytes < compacted_bytes(MESSAGES) < 2 * kept_bytes


def test_older_generations_go(
    messaging: Messaging, written_bytes: Files, compacted_bytes: Files
) -> None:
    messaging.publish("t", incompressible())
    messaging.delete_topic("t")
    messaging.create_topic("t", ttl_s=10)
    messaging.publish("t", incompressible(KEPT))
    assert written_bytes(MESSAGES) > ALL_BYTES
    assert messaging.clean_up().old_generation_rows == ROWS
    assert rows(messaging) == KEPT
    assert compacted_bytes(MESSAGES) < 2 * KEPT * ROW_BYTES


def test_invalid_messages_are_marked_before_they_are_forgotten_and_go_in_their_time(
    messaging: Messaging, clock: Clock, compacted_bytes: Files
) -> None:
    coordinator = messaging.coordinator
    tx = coordinator.start_short()
    messaging.publish("t", incompressible(), transaction=tx)
    coordinator.invalidate(tx)
    assert messaging.check().needed == {"t": tx.transaction_id}
    cleaned = messaging.clean_up()
    assert cleaned.marked_rows == ROWS
    assert (cleaned.least_needed or 0) > tx.transaction_id
    assert messaging.check().needed == {}
    assert not messaging.poll("t", isolation="committed")
    assert len(messaging.poll("t", limit=ROWS)) == ROWS
    # Marked rows are there in two versions, which compress to little more than one.
    assert ALL_BYTES < compacted_bytes(MESSAGES) < 1.2 * ALL_BYTES
    clock.advance_s(coordinator.settle_grace_s + 60)
    assert messaging.prune().pruned == 1  # which cleans up first
    assert coordinator.invalid_size() == 0
    assert not rows(messaging)
    assert compacted_bytes(MESSAGES) < 10_000


def test_payloads_that_no_reference_names_go(
    messaging: Messaging, written_bytes: Files, compacted_bytes: Files
) -> None:
    coordinator = messaging.coordinator
    tx = coordinator.start_short()
    messaging.store("t", incompressible(), transaction=tx)
    assert messaging.clean_up().expired_payloads == 0
    assert written_bytes(PAYLOADS) > ALL_BYTES
    coordinator.abort(tx)
    assert messaging.clean_up().expired_payloads == ROWS
    assert not rows(messaging, PAYLOAD)
    assert compacted_bytes(PAYLOADS) < 10_000


def test_the_janitor_cleans_up_by_itself(hbase_url: str) -> None:
    with txaware.connect(
        hbase_url, settings=Settings(janitor_interval_s=1)
    ) as messaging:
        messaging.create_topic("short", ttl_s=1)
        messaging.publish("short", [b"a"])
        assert until(lambda: not rows(messaging), timeout_s=20)
