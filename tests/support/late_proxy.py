"""A proxy before HBase's Thrift server: holds requests back, or loses answers."""

import socket
import threading
from contextlib import suppress
from typing import Self

import attrs


@attrs.define(eq=False)
class _Line:
    """A client, the server, and what of a request is held between them."""

    client: socket.socket
    server: socket.socket
    held: bytearray | None = None
    is_silent: bool = False
    whole: threading.Event = attrs.field(factory=threading.Event)
    answered: threading.Event = attrs.field(factory=threading.Event)

    def close(self) -> None:
        """Ends both sides."""
        for one in (self.client, self.server):
            _end(one)
            one.close()


class LateProxy:
    """Passes everything on. Requests are known by the name of their call.

    Of those named in `hold`, each once, the client hears nothing, and the server gets
    them when they are `release`d. Of those in `lose` the client gets no answer.
    """

    def __init__(self, port: int) -> None:
        self.hold: list[bytes] = []
        self.lose: list[bytes] = []
        self._server = ("127.0.0.1", port)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._lines: list[_Line] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for line in self._lines:
            line.close()

    def release(self) -> int:
        """The server gets what was held, and has carried it out then; how many."""
        held = [line for line in self._lines if line.held]
        for line in held:
            assert line.whole.wait(30), "the client still waits"
            line.server.sendall(line.held or b"")
            assert line.answered.wait(30), "the server did not answer"
            line.held = None
        return len(held)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                line = _Line(client, socket.create_connection(self._server))
                self._lines.append(line)
                for one in (line.client, line.server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(line,), daemon=True).start()

    def _requests(self, line: _Line) -> None:
        with suppress(OSError):
            while data := line.client.recv(1 << 16):
                if line.held is not None:
                    line.held += data
                elif _named(self.hold, data):
                    line.is_silent, line.held = True, bytearray(data)
                else:
                    line.is_silent = line.is_silent or _named(self.lose, data)
                    line.server.sendall(data)
        line.whole.set()
        if line.held is None:
            _end(line.server)

    def _answers(self, line: _Line) -> None:
        with suppress(OSError):
            while data := line.server.recv(1 << 16):
                if line.is_silent:
                    line.answered.set()
                    break
                line.client.sendall(data)
        _end(line.client)


def _named(names: list[bytes], data: bytes) -> bool:
    """Whether it is a call of one of these, which is then taken off."""
    for name in names:
        if len(name).to_bytes(4, "big") + name in data:
            names.remove(name)
            return True
    return False


def _end(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
