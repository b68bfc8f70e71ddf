"""The head: one cell that says who owns the store, and which batch is its last."""

import struct
from collections.abc import Callable
from typing import Any, Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import Connections, Lost
from txaware.store.hbase.schema import HEAD_KEY, META

OWNER_BYTES = 8
NOBODY = bytes(OWNER_BYTES)
_FORMAT = 1
_FIXED = struct.Struct(f">B{OWNER_BYTES}sQQQ{OWNER_BYTES}sII")


@attrs.frozen
class Head:
    """Changed only by compare and set, and never twice to the same bytes.

    `turn` rises with each change: one that comes late, after its answer was given up,
    then compares with what has been. `batch` is the number of the last batch, and
    `time_ms` the timestamp of its rows. Its redo record is in `inline`, or in so many
    rows of `logged_by`; `crc` is of all of it.
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
        """The value of the cell."""
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
        """Reads the cell."""
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
        """The next one, with the same last batch unless another is named."""
        return attrs.evolve(self, turn=self.turn + 1, **changes)

    def with_record(
        self,
        *,
        crc: int,
        inline: bytes = b"",
        logged_by: bytes = NOBODY,
        pieces: int = 0,
    ) -> Self:
        """The same with the place of its redo record."""
        return attrs.evolve(
            self, crc=crc, inline=inline, logged_by=logged_by, pieces=pieces
        )


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
