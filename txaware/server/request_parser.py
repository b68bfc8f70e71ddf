"""Feeds the parser of one connection: in pieces, within limits, and past its traps."""

import enum
from typing import Any, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from txaware.model.settings import Settings

# So much is parsed at once. Each request takes a hundred times its bytes in memory, so
# no more of it is parsed until those before are under way.
PIECE_BYTES = 8192
_BESIDE_HEADER = 4  # a colon, a space, and the end of the line
_BESIDE_HEADERS = 64  # a method, a version, and an empty line
_FRAMING = (b"content-length", b"transfer-encoding")
_EMPTY = memoryview(b"")


class RequestPart(enum.Enum):
    """The part of a request that comes next."""

    NOTHING = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


NOTHING, HEAD, BODY = RequestPart


class WrongHead(Exception):
    """The head of a request is refused."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(status, name, message)
        self.refusal = (status, name, message)


class Growing(Protocol):
    """A request whose body comes, and that asks for no other protocol."""

    body: bytes
    more_body: bool


class Feeding(HttpToolsProtocol):
    """Makes requests from bytes. The server that makes connections sets `settings`.

    `growing` is the request that takes its body itself, as long as that comes.
    """

    settings: Settings
    growing: Growing | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.part = NOTHING
        self._head: list[tuple[bytes, bytes]] = []
        self._unfed = _EMPTY
        self._other_bytes = 0  # since the last byte of a body
        self._is_replayed = False
        # True once another protocol was granted: what follows is not looked at here.
        self.is_upgraded = False

    def refuse(self, status: int, name: str, message: str) -> None:
        """Says why no request can be made of what comes, and ends."""
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Feeds what came, and keeps what has to wait for an answer."""
        if self._unfed:
            data = bytes(self._unfed) + data
        elif not self.pipeline and len(data) <= PIECE_BYTES:
            taken = self._fed(data)
            if taken == len(data):
                return  # nearly always
            data = data[taken:]
        self._unfed = memoryview(data)
        self.feed_unfed()

    def feed_unfed(self) -> None:
        """Feeds what waits, as long as no request waits for another one."""
        while self._unfed and not self.pipeline and not self.is_upgraded:
            piece = self._unfed[:PIECE_BYTES]
            self._unfed = self._unfed[self._fed(piece) :]

    @property
    def is_between(self) -> bool:
        """True when the last request has come, and nothing of the next one."""
        return self.part is NOTHING and not self._unfed

    @property
    def has_unfed(self) -> bool:
        """True when something came that was not looked at."""
        return bool(self._unfed)

    def taken_over(self) -> bytes:
        """Returns what came behind the request of an upgrade."""
        data, self._unfed = bytes(self._unfed), _EMPTY
        return data

    def drop_unfed(self) -> None:
        """Drops what waits: nothing of it will be answered."""
        self._unfed = _EMPTY

    def _fed(self, piece: bytes | memoryview) -> int:
        """Feeds one piece, and returns how much of it was taken."""
        self._other_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            # Others than that of frames are not spoken here: this one goes on.
            if self.part is BODY:
                self._go_on_with_body()
            return int(upgrade.args[0])
        except httptools.HttpParserError as error:
            why = error.__context__
            wrong = (400, "BadRequest", "this is no HTTP request")
            self.refuse(*(why.refusal if isinstance(why, WrongHead) else wrong))
        else:
            limit = self.settings.header_limit_bytes + _BESIDE_HEADERS
            if self._other_bytes > limit:
                self.refuse(*self._too_large().refusal)
        return len(piece)

    def on_message_begin(self) -> None:
        """Expects a head from the first byte of a request on."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        if not self._is_replayed:
            self.part = HEAD

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; they are looked at when all of them are there."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Checks the head of a request before it begins."""
        if self._is_replayed:
            return
        self._check_head()
        self.begin_request()
        self.part = BODY
        # Headers behind a body are of no use to anybody, and change nothing.
        self._head, self.headers = self.headers, []

    def begin_request(self) -> None:
        """Begins to answer; its body may come later. What ASGI needs is made here."""
        self.scope = {  # type: ignore[typeddict-item]
            "type": "http",
            "http_version": "1.1",
            "headers": self.headers,
            "state": self.app_state,
        }
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes some of a request's body."""
        self._other_bytes = 0
        if self.growing is None:
            super().on_body(body)
        else:
            self.growing.body += body

    def on_message_complete(self) -> None:
        """Ends a request; or only its head, where another protocol is asked for."""
        if self.is_upgraded:
            self.part, self._other_bytes = NOTHING, 0
            return
        if self.growing is not None:
            self.part, self._other_bytes = NOTHING, 0
            self.growing.more_body = False
            self.growing = None
            return
        if self.parser.should_upgrade() and self._body_framing():
            return
        self.part, self._other_bytes = NOTHING, 0
        super().on_message_complete()

    def _check_head(self) -> None:
        size, hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value) + _BESIDE_HEADER
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise WrongHead(400, "BadRequest", "the Transfer-Encoding is chunked")
            elif name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        if size > self.settings.header_limit_bytes:
            raise self._too_large()
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise WrongHead(400, "BadRequest", "a request has one Host header")

    def _too_large(self) -> WrongHead:
        limit = self.settings.header_limit_bytes
        return WrongHead(
            431, "RequestTooLarge", f"a request's headers have at most {limit} bytes"
        )

    def _body_framing(self) -> list[tuple[bytes, bytes]]:
        """Returns the headers that say how the body ends; none if it has none."""
        return [
            (name, value)
            for name, value in self._head
            if name in _FRAMING and value.strip(b"0")
        ]

    def _go_on_with_body(self) -> None:
        """Makes a new parser, for the body that httptools skips after an Upgrade.

        It is told once more how the body ends.
        """
        framing = self._body_framing()
        lines = [b"%s: %s\r\n" % header for header in framing]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._other_bytes, self._is_replayed = 0, True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(lines) + b"\r\n")
        self._is_replayed = False
