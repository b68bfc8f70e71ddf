"""Requests and replies, as the routes see them: no sockets, no framework."""

import json
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from typing import Any, Protocol
from urllib.parse import parse_qsl

import attrs
import msgspec

from txaware.auth import Principal
from txaware.errors import BadRequest, RequestTooLarge
from txaware.protocol.frames import ANY_ROUTE
from txaware.server.admission import WORTH_BYTES, Gzip, compressed, takes_gzip

JSON = "application/json"
Headers = Sequence[tuple[bytes, bytes]]


class Settable(Protocol):
    """Takes note that something has happened, as an event of asyncio does."""

    def set(self) -> object:
        """Notes that it has happened."""


class Peer(Protocol):
    """The other end of the connection, or of one stream of it."""

    @property
    def connection(self) -> "Peer":
        """The connection as a whole."""

    @property
    def is_gone(self) -> bool:
        """True when nobody reads the answer any more."""

    @property
    def is_closed(self) -> bool:
        """True when nothing can be sent any more."""

    def cut(self) -> None:
        """Closes the connection at once, so that a broken answer is noticed."""

    def stop_body(self) -> None:
        """Refuses the request whose body is coming, which gave its place up."""

    def when_lost(self, call: Callable[[], object]) -> bool:
        """Has `call` called once the connection as a whole is lost, in the event loop.

        False, and it is not called, where requests of one client come on several.
        """

    @property
    def address(self) -> str | None:
        """Its address, where it has one."""

    @property
    def host_and_port(self) -> str | None:
        """Its address with the port, by which it differs from others of its host."""

    async def writable(self) -> None:
        """Returns once it has read most of what was written."""

    def set_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the other end goes; None takes that back."""


class Head(msgspec.Struct, frozen=True, eq=False):
    """The head of a request; `listed` are its headers as they came, in their order.

    `verb` is the number of the verb that a frame asks for.
    """

    method: str
    path: str
    query_string: bytes
    headers: Mapping[bytes, bytes]
    listed: Headers
    peer: Peer
    verb: int = ANY_ROUTE


class Request(msgspec.Struct, frozen=True, eq=False):
    """One request, read to its end; `params` are the names in its path.

    `ask_again` raises where its token, or the rule that it needed, was taken away.
    `arguments` is the verb's own request, decoded, where that was done already: it came
    in a frame, by the verb's number, or was read to find the server that performs it.
    """

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    query_string: bytes
    body: bytes
    principal: Principal
    peer: Peer
    ask_again: Callable[[], object]
    arguments: Any = None
    verb: int = ANY_ROUTE

    @property
    def content_type(self) -> str | None:
        """The header Content-Type."""
        value = self.headers.get(b"content-type")
        return None if value is None else value.decode("latin-1")

    @property
    def accepts(self) -> tuple[str, ...]:
        """The media types that the header Accept names, without their weights."""
        value = self.headers.get(b"accept", b"").decode("latin-1").lower()
        named = (part.partition(";")[0].strip() for part in value.split(","))
        return tuple(filter(None, named))

    @property
    def topic(self) -> str:
        """`namespace:topic`, from the path."""
        return f"{self.params['namespace']}:{self.params['topic']}"

    def of_partition(self, params: Mapping[str, str], arguments: Any) -> "Request":
        """Returns it as one to a partition, which these names say."""
        return msgspec.structs.replace(self, params=params, arguments=arguments)

    def query(self) -> dict[str, str]:
        """Returns the query's fields."""
        return query_fields(self.query_string)


# Performs a request once more that has come again as it was; its answer is told later.
# False where something may have changed since: then nothing is done.
Again = Callable[[], bool]


class Reply(msgspec.Struct, frozen=True):
    """One answer, as a whole; the same request may be performed `again`."""

    status: int = 200
    body: bytes = b""
    content_type: str | None = None
    headers: Headers = ()
    again: Again | None = None


@attrs.frozen
class Stream:
    """One answer in pieces; what fails after the first one cuts the connection."""

    pieces: AsyncIterator[bytes]
    content_type: str
    headers: Headers = ()


GZIPPED = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))


def dressed(
    reply: Reply, request_headers: Mapping[bytes, bytes]
) -> tuple[bytes, Headers]:
    """Returns the body as it goes out, and all headers that go with it."""
    body, headers = reply.body, [*reply.headers]
    if len(body) >= WORTH_BYTES and takes_gzip(request_headers):
        body = compressed(body)
        headers += GZIPPED
    if reply.content_type is not None:
        headers.append((b"content-type", reply.content_type.encode()))
    headers.append((b"content-length", b"%d" % len(body)))
    return body, headers


def query_fields(query_string: bytes) -> dict[str, str]:
    """Returns the fields of a query, decoded; `BadRequest` for one that is repeated."""
    text = query_string.decode("latin-1")
    if "%" in text or "+" in text:
        pairs = parse_qsl(text, keep_blank_values=True)
        fields, count = dict(pairs), len(pairs)
    else:
        # The same, in a quarter of the time: each push has a query.
        parts = [part.partition("=") for part in text.split("&") if part]
        fields, count = {name: value for name, _, value in parts}, len(parts)
    if len(fields) != count:
        raise BadRequest("the query has a field twice, and nobody knows which counts")
    return fields


def check_query(query_string: bytes, known: Collection[str]) -> None:
    """Refuses a query with a field that is not known: it may be one misspelt."""
    unknown = query_fields(query_string).keys() - set(known)
    if unknown:
        raise BadRequest(f"no such field in the query: {', '.join(sorted(unknown))}")


DONE = Reply()
DONE_IN_JSON = Reply(200, b"{}", JSON)


def json_reply(value: Any, *, status: int = 200) -> Reply:
    """Returns a reply of JSON."""
    return Reply(status, json.dumps(value).encode(), JSON)


log = logging.getLogger(__name__)

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# The most that is kept for a client whose protocol has no chunks.
GATHERED_BYTES = 64 << 20


async def gathered(stream: Stream) -> Reply:
    """Returns all pieces as one answer."""
    body = bytearray()
    async for piece in stream.pieces:
        body += piece
        if len(body) > GATHERED_BYTES:
            raise RequestTooLarge("so much is answered in HTTP/1.1 only")
    return Reply(200, bytes(body), stream.content_type, stream.headers)


async def send_stream(stream: Stream, head: Head, send: Send) -> None:
    """Sends each piece once the one before it is on its way: no client is overrun."""
    gzip = Gzip() if takes_gzip(head.headers) else None
    headers = [*stream.headers, (b"content-type", stream.content_type.encode())]
    headers += GZIPPED if gzip is not None else ()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for piece in stream.pieces:
            if head.peer.is_closed:
                return
            data = piece if gzip is None else gzip.piece(piece)
            if data:
                await send(
                    {"type": "http.response.body", "body": data, "more_body": True}
                )
            del piece, data  # the next one is made when this one is on its way
            await head.peer.writable()
    except Exception:
        log.exception("an answer was cut off")
        head.peer.cut()
        return
    end = b"" if gzip is None else gzip.end()
    await send({"type": "http.response.body", "body": end})
