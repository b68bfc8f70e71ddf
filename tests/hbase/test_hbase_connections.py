"""Connections to HBase's Thrift server: how many are open, and for how long."""

import threading
from typing import Any

import pytest

from tests.support.hbase_owners import ADDRESS
from txaware.store.hbase.connections import IDLE_S, HBaseConnections

THREADS = 50


class Server:
    """Counts the connections to it; its clock is that of whoever connects."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.open = 0
        self._lock = threading.Lock()

    def connections(self) -> HBaseConnections:
        """A pool of connections to here."""
        return HBaseConnections(
            ADDRESS, connect=self._connect, clock_s=lambda: self.now_s
        )

    def _connect(self, *_: object, **__: object) -> "Connection":
        self.count(1)
        return Connection(self)

    def count(self, more: int) -> None:
        """So many more are open."""
        with self._lock:
            self.open += more


class Connection:
    """One that is open until it is closed, once."""

    client = None

    def __init__(self, server: Server) -> None:
        self._server = server

    def close(self) -> None:
        self._server.count(-1)


@pytest.fixture
def server() -> Server:
    return Server()


def burst(connections: HBaseConnections) -> None:
    """As many calls at once as there are threads."""
    together = threading.Barrier(THREADS)
    threads = [
        threading.Thread(target=connections.repeat, args=(lambda _: together.wait(),))
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def call(connections: HBaseConnections) -> None:
    def answer(_: Any) -> int:
        return 1

    assert connections.repeat(answer) == 1


def test_after_a_burst_connections_that_nobody_uses_are_closed(server: Server) -> None:
    connections = server.connections()
    burst(connections)
    assert server.open == THREADS
    while server.now_s < IDLE_S:
        call(connections)
        server.now_s += 1
    call(connections)
    assert server.open == 1
    connections.close()
    assert server.open == 0


def test_after_a_pause_a_new_connection_takes_the_place_of_all(server: Server) -> None:
    connections = server.connections()
    burst(connections)
    server.now_s += IDLE_S
    call(connections)
    assert server.open == 1
    connections.close()


def test_a_long_call_closes_what_was_idle_meanwhile(server: Server) -> None:
    connections = server.connections()
    burst(connections)

    def long(_: Any) -> None:
        server.now_s += IDLE_S

    connections.repeat(long)
    assert server.open == 1
    connections.close()


def test_a_connection_that_is_given_back_after_the_end_is_closed(
    server: Server,
) -> None:
    connections = server.connections()
    burst(connections)
    connections.repeat(lambda _: connections.close())
    assert server.open == 0
