"""The client of a JVM: what it leaves behind where the JVM does not answer."""

import socket
from typing import Any

import pytest

from coordinator.errors import Unavailable
from coordinator.java.py4j_client import Py4JClient


def test_a_connection_that_gets_no_answer_at_its_opening_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = Py4JClient(port, "token", answer_timeout_s=0.05)
        with pytest.raises(Unavailable) as raised:
            client.send_command("c\n")
        accepted, _ = silent.accept()
        with accepted:
            accepted.settimeout(5)
            assert accepted.recv(100) == b"A\ntoken\n"
            assert accepted.recv(100) == b"", raised.value


class ClosedMeanwhile:
    """A connection whose client is closed by another thread while it asks."""

    def __init__(self, client: Py4JClient) -> None:
        self._client = client
        self.is_closed = False

    def ask(self, *_: object) -> str:
        self._client.close()
        return "yv"

    def close(self) -> None:
        self.is_closed = True


def test_a_connection_in_use_at_a_close_is_closed_too() -> None:
    client = Py4JClient(1, "token", answer_timeout_s=1)
    connection: Any = ClosedMeanwhile(client)
    client._idle.append(connection)
    assert client.send_command("c\n") == "yv"
    assert connection.is_closed
