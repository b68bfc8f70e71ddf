"""Topics of several partitions beside a database that decides its block."""

import time
from typing import Any

import pytest

import txaware
from tests.support.messagings import payloads
from tests.support.outboxes import Shop
from txaware.errors import PartitionNeeded
from txaware.model.messages import Message
from txaware.model.partitions import partition_of
from txaware.participants.deciding_database import DecidingDatabase

PARTITIONS = 12
KEY, OTHER = b"ann", b"bob"
NEEDED = r"^topic orders has several partitions; name one of them here, as orders\.0$"


@pytest.fixture
def parts(shop: Shop) -> Shop:
    """A shop with a topic of several partitions."""
    shop.messaging.create_topic("orders", partitions=PARTITIONS)
    return shop


def by_partition(shop: Shop) -> dict[int, list[bytes]]:
    """What is in each partition that has anything."""
    found = {n: shop.read(f"orders.{n}") for n in range(PARTITIONS)}
    return {number: one for number, one in found.items() if one}


def test_a_relay_carries_a_key_to_its_partition_and_a_named_one_to_that(
    parts: Shop,
) -> None:
    ann, bob = (partition_of(key, PARTITIONS) for key in (KEY, OTHER))
    with parts.messaging.transaction(parts.participant):
        publisher = parts.messaging.publisher("orders")
        for payload, key in ((b"1", KEY), (b"2", OTHER), (b"3", KEY)):
            publisher.publish(payload, key=key)
        parts.messaging.publisher(f"orders.{bob}").publish(b"4", key=KEY)
    assert parts.participant.relay() == 4
    assert by_partition(parts) == {ann: [b"1", b"3"], bob: [b"2", b"4"]}


def test_an_outbox_alone_takes_the_name_of_a_topic_and_of_a_partition(
    parts: Shop,
) -> None:
    ann, bob = (partition_of(key, PARTITIONS) for key in (KEY, OTHER))
    outbox = txaware.outbox(parts.connection)
    outbox.publish("orders", b"1", key=KEY)
    outbox.publish(f"default:orders.{bob}", b"2", key=KEY)
    parts.connection.commit()
    assert parts.participant.relay() == 2
    assert by_partition(parts) == {ann: [b"1"], bob: [b"2"]}


def test_what_is_for_a_partition_that_is_not_there_is_set_aside_and_sent_to_another(
    parts: Shop,
) -> None:
    txaware.outbox(parts.connection).publish("orders.12", b"1", key=KEY)
    parts.connection.commit()
    assert parts.participant.relay() == 0
    outbox = parts.participant.outbox
    assert "has 12 partitions, orders.0 to orders.11" in outbox.set_aside()[0].reason
    assert outbox.send("orders.12", to="orders.4") == 1
    assert by_partition(parts) == {4: [b"1"]}


def test_an_inbox_is_of_one_partition_and_says_so(parts: Shop) -> None:
    messaging, shop = parts.messaging, parts.participant
    inbox = shop.consumer("orders", group="g")
    with pytest.raises(PartitionNeeded, match=NEEDED), messaging.transaction(shop):
        inbox.poll()  # also before anything is there
    messaging.publish("orders.3", [b"1", b"2"])
    with pytest.raises(PartitionNeeded, match=NEEDED):
        inbox.peek()
    with pytest.raises(PartitionNeeded, match=NEEDED):
        shop.consumer("orders", group="g", start="next")
    seen: list[Any] = []
    loop: dict[str, Any] = {"group": "g", "participants": [shop]}
    with messaging.transaction(shop):
        assert payloads(shop.consumer("orders.3", group="g").poll(1)) == [b"1"]
    assert messaging.subscribe("orders.3", seen.append, **loop).run_once() == 1
    assert payloads(seen) == [b"2"]


def test_each_partition_begins_once_where_its_loop_began(parts: Shop) -> None:
    messaging, seen = parts.messaging, list[Any]()
    options: dict[str, Any] = {"group": "g", "participants": [parts.participant]}
    for payload in (b"before", b"while it was away"):
        messaging.publish("orders.3", [payload])
        messaging.publish("orders.7", [payload])
        loop = messaging.subscribe("orders", seen.append, start="next", **options)
        for _ in range(2 * PARTITIONS):
            loop.run_once()
        loop.close()
    assert payloads(seen) == [b"while it was away"] * 2


def test_loops_whose_database_decides_share_a_topic(parts: Shop) -> None:
    """Each has a connection of its own; the positions lie in the database alone."""
    messaging = parts.messaging
    for number in range(PARTITIONS):
        messaging.publish(f"orders.{number}", [b"%d" % number])

    def loop(shop: DecidingDatabase) -> Any:
        def handle(message: Message) -> None:
            who = message.payload.decode()
            shop.connection.execute(f"INSERT INTO orders VALUES ('{who}')")

        options: dict[str, Any] = {"group": "g", "participants": [shop]}
        return messaging.subscribe("orders", handle, **options)

    one, two = loop(parts.participant), loop(parts.opened())
    handled = 0
    for _ in range(100):
        handled += one.run_once() + two.run_once()
        [group] = messaging.groups()
        shares = [len(member.partitions) for member in group.members]
        if handled == PARTITIONS and shares == [PARTITIONS // 2] * 2:
            break
        time.sleep(0.02)
    messaging.publish("orders.5", [b"again"])
    assert sum(one.run_once() + two.run_once() for _ in range(3)) == 1
    found = parts.connection.execute("SELECT who FROM orders").fetchall()
    parts.connection.commit()
    assert sorted(who for (who,) in found) == sorted(
        [*(str(number) for number in range(PARTITIONS)), "again"]
    )
    one.close()
    two.close()
    assert {messaging.position("g", f"orders.{n}") for n in range(PARTITIONS)} == {None}


def test_an_inbox_of_a_topic_that_gets_partitions_goes_on_in_the_first(
    shop: Shop,
) -> None:
    messaging, database = shop.messaging, shop.participant
    inbox = database.consumer("t", group="g")
    messaging.publish("t", [b"1"])
    with messaging.transaction(database):
        assert payloads(inbox.poll()) == [b"1"]
    messaging.update_topic("t", partitions=2)
    named = pytest.raises(PartitionNeeded, match=r"name one of them here, as t\.0")
    with named, messaging.transaction(database):
        inbox.poll()
    messaging.publish("t.0", [b"2"])
    with messaging.transaction(database):
        assert payloads(database.consumer("t.0", group="g").poll()) == [b"2"]
