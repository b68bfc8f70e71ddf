"""The lines between the servers of one machine, each of which is cut by itself.

Servers listen at 127.0.0.1, and tell each other 127.0.0.2 (`advertise`), where a proxy
is at the same port. Who asks is known by the seal of a server; clients are never cut.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

import attrs

HERE, ADVERTISED = "127.0.0.1", "127.0.0.2"
_ASKS = re.compile(rb"(?i)\r\ntxaware-server: *([^ \r]+) ")


@attrs.frozen
class Way:
    """One direction between two servers: who sends, and who is to hear it."""

    source: str
    target: str


class ServerCuts:
    """Proxies before servers, by their ids and ports; a context manager.

    What is sent while its way is cut comes late, once that is healed, as TCP does it.
    """

    def __init__(self, ports: dict[str, int]) -> None:
        self._changed = threading.Condition()
        self._cut: set[Way] = set()
        self._breaks: set[Way] = set()
        self.broken = 0  # how many connections have ended within a frame
        self._is_over = False
        self._lines: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._doors = [
            (server, socket.create_server((ADVERTISED, port), backlog=128))
            for server, port in ports.items()
        ]
        for server, door in self._doors:
            self._start(self._accept, server, door)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all lines, and listens no more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for _, door in self._doors:
            _end(door)
        while self._threads:
            with self._changed:
                for line in self._lines:
                    _end(line)
            self._threads.pop().join()
        for _, door in self._doors:
            door.close()

    def cut(self, *ways: Way) -> None:
        """Lets nothing through from now on."""
        with self._changed:
            self._cut |= {*ways}

    def cut_within_a_frame(self, way: Way) -> None:
        """Ends the connection of the next that is sent there, after half of it."""
        with self._changed:
            self._breaks.add(way)

    def heal(self) -> None:
        """Lets everything through, what was held back first."""
        with self._changed:
            self._cut.clear()
            self._breaks.clear()
            self._changed.notify_all()

    def _start(self, act: Callable[..., object], *args: object) -> threading.Thread:
        thread = threading.Thread(target=act, args=args, daemon=True)
        with self._changed:
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()
        return thread

    def _accept(self, target: str, door: socket.socket) -> None:
        port = door.getsockname()[1]
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                self._start(self._begin, client, target, port)

    def _begin(self, client: socket.socket, target: str, port: int) -> None:
        """Reads who asks, and passes both directions on."""
        with self._open(client), suppress(OSError):
            first = client.recv(1 << 16)
            asks = _ASKS.search(first)
            source = asks[1].decode() if asks else ""
            there, back = Way(source, target), Way(target, source)
            if not self._passes(there):
                return
            with socket.create_connection((HERE, port)) as server, self._open(server):
                backwards = self._start(self._pass_on, server, client, back)
                with suppress(OSError):
                    self._pass(first, server, there)
                    self._pass_on(client, server, there)
                _end(server)
                backwards.join()

    @contextmanager
    def _open(self, line: socket.socket) -> Iterator[None]:
        with self._changed:
            self._lines.add(line)
            if self._is_over:
                _end(line)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            yield
        finally:
            with self._changed:
                self._lines.discard(line)
                line.close()

    def _pass_on(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._pass(data, target, way)
        _end(source)
        _end(target)

    def _pass(self, data: bytes, target: socket.socket, way: Way) -> None:
        """Passes a piece on once that way is open; `OSError` where it breaks there."""
        if not self._passes(way):
            raise OSError("it is over")
        with self._changed:
            is_broken = way in self._breaks
            self._breaks.discard(way)
            self.broken += is_broken
        if is_broken:
            target.sendall(data[: len(data) // 2])
            raise OSError("cut within a frame")
        target.sendall(data)

    def _passes(self, way: Way) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or way not in self._cut)
            return not self._is_over


def strike(
    cuts: ServerCuts,
    fault: str,
    there: Sequence[Way],
    back: Sequence[Way],
    cut_s: float,
) -> None:
    """Cuts the lines between two servers for so long, as a fault of these names does.

    "cut one way" leaves the way back open; "cut within a frame" ends connections.
    """
    if "within a frame" in fault:
        for way in (*there, *back):
            cuts.cut_within_a_frame(way)
    else:
        cuts.cut(*there, *(() if "one way" in fault else back))
    time.sleep(cut_s)
    cuts.heal()


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
