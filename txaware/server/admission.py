"""Lets requests in while there is room, and says how long to stay away otherwise."""

import gzip
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs

from txaware.errors import BadRequest, RequestTooLarge, Unavailable
from txaware.model.settings import Settings

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1
# A body of which so many bytes, or its rest, do not come in that time does not flow. It
# is refused once others need its place.
FLOW_BYTES = 1024
STALL_S = 5.0


class Full(Unavailable):
    """There are too many requests in flight; come again in a moment."""


class TooManyOpen(Full):
    """A principal has as many transactions open as it may have."""


class Admission:
    """Counts requests and the bytes of their bodies; of one event loop only.

    Requests that wait for messages cost little, and have a number of their own.
    """

    def __init__(
        self, settings: Settings, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock_s = clock_s
        self._settings = settings
        self._limit_bytes = settings.body_memory_bytes
        self._share_bytes = settings.body_share_bytes or self._limit_bytes // 2
        self.in_flight = 0
        self.waiting = 0
        self.body_bytes = 0
        self._of_holders: dict[str | None, int] = {}
        # Those whose body has not come to its end, the oldest first.
        self._coming: dict[Memory, None] = {}

    def enter(self, *, waits: bool, vital: bool = False) -> None:
        """Counts a request until `leave`; `Full` where there are too many.

        A `vital` one is let in all the same.
        """
        limit = (
            self._settings.waiting_requests
            if waits
            else self._settings.in_flight_requests
        )
        if self._coming and self.in_flight >= limit and not waits and not vital:
            for one in self._stalled():
                one.give_up()
        now = self.waiting if waits else self.in_flight
        if now >= limit and not vital:
            what = "requests that wait" if waits else "requests in flight"
            raise Full(f"there are {now} {what}, as many as there may be")
        if waits:
            self.waiting += 1
        else:
            self.in_flight += 1

    def leave(self, *, waits: bool) -> None:
        """Counts a request no more: it is answered, or nobody wants that now."""
        if waits:
            self.waiting -= 1
        else:
            self.in_flight -= 1

    def take(self, memory: "Memory", size_bytes: int) -> None:
        """Counts bytes that have come for a body; `Full` where others have the room.

        A body that has not flowed for seconds makes room, and its request is refused.
        One that is alone finds room, however large it is.
        """
        if self._is_over(memory, size_bytes):
            self._make_room(memory, size_bytes)
        self.body_bytes += size_bytes
        of_holder = self._of_holders.get(memory.holder, 0)
        self._of_holders[memory.holder] = of_holder + size_bytes

    def give_back(self, memory: "Memory") -> None:
        """Counts the bytes of a body no more."""
        self._coming.pop(memory, None)
        if taken_bytes := memory.taken_bytes:
            self.body_bytes -= taken_bytes
            left_bytes = self._of_holders[memory.holder] - taken_bytes
            self._of_holders[memory.holder] = left_bytes
            if not left_bytes:
                del self._of_holders[memory.holder]

    def expect(self, memory: "Memory") -> None:
        """Notes that more of a body comes, which may have to make room meanwhile."""
        self._coming[memory] = None

    def has_come(self, memory: "Memory") -> None:
        """Notes that a body has come as a whole."""
        self._coming.pop(memory, None)

    def _is_over(self, memory: "Memory", size_bytes: int) -> str | None:
        """Returns why there is no room for more bytes; None where there is."""
        own_bytes, holder = memory.taken_bytes, memory.holder
        others = self.body_bytes - own_bytes
        if others and self.body_bytes + size_bytes > self._limit_bytes:
            return f"request bodies of {others} bytes are in memory already"
        held_bytes = self._of_holders.get(holder, 0)
        others = held_bytes - own_bytes
        if others and held_bytes + size_bytes > self._share_bytes:
            return (
                f"request bodies of {others} bytes from {holder or 'one place'} are in "
                f"memory already, as many as one may have there"
            )
        return None

    def _make_room(self, memory: "Memory", size_bytes: int) -> None:
        """Has bodies that do not flow give up their places; `Full` if none is enough.

        The oldest are first. Those of others are no use where a share is used up.
        """
        for one in self._stalled():
            is_over_all = self.body_bytes + size_bytes > self._limit_bytes
            if one is not memory and (is_over_all or one.holder == memory.holder):
                one.give_up()
            if self._is_over(memory, size_bytes) is None:
                return
        why = self._is_over(memory, size_bytes)
        if why is not None:
            raise Full(why)

    def _stalled(self) -> "list[Memory]":
        return [one for one in self._coming if one.is_stalled]


class Memory:
    """The memory that one request's body takes, until it is given back as a whole.

    `holder` is the principal that asks, or its address where there are no tokens.
    `stop` refuses a request whose body does not flow.
    """

    __slots__ = (
        "_admission",
        "_came_bytes",
        "_flowed_s",
        "holder",
        "stop",
        "taken_bytes",
    )

    def __init__(
        self, admission: Admission, stop: Callable[[], object] | None = None
    ) -> None:
        self.holder: str | None = None
        self.stop = stop
        self.taken_bytes = 0
        self._admission = admission
        self._came_bytes = 0
        self._flowed_s = 0.0

    def take(self, size_bytes: int) -> None:
        """Takes so many bytes more; `Full` where others have them."""
        self._admission.take(self, size_bytes)
        self.taken_bytes += size_bytes

    def expect_more(self) -> None:
        """Says that the body has not come as a whole."""
        self._flowed_s = self._admission.clock_s()
        self._admission.expect(self)

    def came(self, size_bytes: int) -> None:
        """Takes the next bytes that came of a body that goes on."""
        self.take(size_bytes)
        self._came_bytes += size_bytes
        if self._came_bytes >= FLOW_BYTES:
            self._came_bytes, self._flowed_s = 0, self._admission.clock_s()

    def has_come(self) -> None:
        """Says that the body has come as a whole, and keeps its place until the end."""
        self._admission.has_come(self)

    @property
    def is_stalled(self) -> bool:
        """True when so little of the body came for seconds that it does not flow."""
        return self._admission.clock_s() - self._flowed_s >= STALL_S

    def give_up(self) -> None:
        """Gives the place to others, and has the request refused."""
        self.give_back()
        if self.stop is not None:
            self.stop()

    def give_back(self) -> None:
        """Gives all back, once the request is answered."""
        self._admission.give_back(self)
        self.taken_bytes = 0


Receive = Callable[[], Awaitable[Mapping[str, Any]]]

GZIP = b"gzip"
# An answer below this is not worth the time.
WORTH_BYTES = 1024
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class ClientGone(Exception):
    """The client closed the connection, or its side of it; nothing was done for it."""


class Bodies:
    """Reads bodies into memory that was taken for them."""

    def __init__(self, settings: Settings) -> None:
        self._limit_bytes = settings.request_limit_bytes

    async def read(
        self, headers: Mapping[bytes, bytes], receive: Receive, memory: Memory
    ) -> bytes:
        """Reads the whole body, and inflates it where it is compressed."""
        self.check_announced(headers)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message["body"]
            self._check_size(len(body))
            memory.take(len(body))
        else:
            body = await self._rest(message, receive, memory)
        encoding = headers.get(b"content-encoding")
        if encoding is not None and body:
            body = self._inflated(encoding, body)
            memory.take(len(body))
        return body

    def check_announced(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuses a body that the head announces as too large."""
        self._check_size(int(headers.get(b"content-length") or 0))

    async def _rest(
        self, message: Mapping[str, Any], receive: Receive, memory: Memory
    ) -> bytes:
        """Reads a body in pieces, and takes memory for what has come."""
        body = bytearray()
        memory.expect_more()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message["body"]
            self._check_size(len(body) + len(piece))
            memory.came(len(piece))
            body += piece
            if not message.get("more_body", False):
                memory.has_come()
                return bytes(body)
            message = await receive()

    def _inflated(self, encoding: bytes, body: bytes) -> bytes:
        if encoding.lower() != GZIP:
            raise BadRequest(
                f"the Content-Encoding is {encoding.decode('latin-1')!r}; gzip is known"
            )
        inflating = zlib.decompressobj(_GZIP_WINDOW)
        try:
            # Never more than that is made of it, however much it would be.
            inflated = inflating.decompress(body, self._limit_bytes + 1)
        except zlib.error as error:
            raise BadRequest(f"the body is no gzip: {error}") from error
        self._check_size(len(inflated))
        if not inflating.eof or inflating.unused_data:
            raise BadRequest("the body is not one complete gzip stream")
        return inflated

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise RequestTooLarge(
                f"a request's body has at most {self._limit_bytes} bytes; this one has "
                f"{size_bytes} or more"
            )


def takes_gzip(headers: Mapping[bytes, bytes]) -> bool:
    """Tells whether the client asks for gzip, and does not rule it out."""
    accepted = headers.get(b"accept-encoding")
    if accepted is None:
        return False
    for item in accepted.lower().split(b","):
        name, _, quality = item.partition(b";")
        if name.strip() == GZIP:
            return quality.replace(b" ", b"").rstrip(b"0.") != b"q="
    return False


class Gzip:
    """Compresses an answer piece by piece; each can be read as it comes."""

    def __init__(self) -> None:
        self._compressing = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)

    def piece(self, data: bytes) -> bytes:
        """Compresses the next piece."""
        return self._compressing.compress(data) + self._compressing.flush(
            zlib.Z_SYNC_FLUSH
        )

    def end(self) -> bytes:
        """Returns what follows the last piece."""
        return self._compressing.flush()


def compressed(data: bytes) -> bytes:
    """Compresses a whole answer."""
    return gzip.compress(data, compresslevel=1, mtime=0)


class Reader(Protocol):
    """A connection, as far as its answers wait in memory."""

    @property
    def host_and_port(self) -> str | None:
        """The address of the other end, with its port."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes of answers that the other end has not taken."""

    def cut(self) -> None:
        """Ends the connection at once, and gives its memory back."""


@attrs.define
class _Unread:
    """The bytes that waited at the last look, and since when so many do."""

    size_bytes: int
    since_s: float


class AnswerMemory:
    """Counts what waits to be read; of one event loop only.

    Whoever makes a large answer asks for room first. A connection counts from the
    answer that it does not take at once, until it is read or the connection ends.
    """

    def __init__(
        self, settings: Settings, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.size_bytes = 0
        self._limit_bytes = settings.answer_memory_bytes
        self._clock_s = clock_s
        self._unread: dict[Reader, _Unread] = {}

    def hold(self, reader: Reader) -> None:
        """Counts what waits for a reader now."""
        unread, size_bytes = self._unread.get(reader), reader.unsent_bytes
        if unread is None:
            unread = self._unread[reader] = _Unread(0, self._clock_s())
        self.size_bytes += size_bytes - unread.size_bytes
        unread.size_bytes = size_bytes

    def release(self, reader: Reader) -> None:
        """Counts nothing more for a reader: it has read all, or it is gone."""
        unread = self._unread.pop(reader, None)
        if unread is not None:
            self.size_bytes -= unread.size_bytes

    def require_room(self) -> None:
        """Raises `Full` where so much waits that nothing more shall be made.

        Readers that have read nothing for seconds are cut off first, the oldest first.
        """
        if self.size_bytes < self._limit_bytes:
            return
        for reader in self._stalled():
            if self.size_bytes < self._limit_bytes:
                return
            log.info(
                "the connection of %s ends: it has read nothing of %d bytes for %g s, "
                "and others need their place; see answer_memory_bytes",
                reader.host_and_port,
                reader.unsent_bytes,
                STALL_S,
            )
            self.release(reader)
            reader.cut()
        if self.size_bytes >= self._limit_bytes:
            raise Full(
                f"answers of {self.size_bytes} bytes wait to be read, as many as there "
                f"may be; see answer_memory_bytes"
            )

    def _stalled(self) -> list[Reader]:
        """Looks how much still waits, and returns the readers that do not read."""
        now_s, stalled = self._clock_s(), list[Reader]()
        for reader, unread in list(self._unread.items()):
            size_bytes = reader.unsent_bytes
            if not size_bytes:
                self.release(reader)
            elif size_bytes + FLOW_BYTES <= unread.size_bytes:
                self.size_bytes += size_bytes - unread.size_bytes
                unread.size_bytes, unread.since_s = size_bytes, now_s
            elif now_s - unread.since_s >= STALL_S:
                stalled.append(reader)
        return stalled
