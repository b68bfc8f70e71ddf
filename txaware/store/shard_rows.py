"""The rows that say which shards a store has, and which of them a store is."""

import json
import secrets
from typing import Any, Protocol, Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import OrderedTable
from txaware.model.shards import HOME
from txaware.store.keys import STORE_SECRET, STORE_SHARD, STORE_SHARDS

STORE_ID_BYTES, SECRET_BYTES = 8, 32


class Gets(Protocol):
    """Rows that can be looked up by key: a table, or a copy of one."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""


@attrs.frozen
class StoreShards:
    """All shards of a store, as its first one has them; `epoch` counts the changes."""

    store: str
    shards: tuple[int, ...] = (HOME,)
    epoch: int = 0

    def to_bytes(self) -> bytes:
        """Encodes the shards for their row."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` wrote; else `StoreCorrupted`."""
        found = _read(data, {"store": str, "shards": list, "epoch": int})
        if not all(isinstance(number, int) for number in found["shards"]):
            raise StoreCorrupted(f"{data!r:.100} names no shards")
        return cls(found["store"], tuple(found["shards"]), found["epoch"])

    @property
    def further(self) -> tuple[int, ...]:
        """The shards beside the first one."""
        return tuple(number for number in self.shards if number != HOME)

    def with_more(self, count: int) -> Self:
        """Returns the same store with so many shards more."""
        first = max(self.shards) + 1
        more = (*self.shards, *range(first, first + count))
        return attrs.evolve(self, shards=more, epoch=self.epoch + 1)


@attrs.frozen
class ShardIdentity:
    """The store that a shard belongs to, and its number there."""

    store: str
    number: int

    def to_bytes(self) -> bytes:
        """Encodes the identity for its row."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` wrote; else `StoreCorrupted`."""
        found = _read(data, {"store": str, "number": int})
        return cls(found["store"], found["number"])

    @property
    def refusal(self) -> str:
        """The sentence for who takes its directory for that of a store."""
        return (
            f"this is shard {self.number} of the store {self.store}, and no store of "
            f"its own: open the directory that it is in"
        )


def shown_instead(wanted: ShardIdentity, found: ShardIdentity | None) -> str:
    """Returns the words for what is in the place of a shard, and is not that."""
    if found is None:
        return "a store of its own"
    if found.store == wanted.store:
        return f"shard {found.number}"
    return f"shard {found.number} of another store"


def shards_in(rows: Gets) -> StoreShards | None:
    """Returns the shards that a store names; None where it has no further ones."""
    data = rows.get(STORE_SHARDS)
    return None if data is None else StoreShards.from_bytes(data)


def identity_of(rows: Gets) -> ShardIdentity | None:
    """Returns the shard that a store is; None where it is no further one."""
    data = rows.get(STORE_SHARD)
    return None if data is None else ShardIdentity.from_bytes(data)


def secret_in(rows: Gets) -> bytes | None:
    """Returns what servers of the store know each other by; None before the first."""
    return rows.get(STORE_SECRET)


def store_secret(home: OrderedTable) -> bytes:
    """Returns what servers of the store know each other by; draws it where it lacks."""
    while (found := secret_in(home)) is None:
        home.compare_and_set(STORE_SECRET, None, secrets.token_bytes(SECRET_BYTES))
    return found


def _read(data: bytes, kinds: dict[str, type]) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not (
        isinstance(found, dict)
        and all(isinstance(found.get(name), kind) for name, kind in kinds.items())
    ):
        raise StoreCorrupted(f"{data!r:.100} names no shards of a store")
    return found
