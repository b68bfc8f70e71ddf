"""Crowds of connections of frames: idle ones, and hostile ones; what others notice."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import txaware
from tests.support.cli_runs import Serving, serving
from tests.support.frame_client import RawFrames
from txaware.messaging import Messaging
from txaware.protocol.frames import (
    CANCEL,
    PIECE,
    REQUEST,
    Hello,
    RequestHead,
    frame,
    head_frame,
    hello_frame,
)

POLL = "/v1/namespaces/default/topics/t/poll"
MIB = 1 << 20
CROWD, HOSTILE = 10_000, 448
MOST_OF_HOSTILE_BYTES = 128 * MIB
# With 448 hostile connections; in practice a few ms.
MOST_WAIT_S = 1.0
MOST_BYTES_EACH = 20_000


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def resident_bytes(server: Serving) -> int:
    """The memory that a process has now."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def create(server: Serving, *payloads: bytes) -> None:
    """Creates a topic with these messages."""
    with txaware.connect(server.url) as messaging:
        messaging.create_topic("t")
        for payload in payloads:
            messaging.publish("t", [payload])


def waited_s(url: str) -> float:
    """The longest of some waits of a client that makes sense."""
    waits = []
    with txaware.connect(url) as messaging:
        for _ in range(20):
            began_s = time.monotonic()
            messaging.topic("t")
            waits.append(time.monotonic() - began_s)
    return max(waits)


@pytest.mark.soak
@pytest.mark.usefixtures("in_directory")
def test_ten_thousand_idle_connections_are_held() -> None:
    many = {"SERVER_CONNECTIONS": "12000", "ADDRESS_CONNECTIONS": "11000"}
    env = {f"TXAWARE_{name}": value for name, value in many.items()}
    with serving(env=env) as server, ExitStack() as crowd:
        create(server)
        before = resident_bytes(server)
        for _ in range(CROWD):
            crowd.enter_context(RawFrames(server.url))
        each = (resident_bytes(server) - before) / CROWD
        wait_s = waited_s(server.url)
        print(f"{CROWD:,} idle connections: {each:,.0f} bytes each, {wait_s:.3f} s")
        assert each < MOST_BYTES_EACH
        assert wait_s < MOST_WAIT_S


def says_no_hello(line: socket.socket) -> None:
    """Sends half a HELLO."""
    line.sendall(hello_frame(Hello(1))[:5])


def begins_large_frames(line: socket.socket) -> None:
    """Sends nearly all of the largest frame that there is."""
    line.sendall(hello_frame(Hello(1)) + b"\x00\x01\xea\x00" + bytes(120_000))


def begins_large_bodies(line: socket.socket) -> None:
    """Announces as many large bodies as it may, and sends a part of each."""
    line.sendall(hello_frame(Hello(1)))
    for stream in range(1, 40):
        head = RequestHead(0, 8 * MIB, None, None, "POST", POLL)
        line.sendall(head_frame(REQUEST, stream, head, bytes(60_000)))


def reads_nothing(line: socket.socket) -> None:
    """Asks for large pages, and gives credit for all of them."""
    line.sendall(hello_frame(Hello(1, credit_bytes=1 << 30)))
    for stream in range(1, 40):
        head = RequestHead(0, 14, None, None, "POST", POLL)
        line.sendall(head_frame(REQUEST, stream, head, b'{"page": true}'))


def waits_for_ever(line: socket.socket) -> None:
    """Has as many requests wait as it may."""
    line.sendall(hello_frame(Hello(1)))
    body = b'{"page": true, "startFrom": "' + b"f" * 40 + b'", "waitMs": 30000}'
    for stream in range(1, 30):
        head = RequestHead(0, len(body), None, None, "POST", POLL)
        line.sendall(head_frame(REQUEST, stream, head, body))


def sends_tiny_pieces(line: socket.socket) -> None:
    """Sends a large body byte by byte, and pieces with nothing between them."""
    head = RequestHead(0, 8 * MIB, None, None, "POST", POLL)
    line.sendall(hello_frame(Hello(1)) + head_frame(REQUEST, 1, head, b""))
    for _ in range(100):
        line.sendall((frame(PIECE, 1, b" ") + frame(PIECE, 1)) * 1000)


def asks_small_things(line: socket.socket) -> None:
    """Asks for answers of two bytes, and reads none."""
    line.sendall(hello_frame(Hello(1)))
    head = RequestHead(0, 0, None, None, "GET", "/ping")
    for turn in range(50):
        asked = range(turn * 1000 + 1, turn * 1000 + 1001)
        line.sendall(b"".join(head_frame(REQUEST, one, head, b"") for one in asked))


def cancels_what_is_not_there(line: socket.socket) -> None:
    """Sends the smallest frames that there are, as fast as they are taken."""
    line.sendall(hello_frame(Hello(1)))
    for _ in range(50):
        line.sendall(frame(CANCEL, 7) * 1000)


HOSTILITIES = (
    says_no_hello,
    begins_large_frames,
    begins_large_bodies,
    reads_nothing,
    waits_for_ever,
    sends_tiny_pieces,
    asks_small_things,
    cancels_what_is_not_there,
)


def hostile(url: str) -> Iterator[socket.socket]:
    """Connections that ask for frames, and are hostile each in its way."""
    for number in range(HOSTILE):
        at = urlsplit(url)
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect((at.hostname, at.port))
        line.sendall(
            b"GET /v1/frames HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
            b"Upgrade: txaware/1\r\n\r\n"
        )
        line.settimeout(0.2)
        with suppress(OSError):
            HOSTILITIES[number % len(HOSTILITIES)](line)
        yield line


@pytest.mark.soak
@pytest.mark.usefixtures("in_directory")
def test_hostile_connections_cost_little_and_delay_nobody() -> None:
    with serving() as server, ExitStack() as crowd:
        create(server, *[bytes(MIB)] * 8)
        before, most, waits = resident_bytes(server), 0, list[float]()
        for number, line in enumerate(hostile(server.url)):
            crowd.callback(line.close)
            if number % 32 == 0:
                most = max(most, resident_bytes(server))
                waits.append(waited_s(server.url))
        for _ in range(20):
            most = max(most, resident_bytes(server))
            waits.append(waited_s(server.url))
        held = most - before
        print(
            f"{HOSTILE} hostile connections: {held / MIB:.0f} MiB at most, others "
            f"waited {max(waits):.3f} s at most"
        )
        assert held < MOST_OF_HOSTILE_BYTES
        assert max(waits) < MOST_WAIT_S


@pytest.mark.soak
@pytest.mark.usefixtures("in_directory")
def test_large_polls_delay_a_begin_by_little() -> None:
    """10,000 messages of 1 MiB being polled on another stream of the connection."""
    with serving() as server:
        create(server, *[bytes(MIB)] * 200)
        waits = []
        with (
            txaware.connect(server.url) as messaging,
            ThreadPoolExecutor(1) as threads,
        ):
            polled = threads.submit(poll_all, messaging, 10_000)
            while not polled.done():
                began_s = time.monotonic()
                tx = messaging.coordinator.start_short()
                waits.append(time.monotonic() - began_s)
                messaging.coordinator.abort(tx)
                time.sleep(0.005)
            assert polled.result() >= 10_000
        waits.sort()
        print(
            f"{len(waits):,} begins beside polls: p50 "
            f"{waits[len(waits) // 2] * 1e3:.1f} ms, at most {waits[-1] * 1e3:.1f} ms"
        )
        assert waits[len(waits) * 99 // 100] < 0.05


def poll_all(messaging: Messaging, messages: int) -> int:
    """Polls a topic again and again until so many messages came."""
    count = 0
    while count < messages:
        start = None
        while page := messaging.poll("t", start=start, inclusive=False, limit=100):
            count += len(page)
            start = page.next
    return count
