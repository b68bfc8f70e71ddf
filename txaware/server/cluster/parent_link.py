"""The line between a server process and its parent: signs of life, and maps.

Each message is JSON, in a packet of its own.
"""

import json
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self

import attrs

from txaware.server.cluster.server_map import ServerMap, read

# A child whose parent is gone ends with this code, for nobody to see.
ORPHANED = 9
_PACKET_BYTES = 1 << 20


def channel() -> tuple[socket.socket, socket.socket]:
    """Returns both ends of a line."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@attrs.frozen
class Sign:
    """A word of a child: that it lives, what it has once it serves, or why it failed.

    `shards` are those that it has, and `made` new ones, which are nobody's yet. `facts`
    are what home tells clients of itself. `exit_code` is that of a command that fails
    so. `epoch` is that of the map by which it serves.
    """

    shards: list[int] | None = None
    facts: dict[str, Any] | None = None
    failed: str | None = None
    exit_code: int = 1
    made: list[int] | None = None
    epoch: int | None = None

    def written(self) -> bytes:
        """Returns it as a packet."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def parse(cls, packet: bytes) -> Self:
        """Reads a packet."""
        return cls(**json.loads(packet))


class ParentLink:
    """The child's end: a thread reads maps, and says that this process lives.

    Once the process serves, its event loop says so: one that hangs is silent.
    """

    def __init__(self, channel: socket.socket, *, beat_s: float) -> None:
        self._channel = channel
        self._beat_s = beat_s
        self._lock = threading.Lock()
        self._map: ServerMap | None = None
        self._take_map: Callable[[ServerMap], None] | None = None
        self._by_loop: Callable[[Callable[[], object]], None] | None = None
        self._has_map = threading.Event()

    def start(self) -> ServerMap:
        """Begins, and returns the first map."""
        threading.Thread(target=self._run, name="txaware-parent", daemon=True).start()
        self._has_map.wait()
        assert self._map is not None
        return self._map

    def serve(
        self,
        by_loop: Callable[[Callable[[], object]], None],
        take_map: Callable[[ServerMap], None],
        sign: Sign,
    ) -> None:
        """Tells that this process serves; maps go to the server from now on."""
        with self._lock:
            self._by_loop, self._take_map = by_loop, take_map
            if self._map is not None:
                take_map(self._map)
        self.send(sign)

    def end(self) -> None:
        """Has the thread say again that this process lives: it stops serving."""
        with self._lock:
            self._by_loop = self._take_map = None

    def send(self, sign: Sign) -> None:
        """Sends a sign; the parent reads all, unless it stands still."""
        with suppress(OSError):
            self._channel.send(sign.written())

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._channel], [], [], self._beat_s)
            if ready:
                try:
                    data = self._channel.recv(_PACKET_BYTES)
                except OSError:
                    data = b""
                if not data:
                    os._exit(ORPHANED)
                self._take(read(data))
            by_loop = self._by_loop
            if by_loop is None:
                self._beat()
            else:  # behind the map in the loop
                assert self._map is not None
                by_loop(partial(self._beat, self._map.epoch))

    def _take(self, server_map: ServerMap) -> None:
        with self._lock:
            self._map = server_map
            if self._take_map is not None:
                self._take_map(server_map)
        self._has_map.set()

    def _beat(self, epoch: int | None = None) -> None:
        """Says that this process lives; a parent that stands still has enough of it."""
        with suppress(OSError):
            self._channel.send(Sign(epoch=epoch).written(), socket.MSG_DONTWAIT)
