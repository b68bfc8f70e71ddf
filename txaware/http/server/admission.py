"""Lets requests in while there is room, and says how long to stay away otherwise."""

import gzip
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from txaware.config import Settings
from txaware.errors import BadRequest, RequestTooLarge, Unavailable

RETRY_AFTER_S = 1


class Full(Unavailable):
    """There are too many requests in flight; come again in a moment."""


class TooManyOpen(Full):
    """A principal has as many transactions open as it may have."""


class Admission:
    """Counts requests and the bytes of their bodies; of one event loop only.

    Requests that wait for messages cost little, and have a number of their own.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.limit = settings.body_memory_bytes
        self.in_flight = 0
        self.waiting = 0
        self.body_bytes = 0

    def enter(self, *, waits: bool, vital: bool = False) -> None:
        """Counts a request until `leave`; `Full` where there are too many.

        A `vital` one is let in all the same.
        """
        limit = (
            self._settings.waiting_requests
            if waits
            else self._settings.in_flight_requests
        )
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


class Memory:
    """The memory that one request's body takes, until it is given back as a whole."""

    __slots__ = ("_admission", "_taken_bytes")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Takes so many bytes more; `Full` where others have them."""
        others = self._admission.body_bytes - self._taken_bytes
        if others and self._admission.body_bytes + size_bytes > self._admission.limit:
            raise Full(f"request bodies of {others} bytes are in memory already")
        self._admission.body_bytes += size_bytes
        self._taken_bytes += size_bytes

    def give_back(self) -> None:
        """Gives all back, once the request is answered."""
        self._admission.body_bytes -= self._taken_bytes
        self._taken_bytes = 0


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
        announced_bytes = self.announced_bytes(headers)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message["body"]
            self._check_size(len(body))
            memory.take(len(body))
        else:
            memory.take(announced_bytes)
            body = await self._rest(message, receive, memory, announced_bytes)
        encoding = headers.get(b"content-encoding")
        if encoding is not None and body:
            body = self._inflated(encoding, body)
            memory.take(len(body))
        return body

    def announced_bytes(self, headers: Mapping[bytes, bytes]) -> int:
        """Returns the size that the head announces, 0 for none; refuses too much."""
        size_bytes = int(headers.get(b"content-length") or 0)
        self._check_size(size_bytes)
        return size_bytes

    async def _rest(
        self,
        message: Mapping[str, Any],
        receive: Receive,
        memory: Memory,
        taken: int,
    ) -> bytes:
        """Reads a body in pieces; memory for `taken` bytes is taken already."""
        body = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message["body"]
            self._check_size(len(body))
            if len(body) > taken:
                memory.take(len(body) - taken)
                taken = len(body)
            if not message.get("more_body", False):
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
