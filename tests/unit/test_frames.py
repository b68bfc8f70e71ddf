"""Frames are whole again however they are cut, and never more than was said."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txaware.protocol import frames
from txaware.protocol.frames import (
    CANCEL,
    CREDIT,
    HELLO,
    PIECE,
    REPLY,
    REQUEST,
    Frame,
    FrameReader,
    Hello,
    ReplyHead,
    RequestHead,
    SendQueue,
    WrongFrame,
    credit_frame,
    frame,
    head_frame,
    hello_frame,
    read_credit,
    read_head,
    read_hello,
)

streams = st.integers(0, 2**64 - 1)
kinds = st.sampled_from([HELLO, REQUEST, REPLY, PIECE, CREDIT, CANCEL])
some_frames = st.lists(st.builds(Frame, kinds, streams, st.binary(max_size=50)))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


@given(some_frames, st.lists(st.integers(0, 10_000), max_size=8))
def test_frames_are_whole_again_wherever_they_are_cut(
    sent: list[Frame], places: list[int]
) -> None:
    reader, found = FrameReader(), []
    for piece in cut(joined(sent), places):
        found += reader.feed(piece)
    assert found == sent
    assert reader.is_between


@given(some_frames, st.lists(st.integers(0, 10_000), max_size=8), st.integers(1, 4))
def test_frames_that_are_taken_in_turns_are_the_same(
    sent: list[Frame], places: list[int], most: int
) -> None:
    reader, found = FrameReader(), []
    for number, piece in enumerate(cut(joined(sent), places)):
        if number % 2 and reader.has_more:
            reader.add(piece)
            continue
        turn = reader.feed(piece, most)
        assert len(turn) <= most
        found += turn
    while reader.has_more:
        found += reader.feed(b"", most)
    assert found == sent
    assert reader.is_between


def joined(sent: list[Frame]) -> bytes:
    return b"".join(frame(*_said(one)) for one in sent)


def _said(one: Frame) -> tuple[int, int, bytes]:
    return one.kind, one.stream, one.body


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    reader = FrameReader(100)
    try:
        for one in reader.feed(data):
            for read in (read_hello, read_credit):
                with contextlib.suppress(WrongFrame):
                    read(one.body)
            for kind in (RequestHead, ReplyHead):
                with contextlib.suppress(WrongFrame):
                    read_head(kind, one.body)
    except WrongFrame:
        pass


@pytest.mark.parametrize("size", [0, 8, 200_000, 2**32 - 1])
def test_a_size_that_lies_is_refused_before_anything_more_is_kept(size: int) -> None:
    with pytest.raises(WrongFrame, match=f"it has {size} bytes"):
        FrameReader().feed(size.to_bytes(4, "big"))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(WrongFrame, match="kind 7"):
        FrameReader().feed(frame(7, 1))


def test_the_bytes_of_each_kind() -> None:
    assert frame(CANCEL, 5).hex() == "00000009000000000000000506"
    assert credit_frame(5, 1).hex() == "0000000d00000000000000050500000001"
    request = head_frame(REQUEST, 3, RequestHead(7, 2, "k", "i"), b"ab")
    assert request.hex() == "00000018000000000000000302000b980702a16ba169a0a080006162"
    reply = head_frame(REPLY, 3, ReplyHead(200, 2), b"ab")
    assert reply.hex() == "00000014000000000000000303000795ccc802c0c2806162"


@given(
    st.builds(
        RequestHead, st.integers(0, 999), st.integers(0, 99), st.none() | st.text()
    ),
    st.binary(max_size=99),
)
def test_a_head_is_read_as_it_was_written(head: RequestHead, body: bytes) -> None:
    (one,) = FrameReader().feed(head_frame(REQUEST, 1, head, body))
    found, rest = read_head(RequestHead, one.body)
    assert (found, bytes(rest)) == (head, body)


def test_a_hello_of_another_version_is_refused() -> None:
    (one,) = FrameReader().feed(hello_frame(Hello(2)))
    with pytest.raises(WrongFrame, match="version 2"):
        read_hello(one.body)


def test_a_head_that_ends_too_soon_is_refused() -> None:
    with pytest.raises(WrongFrame, match="within its head"):
        read_head(RequestHead, b"\x00\x09\x90")


class Receiver:
    """The other side: puts the bodies of streams together."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.order: list[int] = []
        self._reader = FrameReader()

    def take(self, data: bytes | memoryview) -> None:
        for one in self._reader.feed(bytes(data)):
            body = one.body
            if one.kind == REPLY:
                _, rest = read_head(ReplyHead, body)
                body = bytes(rest)
            else:
                assert one.stream in self.order, "a piece comes before its head"
            self.bodies[one.stream] = self.bodies.get(one.stream, b"") + body
            self.order.append(one.stream)


@given(
    st.lists(st.binary(max_size=400), min_size=1, max_size=5),
    st.integers(1, 100),
    st.integers(0, 150),
    st.integers(1, 120),
)
def test_bodies_arrive_whole_within_their_credit(
    bodies: list[bytes], piece: int, credit: int, more: int
) -> None:
    queue, other = SendQueue(REPLY), Receiver()
    queue.limit(Hello(1, piece_bytes=piece, credit_bytes=credit))
    for stream, body in enumerate(bodies):
        queue.begin(stream, ReplyHead(200, len(body)), body)
    given = dict.fromkeys(range(len(bodies)), credit)
    for _ in range(2_000):
        while queue.is_ready:
            for data in queue.take(1):
                other.take(data)
            for stream, body in other.bodies.items():
                assert len(body) <= given[stream]
        for stream in given:
            given[stream] += more
            queue.credit(stream, more)
        if queue.is_empty:
            break
    assert [other.bodies[stream] for stream in range(len(bodies))] == bodies
    assert queue.waiting_bytes == 0


def test_a_large_body_lets_others_have_their_turn() -> None:
    queue, other = SendQueue(REPLY), Receiver()
    queue.begin(
        1, ReplyHead(200, 10 * frames.PIECE_BYTES), bytes(10 * frames.PIECE_BYTES)
    )
    for data in queue.take(1):
        other.take(data)
    queue.begin(2, ReplyHead(200, 3), b"abc")
    while queue.is_ready:
        for data in queue.take(1):
            other.take(data)
    assert other.order[:3] == [1, 1, 2]
    assert other.bodies[2] == b"abc"


@pytest.mark.parametrize(
    ("takes", "is_whole"), [(frames.WHOLE_BYTES, True), (frames.PIECE_BYTES, False)]
)
def test_a_page_goes_with_its_head_where_the_other_side_takes_that(
    takes: int, is_whole: bool
) -> None:
    queue, body = SendQueue(REPLY), bytes(frames.WHOLE_BYTES)
    queue.limit(Hello(1, piece_bytes=takes))
    queue.begin(1, ReplyHead(200, len(body)), body)
    found = FrameReader(takes).feed(queue.take_bytes(1 << 20))
    assert [one.kind for one in found] == (
        [REPLY] if is_whole else [REPLY, *4 * [PIECE]]
    )
    assert queue.is_empty
    assert not queue.waiting_bytes


def test_a_body_that_is_larger_goes_in_small_pieces() -> None:
    queue, body = SendQueue(REPLY), bytes(frames.WHOLE_BYTES + 1)
    queue.limit(Hello(1, piece_bytes=frames.WHOLE_BYTES))
    queue.begin(1, ReplyHead(200, len(body)), body)
    sizes = [len(data) for data in queue.take(1 << 20)]
    assert max(sizes) == frames.PIECE_BYTES


@pytest.mark.parametrize("size_bytes", [2 * frames.PIECE_BYTES, None])
def test_no_piece_comes_before_the_head_of_its_stream(size_bytes: int | None) -> None:
    queue, other = SendQueue(REPLY), Receiver()
    for stream in range(1, 4):
        queue.begin(stream, ReplyHead(200, 40_000), bytes(40_000))
    body = bytes(2 * frames.PIECE_BYTES)
    queue.begin(4, ReplyHead(200, size_bytes), b"" if size_bytes is None else body)
    if size_bytes is None:
        queue.go_on(4, body)
    while queue.is_ready:
        for data in queue.take(70_000):
            other.take(data)
    assert other.order[:4] == [1, 2, 3, 4]
    assert other.bodies[4] == body


def test_a_body_without_a_size_goes_on_until_it_ends() -> None:
    queue, other = SendQueue(REPLY), Receiver()
    queue.begin(1, ReplyHead(200, None), b"")
    for piece in (b"ab", b"cd", b""):
        queue.go_on(1, piece)
        for data in queue.take(1 << 20):
            other.take(data)
    assert other.bodies[1] == b"abcd"
    assert other.order == [1, 1, 1, 1]


def test_nothing_more_is_sent_of_a_stream_that_is_dropped() -> None:
    queue = SendQueue(REPLY)
    queue.begin(1, ReplyHead(200, 200_000), bytes(200_000))
    list(queue.take(70_000))
    queue.drop(1)
    assert list(queue.take(1 << 20)) == []
    assert queue.is_empty
    assert queue.waiting_bytes == 0
