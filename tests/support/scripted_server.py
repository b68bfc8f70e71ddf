"""A server that does what it is told with each request, and writes down what came."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Self

import attrs

INFO = {"instance": "one", "version": "1", "limits": {"longPollS": 30}}


@attrs.frozen
class Received:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


# What to do with a request. True: go on with that connection; False: close it.
Act = Callable[[socket.socket, Received], bool]


def answers(status: int = 200, body: object = b"", **headers: str) -> Act:
    """An answer; underscores in the names of headers are hyphens."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def act(connection: socket.socket, _: Received) -> bool:
        connection.sendall(_head(status, len(data), **headers) + data)
        return True

    return act


def refuses(status: int, error: str, message: str = "no", **headers: str) -> Act:
    """An error, as the server says it."""
    return answers(status, {"error": error, "message": message}, **headers)


def loses_answer(_: socket.socket, __: Received) -> bool:
    """The request arrived, and the connection ends."""
    return False


def cuts_body(connection: socket.socket, _: Received) -> bool:
    """Less comes than was announced."""
    connection.sendall(_head(200, 1000) + b"[")
    return False


def cuts_head(connection: socket.socket, _: Received) -> bool:
    """Not even the headers come as a whole."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-")
    return False


def answers_and_closes(connection: socket.socket, received: Received) -> bool:
    """An answer that does not say that the connection ends with it."""
    answers()(connection, received)
    return False


def sleeps(connection: socket.socket, _: Received) -> bool:
    """No answer, for as long as anybody waits."""
    with suppress(OSError):
        connection.recv(1)
    return False


class ScriptedServer:
    """Each request takes the next act of `script`; without one it is answered 200.

    `GET /v1/server` is answered beside the script, and so is the question for frames,
    which it does not have, unless they are `scripted` as well. A context manager.
    """

    def __init__(self, *, scripted: bool = False) -> None:
        self._scripted = scripted
        self.script: list[Act] = []
        self.instance = "one"
        self.info: dict[str, object] = dict(INFO)
        self.received: list[Received] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def lines(self) -> list[str]:
        """Methods and paths, without the questions beside the script."""
        lines = [received.line for received in self.received]
        beside = ("/v1/server", *([] if self._scripted else ["/v1/frames"]))
        return [line for line in lines if not line.endswith(beside)]

    def of(self, path: str) -> list[Received]:
        """The requests whose path ends like that."""
        return [one for one in self.received if one.path.endswith(path)]

    def close_idle(self) -> None:
        """Closes all connections, as a server does that is started anew."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Listens no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.close_idle()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(
                    target=self._serve, args=(connection,), daemon=True
                ).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file, suppress(OSError):
            while (received := _read(file)) is not None:
                self.received.append(received)
                if not self._act(received)(connection, received):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def _act(self, received: Received) -> Act:
        if received.path == "/v1/server":
            info = {**self.info, "instance": self.instance}
            return answers(200, info, Txaware_Instance=self.instance)
        if received.path.endswith("/v1/frames") and not self._scripted:
            return answers(404)
        if self.script:
            return self.script.pop(0)
        return answers(200, Txaware_Instance=self.instance)


def _head(status: int, length: int, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _read(file: BinaryIO) -> Received | None:
    lines: list[str] = []
    while line := file.readline().decode("latin-1").strip():
        lines.append(line)
    if not lines:
        return None
    method, path, _ = lines[0].split(" ")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    size = int(headers.get("content-length", "0"))
    return Received(method, path, headers, file.read(size))


class Pauses:
    """A clock that only moves by sleeping, and writes down for how long."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
