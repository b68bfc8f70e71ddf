"""Scenarios 24 to 50 over plain HTTP: publish and poll, in Avro and in JSON."""

import io
import threading

import fastavro
import pytest

from coordinator.transaction import Transaction
from tests.support.http_raw import EVERYTHING, poll, serving
from tests.support.http_wire import Client
from tests.support.messagings import seen_by

TEN = [b"p%d" % number for number in range(10)]
ALL = [b"m0", b"m1", b"m2", b"m3", b"m4"]


@pytest.fixture
def five(client: Client) -> Client:
    """m0 and m1, m2 of pointer 2, m3, and m4 of pointer 3; each at its own time."""
    for pointer, payload in ((None, b"m0"), (None, b"m1"), (2, b"m2"), (None, b"m3")):
        client.publish(pointer, payload)
        client.served.clock.advance_s(0.001)
    client.publish(3, b"m4")
    return client


def test_24_a_poll_starts_and_ends_where_it_says(client: Client) -> None:
    client.publish(None, b"m0")
    client.publish(None, b"m1")
    first, _ = client.ids()
    assert client.payloads() == [b"m0", b"m1"]
    assert client.payloads(start=first) == [b"m0", b"m1"]
    assert client.payloads(start=first, inclusive=False) == [b"m1"]
    assert client.payloads(limit=1) == [b"m0"]


def test_25_a_time_is_always_inclusive(five: Client) -> None:
    time_ms = int(five.ids()[1][:16], 16)
    assert five.payloads(start=time_ms, inclusive=False) == ALL[1:]
    assert five.payloads(start=time_ms + 1) == ALL[2:]


def test_26_after_an_id_that_is_not_there_comes_the_next(client: Client) -> None:
    client.publish(None, b"m0", b"m1")
    first, _ = client.ids()
    between = first[:20] + "00" * 9 + "01"
    assert client.payloads(start=between, inclusive=False) == [b"m1"]
    assert client.payloads(start=between) == [b"m1"]


def test_27_a_transaction_in_progress_stops_a_poll(five: Client) -> None:
    snapshot = seen_by(3, read=3, in_progress=[2])
    assert five.payloads(transaction=snapshot) == ALL[:2]


def test_28_an_invalid_transaction_is_skipped(five: Client) -> None:
    snapshot = seen_by(3, read=3, invalids=[2])
    assert five.payloads(transaction=snapshot) == [b"m0", b"m1", b"m3", b"m4"]


def test_29_what_is_committed_is_delivered(five: Client) -> None:
    assert five.payloads(transaction=seen_by(3, read=3)) == ALL


def test_30_without_a_transaction_all_is_delivered(five: Client) -> None:
    assert five.payloads() == ALL


def test_31_a_transaction_sees_its_own(five: Client) -> None:
    assert five.payloads(transaction=seen_by(2, read=1)) == ALL[:4]


def test_32_what_was_rolled_back_is_skipped(client: Client) -> None:
    client.publish(None, b"m0", b"m1")
    answer = client.publish(2, b"m2")
    client.publish(None, b"m3")
    client.publish(3, b"m4")
    assert client.rollback(answer) == 200
    snapshot = seen_by(3, read=3, in_progress=[2])
    assert client.payloads(transaction=snapshot) == [b"m0", b"m1", b"m3", b"m4"]
    assert client.payloads() == ALL


def test_33_a_rollback_may_be_repeated(client: Client) -> None:
    answer = client.publish(2, b"m2")
    client.publish(None, b"m3")
    for _ in range(2):
        assert client.rollback(answer) == 200
        assert client.payloads(transaction=seen_by(9, read=9)) == [b"m3"]


def stored(client: Client) -> None:
    assert [client.store(7, *TEN), client.store(7, *TEN)] == [200, 200]


def test_34_what_is_stored_is_seen_by_nobody(client: Client) -> None:
    stored(client)
    assert client.poll() == []
    assert client.poll(transaction=seen_by(7, read=9)) == []
    assert client.poll(transaction=seen_by(9, read=9)) == []


def test_35_a_reference_delivers_what_was_stored(client: Client) -> None:
    stored(client)
    client.publish(7)
    found = client.poll()
    ids = [message_id for message_id, _ in found]
    assert [payload for _, payload in found] == TEN * 2
    assert len({message_id[:20] for message_id in ids}) == 1
    assert sorted({message_id[20:] for message_id in ids}) == [i[20:] for i in ids]
    assert client.payloads(transaction=seen_by(9, read=9)) == TEN * 2
    assert client.payloads(transaction=seen_by(9, read=9, in_progress=[7])) == []


@pytest.fixture
def around(client: Client) -> Client:
    """A message, a reference to twenty, and a message."""
    client.publish(None, b"before")
    stored(client)
    client.publish(7)
    client.publish(None, b"after")
    return client


@pytest.mark.parametrize("in_transaction", [False, True])
def test_36_pages_of_any_size_are_the_whole(
    around: Client, in_transaction: bool
) -> None:
    snapshot = seen_by(9, read=9) if in_transaction else None
    whole = around.poll(transaction=snapshot)
    assert len(whole) == 22
    for limit in range(1, 23):
        read = page = around.poll(transaction=snapshot, limit=limit)
        while page:
            assert len(page) <= limit
            page = around.poll(
                start=page[-1][0], inclusive=False, transaction=snapshot, limit=limit
            )
            read = read + page
        assert read == whole


def test_37_a_page_starts_inside_a_reference(around: Client) -> None:
    assert around.store(8, *TEN) == 200
    around.publish(8)
    whole = around.poll()
    assert len(whole) == 32
    for at, (message_id, _) in enumerate(whole):
        assert around.poll(start=message_id) == whole[at:]
        assert around.poll(start=message_id, inclusive=False) == whole[at + 1 :]


def test_38_two_references_are_not_mixed(client: Client) -> None:
    for number in range(4):
        client.store(7, b"seven %d" % number)
        client.store(8, b"eight %d" % number)
    client.publish(8)
    client.publish(7)
    expected = [b"eight %d" % number for number in range(4)]
    assert client.payloads() == expected + [b"seven %d" % n for n in range(4)]


def test_39_a_reference_is_rolled_back(around: Client) -> None:
    around.store(8, *TEN)
    assert around.rollback(around.publish(8)) == 200
    snapshot = seen_by(9, read=9)
    assert around.payloads(transaction=snapshot)[-1] == b"after"
    assert around.payloads()[-10:] == TEN


def test_40_what_is_older_than_the_time_to_live_is_gone(client: Client) -> None:
    client.create("t1", ttl=1)
    client.publish(None, b"a", topic="t1")
    client.served.clock.advance_s(1.5)
    assert client.poll(topic="t1") == []


def test_41_a_longer_time_to_live_brings_it_back_until_clean_up(
    client: Client,
) -> None:
    client.create("t1", ttl=1)
    client.publish(None, b"a", topic="t1")
    client.served.clock.advance_s(1.5)
    assert client.ask("PUT", "t1/properties", b'{"ttl": 60}').status == 200
    assert client.payloads(topic="t1") == [b"a"]
    assert client.ask("PUT", "t1/properties", b'{"ttl": 1}').status == 200
    assert client.ask("POST", "/v1/admin/clean-up").status == 200
    assert client.ask("PUT", "t1/properties", b'{"ttl": 60}').status == 200
    assert client.poll(topic="t1") == []


def test_42_the_reference_counts_and_not_what_was_stored(client: Client) -> None:
    client.create("t1", ttl=1)
    client.store(7, b"a", topic="t1")
    client.served.clock.advance_s(1.5)
    client.publish(7, topic="t1")
    assert client.payloads(topic="t1") == [b"a"]


def test_43_a_start_below_the_bound_is_the_bound(client: Client) -> None:
    client.create("t1", ttl=10)
    client.publish(None, b"old", topic="t1")
    (old,) = client.ids(topic="t1")
    client.served.clock.advance_s(10.5)
    client.publish(None, b"new", topic="t1")
    for start in (old, 0, None):
        found = client.payloads(topic="t1", start=start, inclusive=False)
        assert found == [b"new"]


def test_44_an_old_id_leads_into_the_new_topic(client: Client) -> None:
    client.publish(None, b"old", b"older")
    old = client.ids()[0]
    client.delete("t")
    client.create("t")
    assert client.poll() == []
    client.publish(None, b"new")
    for inclusive in (True, False):
        assert client.payloads(start=old, inclusive=inclusive) == [b"new"]


def test_45_each_topic_of_a_name_has_its_own_messages(client: Client) -> None:
    for number in range(10):
        client.publish(None, b"%d" % number)
        assert client.payloads() == [b"%d" % number]
        assert (client.delete("t"), client.create("t")) == (200, 200)


def test_46_a_topic_made_anew_has_its_own_time_to_live(client: Client) -> None:
    client.create("t1", ttl=7)
    client.delete("t1")
    client.create("t1", ttl=9)
    assert client.properties("t1") == {"generation": "2", "ttl": "9"}
    client.delete("t1")
    client.create("t1")
    assert client.properties("t1") == {"generation": "3", "ttl": "604800"}


def blocks_of(body: bytes) -> list[list[dict[str, bytes]]]:
    """The blocks of an Avro array, one by one."""
    schema = fastavro.parse_schema({"type": "long"})
    item = fastavro.parse_schema(
        {
            "type": "record",
            "name": "Message",
            "fields": [
                {"name": "id", "type": "bytes"},
                {"name": "payload", "type": "bytes"},
            ],
        }
    )
    file, blocks = io.BytesIO(body), []
    while count := fastavro.schemaless_reader(file, schema, None):
        assert isinstance(count, int)
        assert count > 0
        blocks.append(
            [fastavro.schemaless_reader(file, item, None) for _ in range(count)]
        )
    assert file.read() == b""
    return blocks


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("size", [30_000, 70_000])
def test_47_an_answer_comes_in_blocks_and_ends_with_none(
    size: int, is_cached: bool
) -> None:
    with serving(cache_bytes=(64 << 20) if is_cached else 0) as served:
        messages = [b"%d" % number * size for number in range(10)]
        for message in messages:
            served.messaging.publish("t", [message])
        for _ in range(2):
            blocks = blocks_of(served.ask(poll(EVERYTHING)).body)
            assert len(blocks) == (5 if size == 30_000 else 10)
            found = [one for block in blocks for one in block]
            assert [one["payload"] for one in found] == messages
            assert sorted(one["id"] for one in found) == [one["id"] for one in found]
            for block in blocks[:-1]:
                weights = [len(one["payload"]) + 28 for one in block]
                assert sum(weights) >= 60_000 > sum(weights[:-1])


def test_48_a_poll_beside_a_publish_sees_a_beginning(client: Client) -> None:
    done = threading.Event()

    def run() -> None:
        for number in range(300):
            messaging.publish(f"{client.namespace}:t", [b"%d" % number])
        done.set()

    messaging = client.served.messaging
    thread = threading.Thread(target=run)
    thread.start()
    lengths = []
    while not done.is_set():
        found = client.poll(limit=1000)
        lengths.append(len(found))
        ids = [message_id for message_id, _ in found]
        assert ids == sorted(set(ids))
        assert [payload for _, payload in found] == [
            b"%d" % number for number in range(len(found))
        ]
    thread.join()
    assert lengths == sorted(lengths)
    assert len(client.poll(limit=1000)) == 300


def test_49_nothing_is_stored_behind_a_reference(client: Client) -> None:
    client.store(7, b"a")
    client.publish(7)
    body = client.wire.publish(7, [b"b"])
    answer = client.ask("POST", "t/store", body)
    assert answer.status == 409
    assert b"reference" in answer.body
    assert client.payloads() == [b"a"]


def test_50_a_rollback_touches_only_its_own_pointer(client: Client) -> None:
    first = client.publish(2, b"mine")
    client.publish(None, b"nobody's")
    client.publish(3, b"yours")
    last = client.publish(2, b"mine too")
    forged = first | {
        "startTimestamp": 0,
        "endTimestamp": 2**62,
        "endSequenceId": 65_535,
    }
    assert last["transactionWritePointer"] == 2
    assert client.rollback(forged | {"transactionWritePointer": 9}) == 200
    snapshot = Transaction(10, 10)
    assert len(client.poll(transaction=snapshot)) == 4
    assert client.rollback(forged) == 200
    assert client.payloads(transaction=snapshot) == [b"nobody's", b"yours"]
