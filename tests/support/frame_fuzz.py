"""Sends a server frames that are cut, doubled, lied about and mutated, at any pace.

`python -m tests.support.frame_fuzz DIRECTORY SECONDS` does it to a server of its own,
and says what that took. What clients abandon there is over soon, and forgotten: what
grows all the same would grow for ever.
"""

import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.frame_client import RawFrames
from tests.support.killed_server import Server
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.protocol.frames import (
    AT_ONCE,
    CANCEL,
    FRAMES_PATH,
    PIECE,
    REPLY,
    REQUEST,
    FrameReader,
    Hello,
    ReplyHead,
    RequestHead,
    WrongFrame,
    credit_frame,
    frame,
    head_frame,
    hello_frame,
    read_head,
)
from txaware.protocol.verbs import NUMBERED

TOPIC = "/v1/namespaces/default/topics/t"
UPGRADE = (
    f"GET {FRAMES_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
    f"Upgrade: txaware/1\r\n\r\n"
).encode()
BODIES = (
    ("POST", f"{TOPIC}/publish", {"messages": ["a", {"utf8": "b", "key": "k"}]}),
    ("POST", f"{TOPIC}/poll", {"page": True, "limit": 3}),
    ("POST", f"{TOPIC}/poll", {"page": True, "waitMs": 20_000}),
    ("POST", "/v1/transactions", {"type": "short"}),
    ("GET", "/v1/namespaces", None),
    ("PUT", TOPIC, None),
    ("GET", FRAMES_PATH, None),
)
FIELDS: tuple[Any, ...] = (
    "default",
    "t",
    "mail",
    b"\0" * 20,
    0,
    -1,
    1 << 62,
    None,
    True,
    [],
    {},
    0.5,
)


class FrameFuzzer:
    """Opens one connection after the other; `statuses` counts what was answered."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.statuses: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self._random = random.Random(seed)
        at = urlsplit(url)
        self._at = (at.hostname, at.port)

    def connection(self) -> None:
        """One connection, as wrong as chance has it."""
        data = self._mutated(self._said())
        with socket.create_connection(self._at, 20) as line:
            line.sendall(UPGRADE)
            reader, rest = FrameReader(1 << 24), b""
            while b"\r\n\r\n" not in rest:
                rest += line.recv(1 << 16)
            assert rest.startswith(b"HTTP/1.1 101")
            rest = rest.partition(b"\r\n\r\n")[2]
            with suppress(OSError):  # it was closed meanwhile
                while data:
                    size = self._random.choice((1, 9, 100, len(data)))
                    line.sendall(data[:size])
                    data = data[size:]
                    rest = self._read(line, reader, rest, 0)
                if self._random.random() < 0.5:
                    line.shutdown(socket.SHUT_WR)
                self._read(line, reader, rest, self._random.choice((0, 0.001, 0.02)))

    def _read(
        self, line: socket.socket, reader: FrameReader, rest: bytes, wait_s: float
    ) -> bytes:
        line.settimeout(wait_s)
        with suppress(BlockingIOError, TimeoutError):
            rest += line.recv(1 << 16)
        line.settimeout(20)
        for one in reader.feed(rest):
            if one.kind == REPLY:
                head, body = read_head(ReplyHead, one.body)
                self.statuses[head.status] += 1
                if not one.stream:
                    why = json.loads(bytes(body))["message"]
                    self.reasons[why[:30]] += 1
        return b""

    def _said(self) -> list[bytes]:
        """The frames of a client that makes sense."""
        chance = self._random
        hello = Hello(
            1, credit_bytes=chance.choice((0, 10, 1 << 20)), piece_bytes=1 << 16
        )
        said = [hello_frame(hello)]
        for stream in range(1, chance.randrange(1, 12)):
            if chance.random() < 0.5:
                method, path, fields = chance.choice(BODIES)
                body = b"" if fields is None else json.dumps(fields).encode()
                head = RequestHead(0, len(body), None, None, method, path)
                head.headers = {"content-type": "application/json"}
            else:
                number = chance.randrange(len(NUMBERED) + 3)
                values = chance.choices(FIELDS, k=chance.randrange(6))
                body = msgspec.msgpack.encode(values)
                head = RequestHead(number, len(body))
            if chance.random() < 0.2:
                head.key = chance.choice(("k", "", "é", "k" * 300))
            if chance.random() < 0.1:
                head.size_bytes = chance.choice((-1, 0, len(body) + 5, 1 << 40))
            at = chance.randrange(len(body) + 1) if chance.random() < 0.3 else len(body)
            said.append(head_frame(REQUEST, stream, head, body[:at]))
            if at < len(body):
                said.append(frame(PIECE, stream, body[at:]))
            if chance.random() < 0.2:
                said.append(frame(CANCEL, stream, chance.choice((b"", AT_ONCE, b"?"))))
            if chance.random() < 0.2:
                said.append(credit_frame(stream, chance.randrange(1 << 32)))
        return said

    def _mutated(self, said: list[bytes]) -> bytes:
        chance = self._random
        for _ in range(chance.choice((0, 0, 1, 1, 3))):
            at = chance.randrange(len(said))
            match chance.randrange(6):
                case 0:
                    said.insert(chance.randrange(len(said)), said[at])
                case 1:
                    del said[at]
                    if not said:
                        return b""
                case 2:
                    said[at] = said[at][: chance.randrange(len(said[at]) + 1)]
                case 3:
                    said[at] = chance.randbytes(4) + said[at][4:]
                case 4:
                    said.insert(at, chance.randbytes(chance.randrange(40)))
                case _:
                    one = bytearray(said[at])
                    for _ in range(chance.randrange(1, 4)):
                        if one:
                            one[chance.randrange(len(one))] = chance.randrange(256)
                    said[at] = bytes(one)
        return b"".join(said)

    def is_served(self) -> float:
        """The seconds that a client which makes sense waits for its answer."""
        began_s = time.monotonic()
        with RawFrames(self.url) as client:
            assert client.answer(client.route("GET", "/ping")).body == b"OK"
        return time.monotonic() - began_s

    def __str__(self) -> str:
        ends = sum(self.reasons.values())
        return (
            f"answers {dict(sorted(self.statuses.items()))}, {ends} ends with reasons"
        )


def soon_forgotten(messaging: Messaging) -> Messaging:
    """Has transactions forgotten by the next clean-up after their end."""
    coordinator = messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    coordinator.settle_grace_s = 0.1
    return messaging


# With them a transaction that is abandoned is over after a second.
SETTINGS = Settings(transaction_timeout_s=1, janitor_interval_s=2, prune_grace_s=0.1)


def serve(directory: Path, port: int) -> None:
    """Serves until it is killed, and cleans up every two seconds."""
    address = f"leveldb:{directory}"
    with txaware.connect(address, settings=SETTINGS) as messaging:
        soon_forgotten(messaging).create_queue("mail")
        with messaging.serve(port=port) as server:
            print(server.url, flush=True)
            threading.Event().wait()


def resident_kib(pid: int) -> int:
    """The memory of a process that is not that of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (held,) = [one.split() for one in lines if one.startswith("RssAnon")]
    return int(held[1])


def main(directory: Path, seconds: float) -> None:
    """Fuzzes a process that serves, and prints what it was like each half a minute."""
    command = (sys.executable, "-m", "tests.support.frame_fuzz", "serve")
    server = Server(directory, command=command)
    try:
        seed = random.randrange(1 << 30)
        fuzzer, connections, longest_s = FrameFuzzer(server.url, seed), 0, 0.0
        print(f"seed {seed}", flush=True)
        until_s = time.monotonic() + seconds
        shown_s = 0.0
        while time.monotonic() < until_s:
            for _ in range(50):
                with suppress(WrongFrame):
                    fuzzer.connection()
            connections += 50
            longest_s = max(longest_s, fuzzer.is_served())
            assert 500 not in fuzzer.statuses, fuzzer
            if time.monotonic() > shown_s:
                shown_s = time.monotonic() + 30
                print(
                    f"{connections:,} connections, {resident_kib(server.pid):,} KiB, "
                    f"longest wait of others {longest_s:.3f} s; {fuzzer}",
                    flush=True,
                )
    finally:
        server.kill()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), float(sys.argv[2]))
