"""Readiness of a local HBase: its ports, and a test that it reads and writes."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from coordinator.errors import install_with
from txaware.errors import MissingExtra, Unavailable

HOST = "127.0.0.1"
_FILE = "ports.json"


@attrs.frozen
class Ports:
    """The ports of HBase's parts, all on 127.0.0.1."""

    zookeeper: int
    master: int
    region_server: int
    thrift: int


def kept_ports(directory: Path, wanted: Mapping[str, int]) -> Ports:
    """Chooses the ports that are `wanted`, and else those of the last start.

    A port of the last start that is in use now is replaced by a free one. Raises
    `Unavailable` if a port that is wanted is in use.
    """
    names = [field.name for field in attrs.fields(Ports)]
    names.sort(key=lambda name: name not in wanted)  # so that no other part takes them
    kept = _read(directory / _FILE)
    # All sockets are held until all are chosen, or a port might be chosen twice.
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
    """Binds that port and no other; raises `Unavailable` if it is in use."""
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
    # As Java does: otherwise the ports of a server that just ended count as in use.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found


# A table of ours: a row is written there at each start.
READY_TABLE = b"local-hbase-ready"
_FAMILY = "f"
_CONNECT_TIMEOUT_S = 2
_ANSWER_TIMEOUT_S = 20


def listens(port: int, *, host: str = HOST) -> bool:
    """Tells whether a port accepts connections."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def require_ready(thrift_port: int) -> None:
    """Reads from each region and writes a row; raises `Unavailable` if that fails."""
    happybase = _happybase()
    from thriftpy2.thrift import TException

    try:
        connection = happybase.Connection(
            HOST, thrift_port, timeout=_ANSWER_TIMEOUT_S * 1000
        )
        try:
            _read_all(connection)
            _write(connection)
        finally:
            connection.close()
    # A connection that breaks while happybase uses it is also an EOFError at times.
    except (TException, OSError, EOFError) as error:
        raise Unavailable(f"HBase is not ready: {error!r}") from error


def _read_all(connection: Any) -> None:
    next(connection.table(b"hbase:meta").scan(limit=1), None)
    for name in connection.tables():
        if connection.is_table_enabled(name):
            table = connection.table(name)
            for region in table.regions():
                next(table.scan(row_start=region["start_key"], limit=1), None)


def _write(connection: Any) -> None:
    if READY_TABLE not in connection.tables():
        connection.create_table(READY_TABLE, {_FAMILY: {"max_versions": 1}})
    connection.table(READY_TABLE).put(b"row", {f"{_FAMILY}:ready".encode(): b"yes"})


def _happybase() -> Any:
    try:
        import happybase
    except ImportError as error:
        raise MissingExtra(
            f"HBase is spoken to with the package happybase: {install_with('hbase')}"
        ) from error
    return happybase
