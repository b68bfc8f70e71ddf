"""Sends answers in pieces, and gathers them for a protocol that has none."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from txaware.errors import RequestTooLarge
from txaware.server.admission import Gzip, takes_gzip
from txaware.server.exchange import GZIPPED, Head, Reply, Stream

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
