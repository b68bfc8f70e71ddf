"""Opens the coordinator that an address names."""

import re
from pathlib import Path

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import BadRequest
from coordinator.interfaces import Coordinator
from coordinator.tephra import TephraCoordinator, ThriftCoordinator

# The addresses of coordinators that run elsewhere, for a sentence.
ELSEWHERE = "tephra:DIR, tephra://HOST:PORT, tephra+zk://HOSTS"
_HOST_AND_PORT = re.compile(r"(?P<host>[^/:]+|\[[^\]/]+\]):(?P<port>[0-9]{1,5})")


def open_coordinator(address: str, *, answer_timeout_s: float = 30) -> Coordinator:
    """Opens the coordinator at an address; the caller closes it.

    A coordinator that runs elsewhere raises `Unavailable` when it does not answer
    within `answer_timeout_s`.

    `embedded` lives in memory. `tephra:DIR` is a Tephra in a JVM of its own.
    `tephra://HOST:PORT` is a Tephra that runs elsewhere, called by its Thrift service.
    `tephra+zk://HOSTS` is a Tephra whose address ZooKeeper knows.
    """
    scheme, _, rest = address.partition(":")
    if address == "embedded":
        return EmbeddedCoordinator()
    if scheme == "tephra" and rest.startswith("//"):
        host, port = _host_and_port(address, rest[2:])
        return ThriftCoordinator(host, port, answer_timeout_s=answer_timeout_s)
    if scheme == "tephra+zk" and rest.startswith("//") and rest != "//":
        return ThriftCoordinator.discover(rest[2:], answer_timeout_s=answer_timeout_s)
    if scheme == "tephra" and rest:
        return TephraCoordinator(rest)
    raise BadRequest(
        f"{address!r} names no coordinator; use embedded, {ELSEWHERE} or "
        f"http://HOST:PORT"
    )


def whole_address(address: str) -> str:
    """Returns an address that means the same in any directory of this machine."""
    scheme, _, rest = address.partition(":")
    if scheme == "tephra" and not rest.startswith("//"):
        return f"tephra:{Path(rest).absolute()}"
    return address


def _host_and_port(address: str, text: str) -> tuple[str, int]:
    found = _HOST_AND_PORT.fullmatch(text.removesuffix("/"))
    if found is None:
        raise BadRequest(f"{address!r} is not tephra://HOST:PORT")
    return found["host"].strip("[]"), int(found["port"])
