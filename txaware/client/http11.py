"""Requests and answers as bytes of HTTP/1.1; does no I/O.

A C parser (httptools) reads heads and chunks. The length of a body is counted here, so
that each byte beyond an answer is noticed.
"""

import re
from typing import NamedTuple

import httpcore
import httptools

from txaware.client.calls.call import Deadline

_HEAD_ENDS = b"\r\n\r\n"
# The most that comes before a body begins, and between two pieces of one in chunks.
MOST_BYTES_WITHOUT_BODY = 100 * 1024
# What a piece of a body takes in memory beside its bytes: a chunk may have one.
PIECE_BYTES = 64
_BEGINNING = b"HTTP/1."
_FIRST_LINE = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [\t -~\x80-\xff]*)?\r\n")
_OPTIONAL_SPACE = b" \t"
_WITHOUT_BODY = (204, 304)


class _Head(NamedTuple):
    """Holds what a head says of an answer whose body has a known length."""

    status: int
    headers: dict[bytes, bytes]
    keeps_open: bool
    left_bytes: int


# Servers send the same heads for a second, until their Date changes. To read one takes
# a seventh of a small request.
_heads: dict[bytes, _Head] = {}
KNOWN_HEADS, LONGEST_HEAD = 64, 1024


class AnswerTooLarge(httpcore.RemoteProtocolError):
    """An answer has more bytes than a client takes; asked again, it has them again."""


class HttpRequest(NamedTuple):
    """A request as it goes out, and the limits of its answer.

    Each read and write may take so long, and all of them until the deadline.
    """

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    read_s: float
    write_s: float
    deadline: Deadline
    answer_bytes: int

    def head(self) -> bytes:
        """Returns the lines before the body; no value makes a line more of them."""
        path = self.path
        lines = [f"{self.method} {path} HTTP/1.1".encode("ascii")]
        lines += [b"%b: %b" % header for header in self.headers]
        head = b"\r\n".join(lines) + _HEAD_ENDS
        breaks = len(lines) + 1
        is_line = path.isprintable() and " " not in path
        if not is_line or head.count(b"\r") != breaks or head.count(b"\n") != breaks:
            raise httpcore.LocalProtocolError("a request has odd characters")
        return head


class AnswerParser:
    """Reads the answer to one request, which is not a HEAD, from the bytes that come.

    `feed` raises `RemoteProtocolError` for what is none, and `AnswerTooLarge` above
    `limit_bytes` of a body; one that `streams` may be of any size, as long as its
    pieces are taken. Once it `is_complete`, its connection can be used again if it
    `keeps_open`: nothing came beyond the end.
    """

    is_verb = False

    def __init__(self, limit_bytes: int, *, streams: bool = False) -> None:
        self._limit_bytes = limit_bytes
        self._streams = streams
        self._held_bytes = 0  # of a body whose length is not known
        self.status = 0
        self.headers: dict[bytes, bytes] = {}  # by names in lower case, the first ones
        self.has_head = self.is_complete = self.keeps_open = False
        self._parser: httptools.HttpResponseParser | None = None
        self._begun = b""
        self._without_body_bytes = 0
        # Of a body whose length is known.
        self._left_bytes: int | None = None
        self._is_chunked = self._is_last_chunk_over = False
        self._tail = b""
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Takes what came; nothing is the end of the connection."""
        if not data:
            self._end()
        elif self.has_head:
            self._feed_body(data)
        else:
            self._feed_head(data)

    def body(self) -> bytes:
        """Returns what is left of the body, all of it in most cases."""
        return b"".join(self.take_pieces())

    def take_pieces(self) -> list[bytes]:
        """Returns the pieces of the body that came since the last time."""
        pieces, self._pieces = self._pieces, []
        self._held_bytes = 0
        return pieces

    def _feed_head(self, data: bytes) -> None:
        """Reads heads: those of 1xx come before that of the answer."""
        self._without_body_bytes += len(data)
        begun = self._begun + data if self._begun else data
        while not self.has_head and (end := begun.find(_HEAD_ENDS)) >= 0:
            end += len(_HEAD_ENDS)
            head, begun = begun[:end], begun[end:]
            self._read_head(head)
        if self.has_head:
            self._without_body_bytes = 0
            self._check_announced()
            if begun or self._left_bytes == 0:
                self._feed_body(begun)
            return
        if not _BEGINNING.startswith(begun[: len(_BEGINNING)]):
            raise _no_answer(begun)
        self._begun = begun
        self._check_there_is_an_end()

    def _read_head(self, head: bytes) -> None:
        known = _heads.get(head)
        if known is not None:
            self.status, headers, self.keeps_open, self._left_bytes = known
            self.headers, self.has_head = {**headers}, True
            return
        if not _FIRST_LINE.match(head):
            raise _no_answer(head)
        self._parser = httptools.HttpResponseParser(self)
        self.keeps_open = head.startswith(b"HTTP/1.1")
        self._parse(head)
        if not self._is_chunked:
            self._parser = None  # a circle of references else
        if self._left_bytes is not None and len(head) <= LONGEST_HEAD:
            if len(_heads) >= KNOWN_HEADS:
                _heads.clear()
            _heads[head] = _Head(
                self.status, {**self.headers}, self.keeps_open, self._left_bytes
            )

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._is_last_chunk_over:  # the answer is whole, and more came
                self.keeps_open = False
                return
            why = error.__context__
            if isinstance(why, AnswerTooLarge):
                raise why from error
            raise httpcore.RemoteProtocolError(
                f"the answer is no HTTP: {why or error}"
            ) from error

    def on_header(self, name: bytes, value: bytes) -> None:
        """Notes a header, but not what comes behind the chunks."""
        if not self.has_head:
            name = name.lower()
            if name == b"transfer-encoding" and name in self.headers:
                raise ValueError("it has two Transfer-Encodings")
            self.headers.setdefault(name, value.strip(_OPTIONAL_SPACE))

    def on_headers_complete(self) -> None:
        """Finds out where the answer ends; those of 1xx are passed over."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        coding = self.headers.get(b"transfer-encoding")
        length = self.headers.get(b"content-length")
        if coding is not None and coding.lower() != b"chunked":
            raise ValueError("its Transfer-Encoding is not chunked")
        if status == 101:
            raise ValueError("it goes on in another protocol")
        if status < 200:
            self.headers = {}
            return
        self.status, self.has_head = status, True
        self.keeps_open = self.keeps_open and self._parser.should_keep_alive()
        if status in _WITHOUT_BODY:
            self._left_bytes = 0
        elif coding is not None:
            self._is_chunked = True
        elif length is not None:
            self._left_bytes = int(length)

    def _feed_body(self, data: bytes) -> None:
        if self._is_chunked:
            self._feed_chunks(data)
        elif self._left_bytes is None:
            self._hold(data)
        else:
            beyond = len(data) - self._left_bytes
            if beyond > 0:
                data, self.keeps_open = data[: self._left_bytes], False
            if data:
                self._pieces.append(data)
            self._left_bytes -= len(data)
            self.is_complete = not self._left_bytes

    def _feed_chunks(self, data: bytes) -> None:
        self._without_body_bytes += len(data)
        self._tail = self._tail[-5:] + data[-5:]
        self._parse(data)
        if not self._is_last_chunk_over:
            self._check_there_is_an_end()
            return
        if self._tail[-5:-4] in b"\r\n" or not self._tail.endswith(_HEAD_ENDS):
            self.keeps_open = False  # an empty line too many
        self.is_complete, self._parser = True, None

    def on_body(self, piece: bytes) -> None:
        """Notes a piece of a chunk."""
        self._without_body_bytes = 0
        self._hold(piece)

    def _hold(self, piece: bytes) -> None:
        """Takes a piece of a body whose length was not announced."""
        self._held_bytes += len(piece) + PIECE_BYTES
        self._check_size(self._held_bytes)
        self._pieces.append(piece)

    def _check_announced(self) -> None:
        if self._left_bytes is not None and not (self._streams and self.status == 200):
            self._check_size(self._left_bytes)

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise AnswerTooLarge(
                f"an answer of {size_bytes} bytes or more is above the limit of "
                f"{self._limit_bytes} bytes; see answer_limit_bytes"
            )

    def on_message_complete(self) -> None:
        """Notes that the last chunk has come."""
        self._is_last_chunk_over = self._is_chunked

    def on_message_begin(self) -> None:
        """Reads nothing beyond the last chunk: that is no part of the answer."""
        if self._is_last_chunk_over:
            raise ValueError("more came than an answer")

    def _check_there_is_an_end(self) -> None:
        if self._without_body_bytes > MOST_BYTES_WITHOUT_BODY:
            raise httpcore.RemoteProtocolError(
                f"more than {MOST_BYTES_WITHOUT_BODY} bytes of an answer have no body"
            )

    def _end(self) -> None:
        if self.has_head and not self._is_chunked and self._left_bytes is None:
            self.is_complete = True
            return
        if self.has_head:
            left = "" if self._is_chunked else f", {self._left_bytes} bytes before it"
            raise httpcore.RemoteProtocolError(f"it ended within an answer{left}")
        where = "within the head of an answer" if self._begun else "without an answer"
        raise httpcore.RemoteProtocolError(f"it ended {where}")


def _no_answer(data: bytes) -> httpcore.RemoteProtocolError:
    return httpcore.RemoteProtocolError(f"{data[:80]!r} is no answer of HTTP/1")
