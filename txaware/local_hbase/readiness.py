"""Whether HBase reads and writes yet, asked through its Thrift server."""

import socket
from typing import Any

from coordinator.errors import install_with
from txaware.errors import MissingExtra, Unavailable
from txaware.local_hbase.ports import HOST

# A table of ours: a row is written there at each start.
READY_TABLE = b"local-hbase-ready"
_FAMILY = "f"
_CONNECT_TIMEOUT_S = 2
_ANSWER_TIMEOUT_S = 20


def listens(port: int, *, host: str = HOST) -> bool:
    """Whether someone accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def require_ready(thrift_port: int) -> None:
    """Reads all regions of all tables and writes a row; else raises `Unavailable`."""
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
