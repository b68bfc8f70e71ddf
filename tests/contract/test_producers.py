"""Producers: what is published again is stored once, on every store and over HTTP."""

import threading
from typing import Any

import pytest

from tests.support.concurrency import in_threads
from tests.support.messagings import DAY_S, Site
from txaware import Messaging
from txaware.errors import (
    BadRequest,
    DuplicateSequence,
    OutOfOrderSequence,
    ProducerFenced,
    ProducerNotFound,
    PublisherClosed,
    TopicNotFound,
)
from txaware.model.messages import Outgoing
from txaware.model.producers import SEQUENCES, ProducerIdentity
from txaware.model.topics import TopicName
from txaware.publish import Producer
from txaware.store.producer_table import (
    ProducerTable,
    SequenceState,
    StoredRequest,
    producer_key,
    state_write,
)


def payloads(messaging: Messaging, topic: str = "t") -> list[bytes]:
    return [message.payload for message in messaging.poll(topic, limit=10_000)]


@pytest.fixture
def producer(messaging: Messaging) -> Producer:
    return messaging.producer()


def test_a_publish_answers_the_ids_that_a_poll_has(
    messaging: Messaging, producer: Producer
) -> None:
    ids = producer.publish("t", [b"a", b"b"])
    ids += producer.publish("t", [b"c"])
    assert ids == [message.id for message in messaging.poll("t")]
    assert payloads(messaging) == [b"a", b"b", b"c"]


def test_the_same_sequence_again_answers_the_same_ids_and_stores_nothing(
    messaging: Messaging, producer: Producer
) -> None:
    first = producer.publish("t", [b"a", b"b"], sequence=0)
    assert producer.publish("t", [b"a", b"b"], sequence=0) == first
    assert producer.publish("t", [b"b"], sequence=1) == first[1:]
    assert producer.publish("t", [b"c"]) != first[:1]
    assert payloads(messaging) == [b"a", b"b", b"c"]


def test_the_last_five_requests_are_known_again_and_older_ones_are_refused(
    messaging: Messaging, producer: Producer
) -> None:
    """Scenario 94: the original ids, and an older duplicate."""
    ids = [producer.publish("t", [b"%d" % number]) for number in range(6)]
    for number in range(1, 6):
        assert producer.publish("t", [b"again"], sequence=number) == ids[number]
    with pytest.raises(DuplicateSequence, match="not all among its last 5 requests"):
        producer.publish("t", [b"again"], sequence=0)
    producer.publish("t", [b"6"])
    assert payloads(messaging) == [b"%d" % number for number in range(7)]


def test_a_repeat_that_goes_on_beyond_the_last_message_is_refused(
    messaging: Messaging, producer: Producer
) -> None:
    producer.publish("t", [b"a"], sequence=0)
    with pytest.raises(OutOfOrderSequence):
        producer.publish("t", [b"a", b"b"], sequence=0)
    producer.publish("t", [b"b"])
    assert payloads(messaging) == [b"a", b"b"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_gap_ends_the_producer(
    messaging: Messaging, producer: Producer, begun: bool
) -> None:
    """Scenario 94: a gap."""
    messaging.create_topic("other")
    if begun:
        producer.publish("t", [b"a"])
    with pytest.raises(OutOfOrderSequence, match="messages are missing"):
        producer.publish("t", [b"c"], sequence=2)
    for sequence in (None, 0, 1):
        with pytest.raises(OutOfOrderSequence, match="has ended"):
            producer.publish("t", [b"d"], sequence)
    with pytest.raises(OutOfOrderSequence, match="has ended"):
        producer.publish("other", [b"d"])
    assert payloads(messaging) == ([b"a"] if begun else [])


def test_a_producer_that_has_ended_stays_so_after_a_crash(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    producer = lasting.messaging.producer()
    with pytest.raises(OutOfOrderSequence, match="and not at 0"):
        producer.publish("t", [b"c"], sequence=2)
    with pytest.raises(OutOfOrderSequence, match="has ended"):
        publish_once(lasting.crash(), producer.identity, 0, b"a")


def test_each_topic_has_its_own_sequence(
    messaging: Messaging, producer: Producer
) -> None:
    messaging.create_topic("other")
    producer.publish("t", [b"a"], sequence=0)
    producer.publish("other", [b"b"], sequence=0)
    assert payloads(messaging) == [b"a"]
    assert payloads(messaging, "other") == [b"b"]


def test_two_producers_do_not_know_each_other(messaging: Messaging) -> None:
    for payload in (b"a", b"b"):
        messaging.producer().publish("t", [payload], sequence=0)
    assert payloads(messaging) == [b"a", b"b"]


def publish_once(
    messaging: Messaging, producer: ProducerIdentity, sequence: int, *data: bytes
) -> list[bytes]:
    service = messaging._parts.producers
    return [
        bytes(one)
        for one in service.publish_once("t", data, producer=producer, sequence=sequence)
    ]


def test_a_repeat_after_a_crash_answers_the_same_ids(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    producer = lasting.messaging.producer()
    ids = [bytes(one) for one in producer.publish("t", [b"a", b"b"])]
    after = lasting.crash()
    assert publish_once(after, producer.identity, 0, b"a", b"b") == ids
    publish_once(after, producer.identity, 2, b"c")
    assert payloads(after) == [b"a", b"b", b"c"]


def test_another_epoch_is_refused_and_a_new_one_begins_at_0(
    site: Site, messaging: Messaging, producer: Producer
) -> None:
    """Scenario 94: a lower epoch, and a new one not at 0."""
    producer.publish("t", [b"a"])
    old = producer.identity
    later = ProducerIdentity(old.producer_id, old.epoch + 1)
    with pytest.raises(ProducerFenced, match="is at epoch 0"):
        publish_once(messaging, later, 0, b"nobody gave this epoch out")
    raised = site.producing.ids.raise_epoch(old.producer_id)
    assert raised is not None
    assert raised.epoch == 1
    with pytest.raises(ProducerFenced, match="is at epoch 1"):
        producer.publish("t", [b"b"])
    publish_once(messaging, later, 0, b"c")
    with pytest.raises(OutOfOrderSequence):
        publish_once(messaging, later, 2, b"d")
    assert payloads(messaging) == [b"a", b"c"]


def test_sequences_go_on_at_0_after_the_greatest(
    site: Site, messaging: Messaging, producer: Producer
) -> None:
    """Scenario 94: the greatest sequence, and 0 after it."""
    ids = producer.publish("t", [b"a"])
    last = StoredRequest(SEQUENCES - 2, 1, ids[0].row_key)
    name = TopicName.parse("t")
    write = state_write(producer.producer_id, name, SequenceState(0, (last,)))
    site.table.submit([write])()
    service = site.producing
    service._sequences._lines.clear()
    identity = producer.identity
    over = publish_once(messaging, identity, SEQUENCES - 1, b"b", b"c")
    after = publish_once(messaging, identity, 1, b"d")
    assert publish_once(messaging, identity, SEQUENCES - 1, b"b", b"c") == over
    assert publish_once(messaging, identity, 0, b"c", b"d") == [over[1], *after]
    assert payloads(messaging) == [b"a", b"b", b"c", b"d"]


def test_a_topic_that_is_made_anew_goes_on_with_the_sequence(
    messaging: Messaging, producer: Producer
) -> None:
    producer.publish("t", [b"a"])
    messaging.delete_topic("t")
    with pytest.raises(TopicNotFound):
        producer.publish("t", [b"b"])
    messaging.create_topic("t")
    producer.publish("t", [b"c"])
    assert payloads(messaging) == [b"c"]


@pytest.mark.parametrize("sequence", [-1, SEQUENCES, 1.5, "0", True])
def test_a_wrong_sequence_is_a_bad_request(
    messaging: Messaging, producer: Producer, sequence: int
) -> None:
    with pytest.raises(BadRequest, match="a sequence is a whole number"):
        producer.publish("t", [b"a"], sequence=sequence)
    assert payloads(messaging) == []


@pytest.mark.parametrize("messages", [[], "a", [1], None, ["a"]])
def test_wrong_messages_are_a_bad_request(
    messaging: Messaging, producer: Producer, messages: list[bytes]
) -> None:
    with pytest.raises(BadRequest):
        producer.publish("t", messages)
    producer.publish("t", [b"a"])
    assert payloads(messaging) == [b"a"]


@pytest.mark.parametrize(
    "identity",
    [
        ProducerIdentity(-1),
        ProducerIdentity(2**63),
        ProducerIdentity(1, -1),
        ProducerIdentity(1, 2**15),
        "1",
        None,
    ],
)
def test_a_wrong_identity_is_a_bad_request(
    messaging: Messaging, identity: ProducerIdentity
) -> None:
    with pytest.raises(BadRequest):
        publish_once(messaging, identity, 0, b"a")
    assert payloads(messaging) == []


def test_a_producer_that_a_client_draws_begins_at_epoch_0(messaging: Messaging) -> None:
    service: Any = messaging._producers
    for epoch, sequence in ((5, 0), (0, 1)):
        drawn = ProducerIdentity(77, epoch, by_client=True)
        with pytest.raises((BadRequest, ProducerFenced)):
            service.publish_once("t", [b"a"], producer=drawn, sequence=sequence)
    assert payloads(messaging) == []
    assert messaging.producers() == []
    opened = service.open_producer().identity
    taken = ProducerIdentity(opened.producer_id, by_client=True)
    for _ in range(2):
        with pytest.raises(BadRequest, match="was opened by a call"):
            service.publish_once("t", [b"a"], producer=taken, sequence=0)
        service.publish_once("t", [b"b"], producer=opened, sequence=0)
    assert payloads(messaging) == [b"b"]


def test_an_id_that_nobody_opened_is_refused(messaging: Messaging) -> None:
    with pytest.raises(ProducerFenced, match="is not known here"):
        publish_once(messaging, ProducerIdentity(17), 0, b"a")
    assert payloads(messaging) == []


def test_a_producer_that_was_not_used_for_a_week_expires(
    site: Site, messaging: Messaging, producer: Producer
) -> None:
    producer.publish("t", [b"a"])
    site.clock.now_ms += 7 * DAY_S * 1000 - 1000
    messaging.clean_up()
    producer.publish("t", [b"b"])
    site.clock.now_ms += 7 * DAY_S * 1000 - 1000
    messaging.clean_up()
    assert len(messaging.producers()) == 1
    site.clock.now_ms += 2000
    assert messaging.clean_up().producers == 1
    assert messaging.producers() == []
    for sequence in (None, 0):
        with pytest.raises(ProducerFenced, match="was not used for too long"):
            producer.publish("t", [b"c"], sequence)
    assert ProducerTable(site.table).value(producer.producer_id, TopicName("t")) is None


@pytest.mark.in_process
def test_a_producer_is_forgotten_after_its_publish_that_is_under_way(
    site: Site,
    messaging: Messaging,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producing = site.producing
    admitted, go_on = threading.Event(), threading.Event()
    plain, enter_first = producing._publishing.plain, producing._sequences.enter_first

    def plain_late(*arguments: Any, **options: Any) -> Any:
        admitted.set()
        assert go_on.wait(30)
        return plain(*arguments, **options)

    def enter_now(*arguments: Any) -> None:
        go_on.set()
        enter_first(*arguments)

    monkeypatch.setattr(producing._publishing, "plain", plain_late)
    thread = threading.Thread(target=producer.publish, args=("t", [b"a"]))
    thread.start()
    assert admitted.wait(30)
    monkeypatch.setattr(producing._sequences, "enter_first", enter_now)
    messaging.forget_producer(producer.producer_id)
    go_on.set()  # a removal that does not wait for it has missed its row
    thread.join()
    assert messaging.check().is_clean
    assert (payloads(messaging), messaging.producers()) == ([b"a"], [])
    with pytest.raises(ProducerFenced):
        producer.publish("t", [b"b"])


def test_a_clean_up_removes_sequences_whose_producer_is_gone(
    site: Site, messaging: Messaging, producer: Producer
) -> None:
    """As earlier versions left them."""
    producer.publish("t", [b"a"])
    site.table.submit([(producer_key(producer.producer_id), None)])()
    site.producing.ids._known.clear()
    assert "there is no producer" in str(messaging.check().problems[0])
    messaging.clean_up()
    assert messaging.check().is_clean


def test_a_forgotten_producer_is_refused(
    messaging: Messaging, producer: Producer
) -> None:
    producer.publish("t", [b"a"])
    messaging.forget_producer(producer.producer_id)
    with pytest.raises(ProducerFenced):
        producer.publish("t", [b"b"])
    with pytest.raises(ProducerNotFound):
        messaging.forget_producer(producer.producer_id)
    assert payloads(messaging) == [b"a"]


def test_producers_are_listed_and_described(
    messaging: Messaging, producer: Producer
) -> None:
    ids = producer.publish("t", [b"a", b"b", b"c"])
    (known,) = messaging.producers()
    assert (known.producer_id, known.epoch) == (producer.producer_id, 0)
    assert (known.has_ended, known.topics) == (False, ())
    assert known.last_ms == ids[-1].publish_time_ms
    (topic,) = messaging.describe_producer(producer.producer_id).topics
    assert (topic.topic, topic.next_sequence, topic.last_id) == ("t", 3, ids[-1])
    with pytest.raises(ProducerNotFound):
        messaging.describe_producer(producer.producer_id ^ 1)


def test_calls_of_many_threads_are_stored_once_and_in_order(
    messaging: Messaging, producer: Producer
) -> None:
    found: dict[bytes, bytes] = {}

    def publish(name: int) -> None:
        for number in range(20):
            payload = b"%d %d" % (name, number)
            (found[payload],) = producer.publish("t", [payload])

    in_threads(publish, range(8))
    messages = messaging.poll("t", limit=1000)
    assert {message.payload: message.id for message in messages} == found
    for name in range(8):
        own = [m.payload for m in messages if m.payload.split()[0] == b"%d" % name]
        assert own == [b"%d %d" % (name, number) for number in range(20)]


def test_messages_may_expire(
    site: Site, messaging: Messaging, producer: Producer
) -> None:
    producer.publish("t", [Outgoing(b"a", expire_after_s=1), b"b"])
    assert payloads(messaging) == [b"a", b"b"]
    site.clock.now_ms += 2000
    assert payloads(messaging) == [b"b"]


def test_a_topic_for_transactions_alone_takes_nothing(messaging: Messaging) -> None:
    messaging.update_topic("t", properties={"publishing": "transactional"})
    producer = messaging.producer()
    with pytest.raises(BadRequest, match="in transactions only"):
        producer.publish("t", [b"a"])
    messaging.update_topic("t", properties={"publishing": None})
    producer.publish("t", [b"b"])
    assert payloads(messaging) == [b"b"]


def test_a_closed_producer_takes_nothing(
    messaging: Messaging, producer: Producer
) -> None:
    with producer:
        producer.publish("t", [b"a"])
    producer.close()
    with pytest.raises(PublisherClosed):
        producer.publish("t", [b"b"])
