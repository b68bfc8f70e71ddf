"""Compressed batches on every store: readers see single messages from everywhere."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txaware
from tests.support.messagings import (
    Site,
    administration_of,
    commit,
    committed,
    payloads,
    rows,
)
from txaware.errors import BadRequest, MissingExtra, StoreCorrupted
from txaware.messaging import Messaging
from txaware.model.compression import Packed, compression_of
from txaware.model.messages import Message, MessageId, Outgoing
from txaware.model.packed_batches import pack
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import checked_payloads
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import restore
from txaware.store import journaled_table
from txaware.store.columns import PACKED, value_head
from txaware.store.journaled_table import (
    FORMAT,
    FORMATS,
    PACKED_FORMAT,
    PARTITIONED_FORMAT,
)
from txaware.store.keys import MESSAGE

SETTINGS = Settings(janitor_interval_s=0)
HOUR_S = 3600


def numbers(first: int, last: int) -> list[bytes]:
    return [b"the same text in message number %d" % n for n in range(first, last)]


def send(messaging: Messaging, sent: list[bytes], topic: str = "t") -> None:
    """Sends one batch."""
    with messaging.sender(compression="gzip", linger_ms=60_000) as s:
        for one in sent:
            s.send(topic, one)


def every(messaging: Messaging, topic: str = "t") -> list[Message]:
    return [*messaging.poll(topic, limit=10_000)]


@pytest.fixture
def batches(messaging: Messaging) -> Messaging:
    """A topic with two batches, a plain message between them, and one behind."""
    send(messaging, numbers(0, 100))
    messaging.publish("t", [b"between"])
    send(messaging, numbers(100, 150))
    messaging.publish("t", [b"behind"])
    return messaging


ALL = [*numbers(0, 100), b"between", *numbers(100, 150), b"behind"]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_each_message_is_read_as_it_was_sent(messaging: Messaging, name: Any) -> None:
    messaging.create_topic("orders", partitions=3)
    with messaging.sender(compression=name) as s:
        futures = [
            s.send(
                "orders",
                b"some text that is in each of them, %d" % number,
                key=b"k%d" % (number % 7) if number % 5 else None,
                headers={"n": b"%d" % number} if number % 3 else None,
            )
            for number in range(300)
        ]
    by_place = {
        (one.partition, one.id): one for one in messaging.poll("orders", limit=10_000)
    }
    assert len(by_place) == 300
    for number, future in enumerate(futures):
        sent = future.result(0)
        found = by_place[sent.partition, sent.id]
        assert found.payload == b"some text that is in each of them, %d" % number
        assert found.key == (b"k%d" % (number % 7) if number % 5 else None)
        assert found.headers == ({"n": b"%d" % number} if number % 3 else {})


def test_a_batch_is_one_row(site: Site) -> None:
    site.messaging.create_topic("t")
    send(site.messaging, numbers(0, 100))
    assert rows(site.embedded) == 1
    assert payloads(every(site.messaging)) == numbers(0, 100)
    assert site.embedded.check().counts["compressed batches"] == 1
    assert site.embedded.check().counts["messages"] == 100


@pytest.mark.everywhere
def test_a_poll_begins_and_ends_anywhere(batches: Messaging) -> None:
    found = every(batches)
    assert payloads(found) == ALL
    assert [one.id for one in found] == sorted({one.id for one in found})
    for at in [*range(0, len(found), 9), 99, 100, 101, 102, len(found) - 1]:
        start = found[at].id
        for limit in (1, 7, 1000):
            page = batches.poll("t", start=start, limit=limit)
            assert page == found[at : at + limit]
            after = batches.poll("t", start=start, limit=limit, inclusive=False)
            assert after == found[at + 1 : at + 1 + limit]
            if after:
                assert after.next == after[-1].id


def test_what_was_read_from_the_middle_hides_nothing_before(site: Site) -> None:
    """The cache then begins in the midst of a batch, where a later read ends."""
    site.messaging.create_topic("t")
    send(site.messaging, numbers(0, 150))
    found = every(site.messaging)
    administration_of(site.embedded)._service.cache.clear()
    for at in (140, 40, 20, 130, 0):
        page = site.messaging.poll("t", start=found[at].id, limit=1000)
        assert payloads(page) == numbers(at, 150)


@pytest.mark.everywhere
def test_committed_readers_stop_behind_whole_batches(messaging: Messaging) -> None:
    send(messaging, numbers(0, 10))
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"open"], transaction=tx)
    send(messaging, numbers(10, 20))
    assert committed(messaging) == numbers(0, 10)
    stable = messaging.bounds("t", isolation="committed")
    assert (stable.first, stable.last) == (
        every(messaging)[0].id,
        every(messaging)[9].id,
    )
    commit(messaging, tx)
    assert committed(messaging) == [*numbers(0, 10), b"open", *numbers(10, 20)]


def test_a_consumer_stops_within_a_batch_and_goes_on(batches: Messaging) -> None:
    read: list[bytes] = []
    for size in (1, 30, 68, 2, 40, 100, 100):
        with batches.transaction():
            read += payloads(batches.consumer("t", group="g").poll(limit=size))
    assert read == ALL


def test_a_rolled_back_read_comes_again(batches: Messaging) -> None:
    consumer = batches.consumer("t", group="g")
    with pytest.raises(ZeroDivisionError), batches.transaction():  # noqa: PT012
        consumer.poll(limit=50)
        raise ZeroDivisionError
    with batches.transaction():
        assert payloads(batches.consumer("t", group="g").poll(limit=1000)) == ALL


def test_offsets_and_bounds_are_those_of_messages(batches: Messaging) -> None:
    found = every(batches)
    assert batches.offsets("t", at="first") == {0: found[0].id}
    assert batches.offsets("t", at="last") == {0: found[-1].id}
    assert batches.offsets("t", at="stable") == {0: found[-1].id}
    time_ms = found[120].id.publish_time_ms
    least = next(one.id for one in found if one.id.publish_time_ms >= time_ms)
    assert batches.offsets("t", at=time_ms) == {0: least}
    for isolation in ("uncommitted", "committed"):
        ends: Any = batches.bounds("t", isolation=isolation)
        assert (ends.first, ends.last) == (found[0].id, found[-1].id)
        ends = batches.bounds("t", start=found[40].id, isolation=isolation)
        assert (ends.first, ends.last) == (found[40].id, found[-1].id)


def test_a_batch_at_the_end_has_the_last_offset(messaging: Messaging) -> None:
    send(messaging, numbers(0, 10))
    found = every(messaging)
    assert messaging.offsets("t", at="last") == {0: found[-1].id}
    assert messaging.bounds("t").last == found[-1].id


def test_parts_together_have_each_message_once(batches: Messaging) -> None:
    found = every(batches)
    start, stop = found[5].id, found[-1].id
    cuts = batches.splits("t", start=start, stop=stop, part_bytes=1)
    assert cuts
    read: list[Message] = []
    for first, last in zip([start, *cuts], [*cuts, stop], strict=True):
        page = batches.poll("t", start=first, limit=1000)
        read += [one for one in page if one.id < last]
    assert read == found[5:-1]


def test_groups_are_behind_by_messages(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    send(messaging, numbers(0, 100))
    with messaging.transaction():
        messaging.consumer("t", group="g").poll(limit=30)
    [lag] = administration_of(site.embedded).metrics().groups
    assert lag.rows == 70


def test_what_has_expired_goes_and_a_batch_goes_whole(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=HOUR_S)
    send(messaging, numbers(0, 10))
    site.clock.advance_s(HOUR_S / 2)
    send(messaging, numbers(10, 20))
    site.clock.advance_s(HOUR_S / 2 + 0.01)
    assert payloads(every(messaging)) == numbers(10, 20)
    assert site.embedded.clean_up().expired_messages == 1
    assert payloads(every(messaging)) == numbers(10, 20)
    assert rows(site.embedded) == 1


def test_a_compact_topic_keeps_its_messages_apart(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("config", compact=True)
    with messaging.sender(compression="gzip") as s:
        for number in range(20):
            s.send(
                "config", b"a value that is long %d" % number, key=b"k%d" % (number % 3)
            )
    assert rows(site.embedded) == 20
    site.embedded.clean_up()
    assert len(every(messaging, "config")) == 3


def test_a_topic_that_becomes_compact_keeps_what_is_newest(site: Site) -> None:
    """A batch goes with the last of its messages that is the newest of its key."""
    messaging = site.messaging
    messaging.create_topic("config")
    for first in (0, 10):
        with messaging.sender(compression="gzip", linger_ms=60_000) as s:
            for number in range(first, first + 10):
                s.send(
                    "config", b"a long value, " * 5 + b"%d" % number, key=b"%d" % number
                )
    messaging.update_topic("config", compact=True)
    for number in range(15):
        messaging.publish("config", [Outgoing(b"new", key=b"%d" % number)])
    latest = {key: one.payload for key, one in messaging.latest("config").items()}
    site.embedded.clean_up()
    again = {key: one.payload for key, one in messaging.latest("config").items()}
    assert again == latest
    assert len(latest) == 20
    found = payloads(every(messaging, "config"))
    assert len(found) == 10 + 15
    assert site.embedded.check().is_clean


def test_a_search_finds_messages_of_batches(batches: Messaging) -> None:
    found = batches.search("t", text="number 142")
    assert [one.payload for one in found.rows] == [numbers(142, 143)[0]]


def test_a_repeat_answers_the_same_ids(site: Site) -> None:
    site.messaging.create_topic("t")
    given_ = checked_payloads(numbers(0, 50), limit_bytes=1 << 20)
    packed = pack(given_, compression_of("gzip"))
    assert packed is not None
    producing = site.producing
    opened = producing.open_producer()
    identity = ProducerIdentity(opened.producer_id, opened.epoch)
    for _ in range(2):
        ids = producing.publish_once("t", packed, producer=identity, sequence=0)
        assert ids == [one.id for one in every(site.messaging)]
    assert payloads(every(site.messaging)) == numbers(0, 50)


@pytest.mark.in_process
def test_a_batch_that_lies_is_refused_and_stores_nothing(site: Site) -> None:
    site.messaging.create_topic("t")
    given_ = checked_payloads(numbers(0, 50), limit_bytes=1 << 20)
    packed: Any = pack(given_, compression_of("gzip"))
    producing = site.producing
    opened = producing.open_producer()
    identity = ProducerIdentity(opened.producer_id, opened.epoch)
    wrong = [
        Packed("gzip", 51, packed.size_bytes, packed.data),
        Packed("gzip", 50, packed.size_bytes - 1, packed.data),
        Packed("br", 50, packed.size_bytes, packed.data),
    ]
    for one in wrong:
        with pytest.raises(BadRequest):
            producing.publish_once("t", one, producer=identity, sequence=0)
    assert rows(site.embedded) == 0
    producing.publish_once("t", packed, producer=identity, sequence=0)


def test_wrong_names_are_told_at_once(messaging: Messaging) -> None:
    with pytest.raises(BadRequest, match="compression is one of gzip, zstd, or None"):
        messaging.sender(compression="lz4")  # type: ignore[call-overload]


def test_a_store_without_batches_is_that_of_before(lasting: Site) -> None:
    lasting.messaging.create_topic("t", partitions=2)
    with lasting.messaging.sender() as s:
        s.send("t", b"a")
    assert lasting.table.get(FORMAT) == PARTITIONED_FORMAT


def test_the_version_before_refuses_batches_and_nothing_else(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasting.messaging.create_topic("t")
    send(lasting.messaging, numbers(0, 10))
    assert lasting.table.get(FORMAT) == PACKED_FORMAT
    lasting.close()
    monkeypatch.setattr(journaled_table, "FORMATS", FORMATS[:5])
    sentence = (
        r"has the format b'txaware 4\.2', and .* b'txaware 1' to b'txaware 4\.1'$"
    )
    with pytest.raises(StoreCorrupted, match=sentence):
        lasting.messaging = lasting._connect()
    monkeypatch.undo()
    lasting.messaging = lasting._connect()
    assert payloads(every(lasting.messaging)) == numbers(0, 10)
    assert lasting.messaging.check().is_clean


def test_a_format_that_does_not_tell_of_batches_is_found(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    send(lasting.messaging, numbers(0, 10))
    lasting.table.submit([(FORMAT, PARTITIONED_FORMAT)])()
    [problem] = lasting.messaging.check().problems
    assert "compressed batches, which come with b'txaware 4.2'" in problem.sentence


def test_a_crash_keeps_whole_batches(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    send(lasting.messaging, numbers(0, 10))
    messaging = lasting.crash()
    assert payloads(every(messaging)) == numbers(0, 10)
    send(messaging, numbers(10, 20))
    assert payloads(every(messaging)) == numbers(0, 20)


def test_damage_is_a_finding(durable: Site) -> None:
    durable.messaging.create_topic("t")
    send(durable.messaging, numbers(0, 10))
    [(key, value)] = durable.table.scan(MESSAGE)
    durable.table.submit([(MESSAGE + key, value[:-20] + bytes(20))])()
    [problem] = durable.messaging.check().problems
    assert "damaged" in problem.sentence
    durable.open()
    with pytest.raises(StoreCorrupted, match=r"the batch at .* is damaged"):
        durable.messaging.poll("t")


def test_a_batch_over_other_messages_is_a_finding(durable: Site) -> None:
    durable.messaging.create_topic("t")
    send(durable.messaging, numbers(0, 10))
    [(key, _)] = durable.table.scan(MESSAGE)
    other = key[:-1] + bytes([key[-1] - 4])
    durable.table.submit([(MESSAGE + other, value_head(None) + b"x")])()
    [problem] = durable.messaging.check().problems
    assert "stands among those of the batch" in problem.sentence


def test_a_batch_in_a_transaction_is_a_finding(durable: Site) -> None:
    durable.messaging.create_topic("t")
    durable.messaging.publish("t", [b"a"])
    [(key, _)] = durable.table.scan(MESSAGE)
    value = value_head(5, more={PACKED: bytes(9)}) + b"x"
    durable.table.submit([(MESSAGE + key, value)])()
    assert any(one.kind == "batch" for one in durable.messaging.check().problems)


def test_a_copy_and_a_backup_have_the_batches(durable: Site, tmp_path: Path) -> None:
    durable.messaging.create_topic("t")
    send(durable.messaging, numbers(0, 100))
    durable.messaging.publish("t", [b"behind"])
    file = io.BytesIO()
    durable.messaging.backup(file)
    durable.close()
    copy = tmp_path / "copy"
    url = f"leveldb:{durable.directory}"
    txaware.copy(url, f"leveldb:{copy}", settings=SETTINGS, clock_ms=durable.clock)
    file.seek(0)
    restored = tmp_path / "restored"
    restore(file, restored, SETTINGS, clock_ms=durable.clock)
    for directory in (copy, restored):
        report = check_directory(directory, SETTINGS)
        assert report.is_clean, report.problems
        assert report.counts["compressed batches"] == 1
        with txaware.connect(
            f"leveldb:{directory}", settings=SETTINGS, clock_ms=durable.clock
        ) as found:
            assert payloads(every(found)) == [*numbers(0, 100), b"behind"]


def test_without_the_package_batches_of_it_cannot_be_read(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    durable.messaging.create_topic("t")
    with durable.messaging.sender(compression="zstd") as s:
        for one in numbers(0, 10):
            s.send("t", one)
    durable.open()
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(txaware.errors.Unavailable, match=r"zstandard: pip install"):
        durable.messaging.poll("t")
    with pytest.raises(MissingExtra, match=r"zstandard: pip install '\.\[zstd\]'"):
        durable.messaging.sender(compression="zstd")


actions = st.lists(
    st.tuples(
        st.sampled_from(["send", "plain", "commit", "roll back"]), st.integers(1, 9)
    ),
    max_size=12,
)


@pytest.fixture
def in_memory() -> Iterator[Messaging]:
    with txaware.connect("memory:", settings=SETTINGS) as messaging:
        yield messaging


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(actions, st.randoms())
def test_any_history_is_read_alike_from_everywhere(
    in_memory: Messaging, history: list[tuple[str, int]], random: Any
) -> None:
    if in_memory.topics():
        in_memory.delete_topic("t")
    in_memory.create_topic("t")
    expected: list[bytes] = []
    for number, (what, count) in enumerate(history):
        texts = [
            b"%d of " % n + b"some text " * 5 + b"%d" % number for n in range(count)
        ]
        if what == "send":
            send(in_memory, texts)
        elif what == "plain":
            in_memory.publish("t", texts)
        else:
            tx = in_memory.coordinator.start_short()
            response: Any = in_memory.publish("t", texts, transaction=tx)
            if what == "roll back":
                in_memory.rollback("t", response)
            commit(in_memory, tx)
        if what != "roll back":
            expected += texts
    found = [*in_memory.poll("t", limit=1000, isolation="committed")]
    assert payloads(found) == expected
    for _ in range(20):
        if not found:
            break
        at, limit = random.randrange(len(found)), random.randint(1, 12)
        inclusive = random.random() < 0.5
        start = random.choice([found[at].id, found[at].id.after()])
        first = at if start == found[at].id and inclusive else at + 1
        page = in_memory.poll(
            "t", start=start, inclusive=inclusive, limit=limit, isolation="committed"
        )
        if start != found[at].id and at + 1 < len(found) and start == found[at + 1].id:
            first += not inclusive
        assert page == found[first : first + limit]
    assert in_memory.check().is_clean


def test_a_full_millisecond_is_left_for_the_next(messaging: Messaging) -> None:
    """All messages of a batch have one time, so that a time parts none."""
    for _ in range(8):
        send(messaging, [b"%d" % (n % 10) * 10 for n in range(10_000)])
    start, times = MessageId.of(0), set[tuple[int, int]]()
    count = 0
    while page := messaging.poll("t", start=start, inclusive=False, limit=10_000):
        count += len(page)
        start = page.next
        times |= {(one.id.publish_time_ms, one.id.sequence) for one in page}
    assert count == len(times) == 80_000
