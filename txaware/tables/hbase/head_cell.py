"""The cell of the head, which is changed by compare and set alone."""

from collections.abc import Callable
from typing import Any

from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import Connections, Lost
from txaware.store.hbase.head import Head
from txaware.store.hbase.schema import HEAD_KEY, META


class HeadCell:
    """The one cell that is changed by compare and set.

    HBase answers truly whether it was set, but an answer may be lost, and then the set
    may still come. So what it is now is read, and as no two heads are the same, that
    says it all; and a set that is still on its way compares with what has been.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._table = connections.address.table(META)

    def read(self) -> Head | None:
        """The head as it stands."""
        return self._connections.repeat(self._get)

    def move(self, old: Head | None, new: Head) -> Head | None:
        """Sets it to `new` where it is `old`; answers what it was found to be.

        Raises `Unavailable` where that cannot be found out: it may be set later.
        """
        try:
            if self._connections.once(self._set(old, new)):
                return new
        except Lost:
            pass

        def settle(client: Any) -> Head | None:
            return new if self._set(old, new)(client) else self._get(client)

        return self._connections.repeat(settle)

    def _get(self, client: Any) -> Head | None:
        found = client.getRow(self._table, HEAD_KEY, {})
        return Head.from_bytes(found[0].columns[WHOLE].value) if found else None

    def _set(self, old: Head | None, new: Head) -> Callable[[Any], bool]:
        def check_and_put(client: Any) -> bool:
            return bool(
                client.checkAndPut(
                    self._table,
                    HEAD_KEY,
                    WHOLE,
                    None if old is None else old.to_bytes(),
                    self._connections.structs.Mutation(
                        column=WHOLE, value=new.to_bytes()
                    ),
                    {},
                )
            )

        return check_and_put
