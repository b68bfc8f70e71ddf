"""A client of frames without any help: it sends bytes, and reads what comes."""

import json
import socket
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from txaware.protocol.frames import (
    CANCEL,
    FRAMES_PATH,
    HELLO,
    PIECE,
    REPLY,
    REQUEST,
    Frame,
    FrameReader,
    Hello,
    ReplyHead,
    RequestHead,
    credit_frame,
    frame,
    head_frame,
    hello_frame,
    read_head,
    read_hello,
)
from txaware.protocol.verb import Verb

TIMEOUT_S = 20.0
HELLO_OF_TESTS = Hello(1)


class Answered(NamedTuple):
    """A whole answer."""

    head: ReplyHead
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])

    def value(self) -> Any:
        return msgspec.msgpack.decode(self.body) if self.body else None


class RawFrames:
    """A connection of frames; `hello` None leaves that to the test."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        hello: Hello | None = HELLO_OF_TESTS,
        headers: str = "Connection: upgrade\r\nUpgrade: txaware/1\r\n",
    ) -> None:
        at = urlsplit(url)
        self.socket = socket.create_connection((at.hostname, at.port), TIMEOUT_S)
        bearer = "" if token is None else f"Authorization: Bearer {token}\r\n"
        self.socket.sendall(
            f"GET {FRAMES_PATH} HTTP/1.1\r\nHost: localhost\r\n{headers}{bearer}"
            f"\r\n".encode()
        )
        self._reader = FrameReader(1 << 24)
        self._came: list[Frame] = []
        self.number = 0
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = self.socket.recv(1)
            if not data:
                break
            head += data
        self.status = int(head.split()[1]) if head else 0
        self.answer_head = head.decode("latin-1")
        if self.status == 101 and hello is not None:
            self.send(hello_frame(hello))
            (first,) = [self.next()]
            assert first is not None
            assert first.kind == HELLO
            self.hello = read_hello(first.body)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next(self) -> Frame | None:
        """The next frame; None where the connection has ended."""
        while not self._came:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._came += self._reader.feed(data)
        return self._came.pop(0)

    def request(self, head: RequestHead, body: bytes = b"") -> int:
        self.number += 1
        self.send(head_frame(REQUEST, self.number, head, body))
        return self.number

    def verb(self, verb: Verb[..., Any], *fields: Any, key: str | None = None) -> int:
        body = msgspec.msgpack.encode(fields)
        number = verb.number
        assert number is not None
        return self.request(RequestHead(number, len(body), key), body)

    def route(
        self, method: str, path: str, body: bytes = b"", *, key: str | None = None
    ) -> int:
        head = RequestHead(0, len(body), key, None, method, path)
        head.headers = {"content-type": "application/json"}
        return self.request(head, body)

    def next_of(self, stream: int) -> int:
        """The kind of the next frame of a stream; those of others are passed over."""
        while (one := self.next()) is not None:
            if one.stream == stream:
                return one.kind
        raise ConnectionError("it ended")

    def answer(self, stream: int, *, gives_credit: bool = True) -> Answered:
        """The whole answer on a stream; frames of others are passed over."""
        head, body = None, b""
        while (one := self.next()) is not None:
            if one.stream != stream:
                continue
            if one.kind == REPLY:
                head, rest = read_head(ReplyHead, one.body)
                body = bytes(rest)
            elif one.kind == PIECE:
                body += one.body
                if head is not None and head.size_bytes is None and not one.body:
                    return Answered(head, body)
                if gives_credit:
                    self.send(credit_frame(stream, len(one.body)))
            elif one.kind == CANCEL:
                raise ConnectionError("the answer was cut off")
            if head is not None and head.size_bytes == len(body):
                return Answered(head, body)
        raise ConnectionError("it ended within an answer")

    def cancel(self, stream: int) -> None:
        self.send(frame(CANCEL, stream))

    def ended(self) -> str | None:
        """Waits until the server ends it, and returns the reason that it tells."""
        why = None
        while (one := self.next()) is not None:
            if one.kind == REPLY and not one.stream:
                _, rest = read_head(ReplyHead, one.body)
                why = json.loads(bytes(rest))["message"]
        return why

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
