"""Tables: rows that commit with messages, seen by a snapshot as these are."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import txaware
from coordinator.context import TransactionContext
from tests.support.messagings import Site, committed, rows, table_of
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    RequestTooLarge,
    TransactionConflict,
)
from txaware.messaging import Messaging
from txaware.model.rows import KEY_LIMIT_BYTES
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import restore
from txaware.store.keys import TABLE


class Undone(Exception):
    """Ends a block that is to be rolled back."""


@contextmanager
def rolled_back(messaging: Messaging) -> Iterator[TransactionContext]:
    with suppress(Undone), messaging.transaction() as tx:
        yield tx
        raise Undone


def test_a_row_and_a_message_commit_together(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    with messaging.transaction(table):
        table.put(b"ann", b"5")
        messaging.publisher("t").publish(b"ann has 5")
    assert table.get(b"ann") == b"5"
    assert committed(messaging) == [b"ann has 5"]


def test_a_rollback_leaves_neither_row_nor_message(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    table.put(b"ann", b"5")
    with rolled_back(messaging):
        table.put(b"ann", b"0")
        table.put(b"bob", b"5")
        messaging.publisher("t").publish(b"ann paid 5")
    assert list(table.items()) == [(b"ann", b"5")]
    assert committed(messaging) == []


def test_a_block_sees_its_own_changes_and_nobody_else_does(
    messaging: Messaging,
) -> None:
    table = messaging.table("accounts")
    for name in (b"ann", b"bob", b"eve"):
        table.put(name, b"1")
    seen_outside: list[Any] = []
    with messaging.transaction():
        table.put(b"bob", b"2")
        table.put(b"cyd", b"3")
        table.delete(b"ann")
        assert table.get(b"bob") == b"2"
        assert table.get(b"ann") is None
        found = [(b"bob", b"2"), (b"cyd", b"3"), (b"eve", b"1")]
        assert list(table.items()) == found
        assert list(table.scan(b"c")) == [(b"cyd", b"3")]
        assert list(table.scan(limit=2)) == found[:2]
        other = threading.Thread(
            target=lambda: seen_outside.extend([table.get(b"ann"), table.get(b"cyd")])
        )
        other.start()
        other.join()
    assert seen_outside == [b"1", None]
    assert list(table.items()) == found


def test_a_block_reads_the_snapshot_that_it_began_with(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    table.put(b"ann", b"1")
    with messaging.transaction():
        assert table.get(b"ann") == b"1"
        other = threading.Thread(target=lambda: table.put(b"ann", b"2"))
        other.start()
        other.join()
        messaging.clean_up()
        assert table.get(b"ann") == b"1"
        assert list(table.items()) == [(b"ann", b"1")]
    assert table.get(b"ann") == b"2"


def test_a_block_of_another_messaging_is_refused(messaging: Messaging) -> None:
    """No change would join it: each would be a transaction of its own."""
    table = messaging.table("accounts")
    with (
        txaware.connect("memory:") as other,
        pytest.raises(MisusedTransaction, match="table accounts takes part in blocks"),
        other.transaction(table),
    ):
        pass


def test_two_that_change_one_row_conflict_and_the_second_loses(
    messaging: Messaging,
) -> None:
    table = messaging.table("accounts")
    table.put(b"ann", b"1")

    def add_one() -> None:
        with messaging.transaction():
            value = int(table.get(b"ann") or b"")
            other = threading.Thread(target=lambda: table.put(b"ann", b"7"))
            other.start()
            other.join()
            table.put(b"ann", b"%d" % (value + 1))

    with pytest.raises(TransactionConflict):
        add_one()
    assert table.get(b"ann") == b"7"


def test_without_conflicts_the_later_transaction_counts(messaging: Messaging) -> None:
    table = messaging.table("seen", conflicts="none")
    with messaging.transaction():
        table.put(b"ann", b"early")
        other = threading.Thread(target=lambda: table.put(b"ann", b"late"))
        other.start()
        other.join()
    assert table.get(b"ann") == b"late"


def test_what_a_clean_up_removes_brings_nothing_back(messaging: Messaging) -> None:
    table = messaging.table("seen", conflicts="none")
    with messaging.transaction():
        table.put(b"ann", b"early")
        other = threading.Thread(target=lambda: table.delete(b"ann"))
        other.start()
        other.join()
        messaging.clean_up()
    messaging.clean_up()
    assert table.get(b"ann") is None


def test_checkpoints_tell_earlier_changes_from_later_ones(messaging: Messaging) -> None:
    table = messaging.table("accounts")
    with messaging.transaction() as tx:
        table.put(b"ann", b"1")
        table.put(b"bob", b"1")
        tx.checkpoint()
        table.put(b"ann", b"2")
        assert table.get(b"bob") == b"1"
    assert list(table.items()) == [(b"ann", b"2"), (b"bob", b"1")]
    with rolled_back(messaging) as tx:
        table.put(b"ann", b"3")
        tx.checkpoint()
        table.put(b"ann", b"4")
    assert list(table.items()) == [(b"ann", b"2"), (b"bob", b"1")]


def test_ranges_of_keys_with_any_bytes(messaging: Messaging) -> None:
    table = messaging.table("any")
    keys = [
        *(b"", b"\0", b"\0\0", b"\0\0\xff", b"\0\xff", b"a", b"a\0", b"a\0b", b"ab"),
        *(b"b", b"\xff", b"\xff\0", b"\xff\xff"),
    ]
    other = messaging.table("any2")
    with messaging.transaction():
        for key in keys:
            table.put(key, b"v" + key)
            other.put(key, b"other")
    for start in (None, *keys):
        for stop in (None, *keys):
            found = [key for key, _ in table.scan(start=start, stop=stop)]
            assert found == [
                key
                for key in sorted(keys)
                if (start is None or start <= key) and (stop is None or key < stop)
            ]
    for prefix in keys:
        found = [key for key, _ in table.scan(prefix)]
        assert found == [key for key in sorted(keys) if key.startswith(prefix)]
    assert all(table.get(key) == b"v" + key for key in keys)


def test_many_rows_come_in_order_whatever_their_pages(messaging: Messaging) -> None:
    table = messaging.table("many")
    with messaging.transaction():
        for number in range(2_500):
            table.put(b"%06d" % number, b"x" * 10)
    for number in range(0, 2_500, 7):
        table.put(b"%06d" % number, b"y") if number % 70 == 0 else None
    found = list(table.items())
    assert [key for key, _ in found] == [b"%06d" % n for n in range(2_500)]
    assert [value for _, value in found[:3]] == [b"y", b"x" * 10, b"x" * 10]
    assert len(list(table.scan(limit=1_700))) == 1_700


def test_a_row_with_a_time_to_live_is_gone_after_it(site: Site) -> None:
    table = site.messaging.table("sessions")
    table.put(b"ann", b"1", ttl_s=60)
    table.put(b"bob", b"1")
    assert table.get(b"ann") == b"1"
    site.clock.now_ms += 61_000
    assert table.get(b"ann") is None
    assert list(table.items()) == [(b"bob", b"1")]
    site.messaging.clean_up()
    assert rows(site.embedded, TABLE) == 1


def test_versions_that_nobody_can_read_are_removed(site: Site) -> None:
    table = site.messaging.table("accounts")
    for number in range(5):
        table.put(b"ann", b"%d" % number)
    table.put(b"bob", b"1")
    table.delete(b"bob")
    site.messaging.clean_up()
    assert rows(site.embedded, TABLE) == 1
    assert list(table.items()) == [(b"ann", b"4")]
    table.put(b"ann", b"5")
    assert site.messaging.clean_up().table_versions == 1


def test_a_row_that_changes_often_keeps_few_versions(site: Site) -> None:
    table = site.messaging.table("counters")
    for number in range(200):
        table.put(b"n", b"%d" % number)
    assert rows(site.embedded, TABLE) < 130


def test_values_are_encoded_and_decoded(messaging: Messaging) -> None:
    table = messaging.table("n", encode=lambda n: b"%d" % n, decode=int)
    table.put(b"ann", 5)
    assert table.get(b"ann") == 5
    assert table.get(b"bob") is None
    with messaging.transaction():
        table.put(b"ann", (table.get(b"ann") or 0) + 1)
        assert list(table.items()) == [(b"ann", 6)]


def test_tables_are_listed_by_namespace(messaging: Messaging) -> None:
    for name in ("b", "a", "ns:c"):
        messaging.table(name).put(b"k", b"v")
    assert messaging.tables() == ["a", "b"]
    assert messaging.tables("ns") == ["c"]
    assert messaging.tables("none") == []


@pytest.mark.parametrize("name", ["", "a b", "a:b:c", "no space:x", 5, None])
def test_what_is_no_name_is_refused(messaging: Messaging, name: Any) -> None:
    with pytest.raises(BadRequest):
        messaging.table(name)


def test_wrong_keys_and_values_are_refused_and_change_nothing(
    messaging: Messaging,
) -> None:
    table = messaging.table("accounts")
    wrong: Any
    for wrong in ("text", 5, None):
        with pytest.raises(BadRequest, match="a key is bytes"):
            table.get(wrong)
        with pytest.raises(BadRequest, match="a key is bytes"):
            table.put(wrong, b"v")
        with pytest.raises(BadRequest, match="a value is bytes"):
            table.put(b"k", wrong)
    with pytest.raises(RequestTooLarge):
        table.put(b"k" * (KEY_LIMIT_BYTES + 1), b"v")
    for wrong in (0, -1, "5", True, float("nan")):
        with pytest.raises(BadRequest, match="a row expires"):
            table.put(b"k", b"v", ttl_s=wrong)
    for wrong in (-1, "5", 1.5, True):
        with pytest.raises(BadRequest, match="a limit is"):
            list(table.scan(limit=wrong))
    with pytest.raises(BadRequest, match="conflicts"):
        messaging.table("t", conflicts=wrong)
    assert list(table.items()) == []


def test_a_long_transaction_changes_rows_only_without_conflicts(
    messaging: Messaging,
) -> None:
    with (
        pytest.raises(txaware.MisusedTransaction, match="long"),
        messaging.transaction(long=True),
    ):
        messaging.table("accounts").put(b"k", b"v")
    with messaging.transaction(long=True):
        messaging.table("log", conflicts="none").put(b"k", b"v")
    assert messaging.table("log").get(b"k") == b"v"


def test_rows_survive_and_undecided_ones_do_not(lasting: Site) -> None:
    table = lasting.messaging.table("accounts")
    table.put(b"ann", b"1")

    def crash_before_the_commit() -> None:
        with lasting.messaging.transaction(table) as tx:
            table.put(b"ann", b"2")
            tx.checkpoint()
            lasting.crash()

    with pytest.raises(txaware.TxAwareError):
        crash_before_the_commit()
    messaging = lasting.messaging
    again = messaging.table("accounts")
    assert again.get(b"ann") == b"1"
    messaging.clean_up()
    assert again.get(b"ann") == b"1"
    again.put(b"ann", b"3")
    assert lasting.open().table("accounts").get(b"ann") == b"3"
    lasting.messaging.check()
    assert lasting.messaging.check().problems == ()


def test_check_backup_and_copy_know_the_rows_of_one_moment(durable: Site) -> None:
    messaging, settings = durable.messaging, Settings(janitor_interval_s=0)
    places = [durable.directory.parent / name for name in ("restored", "copied")]
    table = messaging.table("ns:accounts")
    for key, value in ((b"ann", b"1"), (b"ann", b"2"), (b"\0bob\0", b""), (b"c", b"3")):
        table.put(key, value)
    table.put(b"dora", b"4", ttl_s=60)
    table.delete(b"c")
    with messaging.transaction() as tx:
        table.put(b"ann", b"not decided")
        tx.prepare("half")
    expected = [(b"\0bob\0", b""), (b"ann", b"2"), (b"dora", b"4")]
    file = io.BytesIO()
    messaging.backup(file)
    table.put(b"later", b"5")
    assert messaging.check().counts["versions of rows"] >= 6
    durable.close()
    directory = durable.directory
    restore(io.BytesIO(file.getvalue()), places[0], settings, clock_ms=durable.clock)
    txaware.copy(f"leveldb:{directory}", f"leveldb:{places[1]}", clock_ms=durable.clock)
    for place, more in zip(places, ([], [(b"later", b"5")]), strict=True):
        report = check_directory(place, settings)
        assert (report.is_clean, report.counts["versions of rows"] >= 4) == (True, True)
        with txaware.connect(
            f"leveldb:{place}", settings=settings, clock_ms=durable.clock
        ) as copy:
            assert list(copy.table("ns:accounts").items()) == expected + more
            assert copy.tables("ns") == ["accounts"]
    durable.clock.advance_s(61)
    with txaware.connect(
        f"leveldb:{places[0]}", settings=settings, clock_ms=durable.clock
    ) as copy:
        assert copy.table("ns:accounts").get(b"dora") is None


@pytest.mark.parametrize("settings", [{}, {"sync_limit_bytes": 1}])
def test_changes_too_large_to_be_held_are_written_before_the_commit(
    tmp_path: Any, settings: Any
) -> None:
    url = f"leveldb:{tmp_path}"
    with txaware.connect(url, settings=Settings(**settings)) as messaging:
        table = messaging.table("accounts")
        with messaging.transaction():
            for number in range(100):
                table.put(b"%d" % number, b"x" * 1000)
        with rolled_back(messaging):
            for number in range(100):
                table.put(b"%d" % number, b"y")
        assert {value for _, value in table.items()} == {b"x" * 1000}


keys = st.binary(max_size=3)
changes = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.binary(max_size=3))), max_size=6
)


@given(st.lists(st.tuples(changes, st.booleans()), max_size=6), keys, keys, keys)
def test_a_table_is_a_sorted_map(
    blocks: list[tuple[list[tuple[bytes, bytes | None]], bool]],
    prefix: bytes,
    start: bytes,
    stop: bytes,
) -> None:
    model: dict[bytes, bytes] = {}
    with txaware.connect("memory:") as messaging:
        table = messaging.table("m")
        for block, commits in blocks:
            after = dict(model)
            try:
                with messaging.transaction():
                    for key, value in block:
                        if value is None:
                            table.delete(key)
                            after.pop(key, None)
                        else:
                            table.put(key, value)
                            after[key] = value
                    assert dict(table.items()) == after
                    if not commits:
                        raise ValueError
                model = after
            except ValueError:
                pass
            messaging.clean_up()
        assert list(table.items()) == sorted(model.items())
        assert len(table_of(messaging).scan(TABLE)) == len(model)
        found = list(table.scan(prefix, start=start, stop=stop))
        assert found == [
            (key, value)
            for key, value in sorted(model.items())
            if key.startswith(prefix) and start <= key < stop
        ]
