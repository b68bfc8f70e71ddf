"""The four ports of a local HBase: free ones, kept in its directory."""

import json
import socket
from pathlib import Path

import attrs

HOST = "127.0.0.1"
_FILE = "ports.json"


@attrs.frozen
class Ports:
    """Where its parts listen, all on 127.0.0.1."""

    zookeeper: int
    master: int
    region_server: int
    thrift: int


def kept_ports(directory: Path) -> Ports:
    """Those of its last start there, but other ones for those that are in use now."""
    names = [field.name for field in attrs.fields(Ports)]
    kept = _read(directory / _FILE)
    # All are held until all are chosen, or one might be chosen twice.
    held = [_bound(kept.get(name, 0)) for name in names]
    try:
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


def _bound(port: int) -> socket.socket:
    found = socket.socket()
    # As Java does: else the ports of a server that has just ended count as in use.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
    except OSError:
        found.bind((HOST, 0))
    return found
