"""Copies of stores: what is in them, and that readers go on where they were."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.tephra import TephraCoordinator
from tests.support.copy_histories import GROUPS, TOPICS, Play, histories
from tests.support.copying_runs import CopyInMemory, Faults, Reader, rows_of, topics_of
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit, payloads, publish, table_of
from txaware.errors import BadRequest, TransactionNotInProgress, Unavailable
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.model.settings import Settings
from txaware.model.topics import MAX_TTL_S
from txaware.service.check.checking import check_directory
from txaware.service.transfer import copied_rows as copy_rows
from txaware.service.transfer.copying import Copied
from txaware.store.columns import pointer_of, value_head
from txaware.store.keys import MESSAGE, POSITION, PRODUCER, payload_prefix
from txaware.store.kinds import KINDS

SETTINGS = Settings(janitor_interval_s=0)


@pytest.fixture
def messaging(durable: Site) -> Messaging:
    durable.messaging.create_topic("t")
    durable.messaging.create_topic("u")
    return durable.messaging


def copied(site: Site, **options: Any) -> Copied:
    """Closes the store, and copies it to the directory `copy`."""
    site.close()
    return txaware.copy(
        f"leveldb:{site.directory}",
        f"leveldb:{site.directory.parent / 'copy'}",
        settings=SETTINGS,
        **{"clock_ms": site.clock, **options},
    )


@contextmanager
def opened(site: Site, **options: Any) -> Iterator[Messaging]:
    """The copy, which passes the check."""
    directory = site.directory.parent / "copy"
    report = check_directory(directory, SETTINGS)
    assert report.is_clean, report.problems
    with txaware.connect(
        f"leveldb:{directory}",
        settings=SETTINGS,
        **{"clock_ms": site.clock, **options},
    ) as found:
        yield found


def test_readers_go_on_where_they_were(durable: Site, messaging: Messaging) -> None:
    messaging.publish("t", [b"plain"])
    with messaging.transaction():
        messaging.publisher("t", buffer_limit_bytes=10).publish(b"stored ahead of it")
        messaging.publisher("u").publish(b"in both")
    with messaging.transaction():
        read = messaging.consumer("t", group="g").poll(limit=1)
    messaging.publish("t", [b"last"])
    messaging.delete_topic("u")
    before, position = messaging.poll("t"), messaging.position("g", "t")
    known = topics_of(durable.table)
    done = copied(durable)
    with opened(durable) as copy:
        assert copy.poll("t") == copy.poll("t", isolation="committed") == before
        assert copy.position("g", "t") == position == read[-1].id
        with copy.transaction():
            rest = copy.consumer("t", group="g").poll()
        assert payloads(rest) == [b"stored ahead of it", b"last"]
        assert topics_of(table_of(copy)) == known
        assert copy.create_topic("u").generation == 2
        copy.publish("t", [b"new"])
        assert copy.poll("t")[-1].id > before[-1].id
    assert (done.left_out_rows, done.undecided, done.was_complete) == (0, (), False)


def test_new_ids_and_pointers_are_above_all_where_the_clock_is_behind(
    durable: Site, messaging: Messaging
) -> None:
    with messaging.transaction():
        messaging.publisher("t").publish(b"one")
    pointer = messaging.coordinator.snapshot().transaction_id
    newest = messaging.poll("t")[-1].id
    behind = Clock(durable.clock() - 3_600_000)
    copied(durable)
    for number in range(2):  # and after it was closed once more
        with opened(durable, clock_ms=behind) as copy:
            tx = copy.coordinator.start_short()
            assert tx.transaction_id > pointer
            publish(copy, b"%d" % number, transaction=tx)
            commit(copy, tx)
            copy.publish("t", [b"plain"])
            ids = [message.id for message in copy.poll("t", isolation="committed")]
        assert len(ids) == 3 + 2 * number
        assert ids == sorted(ids)
        assert ids[0] == newest
        pointer = tx.transaction_id


def test_a_clock_behind_from_the_start_is_set_right(
    durable: Site, messaging: Messaging
) -> None:
    messaging.publish("t", [b"one"])
    newest = messaging.poll("t")[-1].id
    target = CopyInMemory(Clock(durable.clock() - 3_600_000))
    target.take(messaging)
    assert target.table.reserved_ms > newest.publish_time_ms


def test_what_is_invalid_comes_rolled_back(durable: Site, messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    publish(messaging, b"never", transaction=tx)
    messaging.store("t", [b"nor this"], transaction=tx)
    messaging.publish("t", [], transaction=tx)
    messaging.save_position("g", "t", MessageId(bytes(20)), transaction=tx)
    messaging.coordinator.invalidate(tx)
    messaging.publish("t", [b"after"])
    before = messaging.poll("t")
    done = copied(durable)
    assert done.rolled_back_rows == 3
    with opened(durable) as copy:
        table = table_of(copy)
        for first_byte, count in ((MESSAGE, 2), (POSITION, 1)):
            pointers = [pointer_of(value) for _, value in table.scan(first_byte)]
            assert pointers.count(-tx.transaction_id) == count
        assert copy.poll("t") == before  # plain polls get what was rolled back, too
        assert payloads(copy.poll("t", isolation="committed")) == [b"after"]
        assert copy.position("g", "t") is None
        assert copy.check().least_needed is None


def test_a_clean_up_of_the_copy_removes_what_nobody_names(
    durable: Site, messaging: Messaging
) -> None:
    good, bad = (messaging.coordinator.start_short() for _ in range(2))
    for tx in (good, bad):
        messaging.store("t", [b"stored"], transaction=tx)
    messaging.publish("t", [], transaction=good)
    commit(messaging, good)
    messaging.coordinator.invalidate(bad)
    copied(durable)
    durable.clock.advance_s(60)
    with opened(durable) as copy:
        before = copy.poll("t", isolation="committed")
        assert len(before) == 1
        assert copy.clean_up().expired_payloads == 1
        copy.prune()
        assert copy.poll("t", isolation="committed") == before
    with opened(durable) as copy:
        assert copy.poll("t", isolation="committed") == before


def test_what_is_in_progress_is_left_out_and_told(
    durable: Site, messaging: Messaging
) -> None:
    half, back = (
        messaging.coordinator.start_short(outlives_process=True) for _ in range(2)
    )
    for tx in (half, back):
        publish(messaging, b"half", transaction=tx)
    messaging.rollback("t", publish(messaging, b"undone", transaction=back))
    messaging.store("t", [b"stored"], transaction=half)
    messaging.save_position("g", "t", MessageId(bytes(20)), transaction=half)
    messaging.publish("t", [b"plain"])
    done = copied(durable)
    assert done.left_out_rows == 5
    assert done.undecided == (half.transaction_id, back.transaction_id)
    with opened(durable) as copy:
        assert payloads(copy.poll("t")) == [b"plain"]
        assert payloads(copy.poll("t", isolation="committed")) == [b"plain"]
        prefix = copy.topic("t").prefix
        assert not table_of(copy).scan(payload_prefix(prefix, half.transaction_id))
        assert not table_of(copy).scan(POSITION)


def test_who_asks_the_copy_about_a_transaction_is_told_the_truth(
    durable: Site, messaging: Messaging
) -> None:
    coordinator: Any = messaging.coordinator
    good, bad = coordinator.start_short(), coordinator.start_short()
    half = coordinator.start_short(outlives_process=True)
    for tx in (good, bad, half):
        publish(messaging, b"message", transaction=tx)
    commit(messaging, good)
    coordinator.invalidate(bad)
    copied(durable)
    durable.clock.advance_s(5)
    with opened(durable) as copy:
        snapshot = copy.coordinator.snapshot()
        assert {bad.transaction_id, half.transaction_id} <= set(snapshot.invalids)
        assert not copy.coordinator.invalidate(good)
        assert snapshot.is_visible(good.transaction_id)
        with pytest.raises(TransactionNotInProgress):
            copy.coordinator.commit(half)
        with pytest.raises(TransactionNotInProgress):
            publish(copy, b"more", transaction=half)


def test_who_began_between_the_moment_and_the_end_is_told_a_no(
    durable: Site, messaging: Messaging
) -> None:
    target = CopyInMemory(durable.clock)
    with pytest.raises(Unavailable):
        target.take(messaging, faults=Faults(4))
    durable.clock.advance_s(1)
    later = messaging.coordinator.start_short()
    publish(messaging, b"later", transaction=later)
    commit(messaging, later)
    durable.clock.advance_s(1)
    assert target.take(messaging).undecided == (later.transaction_id,)
    assert target.open().coordinator.invalidate(later)


def test_the_source_is_not_changed(durable: Site, messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    publish(messaging, b"invalid", transaction=tx)
    messaging.coordinator.invalidate(tx)
    messaging.publish("t", [b"plain"])
    before = rows_of(durable.table)
    copied(durable)
    messaging = durable.open()
    assert rows_of(durable.table) == before
    messaging.publish("t", [b"goes on"])
    assert payloads(messaging.poll("t", isolation="committed")) == [
        b"plain",
        b"goes on",
    ]


@pytest.mark.foreign_pointers
def test_pointers_that_were_made_by_hand_are_judged_by_the_snapshot(
    durable: Site, messaging: Messaging
) -> None:
    publish(messaging, b"two", transaction=2)
    publish(messaging, b"far ahead", transaction=2**62)
    done = copied(durable)
    assert done.undecided == (2**62,)
    with opened(durable) as copy:
        assert payloads(copy.poll("t", isolation="committed")) == [b"two"]


def test_columns_and_rows_of_producers_are_kept(
    durable: Site, messaging: Messaging
) -> None:
    key = (
        MESSAGE + messaging.topic("t").prefix + MessageId.of(durable.clock(), 7).row_key
    )
    value = value_head(None, more={b"s": b"mark", b"?": b"unknown"}) + b"payload"
    durable.table.submit([(key, value), (PRODUCER + b"producer", b"state")])()
    target = CopyInMemory()
    target.take(messaging)
    assert target.table.get(key) == value
    assert target.table.get(PRODUCER + b"producer") == b"state"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=histories, piece_rows=st.sampled_from([1, 2, 3, 5000]))
def test_readers_get_the_same_of_any_history(
    steps: list[tuple[Any, ...]], piece_rows: int
) -> None:
    with ExitStack() as stack:
        stack.enter_context(patch.object(copy_rows, "PIECE_ROWS", piece_rows))
        site = Site("memory", Path("nowhere"))
        stack.callback(site.close)
        source, play = site.messaging, Play(site.messaging, site.clock)
        play.run(steps)
        target = CopyInMemory(site.clock)
        done = target.take(source)
        report = target.report()
        assert report.is_clean, report.problems
        found, original = target.open(), Reader(source._service, source.coordinator)
        for topic in TOPICS:
            expected = original.poll(topic)
            if isinstance(expected, list):
                half = play.open_labels
                expected = [m for m in expected if not m[1].startswith(half or b"-")]
            assert found.poll(topic) == expected
        seen_by = source.coordinator.snapshot()
        for key, value in target.rows():
            pointer = pointer_of(value) if key[:1] in (MESSAGE, POSITION) else None
            assert pointer is None or pointer < 0 or seen_by.is_visible(pointer)
        play.end_open()
        for topic in TOPICS:
            assert found.seen(topic) == original.seen(topic)
        for topic in set(TOPICS) & set(source.topics()):
            for group in GROUPS:
                position = found.service.position(group, topic)
                assert position == source.position(group, topic)
        assert topics_of(target.table) == topics_of(table_of(source))
        assert done.rows + done.left_out_rows == len(rows_of(table_of(source)))
        assert done.rows == len(target.rows())


def test_a_coordinator_elsewhere_has_to_see_what_was_committed(
    durable: Site, messaging: Messaging
) -> None:
    with messaging.transaction() as tx:
        messaging.publisher("t").publish(b"committed")
    key = MESSAGE + messaging.topic("t").prefix + messaging.poll("t")[0].id.row_key
    behind = EmbeddedCoordinator(clock_ms=Clock(durable.clock() - 1))
    with pytest.raises(BadRequest) as refused:
        copied(durable, target_coordinator=behind)
    assert f"{tx.transaction.transaction_id}, which" in str(refused.value)
    assert key.hex() in str(refused.value)
    ahead = EmbeddedCoordinator(clock_ms=Clock(durable.clock() + 1000))
    copied(durable, target_coordinator=ahead)  # nothing of it was written
    with opened(durable, coordinator=ahead) as copy:
        assert payloads(copy.poll("t", isolation="committed")) == [b"committed"]
        with copy.transaction():
            copy.publisher("t").publish(b"next")
        assert len(copy.poll("t", isolation="committed")) == 2


@pytest.mark.tephra
@pytest.mark.parametrize(
    "middle", ["leveldb", pytest.param("hbase", marks=pytest.mark.hbase)]
)
def test_from_embedded_to_tephra_and_back(
    durable: Site,
    tephra: TephraCoordinator,
    tmp_path: Path,
    middle: str,
    request: pytest.FixtureRequest,
) -> None:
    messaging = durable.messaging  # with pointers of the past, as its clock is
    messaging.create_topic("t", ttl_s=MAX_TTL_S)
    with messaging.transaction() as tx:
        messaging.publisher("t", buffer_limit_bytes=10).publish(b"stored ahead of it")
        first = MessageId(bytes(20))
        messaging.save_position("g", "t", first, transaction=tx.transaction)
    durable.close()
    place = [f"leveldb:{tmp_path / name}" for name in ("other", "same", "back")]
    if middle == "hbase":
        place[1] = request.getfixturevalue("hbase_url")
    txaware.copy(
        f"leveldb:{durable.directory}",
        place[0],
        target_coordinator=tephra,
        settings=SETTINGS,
    )
    options: dict[str, Any] = {"settings": SETTINGS, "coordinator": tephra}
    with txaware.connect(place[0], **options) as copy:
        with copy.transaction():
            copy.publisher("t").publish(b"of tephra")
        before = copy.poll("t", isolation="committed")
        assert payloads(before) == [b"stored ahead of it", b"of tephra"]
    txaware.copy(place[0], place[1], target_coordinator=tephra, **options)
    with txaware.connect(place[1], **options) as copy:
        assert copy.poll("t", isolation="committed") == before
        half = tephra.start_short()
        publish(copy, b"half", transaction=half)
    done = txaware.copy(place[1], place[2], **options)
    tephra.invalidate(half)
    assert done.undecided == (half.transaction_id,)
    with txaware.connect(place[2], settings=SETTINGS) as copy:
        assert copy.poll("t", isolation="committed") == before
        assert copy.position("g", "t") == MessageId(bytes(20))


@pytest.mark.tephra
def test_a_tephra_that_ended_nothing_since_sees_what_was_committed(
    tephra: TephraCoordinator, tmp_path: Path
) -> None:
    tephra.snapshot()
    here, there = f"leveldb:{tmp_path / 'here'}", f"leveldb:{tmp_path / 'there'}"
    with txaware.connect(here, settings=SETTINGS) as messaging:
        messaging.create_topic("t")
        with messaging.transaction():
            messaging.publisher("t").publish(b"committed")
    txaware.copy(here, there, target_coordinator=tephra, settings=SETTINGS)
    with txaware.connect(there, coordinator=tephra, settings=SETTINGS) as copy:
        assert payloads(copy.poll("t", isolation="committed")) == [b"committed"]


def test_what_cannot_be_copied_is_said(tmp_path: Path) -> None:
    here, there = f"leveldb:{tmp_path / 'here'}", f"leveldb:{tmp_path / 'there'}"
    for place in (here, there):
        in_use = pytest.raises(Unavailable, match="in use by process")
        with txaware.connect(place, settings=SETTINGS), in_use:
            txaware.copy(here, there)
    for source, target, why in (
        (here, here, "to itself"),
        (here, "memory:", "in memory"),
        ("http://127.0.0.1:1", there, "is a server"),
        (here, "http://127.0.0.1:1", "is a server"),
        (f"leveldb:{tmp_path / 'nothing'}", there, "there is no data"),
        (here, there, "has a journal of its own"),
    ):
        with pytest.raises(BadRequest, match=why):
            txaware.copy(source, target)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(BadRequest, match="written with the coordinator 'embedded'"):
        txaware.copy(here, "leveldb:new", coordinator=EmbeddedCoordinator())


def test_a_store_with_other_rows_is_no_target(
    durable: Site, messaging: Messaging
) -> None:
    target = CopyInMemory()
    target.table.submit([(MESSAGE + b"other", b"\0")])()
    before = dict(target.table._values)
    with pytest.raises(BadRequest, match="the copy has rows of its own"):
        target.take(messaging)
    assert dict(target.table._values) == before


def test_what_is_copied_comes_in_the_order_of_its_keys() -> None:
    """A copy that goes on counts what is behind the key where it stopped."""
    assert sorted(KINDS.copied) == KINDS.copied
