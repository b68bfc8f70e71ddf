"""Ports of this machine that nobody listens at."""

import secrets
import socket


def free_port() -> int:
    """Below those that the system gives to clients: one that connects while nobody
    listens could be given the port itself, and would speak to itself."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def free_ports(count: int) -> list[int]:
    """So many of them, of which none is another."""
    found = dict[int, None]()
    while len(found) < count:
        found[free_port()] = None
    return [*found]
