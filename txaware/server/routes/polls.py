"""Polls and waits in the event loop, and the bounds of a topic."""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import attrs

from txaware.errors import BadRequest
from txaware.model.interfaces import COMMITTED
from txaware.model.labels import ItemForm, Labels, part_of
from txaware.model.messages import NO_PAYLOAD_ROW, Bounds, Message
from txaware.model.partitions import partition_needed
from txaware.model.requests import check_wait_of_poll
from txaware.protocol.formats import (
    AVRO,
    ColumnarWriter,
    Format,
    PageWriter,
    PollRequest,
)
from txaware.protocol.formats.msgpack_format import ITEMS, RowsWriter, labels_of
from txaware.protocol.messages import BOUNDS, AskBounds, Wait
from txaware.protocol.shape import Unread
from txaware.server.exchange import Reply, Stream
from txaware.server.long_polls import LongPolls, PollLook, Read, read_piece
from txaware.server.routing import Answer
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import QUICK_BYTES, Caller, OnOutcome
from txaware.service.read.partition_scan import PartitionScan
from txaware.service.read.reading import AnyScan
from txaware.service.read.scan import Found, Messages
from txaware.service.topic_handles import PartitionedTopic, Place
from txaware.store.message_table import Block, Encoded
from txaware.store.payload_table import StoredPayloads

PIECE_BYTES = 1 << 20
NO_LIMIT = 2**31 - 1


class Polls:
    """Reads for the event loop: cached rows at once, everything else in a thread."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._service = server_context.service
        self._long_polls = LongPolls(server_context)

    def poll(
        self,
        context: ServerContext,
        caller: Caller,
        unread: Unread,
        on_outcome: OnOutcome,
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Answers here what is cached; what waits for something has a task."""
        context.answers.require_room()
        place = self._service.found_at_once(unread.topic)
        if place is None or len(unread.body) > QUICK_BYTES:
            return self._poll_elsewhere(caller, unread)
        _check_format(place, unread.format)
        poll_request = unread.format.poll_request(unread.body)
        poll = self._pending(caller, unread, poll_request)
        scan = self._long_polls.at_once(poll.look, place)
        if scan is None or scan.is_paused or (poll.look.wait_s and not scan.count):
            return self._poll_on(poll, scan)
        return self._answer(poll, scan)

    async def _poll_elsewhere(self, caller: Caller, unread: Unread) -> Answer:
        _check_format(await self._server_context.place(unread.topic), unread.format)
        read = unread.format.poll_request
        if len(unread.body) > QUICK_BYTES:  # a snapshot with very many invalid ids
            poll_request = await self._server_context.in_thread(read, unread.body)
        else:
            poll_request = read(unread.body)
        return await self._poll_on(self._pending(caller, unread, poll_request), None)

    async def _poll_on(self, poll: "PendingPoll", scan: AnyScan | None) -> Answer:
        scan = await self._long_polls.first_piece(poll.look, scan)
        return self._answer(poll, scan)

    def _pending(
        self, caller: Caller, unread: Unread, poll_request: PollRequest
    ) -> "PendingPoll":
        page = PollAnswer(unread.format.page_writer(poll_request))
        look = self._look(caller, unread.topic, poll_request, page.read)
        return PendingPoll(page, look, unread.format.media_type)

    def _answer(self, poll: "PendingPoll", scan: AnyScan) -> Answer:
        page = poll.page
        first = page.begin() + page.take()
        if scan.is_over or not scan.count:
            return Reply(200, first + page.end(scan), poll.media_type)
        return Stream(self._pieces(first, page, scan), poll.media_type)

    async def _pieces(
        self, first: bytes, page: "PollAnswer", scan: AnyScan
    ) -> AsyncIterator[bytes]:
        """Reads the next piece when the one before it was sent, and not earlier."""
        yield first
        del first  # it may be large, and was sent
        while not scan.is_over:
            await read_piece(self._server_context, page.read, scan)
            yield page.take()
        yield page.end(scan)

    def _look(
        self, caller: Caller, topic: str, poll_request: PollRequest, read: Read
    ) -> PollLook:
        _check_wait(poll_request)
        return PollLook(
            topic,
            partial(self._begin, caller, poll_request),
            read,
            wait_s=poll_request.wait_s,
            asks_coordinator=poll_request.isolation == COMMITTED,
            peer=caller.peer,
        )

    def _begin(
        self,
        caller: Caller,
        poll_request: PollRequest,
        place: Place,
        *,
        woken: bool = False,
    ) -> AnyScan:
        caller.ask_again()  # it may have waited since, and its token be gone
        return self._service.begin_poll(
            place,
            start=poll_request.start,
            inclusive=poll_request.inclusive,
            limit=NO_LIMIT if poll_request.limit is None else poll_request.limit,
            transaction=poll_request.transaction,
            isolation=poll_request.isolation,
            woken=woken,
        )

    def wait(
        self, _: ServerContext, caller: Caller, arguments: Wait, on_outcome: OnOutcome
    ) -> Coroutine[Any, Any, bool]:
        """Returns what waits for a message, without a thread."""
        return self._waited(caller, arguments)

    async def _waited(self, caller: Caller, arguments: Wait) -> bool:
        await self._server_context.place(arguments.topic)
        found = Messages()
        poll = PollRequest(
            start=arguments.start,
            inclusive=arguments.inclusive,
            limit=1,
            isolation=arguments.isolation,
            wait_s=arguments.timeout_s,
        )
        look = self._look(caller, arguments.topic, poll, partial(_read, found))
        await self._long_polls.first_piece(look)
        return bool(found)

    def bounds(
        self,
        context: ServerContext,
        _: Caller,
        arguments: AskBounds,
        on_outcome: OnOutcome,
    ) -> Coroutine[Any, Any, Bounds]:
        """Returns what reads the ends of a topic; a snapshot is the coordinator's."""
        is_committed = arguments.isolation == COMMITTED
        in_thread = context.in_coordinator_thread if is_committed else context.in_thread
        return in_thread(self._service.bounds, **BOUNDS.shape.options(arguments))


@attrs.frozen
class PendingPoll:
    """A poll that was asked for: how to look, and the answer as far as it has come."""

    page: "PollAnswer"
    look: PollLook
    media_type: str


class PollAnswer:
    """The answer to one poll, as far as it has come; counts what it has read."""

    def __init__(self, writer: PageWriter) -> None:
        self._writer = writer
        self._gather = gathering(writer)
        self._written: list[bytes] = []
        self._took_s = 0.0

    def read(self, scan: AnyScan, *, quick: bool = False, fresh: bool = False) -> None:
        """Reads the next piece, and writes it; of all partitions as many as fill it."""
        count = scan.count
        self._read(scan, quick=quick, fresh=fresh)
        while (
            isinstance(scan, PartitionScan)
            and not (scan.is_over or scan.is_paused)
            and scan.count - count < PIECE_MESSAGES
        ):
            self._read(scan)

    def _read(self, scan: AnyScan, *, quick: bool = False, fresh: bool = False) -> None:
        began_s = time.perf_counter()
        found = self._gather()
        scan.read(
            found,
            # A quick one is read in the event loop, and keeps it from all others.
            limit=PIECE_MESSAGES if quick else found.piece_messages,
            limit_bytes=PIECE_BYTES,
            quick=quick,
            fresh=fresh,
        )
        if found.is_new:
            scan.recount()
        if isinstance(scan, PartitionScan):
            self._writer.partition = scan.partition
        elif scan.place.number:
            self._writer.partition = scan.place.number
        self._written.append(found.written())
        self._took_s += time.perf_counter() - began_s

    def begin(self) -> bytes:
        """Returns what comes before the first piece."""
        return self._writer.begin()

    def take(self) -> bytes:
        """Returns what was read since the last call, written."""
        written, self._written = self._written, []
        return b"".join(written)

    def end(self, scan: AnyScan) -> bytes:
        """Counts the poll, and returns what follows the last piece."""
        counters = scan.place.counters
        counters.polled(scan.count, scan.size_bytes, self._took_s)
        return self._writer.end(scan.end)


def _read(
    found: Messages, scan: AnyScan, *, quick: bool = False, fresh: bool = False
) -> None:
    scan.read(found, quick=quick, fresh=fresh)


def _check_format(place: Place, format_: Format) -> None:
    """Refuses a whole topic of several partitions to those who cannot be told them."""
    if format_ is AVRO and isinstance(place, PartitionedTopic):
        raise partition_needed(place.topic)


def _check_wait(poll_request: PollRequest) -> None:
    if poll_request.wait_s < 0:
        raise BadRequest(f"waitMs is 0 or more, not {poll_request.wait_s * 1000:.0f}")
    check_wait_of_poll(poll_request.wait_s, poll_request.transaction)


# A page is read and sent in pieces of at most that many messages.
PIECE_MESSAGES = 1000


class Gathered(Found, Protocol):
    """The messages of one piece of a page, at most `piece_messages`.

    `is_new` is True when any of them had to be encoded just now.
    """

    piece_messages: int
    is_new: bool

    def written(self) -> bytes:
        """Writes all of it, as the format has it."""


def gathering(writer: PageWriter) -> Callable[[], Gathered]:
    """Returns a maker of empty ones, one for each piece of a page."""
    if isinstance(writer, ColumnarWriter):
        return partial(ColumnEncoder, writer)
    if isinstance(writer, RowsWriter) and writer.compressions:
        return partial(ItemsAndBatches, writer)
    if writer.items is not None:
        return partial(EncodedItems, writer, writer.items)
    return partial(ListedMessages, writer)


class ListedMessages(Messages):
    """Messages one by one, for a format that takes nothing else."""

    piece_messages = PIECE_MESSAGES
    is_new = False

    def __init__(self, writer: PageWriter) -> None:
        super().__init__()
        self._writer = writer

    def written(self) -> bytes:
        """Writes the messages; nothing for none."""
        return self._writer.messages(self) if self else b""


class EncodedItems:
    """Encoded items in blocks of bounded size, for a format that takes those."""

    piece_messages = PIECE_MESSAGES
    compressions: frozenset[str] = frozenset()

    def __init__(self, writer: PageWriter, form: ItemForm) -> None:
        self.is_new = False
        self._writer, self._form = writer, form
        self._begin_items()

    def _begin_items(self) -> None:
        self.blocks: list[tuple[int, bytes]] = []
        self._labels: list[tuple[Labels | None, int]] = []
        self._loose: list[bytes] = []
        self._loose_bytes = 0

    def add(self, message: Message) -> None:
        """Adds a message."""
        self._labels.append((labels_of([message]), 1))
        item = self._form.item(message.id, message.payload)
        self._loose.append(item)
        self._loose_bytes += len(item)
        if self._loose_bytes >= self._form.block_bytes:
            self._close()

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, cut into blocks."""
        self._close()
        self._labels.append((part_of(block.labels, first, last), last - first))
        encoded, at = block.encoded, block.encoded_from
        self.is_new = self.is_new or not encoded.is_in(self._form)
        self.blocks += encoded.cut(self._form, at + first, at + last)

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds what one reference stands for, cut into blocks."""
        self._close()
        self._labels.append((stored.labels, len(stored)))
        ids = [row_key + key for key in stored.keys]
        items = Encoded(ids, stored.payloads, behind=b"")
        self.blocks += items.cut(self._form, 0, len(ids))

    def written(self) -> bytes:
        """Writes one block after the other."""
        self._close()
        return self._writer.blocks(self.blocks, Labels.joined(self._labels))

    def _close(self) -> None:
        """Ends the block that is open."""
        if self._loose:
            self.blocks.append((len(self._loose), b"".join(self._loose)))
            self._loose, self._loose_bytes = [], 0


class ItemsAndBatches(EncodedItems):
    """The same, with whole batches between the items, as they are stored."""

    def __init__(self, writer: RowsWriter) -> None:
        super().__init__(writer, ITEMS)
        self.compressions = writer.compressions
        self._batches = writer
        self._parts: list[bytes] = []

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows; batches that are among them as a whole go as they are."""
        for span in block.spans:
            is_whole = first <= span.first and span.last <= last
            if not is_whole or span.packed.compression not in self.compressions:
                continue
            self._add_items(block, first, span.first)
            self._parts.append(super().written())
            self._begin_items()
            first_id = block.keys[span.first] + NO_PAYLOAD_ROW
            self._parts.append(self._batches.batch(first_id, span.packed))
            first = span.last
        self._add_items(block, first, last)

    def _add_items(self, block: Block, first: int, last: int) -> None:
        if first < last:
            super().add_rows(block, first, last)

    def written(self) -> bytes:
        """Writes all in order."""
        return b"".join((*self._parts, super().written()))


class ColumnEncoder:
    """Ids and payloads apart, without a step in Python for each message."""

    # A client that asks for columns reads much, and each piece costs a thread's turn.
    piece_messages = 10_000
    is_new = False
    compressions: frozenset[str] = frozenset()

    def __init__(self, writer: ColumnarWriter) -> None:
        self._writer = writer
        self._ids: list[bytes] = []
        self._payloads: list[bytes] = []
        self._labels: list[tuple[Labels | None, int]] = []

    def add(self, message: Message) -> None:
        """Adds a message."""
        self._labels.append((labels_of([message]), 1))
        self._ids.append(message.id)
        self._payloads.append(message.payload)

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, none of which is a reference."""
        self._labels.append((part_of(block.labels, first, last), last - first))
        keys, payloads = block.keys[first:last], block.payloads[first:last]
        self._ids += (NO_PAYLOAD_ROW.join(keys), NO_PAYLOAD_ROW)
        self._payloads += payloads  # type: ignore[arg-type]

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds what one reference stands for."""
        self._labels.append((stored.labels, len(stored)))
        self._ids += (row_key, row_key.join(stored.keys))
        self._payloads += stored.payloads

    def written(self) -> bytes:
        """Writes one piece; nothing for no message."""
        labels = Labels.joined(self._labels)
        return self._writer.columns(b"".join(self._ids), self._payloads, labels)
