"""The four ports of a local HBase: free ones, kept in its directory."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import attrs

from txaware.errors import Unavailable

HOST = "127.0.0.1"
_FILE = "ports.json"


@attrs.frozen
class Ports:
    """Where its parts listen, all on 127.0.0.1."""

    zookeeper: int
    master: int
    region_server: int
    thrift: int


def kept_ports(directory: Path, wanted: Mapping[str, int]) -> Ports:
    """Those that are `wanted`, and else those of its last start there.

    One of the latter that is in use now is another one then. Raises `Unavailable` where
    one that is wanted is in use.
    """
    names = [field.name for field in attrs.fields(Ports)]
    names.sort(key=lambda name: name not in wanted)  # nobody takes those before
    kept = _read(directory / _FILE)
    # All are held until all are chosen, or one might be chosen twice.
    held: list[socket.socket] = []
    try:
        for name in names:
            port = wanted.get(name)
            held.append(_bound(kept.get(name, 0)) if port is None else _taken(port))
        chosen = [each.getsockname()[1] for each in held]
        ports = Ports(**dict(zip(names, chosen, strict=True)))
    finally:
        for each in held:
            each.close()
    (directory / _FILE).write_text(json.dumps(attrs.asdict(ports)))
    return ports


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # the first start, or it was cut off
        return {}
    return found if isinstance(found, dict) else {}


def _taken(port: int) -> socket.socket:
    """That port and no other."""
    found = _socket()
    try:
        found.bind((HOST, port))
    except OSError as error:
        found.close()
        raise Unavailable(
            f"port {port} of {HOST} cannot be had: {error.strerror}; name another one, "
            f"or none, and a free one is taken"
        ) from error
    return found


def _bound(port: int) -> socket.socket:
    found = _socket()
    try:
        found.bind((HOST, port))
    except OSError:
        found.bind((HOST, 0))
    return found


def _socket() -> socket.socket:
    found = socket.socket()
    # As Java does: else the ports of a server that has just ended count as in use.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found
