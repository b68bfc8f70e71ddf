"""What an outbox cannot carry over is set aside, and blocks nobody else."""

from datetime import timedelta

import pytest

from tests.support.concurrency import in_threads
from tests.support.outboxes import Shop
from tests.support.queues import made, taken
from txaware.errors import BadRequest, QueueNotFound, TopicNotFound
from txaware.model.queues import time_of
from txaware.model.reports import OutboxReport
from txaware.participants.database_outbox import NothingSetAside, SetAsideAgain
from txaware.participants.outbox_load import OutboxLoad


def test_a_deleted_topic_or_queue_blocks_nobody_else(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    mail, gone = made(shop.messaging), made(shop.messaging, "gone")
    for number in range(3):
        with shop.messaging.transaction(shop.participant):
            for topic in ("t", "u"):
                shop.messaging.publisher(topic).publish(b"%d" % number)
            mail.push(b"%d" % number)
            gone.push(b"%d" % number)
    shop.messaging.delete_topic("t")
    shop.messaging.delete_queue("gone")
    now_ms = shop.site.clock()
    assert shop.participant.relay() == 6
    assert (shop.read("u"), taken(mail)) == ([b"0", b"1", b"2"], [b"0", b"1", b"2"])
    outbox = shop.participant.outbox
    assert (outbox.waiting(), shop.set_aside()) == (0, {"t": 3, "gone*": 3})
    [first, second] = outbox.set_aside()
    assert (first.topic, first.count, first.since) == ("t", 3, time_of(now_ms))
    assert "topic t" in first.reason
    assert "gone" in second.reason
    shop.publish("t", b"3")
    assert shop.participant.relay() == 0
    assert shop.set_aside() == {"t": 4, "gone*": 3}
    told = [
        record.message for record in caplog.records if "set aside" in record.message
    ]
    assert len(told) == 2, "once for each"


def test_a_relay_reports_what_is_set_aside_by_topic_and_queue(shop: Shop) -> None:
    gone = made(shop.messaging, "gone")
    shop.publish("t", b"1", b"2")
    with shop.messaging.transaction(shop.participant):
        gone.push(b"1")
    shop.messaging.delete_topic("t")
    shop.messaging.delete_queue("gone")
    now_ms = shop.site.clock()
    assert shop.participant.relay() == 0
    assert [
        (one.destination, one.count, one.since_ms) for one in reported(shop).aside
    ] == [("topic t", 2, now_ms), ("queue gone", 1, now_ms)]
    assert reported(shop).set_aside == 3
    shop.publish("t", b"3")  # is set aside where others are already
    shop.site.clock.advance_s(90)
    assert shop.participant.relay() == 0
    first, _ = reported(shop).aside
    assert (first.count, first.since_ms) == (3, now_ms)
    assert "topic t" in first.reason


def reported(shop: Shop) -> OutboxReport:
    """What the relay of the shop's outbox said last."""
    rows = shop.messaging.table(OutboxReport.TABLE)
    [(_, value)] = rows.scan(prefix=OutboxReport.PREFIX)
    return OutboxReport.of(value)


def test_a_topic_that_is_made_again_takes_what_was_set_aside_by_retry_alone(
    shop: Shop,
) -> None:
    shop.publish("t", b"1", b"2")
    shop.messaging.delete_topic("t")
    shop.participant.relay()
    outbox = shop.participant.outbox
    with pytest.raises(TopicNotFound):
        outbox.retry("t")
    shop.messaging.create_topic("t")
    shop.publish("t", b"3")
    assert shop.participant.relay() == 1
    assert (shop.read(), shop.set_aside()) == ([b"3"], {"t": 2})
    assert [one.payload for one in outbox.messages("t")] == [b"1", b"2"]
    assert [one.payload for one in outbox.messages("default:t", limit=1)] == [b"1"]
    assert outbox.retry("t") == 2
    assert (shop.read(), shop.set_aside()) == ([b"3", b"1", b"2"], {})
    assert shop.participant.relay() == 0
    assert shop.read() == [b"3", b"1", b"2"]


def test_a_queue_that_is_made_again_takes_its_items_by_retry_with_all_they_have(
    shop: Shop,
) -> None:
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        queue.push(b"1", key=b"ann", headers={"a": b"b"})
        queue.push(b"first", priority=9)
        queue.push(b"late", delay_s=60)
    shop.messaging.delete_queue("mail")
    assert shop.participant.relay() == 0
    outbox = shop.participant.outbox
    with pytest.raises(QueueNotFound):
        outbox.retry("mail")
    [one, *_] = outbox.messages("mail", queue=True)
    assert (one.payload, one.key, one.headers) == (b"1", b"ann", {"a": b"b"})
    made(shop.messaging)
    assert outbox.retry("mail") == 3
    assert [item.key for item in queue.peek()] == [b"ann", None]
    assert taken(queue) == [b"first", b"1"]
    shop.site.clock.advance_s(61)
    assert taken(queue) == [b"late"]


def test_what_is_set_aside_goes_to_another_topic_or_away(shop: Shop) -> None:
    mail, other = made(shop.messaging), made(shop.messaging, "other")
    with shop.messaging.transaction(shop.participant):
        shop.messaging.publisher("t").publish(b"1")
        mail.push(b"2")
    shop.publish("u", b"3")
    for topic in ("t", "u"):
        shop.messaging.delete_topic(topic)
    shop.messaging.delete_queue("mail")
    shop.messaging.create_topic("ns:t")
    shop.participant.relay()
    outbox = shop.participant.outbox
    with pytest.raises(TopicNotFound):
        outbox.send("t", to="away")
    with pytest.raises(BadRequest, match="no topic name"):
        outbox.send("t", to="not a name")
    assert shop.set_aside() == {"t": 1, "mail*": 1, "u": 1}
    assert outbox.send("t", to="ns:t") == 1
    assert outbox.send("mail", to="other") == 1
    assert (shop.read("ns:t"), taken(other)) == ([b"1"], [b"2"])
    assert outbox.discard("u") == 1
    assert (shop.set_aside(), outbox.waiting()) == ({}, 0)
    with pytest.raises(NothingSetAside, match="nothing is set aside for u"):
        outbox.discard("u")


def test_a_topic_and_a_queue_of_one_name_are_told_apart(shop: Shop) -> None:
    queue = made(shop.messaging, "t")
    with shop.messaging.transaction(shop.participant):
        queue.push(b"item")
        shop.messaging.publisher("t").publish(b"message")
    shop.messaging.delete_topic("t")
    shop.messaging.delete_queue("t")
    shop.participant.relay()
    outbox = shop.participant.outbox
    assert [one.payload for one in outbox.messages("t")] == [b"message"]
    assert [one.payload for one in outbox.messages("t", queue=True)] == [b"item"]
    assert outbox.discard("t", queue=False) == 1
    with pytest.raises(NothingSetAside, match="for topic t; it is for queue t"):
        outbox.discard("t", queue=False)
    assert shop.set_aside() == {"t*": 1}


def test_a_topic_that_came_to_take_plain_publishes_only_is_set_aside(
    shop: Shop,
) -> None:
    shop.publish("t", b"1")
    shop.messaging.delete_topic("t")
    shop.messaging.create_topic("t", properties={"publishing": "plain"})
    shop.publish("u", b"2")
    assert shop.participant.relay() == 1
    [one] = shop.participant.outbox.set_aside()
    assert one.reason == "topic t takes no messages of transactions"


def test_only_what_is_too_large_is_set_aside_of_a_topic(lasting_shop: Shop) -> None:
    shop = lasting_shop
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        for payload in (b"1", bytes(2_000), b"2"):
            shop.messaging.publisher("t").publish(payload)
            queue.push(payload)
    shop.reopen(message_limit_bytes=1_000)
    assert shop.participant.relay() == 4
    assert shop.read() == [b"1", b"2"]
    assert taken(shop.messaging.queue("mail")) == [b"1", b"2"]
    assert shop.set_aside() == {"t": 1, "mail*": 1}
    assert (
        "2000 bytes is above the limit" in shop.participant.outbox.set_aside()[0].reason
    )


def test_what_is_refused_for_no_known_reason_is_found_row_by_row(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(shop.messaging)
    shop.publish("u", *[b"%d" % number for number in range(5)])
    shop.publish("t", *[b"bad" if n in (0, 7, 9) else b"%d" % n for n in range(10)])
    publish = OutboxLoad.publish

    def picky(load: OutboxLoad, *arguments: object, **options: object) -> None:
        publish(load, *arguments, **options)  # type: ignore[arg-type]
        if b"bad" in load._messages.get("t", []):
            raise BadRequest("somebody does not like it")

    monkeypatch.setattr(OutboxLoad, "publish", picky)
    assert shop.participant.relay() == 12
    assert shop.read() == [b"%d" % number for number in (1, 2, 3, 4, 5, 6, 8)]
    assert shop.read("u") == [b"%d" % number for number in range(5)]
    assert shop.set_aside() == {"t": 3}
    assert shop.participant.outbox.set_aside()[0].reason == "somebody does not like it"


def test_an_error_that_is_not_about_what_is_carried_sets_nothing_aside(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish("t", b"1")
    relay = shop.participant._relay

    def refuse(*_: object) -> None:
        raise BadRequest("no room in this table")

    monkeypatch.setattr(relay._progress, "put", refuse)
    with pytest.raises(BadRequest, match="no room in this table"):
        relay.carry_over()
    monkeypatch.undo()
    assert (shop.participant.outbox.waiting(), shop.set_aside()) == (1, {})
    assert relay.carry_over() == 1
    assert shop.read() == [b"1"]


def test_what_one_relay_refused_is_set_aside_by_the_next_one(shop: Shop) -> None:
    """It died between its commit and the removal, and the topic is there again."""
    shop.publish("t", b"1")
    shop.publish("u", b"2")
    shop.messaging.delete_topic("t")
    dying = shop.relay_of_another()
    assert dying._carry_batch() == 1
    assert (shop.participant.outbox.waiting(), shop.set_aside()) == (2, {})
    shop.messaging.create_topic("t")
    assert shop.participant.relay() == 0
    assert (shop.read(), shop.read("u")) == ([], [b"2"])
    assert (shop.participant.outbox.waiting(), shop.set_aside()) == (0, {"t": 1})
    assert shop.participant.outbox.retry("t") == 1
    assert shop.relay_of_another().carry_over() == 0
    assert shop.read() == [b"1"]


def test_many_relays_at_once_carry_over_or_set_aside_each_row_once(shop: Shop) -> None:
    relays = [shop.relay_of_another(batch_rows=3) for _ in range(3)]
    queue = made(shop.messaging)
    for number in range(20):
        with shop.messaging.transaction(shop.participant):
            shop.messaging.publisher("t").publish(b"%d" % number)
            shop.messaging.publisher("u").publish(b"%d" % number)
            queue.push(b"%d" % number)
    shop.messaging.delete_topic("t")
    in_threads(lambda relay: relay.carry_over(), relays)
    every = [b"%d" % number for number in range(20)]
    assert (shop.read("u"), taken(queue)) == (every, every)
    assert shop.set_aside() == {"t": 20}
    shop.messaging.create_topic("t")
    assert shop.participant.outbox.retry("t") == 20
    assert shop.read() == every


def test_what_is_set_aside_outlives_its_programs(lasting_shop: Shop) -> None:
    shop = lasting_shop
    shop.publish("t", b"1")
    shop.messaging.delete_topic("t")
    shop.participant.relay()
    began = shop.participant.outbox.set_aside()
    shop.site.clock.advance_s(3_600)
    shop.reopen()
    assert shop.participant.outbox.set_aside() == began
    shop.messaging.create_topic("t")
    assert shop.participant.outbox.retry("t") == 1
    assert shop.read() == [b"1"]
    assert began[0].since + timedelta(hours=1) <= time_of(shop.site.clock())


def test_what_is_refused_again_says_why_and_stays(
    lasting_shop: Shop,
) -> None:
    shop = lasting_shop
    shop.publish("t", b"1", bytes(2_000))
    shop.messaging.delete_topic("t")
    shop.participant.relay()
    shop.reopen(message_limit_bytes=1_000)
    shop.messaging.create_topic("t")
    with pytest.raises(SetAsideAgain, match="1 of 2 messages for topic t are set"):
        shop.participant.outbox.retry("t")
    assert (shop.read(), shop.set_aside()) == ([b"1"], {"t": 1})
