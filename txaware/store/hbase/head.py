"""The head: one cell that names the owner of the store, and its last batch."""

import struct
from collections.abc import Callable
from typing import Any, Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import ConnectionLost, HBaseConnections
from txaware.store.hbase.schema import HEAD_KEY, META

OWNER_BYTES = 8
NOBODY = bytes(OWNER_BYTES)
_FORMAT = 1
_FIXED = struct.Struct(f">B{OWNER_BYTES}sQQQ{OWNER_BYTES}sII")


@attrs.frozen
class StoreHead:
    """The value of the head, changed only by compare and set, never to the same bytes.

    `turn` rises with each change. So a change that comes late, after its answer was
    given up, compares with an old value and fails. `batch` is the number of the last
    batch, and `time_ms` the timestamp of its rows. The redo record is in `inline`, or
    in `pieces` rows of the owner `logged_by`; `crc` is that of the whole record.
    """

    owner: bytes = NOBODY
    turn: int = 0
    batch: int = 0
    time_ms: int = 0
    logged_by: bytes = NOBODY
    pieces: int = 0
    crc: int = 0
    inline: bytes = b""

    def to_bytes(self) -> bytes:
        """Writes the value of the cell."""
        fixed = _FIXED.pack(
            _FORMAT,
            self.owner,
            self.turn,
            self.batch,
            self.time_ms,
            self.logged_by,
            self.pieces,
            self.crc,
        )
        return fixed + self.inline

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads the value of the cell."""
        try:
            known, *fields = _FIXED.unpack_from(data)
        except struct.error as error:
            raise StoreCorrupted(f"the head has {len(data)} bytes") from error
        if known != _FORMAT:
            raise StoreCorrupted(
                f"the head has the format {known}, and {_FORMAT} is ours"
            )
        return attrs.evolve(cls(*fields), inline=data[_FIXED.size :])

    def follow(self, **changes: Any) -> Self:
        """Makes the next head, with the same last batch unless another is named."""
        return attrs.evolve(self, turn=self.turn + 1, **changes)

    def with_record(
        self,
        *,
        crc: int,
        inline: bytes = b"",
        logged_by: bytes = NOBODY,
        pieces: int = 0,
    ) -> Self:
        """Makes the same head with another place of its redo record."""
        return attrs.evolve(
            self, crc=crc, inline=inline, logged_by=logged_by, pieces=pieces
        )


class HeadCell:
    """The one cell that is changed by compare and set.

    HBase answers truly whether the cell was set, but an answer may be lost, and the set
    may still come. So the cell is then read. No two heads are the same, so its value
    tells what happened, and a set still on its way compares with an old value.
    """

    def __init__(self, connections: HBaseConnections) -> None:
        self._connections = connections
        self._table = connections.address.table(META)

    def read(self) -> StoreHead | None:
        """Reads the head as it is now; None in a new store."""
        return self._connections.repeat(self._get)

    def move(self, old: StoreHead | None, new: StoreHead) -> StoreHead | None:
        """Sets the head to `new` if it is `old`; answers the head that is there then.

        Raises `Unavailable` if that cannot be found out: the head may be set later.
        """
        try:
            if self._connections.once(self._set(old, new)):
                return new
        except ConnectionLost:
            pass

        def settle(client: Any) -> StoreHead | None:
            return new if self._set(old, new)(client) else self._get(client)

        return self._connections.repeat(settle)

    def _get(self, client: Any) -> StoreHead | None:
        found = client.getRow(self._table, HEAD_KEY, {})
        return StoreHead.from_bytes(found[0].columns[WHOLE].value) if found else None

    def _set(self, old: StoreHead | None, new: StoreHead) -> Callable[[Any], bool]:
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
