"""Consumers of which each gets every message, and goes with its instance."""

import pytest

import txaware
from tests.support.concurrency import in_loop
from tests.support.http_served import served
from tests.support.messagings import Site
from txaware import BroadcastConsumer, Messaging
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import BadRequest


@pytest.fixture
def control(site: Site) -> Messaging:
    site.messaging.create_topic("control", compact=True)
    return site.messaging


def say(messaging: Messaging, key: bytes, value: bytes) -> None:
    messaging.publisher("control").publish(value, key=key)


def heard(consumer: BroadcastConsumer) -> list[bytes]:
    return [message.payload for message in consumer.poll()]


def test_each_instance_gets_every_message_and_the_newest_first(
    control: Messaging,
) -> None:
    first = control.broadcast("control", instance="a")
    assert heard(first) == []
    say(control, b"level", b"info")
    say(control, b"level", b"debug")
    late = control.broadcast("control", instance="b")
    assert heard(first) == [b"info", b"debug"]
    assert heard(late) == [b"debug"]
    say(control, b"pause", b"yes")
    assert heard(first) == heard(late) == [b"yes"]
    assert heard(first) == heard(late) == []


def test_others_see_who_has_handled_what_with_its_commit(control: Messaging) -> None:
    say(control, b"level", b"info")
    message = control.latest("control")[b"level"]
    one = control.broadcast("control", instance="a")
    assert not control.instances("control")["a"].has_handled(message)
    with pytest.raises(RuntimeError), control.transaction():
        failing(one)
    assert not control.instances("control")["a"].has_handled(message)
    assert one.position is None
    with control.transaction():
        assert heard(one) == [b"info"]
    assert control.instances("control")["a"].has_handled(message)
    say(control, b"level", b"debug")
    newer = control.latest("control")[b"level"]
    assert heard(one) == [b"debug"]  # handled at the next call, outside of blocks
    assert not control.instances("control")["a"].has_handled(newer)
    assert not one.wait(0.01)
    assert control.instances("control")["a"].has_handled(newer)
    assert control.instances("other") == {}


def failing(consumer: BroadcastConsumer) -> None:
    assert heard(consumer) == [b"info"]
    raise RuntimeError("not now")


def test_an_instance_is_seen_until_it_is_closed_or_its_lease_ends(
    control: Messaging, site: Site
) -> None:
    with control.broadcast("control", instance="closed") as one:
        heard(one)
        dead = control.broadcast("control", instance="dead", lease_s=30)
        heard(dead)
        alive = control.broadcast("control", instance="alive", lease_s=30)
        assert sorted(control.instances("control")) == ["alive", "closed", "dead"]
    for _ in range(4):
        site.clock.advance_s(11)
        heard(alive)
    assert sorted(control.instances("control")) == ["alive"]


def test_a_wait_ends_with_what_comes(control: Messaging) -> None:
    one = control.broadcast("control", instance="a")
    assert one.wait(0)  # the newest messages were not polled
    assert heard(one) == []
    assert not one.wait(0.01)
    say(control, b"level", b"info")
    assert one.wait(30)


def test_values_are_decoded_the_newest_ones_too(control: Messaging) -> None:
    say(control, b"workers", b"20")
    one = control.broadcast("control", instance="a", decode=txaware.from_json)
    say(control, b"workers", b"30")
    assert [message.payload for message in one.poll()] == [30]
    say(control, b"workers", b"40")
    assert [message.payload for message in one.poll()] == [40]


def test_an_instance_has_a_name(control: Messaging) -> None:
    with pytest.raises(BadRequest, match="an instance has a name"):
        control.broadcast("control", instance="")
    with pytest.raises(BadRequest, match="lease_s is above 0"):
        control.broadcast("control", instance="a", lease_s=0)


@in_loop
async def test_a_broadcast_is_awaited() -> None:
    with served() as store:
        store.messaging.create_topic("control", compact=True)
        say(store.messaging, b"level", b"info")
        async with connect_async(store.url) as messaging:
            consumer = await messaging.broadcast("control", instance="a")
            async with consumer:
                assert await consumer.wait(0)
                async with messaging.transaction():
                    [message] = await consumer.poll()
                assert not await consumer.wait(0.01)
                found = await messaging.instances("control")
                assert found["a"].has_handled(message)
                say(store.messaging, b"level", b"debug")
                assert await consumer.wait(30)
                assert [one.payload for one in await consumer.poll()] == [b"debug"]
            assert await messaging.instances("control") == {}


def test_instances_get_all_partitions_of_a_topic(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("config", partitions=3)
    publisher = messaging.publisher("config")
    for number in range(12):
        publisher.publish(b"%d" % number, key=b"%d" % (number % 8))
    one = messaging.broadcast("config", instance="a")
    assert one.wait(0)
    with messaging.transaction():
        first = one.poll()
    assert {int(message.payload) for message in first} == {*range(4, 12)}
    assert all(map(messaging.instances("config")["a"].has_handled, first))
    assert {message.partition for message in first} == {*one.position} == {0, 1, 2}
    assert not one.wait(0)
    publisher.publish(b"new", key=b"0")
    assert one.wait(0)
    [newer] = one.poll()
    assert not messaging.instances("config")["a"].has_handled(newer)
    one.renew()
    assert messaging.instances("config")["a"].has_handled(newer)
    assert heard(one) == []
    of_one = messaging.broadcast(f"config.{newer.partition}", instance="b")
    assert heard(of_one)[-1] == b"new"
