"""Reads the items of a pipe in order, up to the first that is not decided."""

from collections.abc import Callable, Iterator

from coordinator.transaction import Transaction
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.labels import unpacked
from txaware.model.messages import NO_PAYLOAD_ROW, MessageId
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.visibility import DELIVER, SKIP, STOP, Visibility
from txaware.service.wakeups import WouldWait
from txaware.store.columns import (
    EXPIRY,
    HEADERS,
    KEY,
    PLAIN,
    RECEIPTS,
    Columns,
    decode,
    decode_expiry,
    pointer_of,
)
from txaware.store.keys import MESSAGE, payload_prefix
from txaware.store.payload_table import PayloadTable

# So much of a pipe is read at once, and kept until it is popped.
READ_ROWS, READ_BYTES = 100, 1 << 18
_AFTER_PAYLOADS = b"\xff" * 10


class Judge:
    """Judges items by the snapshot of a transaction, or by a fresh one once needed.

    What the transaction itself pushed is not decided before its commit.
    """

    def __init__(
        self,
        make: Callable[[Transaction | None], Visibility],
        transaction: Transaction | None = None,
    ) -> None:
        self._make = make
        self._transaction = transaction
        self._made: Visibility | None = None

    @property
    def is_made(self) -> bool:
        """True once there is a snapshot; rows that were read before are read again."""
        return self._made is not None

    def verdict(self, pointer: int | None) -> int:
        """Returns the verdict on a pointer."""
        if pointer is None:
            return DELIVER
        if self._made is None:
            self._made = self._make(self._transaction)
        own = self._transaction
        if own is not None and own.is_current_write(pointer):
            return STOP
        return self._made.verdict(pointer)


class PipeReader:
    """Fills the buffers of pipes, with rows that a snapshot from before has decided."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
        self._payloads = PayloadTable(table)

    def fill(
        self,
        pipe: Pipe,
        judge: Judge,
        known: Callable[[MessageId], bool],
        *,
        may_wait: bool = True,
    ) -> list[Write]:
        """Reads on if the buffer is empty; returns deletions of what nobody will see.

        `known` items are leased, or wait again, and are left out. Without `may_wait`
        it raises `WouldWait` before it reads from the disk.
        """
        if pipe.buffer:
            return []
        if pipe.blocked is not None and judge.verdict(pipe.blocked) == STOP:
            return []
        if pipe.pushing and pipe.has_nothing_unread:
            return []
        mark = pipe.mark()
        if mark == pipe.settled:
            return []
        if not (may_wait or pipe.has_nothing_unread):
            raise WouldWait
        pipe.blocked = None
        if pipe.has_nothing_unread:
            pipe.settled = mark
            return []
        garbage: list[Write] = []
        while not pipe.buffer and pipe.blocked is None:
            rows = self._rows(pipe, mark, judge)
            for key, value in rows:
                self._take(pipe, judge, key, value, known, garbage)
                if pipe.blocked is not None or len(pipe.buffer) >= READ_ROWS:
                    return garbage
            if not rows:
                pipe.settled = mark
                break
        return garbage

    def _rows(self, pipe: Pipe, stop: bytes, judge: Judge) -> list[Row]:
        """Reads rows; again after the snapshot was taken, if it was needed now."""
        start = pipe.read.row_key
        if pipe.read.payload_key in (NO_PAYLOAD_ROW, _AFTER_PAYLOADS) and any(
            pipe.read
        ):
            start += b"\0"
        while True:
            rows = self._table.scan(
                MESSAGE + pipe.prefix,
                start=start,
                stop=stop,
                limit=READ_ROWS,
                max_bytes=READ_BYTES,
            )
            pointers = (pointer_of(value) for _, value in rows)
            first = next((one for one in pointers if one is not None), None)
            if first is None or judge.is_made:
                return rows
            judge.verdict(first)

    def _take(
        self,
        pipe: Pipe,
        judge: Judge,
        key: bytes,
        value: bytes,
        known: Callable[[MessageId], bool],
        garbage: list[Write],
    ) -> None:
        if value[0] == PLAIN:  # nearly always, and always delivered
            found = item_of(key, value)
            if not known(found.id):
                pipe.buffer.append(found)
                pipe.seen += 1
            pipe.read = found.id
            return
        columns = decode(value)
        verdict = judge.verdict(columns.pointer)
        if verdict == STOP:
            pipe.blocked = columns.pointer
            return
        if verdict == SKIP:
            garbage.append((MESSAGE + pipe.prefix + key, None))
            pipe.read = MessageId.after_payloads(key)
            return
        if columns.payload is None:
            self._expand(pipe, key, columns, known)
            return
        found = _item(MessageId.of_row(key), columns, columns.pointer, None)
        if not known(found.id):
            pipe.buffer.append(found)
            pipe.seen += 1
        pipe.read = found.id

    def _expand(
        self,
        pipe: Pipe,
        row_key: bytes,
        columns: Columns,
        known: Callable[[MessageId], bool],
    ) -> None:
        """Adds the payloads of a reference, as many as the buffer takes."""
        start = b""
        if pipe.read.row_key == row_key:
            start = pipe.read.payload_key + b"\0"
        for found in self._stored(pipe.prefix, row_key, columns, start):
            if len(pipe.buffer) >= READ_ROWS:
                return
            if not known(found.id):
                pipe.buffer.append(found)
            pipe.read = found.id
        pipe.read = MessageId.after_payloads(row_key)

    def _stored(
        self, prefix: bytes, row_key: bytes, columns: Columns, start: bytes
    ) -> Iterator[Item]:
        pointer = columns.pointer or 0
        receipts = columns.more.get(RECEIPTS)
        for key, stored in self._payloads.named_rows(
            prefix, pointer, receipts, start=start, piece=READ_ROWS
        ):
            yield _item(MessageId(row_key + key), stored, pointer, pointer)

    def look(self, prefix: bytes, item: MessageId) -> Item | None:
        """Reads one item that was popped before; None if it is gone."""
        value = self._table.get(MESSAGE + prefix + item.row_key)
        if value is None:
            return None
        columns = decode(value)
        if columns.payload is not None:
            return _item(item, columns, columns.pointer, None)
        pointer = columns.pointer or 0
        stored = self._table.get(payload_prefix(prefix, pointer) + item.payload_key)
        if stored is None:
            return None
        return _item(item, decode(stored), pointer, pointer)

    def items(
        self, pipe: Pipe, judge: Judge, known: Callable[[MessageId], bool]
    ) -> Iterator[Item]:
        """Reads what nobody popped yet, and changes nothing; stops as a pop does."""
        yield from list(pipe.buffer)
        probe = Pipe(pipe.id, pipe.name, pipe.kind, 0, 0, 0, read=pipe.read)
        probe.handle = pipe.handle
        while True:
            self.fill(probe, judge, known)
            if not probe.buffer:
                return
            yield from probe.buffer
            probe.buffer.clear()

    def count(self, pipe: Pipe, judge: Judge) -> tuple[int, dict[int, int]]:
        """Counts a pipe's committed items, and those of each undecided transaction."""
        committed, undecided = 0, dict[int, int]()
        start = pipe.head.row_key
        while rows := self._table.scan(MESSAGE + pipe.prefix, start=start):
            if not judge.is_made and any(pointer_of(value) for _, value in rows):
                judge.verdict(1)  # takes the snapshot before these rows are read
                continue
            for key, value in rows:
                columns = decode(value)
                verdict = judge.verdict(columns.pointer)
                if verdict == SKIP:
                    continue
                count = 1
                if columns.payload is None:
                    stored = self._stored(pipe.prefix, key, columns, b"")
                    count = sum(1 for _ in stored)
                if verdict == DELIVER:
                    committed += count
                else:
                    pointer = columns.pointer or 0
                    undecided[pointer] = undecided.get(pointer, 0) + count
            start = rows[-1][0] + b"\0"
        return committed, undecided


def _item(
    item: MessageId, columns: Columns, pointer: int | None, stored_by: int | None
) -> Item:
    expiry = columns.more.get(EXPIRY)
    return Item(
        item,
        columns.payload or b"",
        columns.more.get(KEY),
        columns.more.get(HEADERS, b""),
        None if expiry is None else decode_expiry(expiry),
        pointer,
        stored_by,
    )


def item_of(row_key: bytes, value: bytes) -> Item:
    """Reads an item from its own row, which no transaction has pushed."""
    item = MessageId(row_key + NO_PAYLOAD_ROW)
    if value[0] == PLAIN:
        return Item(item, value[1:])
    return _item(item, decode(value), None, None)


def headers_of(item: Item) -> dict[str, bytes]:
    """Returns the headers of an item as a dict."""
    return unpacked(item.headers)


def deletion(prefix: bytes, item: MessageId, stored_by: int | None) -> Write:
    """Makes the deletion of an item."""
    if stored_by is None:
        return MESSAGE + prefix + item.row_key, None
    return payload_prefix(prefix, stored_by) + item.payload_key, None
