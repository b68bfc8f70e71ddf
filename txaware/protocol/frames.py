"""Frames: many requests and answers on one connection, as bytes; does no I/O.

A frame is its size (4), stream (8), kind (1) and body; the size counts what follows it.
docs/format.md says what each kind means.
"""

import enum
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

PROTOCOL, VERSION = "txaware/1", 1
FRAMES_PATH = "/v1/frames"
# The header by which servers of one store know each other.
SERVER = b"txaware-server"
_HEADER = struct.Struct(">IQB")
_SIZE = struct.Struct(">I")
_HEAD_SIZE = struct.Struct(">H")
_CREDIT = struct.Struct(">I")
_AFTER_SIZE = _HEADER.size - _SIZE.size
# The most bytes of a body in one frame, unless the other side takes less; between two
# frames others have their turn.
PIECE_BYTES = 64 << 10
# A body of so many bytes goes with its head, where the other side takes it: most pages
# of messages come in one frame, and in one read.
WHOLE_BYTES = 256 << 10
# Whoever takes less would have the other side make a million frames of a page.
LEAST_PIECE_BYTES = 1024
# The most bytes of a head, and so of a frame beside its piece of a body.
MOST_HEAD_BYTES = 60_000
# The bytes of a body that are sent on a stream before the other side asks for more.
CREDIT_BYTES = 1 << 20
MOST_CREDIT_BYTES = (1 << 32) - 1
# A small frame that waits takes so much memory beside its bytes.
_KEPT_BYTES = 112


class FrameKind(enum.IntEnum):
    """The kind of a frame."""

    HELLO = 1
    REQUEST = 2
    REPLY = 3
    PIECE = 4
    CREDIT = 5
    CANCEL = 6


HELLO, REQUEST, REPLY, PIECE, CREDIT, CANCEL = FrameKind
# The body of a CANCEL that ends the wait alone: what was done by then is answered.
AT_ONCE = b"\x01"
# Others, of a later version, are refused: nobody knows what they change.
_KINDS = frozenset(FrameKind)


class WrongFrame(Exception):
    """Says that what came is no frame, or none for now: the connection ends."""


class Frame(msgspec.Struct, frozen=True):
    """A frame: its kind, the stream it belongs to, and its body."""

    kind: int
    stream: int
    body: bytes


class Hello(msgspec.Struct, rename="camel", frozen=True):
    """Says who speaks, and how much it takes; each side sends it first.

    `piece_bytes` is the most of a body in one frame, `credit_bytes` what it takes of a
    body before it gives credit, `streams` how many requests it has under way at once.
    A server gives each connection a number that no other one has: `connection`.
    """

    version: int
    software: str = ""
    instance: str = ""
    piece_bytes: int = PIECE_BYTES
    credit_bytes: int = CREDIT_BYTES
    streams: int = 0
    connection: int = 0


# What a request asks for that no verb is declared for: an HTTP request, by its words.
ANY_ROUTE = 0
_Size = int
_Words = dict[str, str]


class RequestHead(msgspec.Struct, array_like=True):
    """The head of a request: its verb by number, and the bytes of its body.

    `key` and `instance` are those of a request that may be repeated. Method, path and
    headers stand where the verb is `ANY_ROUTE`. `connection` is the number of the one
    that it was written for, so that a copy which comes by another one is known; 0 where
    a client does not say so.
    """

    verb: int
    size_bytes: _Size
    key: str | None = None
    instance: str | None = None
    method: str = ""
    path: str = ""
    headers: _Words = {}
    connection: int = 0


class ReplyHead(msgspec.Struct, array_like=True):
    """The head of an answer: its status, and the bytes of its body.

    A body whose size is not known, None, goes on until a PIECE without bytes. A request
    that was not begun may come again after so many seconds. `is_unknown` is True where
    nobody knows whether it was done before.
    """

    status: int
    size_bytes: _Size | None = 0
    retry_after_s: int | None = None
    is_unknown: bool = False
    headers: _Words = {}


H = TypeVar("H", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Hello, RequestHead, ReplyHead)
}


def frame(kind: int, stream: int, body: bytes = b"") -> bytes:
    """Returns the bytes of a frame."""
    return _HEADER.pack(len(body) + _AFTER_SIZE, stream, kind) + body


def hello_frame(hello: Hello) -> bytes:
    """Returns the first frame of a side."""
    return frame(HELLO, 0, _encode(hello))


def head_frame(
    kind: int, stream: int, head: RequestHead | ReplyHead, body: bytes | memoryview
) -> bytes:
    """Returns a REQUEST or REPLY with the beginning of its body."""
    encoded = _encode(head)
    if len(encoded) > MOST_HEAD_BYTES:
        raise WrongFrame(f"the head of a request has {len(encoded)} bytes, too many")
    size = _AFTER_SIZE + _HEAD_SIZE.size + len(encoded) + len(body)
    return b"".join(
        (
            _HEADER.pack(size, stream, kind),
            _HEAD_SIZE.pack(len(encoded)),
            *(encoded, body),
        )
    )


def credit_frame(stream: int, size_bytes: int) -> bytes:
    """Returns the frame that takes so many bytes more of a stream's body."""
    return frame(CREDIT, stream, _CREDIT.pack(size_bytes))


def packed(value: Any) -> bytes:
    """Returns a value as msgpack."""
    return _encode(value)


def read_hello(body: bytes) -> Hello:
    """Reads what the other side says first."""
    hello = _read(Hello, body)
    if hello.version != VERSION:
        raise WrongFrame(f"its HELLO has version {hello.version}, not {VERSION}")
    if not LEAST_PIECE_BYTES <= hello.piece_bytes <= MOST_CREDIT_BYTES:
        raise WrongFrame(
            f"its HELLO takes pieces of {hello.piece_bytes} bytes; they have "
            f"{LEAST_PIECE_BYTES} or more"
        )
    if hello.credit_bytes < 0:
        raise WrongFrame("its HELLO has odd limits")
    return hello


def read_head(kind: type[H], body: bytes) -> tuple[H, bytes]:
    """Reads the head of a request or an answer, and what follows of its body."""
    if len(body) < _HEAD_SIZE.size:
        raise WrongFrame("a frame ends within the size of its head")
    end = _HEAD_SIZE.size + _HEAD_SIZE.unpack_from(body)[0]
    if end > len(body):
        raise WrongFrame("a frame ends within its head")
    return _read(kind, body[_HEAD_SIZE.size : end]), body[end:]


def read_credit(body: bytes) -> int:
    """Reads how many bytes more the other side takes."""
    if len(body) != _CREDIT.size:
        raise WrongFrame(f"a CREDIT has {len(body)} bytes, not {_CREDIT.size}")
    size_bytes: int = _CREDIT.unpack(body)[0]
    return size_bytes


def _read(kind: type[H], body: bytes | memoryview) -> H:
    try:
        found: H = _decoders[kind].decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WrongFrame(f"a {kind.__name__} cannot be read: {error}") from error
    return found


class FrameReader:
    """Makes frames of bytes that come in any pieces.

    A frame may be as large as a piece with its head, and a size above it is a lie: so
    much is kept in memory of a frame that has not come as a whole, and no more.
    """

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self._most = (
            _AFTER_SIZE + _HEAD_SIZE.size + MOST_HEAD_BYTES + max(piece_bytes, 0)
        )
        # The pieces of a frame that has not come as a whole, and what it needs yet.
        self._begun: list[bytes] = []
        self._missing_bytes = 0

    @property
    def is_between(self) -> bool:
        """True when the last frame has come, and nothing of the next one."""
        return not self._begun

    @property
    def has_more(self) -> bool:
        """True when a frame may have come that was not returned yet."""
        return bool(self._begun) and self._missing_bytes <= 0

    def add(self, data: bytes) -> None:
        """Keeps what came for a later `feed`."""
        self._begun.append(data)
        self._missing_bytes -= len(data)

    def feed(self, data: bytes, most: int | None = None) -> list[Frame]:
        """Returns the frames that are whole now; raises `WrongFrame` for no frame.

        The others stay bytes where there are more than `most`: small ones would take
        ten times their memory.
        """
        if self._begun:
            self.add(data)
            if self._missing_bytes > 0:
                return []
            data = b"".join(self._begun)
        frames, at, end, needed = [], 0, len(data), _SIZE.size
        while end - at >= needed:
            (size,) = _SIZE.unpack_from(data, at)
            if not _AFTER_SIZE <= size <= self._most:
                raise WrongFrame(
                    f"a frame says that it has {size} bytes; it has {_AFTER_SIZE} to "
                    f"{self._most}"
                )
            needed = _SIZE.size + size
            if end - at < needed:
                break
            _, stream, kind = _HEADER.unpack_from(data, at)
            if kind not in _KINDS:
                raise WrongFrame(f"a frame has kind {kind}, which is not known")
            body = data[at + _HEADER.size : at + needed]
            frames.append(Frame(kind, stream, body))
            at += needed
            needed = _SIZE.size
            if len(frames) == most:
                needed = 0  # the next one may be there
                break
        self._begun = [data[at:]] if at < end else []
        self._missing_bytes = needed - (end - at)
        return frames


class _Sending:
    """The rest of a body that is sent on a stream."""

    __slots__ = ("left", "stream")

    def __init__(self, stream: int, left: memoryview) -> None:
        self.stream = stream
        self.left = left


class SendQueue:
    """Frames that wait to be sent: each stream has its turn, a piece at a time.

    What needs no credit goes first. `waiting_bytes` is the memory of all.
    """

    def __init__(self, kind: int) -> None:
        self._kind = kind
        # Each with the stream that it begins, whose pieces go after it.
        self._first: deque[tuple[bytes, int | None]] = deque()
        self._unsent_heads: set[int] = set()
        self._ready: deque[_Sending] = deque()
        self._sending: dict[int, _Sending] = {}
        # By stream, as long as its body is not sent to the end.
        self._credit: dict[int, int] = {}
        self._without_size: set[int] = set()
        self._credit_bytes = CREDIT_BYTES
        self._piece_bytes = self._whole_bytes = PIECE_BYTES
        self.waiting_bytes = 0

    def limit(self, hello: Hello) -> None:
        """Keeps to what the other side takes."""
        self._credit_bytes = hello.credit_bytes
        self._piece_bytes = min(PIECE_BYTES, hello.piece_bytes)
        self._whole_bytes = min(WHOLE_BYTES, hello.piece_bytes)

    @property
    def is_ready(self) -> bool:
        """True when something may be sent now."""
        return bool(self._first or self._ready)

    @property
    def is_empty(self) -> bool:
        """True when nothing waits, not even for credit."""
        return not (self._first or self._sending)

    def add(self, data: bytes, begins: int | None = None) -> None:
        """Adds a frame that needs no credit; it may be the head of a stream."""
        if begins is not None:
            self._unsent_heads.add(begins)
        self._first.append((data, begins))
        self.waiting_bytes += len(data) + _KEPT_BYTES

    def begin(
        self, stream: int, head: RequestHead | ReplyHead, body: bytes | memoryview
    ) -> None:
        """Adds a request or an answer; to one without a size `go_on` adds the body."""
        if head.size_bytes is None:
            self._without_size.add(stream)
            self._credit[stream] = self._credit_bytes
            self.add(head_frame(self._kind, stream, head, b""), stream)
            return
        if len(body) <= min(self._whole_bytes, self._credit_bytes):
            self.add(head_frame(self._kind, stream, head, body))
            return
        self.add(head_frame(self._kind, stream, head, b""), stream)
        self._credit[stream] = self._credit_bytes
        self._send(stream, body)

    def go_on(self, stream: int, piece: bytes) -> None:
        """Adds to a body without a size; a piece without bytes ends it."""
        if stream not in self._without_size:
            return  # nobody wants it any more
        if piece:
            self._send(stream, piece)
            return
        self._without_size.discard(stream)
        del self._credit[stream]
        self.add(frame(PIECE, stream))

    def _send(self, stream: int, body: bytes | memoryview) -> None:
        sending = self._sending[stream] = _Sending(stream, memoryview(body))
        self.waiting_bytes += len(body)
        if self._credit[stream] and stream not in self._unsent_heads:
            self._ready.append(sending)

    def unsent(self) -> set[int]:
        """Returns the streams whose head waits to be sent."""
        heads = (_HEADER.unpack_from(data) for data, _ in self._first)
        return {stream for _, stream, kind in heads if kind == self._kind}

    def is_sending(self, stream: int) -> bool:
        """Tells whether some of a body waits to be sent."""
        return stream in self._sending

    def credit(self, stream: int, size_bytes: int) -> None:
        """Notes that the other side takes so much more of a stream."""
        had = self._credit.get(stream)
        if had is None:
            return  # it has ended meanwhile
        self._credit[stream] = min(had + size_bytes, MOST_CREDIT_BYTES)
        sending = self._sending.get(stream)
        is_ready = not had and size_bytes and stream not in self._unsent_heads
        if sending is not None and is_ready:
            self._ready.append(sending)

    def drop(self, stream: int) -> None:
        """Forgets what waits on a stream: nobody wants it any more."""
        self._credit.pop(stream, None)
        self._without_size.discard(stream)
        sending = self._sending.pop(stream, None)
        if sending is not None:
            self.waiting_bytes -= len(sending.left)
            sending.left = memoryview(b"")

    def take_bytes(self, most_bytes: int) -> bytes:
        """Returns frames, as `take` does, in one piece."""
        if len(self._first) == 1 and not self._ready:
            data, begins = self._first.popleft()
            if begins is None:
                self.waiting_bytes -= len(data) + _KEPT_BYTES
                return data
            self._first.append((data, begins))
        return b"".join(self.take(most_bytes))

    def take(self, most_bytes: int) -> Iterator[bytes | memoryview]:
        """Yields frames, about so many bytes of them, in turns of the streams.

        A piece of a body comes behind its header, as it lies in the body.
        """
        while self._first and most_bytes > 0:
            data, begins = self._first.popleft()
            self.waiting_bytes -= len(data) + _KEPT_BYTES
            most_bytes -= len(data)
            if begins is not None:
                self._begun(begins)
            yield data
        while self._ready:
            sending = self._ready.popleft()
            piece = self._next_piece(sending)
            if piece:
                yield _HEADER.pack(len(piece) + _AFTER_SIZE, sending.stream, PIECE)
                yield piece
            most_bytes -= len(piece)
            if most_bytes <= 0:  # not before: many small frames keep no piece waiting
                return

    def _begun(self, stream: int) -> None:
        """Has the pieces of a stream follow, whose head is on its way."""
        self._unsent_heads.discard(stream)
        sending = self._sending.get(stream)
        if sending is not None and self._credit.get(stream):
            self._ready.append(sending)

    def _next_piece(self, sending: _Sending) -> memoryview:
        stream, credit = sending.stream, self._credit.get(sending.stream, 0)
        size = min(self._piece_bytes, len(sending.left), credit)
        piece, sending.left = sending.left[:size], sending.left[size:]
        if not size:
            return piece
        self._credit[stream] = credit - size
        self.waiting_bytes -= size
        if sending.left:
            if credit > size:
                self._ready.append(sending)
        else:
            del self._sending[stream]
            if stream not in self._without_size:
                del self._credit[stream]
        return piece
