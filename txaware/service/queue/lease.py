"""Leases: what is known of an item from its first pop until it is gone."""

import os
from collections.abc import Iterable
from enum import Enum

import attrs

from txaware.errors import LeaseLost
from txaware.model.interfaces import Write
from txaware.model.labels import unpacked
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.queues import (
    GENERATION_BYTES,
    PIPE_BYTES,
    PipeName,
    Popped,
    checked_lease,
)
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import deletion
from txaware.store.keys import MESSAGE, ROW_KEY_BYTES
from txaware.store.queue_table import (
    NO_TIME,
    lease_flags,
    lease_key,
    lease_value,
    run_key,
)

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

    `token` names one delivery of it; a `transaction` has it until its end. Where its
    popper `has_inbox`, that transaction may end without a commit, and the item may be
    handled all the same. An item that waits again does so from `due_ms` on. Of one that
    was popped in a `run`, the row of that tells all until it `has_row` of its own.
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
    has_inbox: bool = False
    popped_ms: int = NO_TIME
    run: "LeaseRun | None" = None
    has_row: bool = False

    @property
    def text(self) -> str:
        """The id of the item for users, the same in every delivery."""
        return item_text(self.pipe.name, self.id)

    @property
    def token_text(self) -> str:
        """The name of this delivery for users."""
        return token_text(self.token)

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
        self.has_row = True
        times = self.until_ms, self.due_ms
        flags = lease_flags(is_local=self.is_local, has_inbox=self.has_inbox)
        numbers = self.token, self.deliveries, *times, flags
        value = lease_value(numbers, self.transaction, self.popper, self.error)
        return lease_key(self.pipe.prefix, self.id), value

    def deletions(self) -> list[Write]:
        """Makes the deletions of the item and of its row."""
        item = deletion(self.pipe.prefix, self.id, self.stored_by)
        if not self.has_row:
            return [item]
        return [item, (lease_key(self.pipe.prefix, self.id), None)]


@attrs.define(eq=False)
class LeaseRun:
    """Items of one pipe that one popper has popped at once, for the first time.

    They have one row together, until all of them are gone: `left` counts the others.
    Its `leases` are made where somebody looks at one of them. None was stored ahead.
    """

    pipe: Pipe
    ids: list[MessageId]
    token: int
    until_ms: int
    transaction: int | None
    popper: str
    is_local: bool
    has_inbox: bool
    popped_ms: int
    left: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.left = len(self.ids)

    @property
    def key(self) -> bytes:
        """The key of its row."""
        return run_key(self.pipe.prefix, self.ids[0])

    def write(self) -> Write:
        """Makes its row."""
        flags = lease_flags(is_local=self.is_local, has_inbox=self.has_inbox)
        numbers = self.token, 1, self.until_ms, NO_TIME, flags
        return self.key, lease_value(
            numbers, self.transaction, self.popper, "", self.ids
        )

    def popped(self, items: Iterable[Item]) -> list[Popped]:
        """Returns its items as they are handed out."""
        digits, generation = 2 * TOKEN_BYTES, _generation_text(self.pipe.name)
        pipe = f"{self.pipe.id:0{2 * PIPE_BYTES}x}"
        until_ms = None if self.until_ms == NO_TIME else self.until_ms
        return [
            Popped(
                f"{pipe}{item.hex()}{generation}",
                payload,
                key,
                unpacked(headers) if headers else {},
                1,
                int.from_bytes(item[:8], "big"),
                f"{token:0{digits}x}",
                until_ms,
            )
            for token, (item, payload, key, headers, _, _, _) in enumerate(
                items, self.token
            )
        ]

    def leases(self) -> list[Lease]:
        """Makes the lease of each item."""
        return [
            Lease(
                self.pipe,
                item,
                None,
                None,
                state=LeaseState.IN_WORK,
                deliveries=1,
                token=token,
                until_ms=self.until_ms,
                transaction=self.transaction,
                popper=self.popper,
                is_local=self.is_local,
                has_inbox=self.has_inbox,
                popped_ms=self.popped_ms,
                run=self,
            )
            for token, item in enumerate(self.ids, self.token)
        ]

    def deletions(self) -> list[Write]:
        """Makes the deletions of the items, and of the row, where all end at once."""
        before = MESSAGE + self.pipe.prefix
        gone: list[Write] = [(before + one[:ROW_KEY_BYTES], None) for one in self.ids]
        return [*gone, (self.key, None)]


@attrs.define
class LeasedItems:
    """The items that one pop has leased: one by one, and runs of them.

    Those that it `ended` are of the pop before.
    """

    popped: list[Popped] = attrs.field(factory=list)
    runs: list[LeaseRun] = attrs.field(factory=list)
    alone: list[Lease] = attrs.field(factory=list)
    ended: list[Lease] = attrs.field(factory=list)

    def add(self, lease: Lease, item: Item) -> None:
        """Adds an item that has its own lease."""
        self.alone.append(lease)
        self.popped.append(lease.popped(item))


def held(lease: Lease | None, item: str, token: str, queue: str) -> Lease:
    """Returns the lease of a job in work; raises `LeaseLost` where it is over."""
    checked_lease(token)
    if lease is None or lease.state in (LeaseState.GONE, LeaseState.ENDING):
        raise LeaseLost(
            f"job {item} of queue {queue} is gone: it was committed or removed"
        )
    if lease.state is not LeaseState.IN_WORK:
        raise LeaseLost(
            f"the lease of job {item} of queue {queue} is over; nobody has it now, "
            f"and it is {lease.state.value}, delivered {lease.deliveries} times"
        )
    if lease.token_text != token:
        raise LeaseLost(
            f"the lease of job {item} of queue {queue} is over; {lease.popper} has "
            f"it now, in delivery {lease.deliveries}"
        )
    return lease


_tokens: list[bytes] = []


def new_token() -> int:
    """Returns the name of a delivery, which nobody can guess or repeat."""
    try:
        drawn = _tokens.pop()
    except IndexError:
        many = os.urandom(TOKEN_BYTES * 256)
        _tokens.extend(
            [many[at : at + TOKEN_BYTES] for at in range(0, len(many), TOKEN_BYTES)]
        )
        drawn = _tokens.pop()
    return int.from_bytes(drawn, "big") or 1


def first_token() -> int:
    """Returns a name for the first of many deliveries, far from the greatest."""
    return new_token() >> 1 or 1


def token_text(token: int) -> str:
    """Returns the name of a delivery for users."""
    return f"{token:0{2 * TOKEN_BYTES}x}"


def item_text(pipe: PipeName, item: MessageId) -> str:
    """Returns the id of an item for users, the same in every delivery.

    It names the generation of the queue too: no other item ever has it.
    """
    return f"{pipe.pipe:0{2 * PIPE_BYTES}x}{item}{_generation_text(pipe)}"


def _generation_text(pipe: PipeName) -> str:
    return f"{pipe.generation:0{2 * GENERATION_BYTES}x}"


def parsed_item(text: str) -> tuple[int, MessageId, int | None] | None:
    """Reads the id of an item: its pipe, its place there, and its generation.

    That is None in an id that an earlier version gave out. Returns None for other text.
    """
    place, digits = 2 * (PIPE_BYTES + ID_BYTES), 2 * GENERATION_BYTES
    try:
        is_long = len(text) == place + digits
        data = bytes.fromhex(text) if is_long or len(text) == place else b""
    except (TypeError, ValueError):
        data = b""
    if not data:
        return None
    generation = data[PIPE_BYTES + ID_BYTES :]
    return (
        int.from_bytes(data[:PIPE_BYTES], "big"),
        MessageId(data[PIPE_BYTES : PIPE_BYTES + ID_BYTES]),
        int.from_bytes(generation, "big") if generation else None,
    )
