"""Loops of one group share a topic: embedded, on HBase, over HTTP and frames."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.messagings import Site, committed
from txaware.errors import BadRequest, PartitionNeeded, ProducerFenced
from txaware.messaging import Messaging
from txaware.model.messages import Message

SOON_S = 60
PARTITIONS = 4
QUICK: dict[str, Any] = {
    "group": "g",
    "start": "first",
    "idle_wait_s": 0.02,
    "first_pause_s": 0.001,
    "longest_pause_s": 0.01,
}


@pytest.fixture
def shop(site: Site) -> Messaging:
    """Has a topic of several partitions, one of one, and one to publish to."""
    site.messaging.create_topic("orders", partitions=PARTITIONS)
    site.messaging.create_topic("single")
    site.messaging.create_topic("out")
    return site.messaging


def fill(messaging: Messaging, count: int, *, first: int = 0) -> int:
    """Publishes numbers to each partition; returns how many there are in all."""
    for partition in range(PARTITIONS):
        numbers = range(first, first + count)
        payloads = [b"%d %d" % (partition, number) for number in numbers]
        messaging.publish(f"orders.{partition}", payloads)
    return count * PARTITIONS


class Seen:
    """What loops have handled, by the name of the loop; once it is committed."""

    def __init__(self) -> None:
        self.by_loop: dict[str, list[tuple[int, bytes]]] = defaultdict(list)

    def after_commit(self, name: str) -> Callable[[list[Message]], None]:
        def note(messages: list[Message]) -> None:
            self.by_loop[name] += [(one.partition, one.payload) for one in messages]

        return note

    @property
    def all(self) -> list[tuple[int, bytes]]:
        return [one for seen in list(self.by_loop.values()) for one in [*seen]]

    def count(self) -> int:
        return len(self.all)


@contextmanager
def running(*loops: Any) -> Iterator[list[threading.Thread]]:
    """Runs loops in threads until they are fenced, and closes them."""

    def run(loop: Any) -> None:
        with suppress(ProducerFenced):
            loop.run()

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    with ExitStack() as ends:
        for thread, loop in zip(threads, loops, strict=True):
            thread.start()
            ends.callback(thread.join, SOON_S)
            ends.callback(loop.close)
        yield threads


def owners(messaging: Messaging, group: str = "g") -> list[int]:
    """How many partitions each member has."""
    found = [one for one in messaging.groups() if one.group == group]
    return sorted(len(one.partitions) for each in found for one in each.members)


def loop(messaging: Messaging, seen: Seen, name: str, **options: Any) -> Any:
    return messaging.subscribe(
        options.pop("topic", "orders"),
        options.pop("handler", lambda message: None),
        after_commit=seen.after_commit(name),
        **QUICK | options,
    )


@pytest.mark.everywhere
def test_loops_of_a_group_share_the_partitions(shop: Messaging) -> None:
    seen, there = Seen(), fill(shop, 5)
    with running(loop(shop, seen, "one"), loop(shop, seen, "two")):
        assert until(lambda: owners(shop) == [2, 2], timeout_s=SOON_S)
        there += fill(shop, 20, first=5)
        assert until(lambda: seen.count() == there, timeout_s=SOON_S)
        assert until(lambda: len(seen.by_loop) == 2, timeout_s=SOON_S)
    assert max(Counter(seen.all).values()) == 1
    for partition in range(PARTITIONS):
        for handled in seen.by_loop.values():
            numbers = [int(p.split()[1]) for n, p in handled if n == partition]
            assert numbers == sorted(numbers)
    assert shop.group("g").members == []
    assert {shop.position("g", f"orders.{n}") for n in range(PARTITIONS)} == {
        shop.bounds(f"orders.{n}").last for n in range(PARTITIONS)
    }


@pytest.mark.everywhere
def test_of_one_partition_a_loop_stands_by_and_takes_over(shop: Messaging) -> None:
    seen = Seen()
    one, two = (loop(shop, seen, name, topic="single") for name in ("one", "two"))
    with running(one):
        shop.publish("single", [b"a"])
        assert until(lambda: seen.count() == 1, timeout_s=SOON_S)
        with running(two):
            assert until(lambda: owners(shop) == [0, 1], timeout_s=SOON_S)
            for number in range(10):
                shop.publish("single", [b"%d" % number])
            assert until(lambda: seen.count() == 11, timeout_s=SOON_S)
            assert [*seen.by_loop] == ["one"]
            one.close()
            shop.publish("single", [b"z"])
            assert until(lambda: seen.by_loop["two"] == [(0, b"z")], timeout_s=SOON_S)
    assert two.metrics().conflicts == 0


def test_a_loop_that_dies_is_followed_after_its_session(site: Site) -> None:
    messaging, seen = site.messaging, Seen()
    messaging.create_topic("single")
    groups = messaging._parts.groups
    groups.join_group("g", "dead", topics=["single"], session_s=3)
    with running(loop(messaging, seen, "one", topic="single")):
        assert until(lambda: owners(messaging) == [0, 1], timeout_s=SOON_S)
        messaging.publish("single", [b"a"])
        site.clock.advance_s(3.1)
        assert "the session of dead ended" in messaging.group("g").why
        assert until(lambda: seen.count() == 1, timeout_s=SOON_S)


def test_a_message_that_fails_holds_up_its_partition_alone(shop: Messaging) -> None:
    seen, there = Seen(), fill(shop, 3)
    shop.create_topic("given-up")

    def handle(message: Message) -> None:
        if message.payload == b"1 1":
            raise ValueError("no")

    with running(
        loop(shop, seen, "one", handler=handle, tries=2, dead_letter_topic="given-up")
    ):
        assert until(lambda: seen.count() == there - 1, timeout_s=SOON_S)
        assert until(lambda: committed(shop, "given-up") == [b"1 1"], timeout_s=SOON_S)
    assert Counter(seen.all).most_common(1)[0][1] == 1
    [origin] = committed(shop, "given-up-origins")
    assert b'"orders.1"' in origin
    assert b'"g"' in origin


def test_what_fails_for_ever_lets_other_partitions_go_on_and_move(
    shop: Messaging,
) -> None:
    seen, there = Seen(), fill(shop, 3)

    def handle(message: Message) -> None:
        if message.payload == b"1 1":
            raise ValueError("no")

    two = loop(shop, seen, "two", handler=handle)
    with running(loop(shop, seen, "one", handler=handle)):
        assert until(lambda: seen.count() == there - 2, timeout_s=SOON_S)
        with running(two):
            assert until(lambda: owners(shop) == [2, 2], timeout_s=SOON_S)
    assert (1, b"1 0") in seen.all


def test_run_once_shares_a_topic_of_several_partitions(shop: Messaging) -> None:
    there, got = fill(shop, 3), list[bytes]()
    one = shop.subscribe("orders", lambda m: got.append(m.payload), **QUICK)
    assert sum(iter(one.run_once, 0)) == there
    assert len(set(got)) == there
    assert owners(shop) == [PARTITIONS]
    one.close()
    assert owners(shop) == []


def test_run_once_of_one_partition_is_as_a_consumer(shop: Messaging) -> None:
    shop.publish("single", [b"a", b"b"])
    got: list[Message] = []
    for _ in range(2):
        one = shop.subscribe("single", got.append, messages_per_transaction=1, **QUICK)
        assert one.run_once() == 1
    assert [message.payload for message in got] == [b"a", b"b"]
    assert shop.groups() == []


def test_partitions_that_are_added_are_handled_from_their_beginning(
    shop: Messaging,
) -> None:
    seen = Seen()
    shop.publish("single", [b"a"])
    with running(loop(shop, seen, "one", topic="single", start="next")):
        assert until(lambda: owners(shop) == [1], timeout_s=SOON_S)
        shop.update_topic("single", partitions=3)
        for number in range(3):
            shop.publish(f"single.{number}", [b"%d" % number])
        assert until(lambda: seen.count() == 3, timeout_s=SOON_S)
    assert sorted(seen.all) == [(n, b"%d" % n) for n in range(3)]


def test_a_loop_follows_a_rewind(shop: Messaging) -> None:
    seen, there = Seen(), fill(shop, 2)
    with running(loop(shop, seen, "one")):
        assert until(lambda: seen.count() == there, timeout_s=SOON_S)
        shop.rewind_group("g", "orders", to="first")
        assert until(lambda: seen.count() == 2 * there, timeout_s=SOON_S)
    assert set(Counter(seen.all).values()) == {2}


def test_several_partitions_are_handled_at_once_each_in_order(shop: Messaging) -> None:
    seen, there = Seen(), fill(shop, 4)
    together = threading.Barrier(PARTITIONS)

    def handle(message: Message) -> None:
        if message.payload.endswith(b" 0"):
            together.wait(SOON_S)

    one = loop(
        shop, seen, "one", handler=handle, concurrency=PARTITIONS, timeout_s=SOON_S
    )
    with running(one):
        assert until(lambda: seen.count() == there, timeout_s=SOON_S)
        two = loop(shop, seen, "two")
        with running(two):
            assert until(lambda: owners(shop) == [2, 2], timeout_s=SOON_S)
    assert max(Counter(seen.all).values()) == 1
    for partition in range(PARTITIONS):
        handled = [payload for n, payload in seen.by_loop["one"] if n == partition]
        assert handled == [b"%d %d" % (partition, number) for number in range(4)]


def test_without_a_group_a_partition_is_named(shop: Messaging) -> None:
    with pytest.raises(PartitionNeeded, match=r"name one of them here, as orders\.0"):
        shop.subscribe("orders", print).run()


def test_a_start_in_each_partition_is_no_place_for_members(shop: Messaging) -> None:
    places = {number: shop.bounds(f"orders.{number}").next for number in range(2)}
    one = shop.subscribe("orders", print, **QUICK | {"start": places})
    with pytest.raises(BadRequest, match="rewind_group"):
        one.run_once()


@pytest.mark.everywhere
@pytest.mark.parametrize("ids", [("p", "p"), ("p1", "p2")])
def test_processors_share_a_source(shop: Messaging, ids: tuple[str, str]) -> None:
    """With one id each partition has a producer, and nobody is fenced for another."""
    there = fill(shop, 5)
    options: dict[str, Any] = {"group": "g", "start": "first", "idle_wait_s": 0.02}
    loops = [
        shop.process("orders", "out", lambda m: m.payload, producer=each, **options)
        for each in ids
    ]
    with running(*loops) as threads:
        assert until(lambda: owners(shop) == [2, 2], timeout_s=SOON_S)
        there += fill(shop, 20, first=5)
        assert until(lambda: len(committed(shop, "out")) == there, timeout_s=SOON_S)
        assert all(thread.is_alive() for thread in threads)
    assert max(Counter(committed(shop, "out")).values()) == 1


def test_a_newer_processor_of_one_partition_goes_on_at_once(shop: Messaging) -> None:
    """The older one is idle; its member has the same name, and is fenced as well."""
    options: dict[str, Any] = QUICK | {"producer": "p"}
    with running(shop.process("single", "out", lambda m: m.payload, **options)) as old:
        shop.publish("single", [b"a"])
        assert until(lambda: committed(shop, "out") == [b"a"], timeout_s=SOON_S)
        newer = shop.process("single", "out", lambda m: m.payload, **options)
        with running(newer):
            assert until(lambda: not old[0].is_alive(), timeout_s=SOON_S)
            shop.publish("single", [b"b"])
            assert until(
                lambda: committed(shop, "out") == [b"a", b"b"], timeout_s=SOON_S
            )
            assert owners(shop) == [1]
