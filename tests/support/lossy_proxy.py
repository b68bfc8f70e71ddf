"""A proxy that breaks connections, and delivers requests twice.

A connection breaks before a request arrives, or before its answer.
"""

import random
import re
import socket
import threading
import time
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class LossyProxy:
    """One in `one_in` pieces that pass, in either direction, is lost with its line.

    One in `double_one_in` requests is delivered once more, a moment later; nobody hears
    what is answered then. A context manager; 0 loses, or doubles, nothing.
    """

    def __init__(
        self, url: str, *, seed: int, one_in: int, double_one_in: int = 0
    ) -> None:
        parts = urlsplit(url)
        self.one_in, self.double_one_in = one_in, double_one_in
        self.seed, self.lost, self.doubled = seed, 0, 0
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
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # nobody is there now
                    client.close()
                    continue
                self._open = [one for one in self._open if one.fileno() >= 0]
                self._open += (client, server)
                for line in (client, server):
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target), daemon=True
                    ).start()

    def _double(self, data: bytes) -> None:
        """Delivers a request again, in a thread, if all of it is here."""
        if not self.double_one_in or self._random.randrange(self.double_one_in):
            return
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
        if found and head.startswith(b"P") and length and int(length[1]) == len(body):
            self.doubled += 1
            threading.Thread(target=self._again, args=(data,), daemon=True).start()

    def _again(self, data: bytes) -> None:
        time.sleep(self._random.choice([0, 0.01, 0.2]))
        with (
            suppress(OSError),
            socket.create_connection(self._server, timeout=10) as line,
        ):
            line.sendall(data)
            line.recv(1 << 16)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.one_in and self._random.randrange(self.one_in) == 0:
                    self.lost += 1
                    break
                target.sendall(data)
                self._double(data)
        _end(source)
        _end(target)


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
