"""Leases: what is known of an item from its first pop until it is gone."""

import os
import struct
from enum import Enum

import attrs

from txaware.interfaces import Write
from txaware.labels import unpacked
from txaware.messages import ID_BYTES, MessageId
from txaware.queues import PIPE_BYTES, Popped
from txaware.service.queue.pipe import Item, Pipe
from txaware.store.queue_table import NO_TIME, LeaseRow, lease_key

TOKEN_BYTES = 8


class LeaseState(Enum):
    """The state of an item that was read from its pipe."""

    IN_WORK = "in work"
    WAITING = "waiting again"
    PARKED = "behind another one of its key"
    DYING = "delivered too often"
    ENDING = "being committed"
    GONE = "gone"


@attrs.define(eq=False)
class Lease:
    """An item that was read, and who has it until when.

    `token` names one delivery of it; a `transaction` has it until its end. An item that
    waits again does so from `due_ms` on.
    """

    pipe: Pipe
    id: MessageId
    key: bytes | None
    stored_by: int | None
    state: LeaseState = LeaseState.PARKED
    deliveries: int = 0
    token: int = 0
    until_ms: int = NO_TIME
    due_ms: int = NO_TIME
    transaction: int | None = None
    popper: str = ""
    error: str = ""
    is_local: bool = False
    popped_ms: int = NO_TIME

    @property
    def text(self) -> str:
        """The id of the item for users, the same in every delivery."""
        return item_text(self.pipe.id, self.id)

    @property
    def token_text(self) -> str:
        """The name of this delivery for users."""
        return f"{self.token:0{2 * TOKEN_BYTES}x}"

    def popped(self, item: Item) -> Popped:
        """Returns its item as it is handed out."""
        return Popped(
            self.text,
            item.payload,
            item.key,
            unpacked(item.headers) if item.headers else {},
            self.deliveries,
            item.id.publish_time_ms,
            self.token_text,
            None if self.until_ms == NO_TIME else self.until_ms,
        )

    def write(self) -> Write:
        """Makes its row."""
        row = LeaseRow(
            self.token,
            self.deliveries,
            self.until_ms,
            self.due_ms,
            self.is_local,
            self.transaction,
            self.popper,
            self.error,
        )
        return lease_key(self.pipe.prefix, self.id), row.to_bytes()

    def deletion(self) -> Write:
        """Makes the deletion of its row."""
        return lease_key(self.pipe.prefix, self.id), None


def new_token() -> int:
    """Returns the name of a delivery, which nobody can guess or repeat."""
    return int.from_bytes(os.urandom(TOKEN_BYTES), "big") or 1


def new_tokens(count: int) -> list[int]:
    """Returns the names of so many deliveries."""
    drawn = struct.unpack(f">{count}Q", os.urandom(TOKEN_BYTES * count))
    return [token or 1 for token in drawn]


def item_text(pipe: int, item: MessageId) -> str:
    """Returns the id of an item for users, the same in every delivery."""
    return f"{pipe:0{2 * PIPE_BYTES}x}{item}"


def parsed_item(text: str) -> tuple[int, MessageId] | None:
    """Reads the id of an item: its pipe, and its place there; None for other text."""
    digits = 2 * (PIPE_BYTES + ID_BYTES)
    try:
        data = bytes.fromhex(text) if len(text) == digits else b""
    except (TypeError, ValueError):
        data = b""
    if not data:
        return None
    return int.from_bytes(data[:PIPE_BYTES], "big"), MessageId(data[PIPE_BYTES:])
