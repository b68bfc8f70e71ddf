"""The calls of a producer to one topic: in order, together, and never lost in doubt."""

import threading

import pytest

from tests.support.interrupts import elsewhere, interrupted_at, places
from txaware.errors import NotWritten, RequestTooLarge, TopicNotFound, Unavailable
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.publish.topic_sequence import SequenceCall, TopicSequence


class Topic:
    """A topic that stores each sequence once, and fails as it is told to."""

    def __init__(self) -> None:
        self.stored: dict[int, Payload] = {}
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.requests: list[tuple[int, int]] = []
        self.gate: threading.Event | None = None
        self.came = threading.Event()
        self.most = 1000

    def send(self, base: int, messages: list[Payload]) -> list[MessageId]:
        self.requests.append((base, len(messages)))
        self.came.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        if len(messages) > self.most:
            raise RequestTooLarge("too much")
        if self.before:
            raise self.before.pop()
        assert base <= len(self.stored), "a gap"
        for number, message in enumerate(messages, base):
            self.stored.setdefault(number, message)
        if self.after:
            raise self.after.pop()
        return [MessageId.of(base + number) for number in range(len(messages))]

    @property
    def messages(self) -> list[Payload]:
        return [self.stored[number] for number in sorted(self.stored)]


def publish(line: TopicSequence, *data: bytes, caller: object = None) -> list[int]:
    """As a producer does: at once where nothing is before it, or in its turn."""
    size_bytes = sum(map(len, data))
    ids = None
    if caller is None:
        ids = line.publish_alone([*data], None)
    if ids is None:
        call = SequenceCall([*data], size_bytes, None, caller=caller)
        line.take(call)
        ids = line.finish(call)
    return [one.publish_time_ms for one in ids]


@pytest.mark.parametrize("stored", [False, True])
def test_a_call_in_doubt_is_that_call_again(stored: bool) -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    assert publish(line, b"a") == [0]
    (topic.after if stored else topic.before).append(Unavailable("lost"))
    with pytest.raises(Unavailable):
        publish(line, b"b", b"c")
    assert publish(line, b"b", b"c") == [1, 2]
    assert publish(line, b"b", b"c") == [3, 4]
    assert topic.messages == [b"a", b"b", b"c", b"b", b"c"]


@pytest.mark.parametrize("stored", [False, True])
def test_other_messages_come_behind_those_in_doubt(stored: bool) -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    (topic.after if stored else topic.before).append(Unavailable("lost"))
    with pytest.raises(Unavailable):
        publish(line, b"a")
    assert publish(line, b"b") == [1]
    assert publish(line, b"a") == [2]
    assert topic.messages == [b"a", b"b", b"a"]


def test_the_same_messages_of_another_caller_are_no_repeat() -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    topic.after.append(Unavailable("lost"))
    with pytest.raises(Unavailable):
        publish(line, b"a", caller="one")
    assert publish(line, b"a", caller="two") == [1]
    assert publish(line, b"a", caller="one") == [0]
    assert topic.messages == [b"a", b"a"]


def test_a_doubt_lasts_until_there_is_an_answer() -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    for _ in range(3):
        topic.after.append(Unavailable("lost"))
        with pytest.raises(Unavailable):
            publish(line, b"a")
    assert publish(line, b"a") == [0]
    assert topic.requests == [(0, 1)] * 4


@pytest.mark.parametrize("error", [NotWritten("full"), TopicNotFound("gone")])
def test_a_refused_call_takes_no_sequence(error: Exception) -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    topic.before.append(error)
    with pytest.raises(type(error)):
        publish(line, b"a")
    assert publish(line, b"b") == [0]
    assert topic.messages == [b"b"]


def test_calls_that_wait_go_out_together_and_in_order() -> None:
    topic = Topic()
    line, found = TopicSequence(topic.send), {}
    topic.gate = threading.Event()
    calls = [SequenceCall([b"%d" % n], 1, None, caller=n) for n in range(10)]

    def finish(number: int) -> None:
        found[number] = line.finish(calls[number])[0].publish_time_ms

    threads = [threading.Thread(target=finish, args=(n,)) for n in range(10)]
    line.take(calls[0])
    threads[0].start()
    assert topic.came.wait(20)
    for call, thread in zip(calls[1:], threads[1:], strict=True):
        line.take(call)
        thread.start()
    topic.gate.set()
    for thread in threads:
        thread.join()
    assert found == {number: number for number in range(10)}
    assert topic.requests == [(0, 1), (1, 9)]


def test_calls_that_are_too_much_together_go_out_alone() -> None:
    topic = Topic()
    topic.most = 1
    line = TopicSequence(topic.send)
    topic.gate = threading.Event()
    calls = [SequenceCall([b"%d" % n], 1, None, caller=n) for n in range(3)]
    threads = [threading.Thread(target=line.finish, args=(call,)) for call in calls]
    for call, thread in zip(calls, threads, strict=True):
        line.take(call)
        thread.start()
    topic.gate.set()
    for thread in threads:
        thread.join()
    assert topic.messages == [b"0", b"1", b"2"]


def publish_at(line: TopicSequence, sequence: int, *data: bytes) -> list[int]:
    call = SequenceCall([*data], sum(map(len, data)), sequence)
    line.take(call)
    return [one.publish_time_ms for one in line.finish(call)]


def test_a_repeat_by_hand_does_not_move_the_sequence_back() -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    publish(line, b"a")
    publish(line, b"b", b"c")
    assert publish_at(line, 0, b"a") == [0]
    assert publish_at(line, 1, b"b") == [1]
    assert publish(line, b"d") == [3]
    assert topic.messages == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("stored", [False, True])
def test_a_call_in_doubt_is_repeated_by_hand_or_by_itself(stored: bool) -> None:
    topic = Topic()
    line = TopicSequence(topic.send)
    for again in (True, False):
        first = len(topic.messages)
        (topic.after if stored else topic.before).append(Unavailable("lost"))
        with pytest.raises(Unavailable):
            publish_at(line, first, b"a", b"b")
        if again:
            assert publish_at(line, first, b"a", b"b") == [first, first + 1]
        assert publish(line, b"c") == [first + 2]
    assert topic.messages == [b"a", b"b", b"c"] * 2


@pytest.mark.parametrize("is_alone", [True, False])
def test_an_interrupt_at_any_place_hangs_nobody_and_loses_nothing(
    is_alone: bool,
) -> None:
    def interrupt(place: int) -> bool:
        stored, done = dict[int, Payload](), list[bytes]()

        def send(base: int, messages: list[Payload]) -> list[MessageId]:
            assert base <= len(stored), "a gap"
            stored.setdefault(base, *messages)
            return [MessageId.of(base)]

        line = TopicSequence(send)

        def call() -> None:
            for data in (b"a", b"b"):
                if is_alone:
                    assert line.publish_alone([data], None) is not None
                else:
                    line.publish(SequenceCall([data], 1, None))
                done.append(data)

        found = interrupted_at(place, call)
        elsewhere(lambda: publish(line, b"later"))
        *before, last = stored.values()
        assert last == b"later", place
        assert before in ([b"a", b"b"], [b"a"], []), place
        assert done == before[: len(done)], place
        return found

    assert places(interrupt) > 10


def test_a_call_that_was_told_its_failure_keeps_to_it() -> None:
    """Or its next call, with the same messages, would be taken for a repeat."""
    call = SequenceCall([b"a"], 1, None)
    call.error = Unavailable("lost")
    call.ids = [MessageId.of(0)]  # somebody else found out meanwhile
    with pytest.raises(Unavailable):
        call.result()
