"""Keys and headers of messages: on every way in, every way out, and in every table."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txaware
from tests.support.messagings import Site, administration_of
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.labels import MAX_HEADERS_BYTES, MAX_KEY_BYTES
from txaware.model.messages import Message, Outgoing
from txaware.model.requests import Payload
from txaware.service.transfer.backup import restore
from txaware.store.keys import MESSAGE

KEYED: list[Payload] = [
    Outgoing(b"a", b"ann"),
    Outgoing(b"b", headers={"source": b"till 3", "größe": bytes(300)}),
    b"plain",
    Outgoing(b"", b"", {"empty": b""}),
    Outgoing(b"d", bytes(MAX_KEY_BYTES), {"h": b"x"}),
    Outgoing(b"e", b"ann", expire_after_s=1000),
]
ALIKE: list[Payload] = [Outgoing(b"%d" % n, b"key-%d" % n) for n in range(40)]


def sent(message: Payload) -> Any:
    if isinstance(message, bytes):
        return message, None, {}
    return message.payload, message.key, dict(message.headers or {})


def got(page: list[Message]) -> list[Any]:
    return [(one.payload, one.key, one.headers) for one in page]


def found(messaging: Messaging, topic: str = "t") -> list[Any]:
    """What a poll of all finds, in one page and in small ones."""
    whole = messaging.poll(topic, isolation="committed", limit=10_000)
    small: list[Message] = []
    start = None
    while page := messaging.poll(
        topic, start=start, inclusive=False, limit=3, isolation="committed"
    ):
        small += page
        start = page.next
    assert small == whole
    return got(whole)


def in_a_block(messaging: Messaging, publish: Callable[..., object]) -> None:
    with messaging.transaction():
        publish()


SAID: dict[str, Any] = {"key": b"ann", "headers": {"h": b"1"}, "expire_after_s": 1000}
PUBLISHERS: dict[str, Callable[[Messaging], object]] = {
    "publisher": lambda m: m.publisher("t").publish(b"a", **SAID),
    "in a block": lambda m: in_a_block(
        m, lambda: m.publisher("t").publish(b"a", **SAID)
    ),
    "direct": lambda m: m.direct_publisher("t").publish(b"a", **SAID),
    "background": lambda m: m.async_publisher("t").publish(b"a", **SAID).result(30),
    "at most once": lambda m: flushed(m.at_most_once_publisher("t")),
    "encoding": lambda m: m.publisher("t", encode=str.encode).publish("a", **SAID),
    "producer": lambda m: m.producer().publish("t", b"a", **SAID),
    "transactional producer": lambda m: m.producer("p").publish("t", b"a", **SAID),
    "its block": lambda m: in_its_block(m.producer("p")),
    "over an outgoing": lambda m: m.publisher("t").publish(
        Outgoing(b"a", b"bob", {"h": b"0"}), **SAID
    ),
}


def flushed(publisher: txaware.AtMostOncePublisher) -> None:
    publisher.publish(b"a", **SAID)
    assert publisher.flush(30)


def in_its_block(producer: txaware.TransactionalProducer) -> None:
    with producer.transaction():
        producer.publish("t", b"a", **SAID)


@pytest.mark.parametrize("how", PUBLISHERS)
def test_every_publisher_takes_what_stands_beside_one_message(
    site: Site, how: str
) -> None:
    site.messaging.create_topic("t")
    PUBLISHERS[how](site.messaging)
    assert found(site.messaging) == [(b"a", b"ann", {"h": b"1"})]
    site.clock.advance_s(1001)
    assert found(site.messaging) == []


def test_what_stands_beside_a_message_is_of_one(messaging: Messaging) -> None:
    producer: Any = messaging.producer()
    with pytest.raises(BadRequest, match="are of one message"):
        producer.publish("t", [b"a", b"b"], key=b"ann")
    for publisher in (messaging.publisher("t"), messaging.direct_publisher("t")):
        for wrong in ({"key": "ann"}, {"headers": {"h": 1}}, {"expire_after_s": -1}):
            publish: Any = publisher.publish
            with pytest.raises(BadRequest):
                publish(b"a", **wrong)
    assert found(messaging) == []
    assert len(producer.publish("t", b"a")) == 1


@pytest.mark.parametrize("listed", [KEYED, ALIKE], ids=["mixed", "alike"])
def test_messages_keep_key_and_headers(
    messaging: Messaging, listed: list[Payload]
) -> None:
    expected = [*map(sent, listed)]
    messaging.publish("t", listed)
    assert found(messaging) == expected
    with messaging.transaction():
        messaging.publisher("t").publish_all(listed)
        for message in listed:
            messaging.publisher("t").publish(message)
    assert found(messaging) == expected * 3
    messaging.direct_publisher("t").publish_all(listed)
    assert found(messaging) == expected * 4


def test_messages_stored_ahead_of_their_commit_keep_key_and_headers(
    messaging: Messaging,
) -> None:
    with messaging.transaction():
        publisher = messaging.publisher("t", buffer_limit_bytes=400)
        publisher.publish_all([*KEYED, *ALIKE])
        assert messaging.poll("t") == []
    with messaging.transaction() as context:
        receipt = messaging.store(
            "t", KEYED, transaction=context.transaction, attempt=b"by hand"
        )
        publisher.publish_stored([receipt])
    assert found(messaging) == [*map(sent, [*KEYED, *ALIKE, *KEYED])]
    assert is_sound(messaging)


def is_sound(messaging: Messaging) -> bool:
    return not messaging.check().problems


@pytest.mark.foreign_pointers
def test_what_is_rolled_back_keeps_key_and_headers(messaging: Messaging) -> None:
    response = messaging.publish("t", KEYED, transaction=9)
    assert response is not None
    messaging.rollback("t", response)
    assert found(messaging) == []
    assert got(messaging.poll("t"))[-len(KEYED) :] == [*map(sent, KEYED)]


def test_a_group_reads_keys_headers_and_time(messaging: Messaging) -> None:
    messaging.publish("t", KEYED)
    consumer = messaging.consumer("t", group="g", start="first")
    with messaging.transaction():
        page = consumer.poll(4)
    assert got(page) == [*map(sent, KEYED[:4])]
    for message in page:
        assert message.time.timestamp() * 1000 == message.id.publish_time_ms
        assert message.time.utcoffset() is not None


WRONG: list[dict[str, Any]] = [
    {"key": "text"},
    {"key": bytes(MAX_KEY_BYTES + 1)},
    {"headers": {"a": "text"}},
    {"headers": {"": b"a"}},
    {"headers": {"a": bytes(MAX_HEADERS_BYTES)}},
    {"headers": b"ab"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:30])
def test_a_wrong_key_or_header_stores_nothing(
    messaging: Messaging, wrong: dict[str, Any]
) -> None:
    message = Outgoing(b"a", **wrong)
    with pytest.raises(BadRequest):
        messaging.publish("t", [b"before", message])
    with pytest.raises(BadRequest):
        messaging.store("t", [message], transaction=5)
    with messaging.transaction():
        with pytest.raises(BadRequest):
            messaging.publisher("t").publish(message)
        messaging.publisher("t").publish(b"taken")
    assert found(messaging) == [(b"taken", None, {})]


def test_a_page_is_cut_by_the_size_of_headers_too(site: Site) -> None:
    messaging = site.open(poll_limit_bytes=1000)
    messaging.create_topic("t")
    messaging.publish("t", [Outgoing(b"", b"k", {"h": bytes(490)})] * 5)
    assert len(messaging.poll("t")) == 2
    assert len(messaging.poll("t", start=messaging.poll("t").next, limit=3)) == 2
    with messaging.transaction():
        publisher = messaging.publisher("t", buffer_limit_bytes=1000)
        publisher.publish_all([Outgoing(b"", b"k", {"h": bytes(490)})] * 5)
    start, sizes = None, []
    while page := messaging.poll("t", start=start, inclusive=False):
        sizes.append(len(page))
        start = page.next
    assert sizes == [2, 2, 2, 2, 2]


def test_keys_and_headers_survive_a_restart_a_crash_and_a_copy(
    lasting: Site, tmp_path: Path
) -> None:
    expected = kept(lasting)
    assert found(lasting.open()) == found(lasting.crash()) == expected
    lasting.close()
    target = f"leveldb:{tmp_path / 'copied'}"
    txaware.copy(lasting._url(), target, clock_ms=lasting.clock)
    with txaware.connect(target, clock_ms=lasting.clock) as copied:
        assert found(copied) == expected
        assert is_sound(copied)


def test_keys_and_headers_survive_a_backup(durable: Site, tmp_path: Path) -> None:
    expected = kept(durable)
    file = io.BytesIO()
    durable.messaging.backup(file)
    target, data = tmp_path / "restored", io.BytesIO(file.getvalue())
    restore(data, target, txaware.Settings(), clock_ms=durable.clock)
    with txaware.connect(f"leveldb:{target}", clock_ms=durable.clock) as restored:
        assert found(restored) == expected
        assert is_sound(restored)


def kept(site: Site) -> list[Any]:
    """Publishes messages in two ways, and returns what a poll finds of them."""
    site.messaging.create_topic("t")
    site.messaging.publish("t", KEYED)
    with site.messaging.transaction():
        publisher = site.messaging.publisher("t", buffer_limit_bytes=400)
        publisher.publish_all(KEYED + ALIKE)
    expected = found(site.messaging)
    assert expected == [*map(sent, [*KEYED, *KEYED, *ALIKE])]
    return expected


label = st.none() | st.binary(max_size=30)
header = st.dictionaries(st.text(min_size=1, max_size=5), st.binary(max_size=9))
described = st.lists(st.tuples(st.binary(max_size=9), label, header), min_size=1)


@settings(deadline=None, max_examples=25, suppress_health_check=[*HealthCheck])
@given(st.lists(st.tuples(described, st.sampled_from(["plain", "tx", "spill"]))))
def test_any_messages_come_back_in_any_way(
    messaging: Messaging, calls: list[tuple[list[Any], str]]
) -> None:
    before = len(found(messaging))
    expected: list[Any] = []
    for messages, way in calls:
        listed = [Outgoing(*each) for each in messages]
        expected += messages
        if way == "plain":
            messaging.publish("t", listed)
            continue
        with messaging.transaction():
            limit_bytes = 100 if way == "spill" else 100_000
            messaging.publisher("t", buffer_limit_bytes=limit_bytes).publish_all(listed)
    assert found(messaging)[before:] == expected


@pytest.mark.in_process
def test_a_plain_row_has_the_bytes_of_before(messaging: Messaging) -> None:
    messaging.publish("t", [b"a", Outgoing(b"b"), Outgoing(b"c", None, {})])
    messaging.publish("t", [Outgoing(b"d", b"k", {"h": b"v"})])
    rows = administration_of(messaging)._table.scan(MESSAGE)
    assert [value for _, value in rows] == [
        b"\0a",
        b"\0b",
        b"\0c",
        b"\4\2h\0\0\0\x08\0\1\0\0\0\1hvy\0\0\0\1kd",
    ]


def test_a_dict_that_changes_after_the_publish_changes_no_message(
    messaging: Messaging,
) -> None:
    headers = {"h": b"1"}
    messaging.create_queue("q")
    queue, publisher = messaging.queue("q"), messaging.publisher("t")
    with messaging.transaction():
        publisher.publish(Outgoing(b"a", headers=headers))
        publisher.publish(b"b", headers=headers)
        publisher.publish_all([Outgoing(b"c", b"key", headers)])
        queue.push(Outgoing(b"d", headers=headers))
        headers["h"] = b"2"
    assert [one.headers for one in messaging.poll("t")] == [{"h": b"1"}] * 3
    job = queue.pop()
    assert job is not None
    assert job.headers == {"h": b"1"}


def test_a_dict_is_no_messages(messaging: Messaging) -> None:
    """Its values would be lost: only its keys would be published."""
    many: Any = {b"key": b"payload"}
    with pytest.raises(BadRequest, match="takes many messages, not one dict"):
        messaging.publisher("t").publish_all(many)
    assert not messaging.poll("t")
