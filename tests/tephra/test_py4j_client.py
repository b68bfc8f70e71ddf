"""The client of a JVM: what it leaves behind where the JVM does not answer."""

import socket

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
