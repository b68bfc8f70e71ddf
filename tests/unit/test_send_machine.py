"""What a sender decides: any history stores each message once, and in order."""

import random
import threading
import traceback
from collections import defaultdict
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from txaware.errors import (
    BadRequest,
    DuplicateSequence,
    ProducerFenced,
    QueueFull,
    SequenceAhead,
    TopicNotFound,
    Unavailable,
)
from txaware.model.messages import MessageId
from txaware.model.partitions import partition_of
from txaware.publish.send_batch import SendBatch, SendLock, Sent, SentFuture
from txaware.publish.send_limits import Retries, SendLimits
from txaware.publish.send_machine import SendMachine

REMEMBERED = 5


@attrs.frozen
class Request:
    """A batch as it goes over the network: a copy that may come at any time."""

    batch: SendBatch
    name: tuple[str, int]
    producer: int
    base: int
    payloads: tuple[bytes, ...]


class Store:
    """Stores each request of a producer once, as the real one does."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.messages: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.states: dict[tuple[int, tuple[str, int]], list[tuple[int, int, int]]] = {}
        self.producers: set[int] = set()
        self.last_s = 0.0
        self.has_shrunk = False

    def take(self, request: Request, now_s: float) -> MessageId:
        self.last_s = now_s
        if request.name[1] >= self.topics.get(request.name[0], 0):
            raise TopicNotFound(request.name[0])
        if request.producer not in self.producers:
            if request.base:
                raise ProducerFenced("not known")
            self.producers.add(request.producer)
        state = self.states.setdefault((request.producer, request.name), [])
        count = len(request.payloads)
        after = state[-1][0] + state[-1][1] if state else 0
        if request.base == after:
            place = len(self.messages[request.name])
            self.messages[request.name] += request.payloads
            state.append((request.base, count, place))
            del state[:-REMEMBERED]
            return id_at(place)
        for base, size, place in state:
            if (base, size) == (request.base, count):
                return id_at(place)
        if request.base > after:
            raise SequenceAhead("ahead")
        raise DuplicateSequence("old")


def id_at(place: int) -> MessageId:
    return MessageId.of(1 + (place >> 16), place & 0xFFFF)


class World:
    """A sender's machine, a network that does anything, and a store."""

    PASSES_S: ClassVar = {
        "turn": 0,
        "a moment": 0.01,
        "half a minute": 30,
        "an hour": 3600,
    }

    def __init__(self, **limits: Any) -> None:
        self.now_s = 0.0
        self.store = Store()
        lock = SendLock()
        self.machine = SendMachine(
            SendLimits(**{"give_up_after_s": 60, "batch_limit_messages": 3, **limits}),
            Retries(jitter=lambda low, high: high),
            lock=lock,
            wake=lambda: None,
        )
        self.flying: list[Request] = []
        self.late: list[Request] = []
        self.sent: list[tuple[bytes, str, bytes | None, SentFuture]] = []
        self.told: dict[str, list[tuple[bytes, Sent | BaseException]]] = defaultdict(
            list
        )
        self.turn()

    def put(
        self, topic: str, key: bytes | None, number: int | None = None
    ) -> SentFuture:
        payload = b"%d" % len(self.sent)

        def on_done(ended: Sent | BaseException) -> None:
            self.told[topic].append((payload, ended))

        size_bytes = len(payload) + len(key or b"") + 64
        future = self.machine.put(
            topic, payload, key, size_bytes, self.now_s, None, on_done, number
        )
        self.sent.append((payload, topic, key, future))
        return future

    def turn(self) -> None:
        actions = self.machine.turn(self.now_s)
        for batch in actions.over:
            batch.notify_callers()
        self.machine.callers_notified(actions.settled)
        for batch in actions.send:
            assert batch.producer is not None
            assert batch.base is not None
            name = batch.topic, batch.partition
            payloads = tuple(batch.payloads)
            producer = batch.producer.producer_id
            self.flying.append(Request(batch, name, producer, batch.base, payloads))
        for topic in actions.count:
            if topic in self.store.topics:
                self.machine.counted(topic, self.store.topics[topic], self.now_s)
            else:
                self.machine.not_counted(topic, TopicNotFound(topic), self.now_s)
        if actions.count:
            self.turn()

    def arrive(self, request: Request, *, answered: bool) -> None:
        """The store gets a request; the answer comes, or is lost."""
        try:
            first = self.store.take(request, self.now_s)
        except Exception as error:
            failure: Exception = error if answered else Unavailable("lost")
            self.machine.failed(request.batch, failure, self.now_s)
        else:
            if answered:
                self.machine.stored(request.batch, first, self.now_s)
            else:
                self.machine.failed(request.batch, Unavailable("lost"), self.now_s)
        self.turn()

    def happen(self, step: str, request: Request) -> None:
        """One of the ways in which a request ends."""
        if step in ("lose", "come late"):
            self.lose(request, late=step == "come late")
        else:
            self.arrive(request, answered=step != "lose the answer")

    def lose(self, request: Request, *, late: bool) -> None:
        """The sender is told that it is lost; it may come to the store later."""
        if late:
            self.late.append(request)
        self.machine.failed(request.batch, Unavailable("lost"), self.now_s)
        self.turn()

    def arrive_late(self, request: Request) -> None:
        try:
            self.store.take(request, self.now_s)
        except Exception as error:
            event(f"late: {type(error).__name__}")

    def forget(self) -> None:
        """The store forgets producers that were idle, as it does after an hour."""
        is_idle = self.now_s - self.store.last_s > 3600
        if is_idle and not self.flying and not self.late:
            self.store.producers.clear()
            self.store.states.clear()

    def shrink(self) -> None:
        """A topic is made anew with fewer partitions."""
        if self.store.topics.get("a", 1) > 1:
            self.store.topics["a"] -= 1
            self.store.has_shrunk = True

    def settle(self) -> None:
        """From now on everything arrives."""
        for topic in self.machine.topics:
            self.store.topics.setdefault(topic, 1)
        flush = self.machine.flush()
        for _ in range(10_000):
            self.turn()
            while self.flying:
                self.arrive(self.flying.pop(0), answered=True)
            if self.machine.is_flushed(flush):
                break
            self.now_s += 0.5
        self.turn()

    def check_over(self) -> None:
        """Nothing is held any more."""
        machine = self.machine
        assert (machine.waiting, machine.held_bytes) == (0, 0), machine.counts
        assert {lines.held_bytes for lines in machine.topics.values()} <= {0}
        assert {lines.failing for lines in machine.topics.values()} <= {0}
        assert sum(map(len, self.told.values())) == len(self.sent)

    def check(self) -> None:
        """Each message is there once, in order by partition, or was given up."""
        self.check_over()
        machine = self.machine
        places: dict[Any, list[int]] = defaultdict(list)
        for payload, topic, key, future in self.sent:
            assert future.done()
            found = [
                name
                for name, messages in self.store.messages.items()
                for one in messages
                if one == payload and name[0] == topic
            ]
            assert len(found) <= 1, f"{payload!r} is there {len(found)} times"
            error = future.exception(0)
            if error is None:
                sent = future.result(0)
                assert found == [(sent.topic, sent.partition)]
                place = self.store.messages[found[0]].index(payload)
                assert sent.id == id_at(place)
                partitions = machine.topics[topic].partitions
                if self.store.has_shrunk:
                    if key is not None:
                        places[found[0], key].append(place)
                    continue
                if key is not None:
                    assert sent.partition == partition_of(key, partitions)
                if key is not None or partitions == 1:
                    places[found[0]].append(place)
        for of_partition in places.values():
            assert of_partition == sorted(of_partition)
        told: dict[Any, list[int]] = defaultdict(list)
        for topic, ended in self.told.items():
            for _, answer in ended:
                if isinstance(answer, Sent):
                    told[topic, answer.partition].append(int(answer.id.hex(), 16))
        for ids in told.values():
            assert ids == sorted(ids)


STEPS = {
    "put": 6,
    "arrive": 4,
    "turn": 2,
    "lose": 1,
    "come late": 1,
    "lose the answer": 1,
    "come again": 1,
    "a moment": 1,
    "half a minute": 1,
    "an hour": 0.3,
    "forget": 0.2,
    "shrink": 0.1,
}
KEYS = [None, b"ann", b"bob", b"cid"]


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    steps=st.integers(0, 400),
    partitions=st.sampled_from([1, 1, 3]),
    topics=st.sampled_from(["a", "ab"]),
    exists=st.booleans(),
    in_flight=st.integers(1, 5),
    one_by_one=st.booleans(),
    patient=st.booleans(),
    most=st.sampled_from([1, 3, 64]),
)
def test_any_history_stores_each_message_once_and_in_order(
    seed: int,
    steps: int,
    partitions: int,
    topics: str,
    exists: bool,
    in_flight: int,
    one_by_one: bool,
    patient: bool,
    most: int,
) -> None:
    draw = random.Random(seed)
    world = World(
        in_flight=in_flight,
        most_under_way=most,
        linger_s=0 if one_by_one else 0.005,
        give_up_after_s=1e12 if patient else 60,
    )
    if exists:
        world.store.topics["a"] = partitions
    for step in draw.choices([*STEPS], [*STEPS.values()], k=steps):
        if patient and step == "an hour":
            continue
        if step == "put":
            world.put(draw.choice(topics), draw.choice(KEYS))
            if one_by_one:
                world.turn()
        elif step in world.PASSES_S:
            world.now_s += world.PASSES_S[step]
            world.turn()
        elif step in ("forget", "shrink"):
            getattr(world, step)()
        elif step == "come again" and world.late:
            world.arrive_late(draw.choice(world.late))
        elif world.flying:
            world.happen(step, world.flying.pop(draw.randrange(len(world.flying))))
    world.store.topics.setdefault("a", partitions)
    world.settle()
    for request in world.late:
        world.arrive_late(request)
    world.check()
    # What may be stored in a partition that is gone is never known.
    if patient and not world.store.has_shrunk:
        assert [one for one in world.sent if one[3].exception(0) is not None] == []


def begun(**limits: Any) -> World:
    """A world whose topic has one partition, with a first message that is stored."""
    world = World(**{"linger_s": 0, **limits})
    world.store.topics["a"] = 1
    world.put("a", None)
    world.now_s += world.machine.limits.linger_s
    world.turn()
    world.arrive(world.flying.pop(), answered=True)
    return world


def test_what_may_still_come_is_never_sent_under_another_producer() -> None:
    world = begun()
    world.put("a", None)
    world.turn()
    world.now_s += 40
    world.put("a", None)
    world.turn()
    for request in [*world.flying]:
        world.lose(request, late=True)
    world.flying.clear()
    world.now_s += 30
    world.settle()
    for request in world.late:
        world.arrive_late(request)
    world.put("a", None)
    world.settle()
    world.check()
    assert world.store.messages["a", 0] == [b"0", b"1", b"2", b"3"]


def test_several_requests_of_a_partition_are_under_way() -> None:
    world = begun(in_flight=3)
    for _ in range(5):
        world.put("a", None)
        world.turn()
    assert [one.payloads for one in world.flying] == [(b"1",), (b"2",), (b"3",)]
    world.arrive(world.flying.pop(0), answered=True)
    assert [one.payloads for one in world.flying] == [(b"2",), (b"3",), (b"4", b"5")]


def test_many_partitions_take_turns() -> None:
    world = World(linger_s=0, most_under_way=4)
    world.store.topics["a"] = 20
    for number in range(20):
        world.put("a", None, number=number)
        world.put("a", None, number=number)
    world.turn()
    turns: list[int] = []
    while world.flying:
        assert len(world.flying) <= 4
        turns.append(world.flying[0].name[1])
        world.arrive(world.flying.pop(0), answered=True)
    assert turns == [*range(20)]
    world.check_over()


def test_a_server_that_hangs_holds_up_the_others_for_a_while_only() -> None:
    world = World(linger_s=0, most_under_way=1)
    world.store.topics["a"] = 2
    world.put("a", None, number=0)
    other = world.put("a", None, number=1)
    world.turn()
    assert world.machine.turn(3).next_s == 5
    world.now_s = 5
    world.turn()
    world.arrive(world.flying.pop(), answered=True)
    assert other.result(0).partition == 1
    assert len(world.flying) == 1
    world.settle()
    world.check_over()


def test_what_never_has_its_turn_is_unavailable_in_time() -> None:
    world = World(linger_s=0, most_under_way=1)
    world.store.topics["a"] = 3
    *tried, last = (world.put("a", None, number=number) for number in range(3))
    world.turn()
    world.now_s = 61
    world.turn()
    assert isinstance(last.exception(0), Unavailable)
    assert len(world.flying) == 2
    world.settle()
    assert [future.result(0).partition for future in tried] == [0, 1]
    world.check_over()


def test_topics_are_counted_a_few_at_once_and_none_waits_too_long_for_that() -> None:
    world = World(linger_s=0, most_under_way=2)
    machine = world.machine
    futures = [world.put(topic, b"key") for topic in "abcd"]
    assert machine.turn(0).count == ["a", "b"]
    assert machine.turn(0).count == []
    machine.counted("b", 1, 0)
    assert machine.turn(0).count == ["c"]
    for batch in machine.turn(61).over:
        batch.notify_callers()
    assert [future.done() for future in futures] == [False, False, False, True]
    assert isinstance(futures[3].exception(0), Unavailable)


def test_the_first_batch_of_a_line_goes_alone() -> None:
    world = World(linger_s=0)
    world.store.topics["a"] = 1
    for _ in range(3):
        world.put("a", None)
        world.turn()
    assert len(world.flying) == 1


def test_after_a_loss_only_the_oldest_is_tried() -> None:
    world = begun()
    for _ in range(3):
        world.put("a", None)
        world.turn()
    first, *others = world.flying
    world.flying.clear()
    world.lose(first, late=False)
    assert world.flying == []
    for request in others:
        world.arrive(request, answered=True)  # ahead
    world.now_s += 10
    world.turn()
    assert [one.payloads for one in world.flying] == [(b"1",)]


def test_a_batch_lingers_for_others() -> None:
    world = begun(linger_s=5)
    world.put("a", None)
    world.turn()
    assert world.flying == []
    assert world.machine.turn(world.now_s).next_s == world.now_s + 5
    world.put("a", None)
    world.now_s += 5
    world.turn()
    assert [one.payloads for one in world.flying] == [(b"1", b"2")]


def test_what_waits_for_a_topic_ends_with_topic_not_found() -> None:
    world = World()
    future = world.put("a", b"key")
    for _ in range(70):
        world.now_s += 1
        world.turn()
    assert isinstance(future.exception(0), TopicNotFound)


def test_a_topic_that_is_down_leaves_room_for_others() -> None:
    world = World(queue_limit_bytes=1000, linger_s=0)
    world.store.topics |= {"a": 1, "b": 1}
    world.put("b", None)
    world.put("a", None)
    world.turn()
    down, _ = sorted(world.flying, key=lambda one: one.name)
    world.lose(down, late=False)
    while world.machine.has_room("a", 65):
        world.put("a", None)
    assert world.machine.held_bytes <= 600
    assert world.machine.has_room("b", 65)


def test_a_topic_that_does_not_exist_leaves_room_for_those_that_come_later() -> None:
    world = World(queue_limit_bytes=1000, linger_s=0)
    world.put("a", None)
    world.turn()
    while world.machine.has_room("a", 65):
        world.put("a", None)
    assert world.machine.held_bytes <= 600
    assert world.machine.has_room("b", 65)


def test_a_server_that_is_down_leaves_the_whole_queue_to_its_only_topic() -> None:
    world = World(queue_limit_bytes=1000, linger_s=0)
    world.store.topics["a"] = 1
    world.put("a", None)
    world.turn()
    world.lose(world.flying.pop(), late=False)
    while world.machine.has_room("a", 65):
        world.put("a", None)
    assert world.machine.held_bytes > 900


def test_the_oldest_of_a_topic_is_dropped() -> None:
    world = World()
    world.store.topics["a"] = 1
    oldest, next_one = world.put("a", None), world.put("a", None)
    assert world.machine.drop_oldest("a")
    world.turn()
    assert isinstance(oldest.exception(0), QueueFull)
    assert world.told["a"][0][0] == b"0"
    assert world.machine.waiting == 1
    world.settle()
    assert next_one.result(0).id == id_at(0)
    assert not world.machine.drop_oldest("b")


def test_a_message_that_is_taken_back_is_not_sent() -> None:
    world = World()
    world.store.topics["a"] = 1
    futures = [world.put("a", None) for _ in range(3)]
    assert futures[1].cancel()
    world.settle()
    assert world.store.messages["a", 0] == [b"0", b"2"]
    assert futures[2].result(0).id == id_at(1)
    assert futures[1].cancelled()
    assert not futures[0].cancel()


def test_what_comes_behind_a_batch_that_is_taken_back_whole_is_sent_at_once() -> None:
    world = World(linger_s=0, in_flight=1)
    world.store.topics["a"] = 1
    world.put("a", None)
    world.settle()
    behind = [world.put("a", None) for _ in range(4)]
    for future in behind[:3]:
        assert future.cancel()
    world.turn()
    assert [list(one.payloads) for one in world.flying] == [[b"4"]]
    world.settle()
    assert world.store.messages["a", 0] == [b"0", b"4"]


def shrunk(*keys: bytes | None) -> World:
    """A world whose topic had 3 partitions, to which much was sent, and has one."""
    world = World(linger_s=0)
    world.store.topics["a"] = 3
    for key in KEYS:
        world.put("a", key)
    world.settle()
    world.store.topics["a"] = 1
    world.store.has_shrunk = True
    for key in keys:
        world.put("a", key)
        world.turn()
    return world


def test_what_waits_for_partitions_that_are_gone_goes_to_those_there_are() -> None:
    world = shrunk(*KEYS, *KEYS)
    world.settle()
    world.check()
    assert [future.result(0).partition for *_, future in world.sent[4:]] == [0] * 8
    assert world.machine.topics["a"].partitions == 1
    assert world.put("a", b"ann") is world.sent[-1][3]
    world.settle()
    world.check()


def test_a_message_that_moved_can_be_taken_back_and_tells_who_waits() -> None:
    keys = [b"%d" % number for number in range(9)]
    world = shrunk(*(key for key in keys if partition_of(key, 3)))
    futures = [future for *_, future in world.sent[4:]]
    waiting = [future for future in futures if future.cancel()]
    assert waiting
    called: list[Any] = []
    for future in futures:
        future.add_done_callback(called.append)
    world.settle()
    assert {*called} == {*futures}
    assert world.machine.waiting == world.machine.held_bytes == 0
    moved = [future for future in futures if future not in waiting]
    assert moved
    assert [future.result(0).partition for future in moved] == [0] * len(moved)
    assert len(world.told["a"]) == len(world.sent)


def test_what_names_a_partition_that_is_gone_waits_for_it() -> None:
    world = shrunk()
    futures = [world.put("a", b"key", number=number) for number in (2, 0)]
    world.put("a", next(key for key in KEYS if key and partition_of(key, 3) == 2))
    world.settle()
    world.check_over()
    assert isinstance(futures[0].exception(0), TopicNotFound)
    assert futures[1].result(0).partition == 0
    assert world.sent[-1][3].result(0).partition == 0


def test_what_is_under_way_to_a_partition_keeps_its_place_before_what_is_new() -> None:
    key = next(key for key in KEYS if key and partition_of(key, 3))
    world = shrunk(key, key)
    first, second = world.flying
    world.flying.clear()
    world.arrive(first, answered=True)
    world.put("a", key)
    world.turn()
    assert world.machine.topics["a"].partitions == 3
    world.arrive(second, answered=True)
    world.settle()
    world.check()
    assert world.store.messages["a", 0][-3:] == [b"4", b"5", b"6"]


def test_an_answer_of_before_takes_no_partition_away() -> None:
    world = World(linger_s=0)
    world.store.topics["a"] = 3
    for key in KEYS:
        world.put("a", key)
    world.settle()
    world.machine.counted("a", 2, world.now_s)
    assert world.machine.topics["a"].partitions == 3


def test_a_definite_no_ends_its_batch_alone() -> None:
    world = begun()
    futures = []
    for _ in range(3):
        futures.append(world.put("a", None))
        world.turn()
    world.machine.failed(world.flying.pop(0).batch, BadRequest("no"), world.now_s)
    world.turn()
    world.settle()
    world.check()
    assert isinstance(futures[0].exception(0), BadRequest)
    assert world.store.messages["a", 0] == [b"0", b"2", b"3"]


def test_a_sender_that_the_store_forgot_goes_on_under_another_producer() -> None:
    world = begun()
    world.now_s += 4000
    world.forget()
    assert not world.store.producers
    future = world.put("a", None)
    world.settle()
    world.check()
    assert future.result(0).id == id_at(1)


def test_what_may_be_stored_is_not_sent_again_once_the_store_may_have_forgotten() -> (
    None
):
    world = begun(give_up_after_s=1e12)
    doubtful = world.put("a", None)
    world.turn()
    world.arrive(world.flying.pop(), answered=False)
    world.now_s += 3700
    world.forget()
    world.settle()
    world.check()
    assert isinstance(doubtful.exception(0), Unavailable)
    assert world.store.messages["a", 0] == [b"0", b"1"]


def test_an_error_that_many_messages_have_stays_as_short_as_it_is() -> None:
    world = World()
    futures = [world.put("a", b"ann") for _ in range(50)]
    world.turn()
    world.now_s = 100
    world.turn()
    for future in futures:
        with pytest.raises(TopicNotFound) as raised:
            future.result(0)
        lengths = {len([*traceback.walk_tb(raised.value.__traceback__)])}
    assert max(lengths) < 10


def test_whoever_waits_for_a_message_is_woken_for_others_and_waits_no_longer() -> None:
    world, over = World(batch_limit_messages=1000), threading.Event()
    future = world.put("a", b"ann")
    [[batch]] = [line.batches for line in [world.machine.topics["a"].loose]]

    def wake() -> None:
        for _ in range(10_000):
            if over.wait(0.001):
                return
            with world.machine.lock:
                batch.wake()

    waking = threading.Thread(target=wake)
    waking.start()
    with pytest.raises(TimeoutError):
        future.result(0.05)
    assert not over.is_set()
    assert waking.is_alive()
    over.set()
    waking.join()
    assert batch.turns == []


def test_a_topic_that_never_was_there_is_forgotten() -> None:
    world = World()
    futures = [world.put(f"no{number}", None) for number in range(5)]
    world.turn()
    assert len(world.machine.topics) == 5
    world.now_s = 100
    world.turn()
    assert world.machine.topics == {}
    assert {type(future.exception(0)) for future in futures} == {TopicNotFound}
    world.store.topics["no0"] = 1
    later = world.put("no0", b"ann")
    world.settle()
    assert later.result(0) == Sent("no0", 0, id_at(0))
    world.check_over()
