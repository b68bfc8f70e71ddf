"""A proxy that breaks connections: before a request arrives, or before its answer."""

import random
import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class LossyProxy:
    """One in `one_in` pieces that pass, in either direction, is lost with its line.

    A context manager; `one_in = 0` loses nothing.
    """

    def __init__(self, url: str, *, seed: int, one_in: int) -> None:
        parts = urlsplit(url)
        self.one_in = one_in
        self.lost = 0
        self._server = (parts.hostname, parts.port)
        self._random = random.Random(seed)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

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
                server = socket.create_connection(self._server)
                self._open += (client, server)
                for line in (client, server):
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.one_in and self._random.randrange(self.one_in) == 0:
                    self.lost += 1
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
