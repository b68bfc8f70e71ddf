"""Counts connections, all of them and those of each address, and keeps a few aside."""

import logging
import resource
from collections import Counter, OrderedDict
from typing import Protocol

from txaware.model.settings import Settings

log = logging.getLogger(__name__)

# Files that are no connections: of the data, of logs, of the program.
KEPT_FILES = 128
# The most connections beyond the limits, until it is known what they ask for.
RESERVED = 100
# The paths that tell how the server is: answered however busy it is.
VITAL = ("/ping", "/health")


def is_vital(method: str, path: str) -> bool:
    """Tells whether a request asks how the server is."""
    return path in VITAL and method in ("GET", "HEAD")


class CountedConnection(Protocol):
    """A connection, as far as it is counted."""

    @property
    def address(self) -> str | None:
        """The address of the other end."""

    def make_room(self) -> None:
        """Ends the connection: it is beyond the limits, silent, and others came."""


class ConnectionLimits:
    """Lets connections in while there is room; of one event loop only.

    Connections beyond it are in reserve: they may ask how the server is, once. A
    program that watches a server is answered however many connections there are: of
    those in reserve that have said nothing, the oldest makes room for the newest. There
    are never more than files may be open, as nobody could be let in then, to say what
    it wants.
    """

    def __init__(self, settings: Settings, *, most_files: int | None = None) -> None:
        if most_files is None:
            most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = max(most_files - KEPT_FILES, 2)
        self._most = min(settings.server_connections, max(room - RESERVED, room // 2))
        # Beyond it nobody is told anything, or nobody could be let in at all.
        self.most_at_all = min(2 * (settings.server_connections + RESERVED), room)
        self._reserved = min(RESERVED, max((self.most_at_all - self._most) // 2, 1))
        if self._most < settings.server_connections:
            log.info(
                "at most %d connections, as this process may have %d files open; "
                "ulimit -n, or LimitNOFILE= of systemd, says how many",
                self._most,
                most_files,
            )
        # Rounded up, so that few connections are for everybody.
        self._most_of_one = settings.address_connections or -(-self._most * 9 // 10)
        self._inside: set[CountedConnection] = set()
        self._by_address: Counter[str | None] = Counter()
        self._silent: OrderedDict[CountedConnection, None] = OrderedDict()

    def enter(self, connection: CountedConnection) -> str | None:
        """Counts a connection, or says why it is in reserve."""
        of_its_address = self._by_address[connection.address]
        if len(self._inside) >= self._most:
            why = f"there are {self._most:,} connections, as many as there may be"
        elif of_its_address >= self._most_of_one:
            why = (
                f"{connection.address} has {of_its_address:,} connections, as many as "
                f"one address may have"
            )
        else:
            self._inside.add(connection)
            self._by_address[connection.address] += 1
            return None
        self._silent[connection] = None
        if len(self._silent) > self._reserved:
            oldest, _ = self._silent.popitem(last=False)
            oldest.make_room()
        return why

    def asks(self, connection: CountedConnection) -> None:
        """Notes that a connection in reserve has spoken: it need not make room."""
        self._silent.pop(connection, None)

    def leave(self, connection: CountedConnection) -> None:
        """Counts a connection no more: it has ended."""
        self._silent.pop(connection, None)
        if connection not in self._inside:
            return
        self._inside.discard(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
