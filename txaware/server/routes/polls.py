"""Polls and waits in the event loop, and the bounds of a topic."""

import time
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

import attrs

from txaware.errors import BadRequest
from txaware.model.interfaces import COMMITTED
from txaware.model.messages import Bounds
from txaware.model.partitions import partition_needed
from txaware.model.requests import check_wait_of_poll
from txaware.protocol.formats import AVRO, Format, PageWriter, PollRequest
from txaware.protocol.messages import BOUNDS, AskBounds, Wait
from txaware.protocol.shape import Unread
from txaware.server.exchange import Reply, Stream
from txaware.server.long_polls import LongPolls, PollLook, Read, read_piece
from txaware.server.page_encoders import PIECE_MESSAGES, gathering
from txaware.server.routing import Answer
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import QUICK_BYTES, Caller, ToldValue
from txaware.service.read.partition_scan import PartitionScan
from txaware.service.read.reading import AnyScan
from txaware.service.read.scan import Messages
from txaware.service.topic_handles import PartitionedTopic, Place

PIECE_BYTES = 1 << 20
NO_LIMIT = 2**31 - 1


class Polls:
    """Reads for the event loop: cached rows at once, everything else in a thread."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._service = server_context.service
        self._long_polls = LongPolls(server_context)

    def poll(
        self, context: ServerContext, caller: Caller, unread: Unread, told: ToldValue
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Answers here what is cached; what waits for something has a task."""
        context.answers.require_room()
        place = self._service.found_at_once(unread.topic)
        if place is None or len(unread.body) > QUICK_BYTES:
            return self._poll_elsewhere(caller, unread)
        _check_format(place, unread.format)
        asked = unread.format.poll_request(unread.body)
        poll = self._asked(caller, unread, asked)
        scan = self._long_polls.at_once(poll.look, place)
        if scan is None or scan.is_paused or (poll.look.wait_s and not scan.count):
            return self._poll_on(poll, scan)
        return self._answer(poll, scan)

    async def _poll_elsewhere(self, caller: Caller, unread: Unread) -> Answer:
        _check_format(await self._server_context.place(unread.topic), unread.format)
        read = unread.format.poll_request
        if len(unread.body) > QUICK_BYTES:  # a snapshot with very many invalid ids
            asked = await self._server_context.in_thread(read, unread.body)
        else:
            asked = read(unread.body)
        return await self._poll_on(self._asked(caller, unread, asked), None)

    async def _poll_on(self, poll: "PendingPoll", scan: AnyScan | None) -> Answer:
        scan = await self._long_polls.first_piece(poll.look, scan)
        return self._answer(poll, scan)

    def _asked(
        self, caller: Caller, unread: Unread, asked: PollRequest
    ) -> "PendingPoll":
        page = PollAnswer(unread.format.page_writer(asked))
        look = self._look(caller, unread.topic, asked, page.read)
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
        self, caller: Caller, topic: str, asked: PollRequest, read: Read
    ) -> PollLook:
        _check_wait(asked)
        return PollLook(
            topic,
            partial(self._begin, caller, asked),
            read,
            wait_s=asked.wait_s,
            asks_coordinator=asked.isolation == COMMITTED,
            peer=caller.peer,
        )

    def _begin(
        self,
        caller: Caller,
        asked: PollRequest,
        place: Place,
        *,
        woken: bool = False,
    ) -> AnyScan:
        caller.ask_again()  # it may have waited since, and its token be gone
        return self._service.begin_poll(
            place,
            start=asked.start,
            inclusive=asked.inclusive,
            limit=NO_LIMIT if asked.limit is None else asked.limit,
            transaction=asked.transaction,
            isolation=asked.isolation,
            woken=woken,
        )

    def wait(
        self, _: ServerContext, caller: Caller, asked: Wait, told: ToldValue
    ) -> Coroutine[Any, Any, bool]:
        """Returns what waits for a message, without a thread."""
        return self._waited(caller, asked)

    async def _waited(self, caller: Caller, asked: Wait) -> bool:
        await self._server_context.place(asked.topic)
        found = Messages()
        poll = PollRequest(
            start=asked.start,
            inclusive=asked.inclusive,
            limit=1,
            isolation=asked.isolation,
            wait_s=asked.timeout_s,
        )
        look = self._look(caller, asked.topic, poll, partial(_read, found))
        await self._long_polls.first_piece(look)
        return bool(found)

    def bounds(
        self, context: ServerContext, _: Caller, asked: AskBounds, told: ToldValue
    ) -> Coroutine[Any, Any, Bounds]:
        """Returns what reads the ends of a topic; a snapshot is the coordinator's."""
        is_committed = asked.isolation == COMMITTED
        in_thread = context.in_coordinator_thread if is_committed else context.in_thread
        return in_thread(self._service.bounds, **BOUNDS.shape.options(asked))


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


def _check_wait(asked: PollRequest) -> None:
    if asked.wait_s < 0:
        raise BadRequest(f"waitMs is 0 or more, not {asked.wait_s * 1000:.0f}")
    check_wait_of_poll(asked.wait_s, asked.transaction)
