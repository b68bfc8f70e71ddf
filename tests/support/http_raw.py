"""Raw sockets to a server in this process: whatever bytes, and what it answers."""

import json
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import urlsplit

import attrs
import pytest

import txaware
from tests.support.doubles import Clock
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.protocol.formats.avro_format import long_bytes
from txaware.server.admission import Admission
from txaware.server.frame_connection import FrameConnection
from txaware.server.server import HttpServer

TIMEOUT_S = 30.0
TOPIC = "/v1/namespaces/default/topics/t"
PUBLISH, POLL = TOPIC + "/publish", TOPIC + "/poll"
AVRO = ("Content-Type: avro/binary",)
ONE = bytes.fromhex("0202026100")
EVERYTHING = bytes.fromhex("04010202")


@attrs.frozen
class Response:
    """One answer; `interim` are the 1xx that came before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: tuple[int, ...] = ()

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Raw:
    """One connection; a context manager. A reset is an error, an orderly end is not."""

    def __init__(
        self,
        url: str,
        *,
        receive_bytes: int | None = None,
        source: tuple[str, int] | None = None,
    ) -> None:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        assert host is not None
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(TIMEOUT_S)
        if source is not None:
            self.socket.bind(source)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file: BinaryIO = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._file.close()
        self.socket.close()

    def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Speaks TLS from now on."""
        self._file.close()
        self.socket = context.wrap_socket(self.socket, server_hostname=name)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> Self:
        """Sends these bytes."""
        self.socket.sendall(data)
        return self

    def half_close(self) -> Self:
        """Sends nothing more."""
        with suppress(OSError):  # the other end has closed the connection
            self.socket.shutdown(socket.SHUT_WR)
        return self

    def ask(self, data: bytes) -> Response:
        """Sends these bytes, and reads one answer."""
        return self.send(data).response()

    def response(self, *, to_head: bool = False) -> Response:
        """Reads one answer, and not one byte more."""
        interim: list[int] = []
        while True:
            status, headers = self._head()
            if status >= 200:
                break
            interim.append(status)
        body = b"" if to_head else self._body(headers)
        return Response(status, headers, body, tuple(interim))

    def read_some(self, size_bytes: int) -> bytes:
        """Some bytes as they are."""
        return self._file.read(size_bytes)

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a body whose head was read."""
        while size := int(self._line(), 16):
            yield self._exactly(size)
            assert self._line() == b""
        assert self._line() == b""

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        return self._head()

    def has_ended(self) -> bool:
        """Waits for the end; False where something comes instead."""
        return self._file.read(1) == b""

    def _head(self) -> tuple[int, dict[str, str]]:
        version, status = self._line().split(b" ")[:2]
        assert version == b"HTTP/1.1"
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, line
            headers[name.lower()] = value.strip()
        return int(status), headers

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        assert headers.get("connection") == "close"
        return self._file.read()

    def _line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(f"the connection ended after {line!r}")
        return line[:-2]

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError(f"{len(data)} bytes of {size} came")
        return data


def request(
    method: str,
    path: str,
    body: bytes | None = None,
    *headers: str,
    version: str = "HTTP/1.1",
) -> bytes:
    """The bytes of one request."""
    lines = [f"{method} {path} {version}", "Host: localhost", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def publish(body: bytes = ONE, *headers: str) -> bytes:
    """The request that publishes one message."""
    return request("POST", PUBLISH, body, *AVRO, *headers)


def one(payload: bytes) -> bytes:
    """The Avro body that publishes this message."""
    return b"\x02\x02" + long_bytes(len(payload)) + payload + b"\0"


def poll(body: bytes = EVERYTHING, *headers: str) -> bytes:
    """The request that polls everything."""
    return request("POST", POLL, body, *AVRO, *headers)


PING = request("GET", "/ping")


def long_poll(wait_ms: int) -> bytes:
    """A poll that waits where there is nothing."""
    body = json.dumps({"waitMs": wait_ms}).encode()
    return request("POST", POLL, body, "Content-Type: application/json")


def chunked(*chunks: bytes) -> bytes:
    """A body in chunks, as far as the last one."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


@attrs.frozen
class Served:
    """A store behind a server; its clock moves when told to."""

    messaging: Messaging
    server: HttpServer
    clock: Clock

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    def connect(self, **options: Any) -> Raw:
        """A new connection."""
        return Raw(self.url, **options)

    def ask(self, data: bytes) -> Response:
        """One request on a connection of its own."""
        with self.connect() as raw:
            return raw.ask(data)

    def payloads(self, topic: str = "t") -> list[bytes]:
        """What is stored."""
        return [message.payload for message in self.messaging.poll(topic)]

    def is_well(self) -> bool:
        """Whether it still serves whoever comes."""
        return self.ask(PING).status == 200 and not self.in_flight

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self.server._server.server_state.connections)

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        admission = self._admission
        return 0 if admission is None else admission.in_flight + admission.waiting

    @property
    def body_bytes(self) -> int:
        """What the bodies of requests take."""
        admission = self._admission
        return 0 if admission is None else admission.body_bytes

    @property
    def _admission(self) -> Admission | None:
        """None as long as the server starts."""
        return getattr(self.server._config.loaded_app, "_admission", None)


def resident_bytes() -> int:
    """What this process, and so the server, takes now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextmanager
def serving(
    url: str = "memory:", *, access: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Served]:
    """A server with a topic `t`, until the block ends."""
    clock = Clock()
    chosen = Settings(**{"janitor_interval_s": 0, **settings})
    with (
        txaware.connect(url, settings=chosen, clock_ms=clock) as messaging,
        messaging.serve(**(access or {})) as server,
    ):
        messaging.create_topic("t")
        yield Served(messaging, server, clock)


def lines_of(served: Served) -> list[FrameConnection]:
    """The connections of frames, as the server has them."""
    found = served.server._server.server_state.connections
    return [one for one in found if isinstance(one, FrameConnection)]


@pytest.fixture
def served() -> Iterator[Served]:
    """A server over a store in memory, with short time-outs."""
    with serving() as opened:
        yield opened


@pytest.fixture
def served_disk(tmp_path: Path) -> Iterator[Served]:
    """A server over LevelDB."""
    with serving(f"leveldb:{tmp_path / 'data'}") as opened:
        yield opened
