"""A proxy that breaks and delays connections, and doubles and reorders requests.

A connection breaks before a request arrives, or before its answer. Requests come by
HTTP or in frames.
"""

import random
import re
import select
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from txaware.protocol.frames import (
    HELLO,
    PROTOCOL,
    REPLY,
    REQUEST,
    FrameReader,
    RequestHead,
    WrongFrame,
    frame,
    read_head,
)

_HEAD_ENDS = b"\r\n\r\n"
_UPGRADE = f"Upgrade: {PROTOCOL}".encode()
_DELAYS_S = (0.01, 0.2)
# A request is held back for so long where no other one comes behind it.
_HELD_S = 0.05


class LossyProxy:
    """One in `one_in` pieces that pass, in either direction, is lost with its line.

    One in `double_one_in` requests is delivered once more, a moment later and on
    another connection; nobody hears what is answered then. One in `delay_one_in` pieces
    waits, and one in `swap_one_in` requests in frames comes after the next one. A
    context manager; 0 does none of it. What is delivered once more goes to `again_url`,
    where the server lives that is there later.
    """

    def __init__(
        self,
        url: str,
        *,
        seed: int,
        one_in: int,
        double_one_in: int = 0,
        delay_one_in: int = 0,
        swap_one_in: int = 0,
        again_url: str | None = None,
    ) -> None:
        parts, later = urlsplit(url), urlsplit(again_url or url)
        self.one_in, self.double_one_in = one_in, double_one_in
        self.delay_one_in, self.swap_one_in = delay_one_in, swap_one_in
        self.seed, self.lost, self.doubled, self.answered_again = seed, 0, 0, 0
        self.swapped = self.swallowed = 0
        self._server = (parts.hostname, parts.port)
        self._later_server = (later.hostname, later.port)
        self._random = random.Random(seed)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def silence(self) -> None:
        """From now on no answer passes on a line that is open; it stays open."""
        self._silent.update(self._open)

    def close(self) -> None:
        """Ends all connections."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for line in self._open:
            _end(line)
            line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # nobody is there now
                    client.close()
                    continue
                self._open = [one for one in self._open if one.fileno() >= 0]
                self._open += (client, server)
                for line in (client, server):
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                both = threading.Barrier(2)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_all, args=(source, target, both), daemon=True
                    ).start()

    def _double(self, requests: list[bytes]) -> None:
        """Delivers some of the requests again, each in a thread."""
        for data in requests:
            if self.double_one_in and not self._random.randrange(self.double_one_in):
                self.doubled += 1
                threading.Thread(target=self._again, args=(data,), daemon=True).start()

    def _again(self, data: bytes) -> None:
        time.sleep(self._random.choice([0, *_DELAYS_S]))
        with (
            suppress(OSError),
            socket.create_connection(self._later_server, timeout=10) as line,
        ):
            line.sendall(data)
            if _UPGRADE in data:
                _await_reply(line)
            elif not line.recv(1 << 16):
                return
            self.answered_again += 1

    def _pass_all(
        self, source: socket.socket, target: socket.socket, both: threading.Barrier
    ) -> None:
        """Passes all of one direction on, and closes where it came from."""
        try:
            self._pass_on(source, target)
        finally:
            both.wait()  # the other direction no longer writes to it
            source.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        passing, held = _Passing(), b""
        with suppress(OSError):
            asks = target.getpeername()[1] == self._server[1]
            swaps = self.swap_one_in and asks
            while True:
                if held and not select.select([source], [], [], _HELD_S)[0]:
                    target.sendall(held)  # nothing comes behind it
                    held = b""
                data = source.recv(1 << 16)
                if not data:
                    break
                if source in self._silent and not asks:
                    self.swallowed += 1
                    continue
                if self.one_in and self._random.randrange(self.one_in) == 0:
                    self.lost += 1
                    break
                if self.delay_one_in and not self._random.randrange(self.delay_one_in):
                    time.sleep(self._random.choice(_DELAYS_S))
                pieces, requests = passing.pieces(data)
                if swaps:
                    held, pieces = self._swapped(held, pieces)
                    data = b"".join(one.data for one in pieces)
                target.sendall(data)
                self._double(requests)
            target.sendall(held)
        _end(source)
        _end(target)

    def _swapped(
        self, held: bytes, pieces: list["_Piece"]
    ) -> tuple[bytes, list["_Piece"]]:
        """Returns what is held back from now on, and what passes instead."""
        passed = []
        for one in pieces:
            if held:
                is_behind = one.is_request
                passed += [one, _Piece(held)] if is_behind else [_Piece(held), one]
                self.swapped += is_behind
                held = b""
            elif one.is_request and not self._random.randrange(self.swap_one_in):
                held = one.data
            else:
                passed.append(one)
        return held, passed


class _Piece(NamedTuple):
    """Bytes that pass; a request in one frame may change places with another one."""

    data: bytes
    is_request: bool = False


class _Passing:
    """What passes in one direction of a connection, as far as it is requests."""

    def __init__(self) -> None:
        self._greeting = b""  # the upgrade and the HELLO of one that has frames
        self._reader: FrameReader | None = None

    def pieces(self, data: bytes) -> tuple[list[_Piece], list[bytes]]:
        """Returns what has come as a whole by now, and the bytes that ask each whole
        request of it once more."""
        if self._reader is not None:
            try:
                return self._framed(self._reader, data)
            except WrongFrame:  # the upgrade was not granted
                self._reader = None
        head, found, body = data.partition(_HEAD_ENDS)
        if found and _UPGRADE in head:
            self._greeting, self._reader = head + found, FrameReader()
            pieces, requests = self._framed(self._reader, body)
            return [_Piece(self._greeting), *pieces], requests
        length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
        is_whole = found and length is not None and int(length[1]) == len(body)
        requests = [data] if is_whole and head.startswith(b"P") else []
        return [_Piece(data)], requests

    def _framed(
        self, reader: FrameReader, data: bytes
    ) -> tuple[list[_Piece], list[bytes]]:
        pieces, requests = [], []
        for one in reader.feed(data):
            passed = _Piece(frame(one.kind, one.stream, one.body))
            if one.kind == HELLO:
                self._greeting += passed.data
            elif one.kind == REQUEST:
                head, body = read_head(RequestHead, one.body)
                if head.size_bytes == len(body):
                    passed = _Piece(passed.data, is_request=True)
                    requests.append(self._greeting + passed.data)
            pieces.append(passed)
        return pieces, requests


def _await_reply(line: socket.socket) -> None:
    """Returns once an answer in a frame has come; `OSError` where none comes."""
    reader, data = FrameReader(), b""
    while _HEAD_ENDS not in data:
        data += _received(line)
    data = data.partition(_HEAD_ENDS)[2]
    while not any(one.kind == REPLY for one in reader.feed(data)):
        data = _received(line)


def _received(line: socket.socket) -> bytes:
    data = line.recv(1 << 16)
    if not data:
        raise OSError("the connection ended")
    return data


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
