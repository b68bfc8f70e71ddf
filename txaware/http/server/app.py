"""The application: from an ASGI request to its answer, within all limits."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from txaware.auth import ANYBODY, NOBODY, AuditLog, Principal, Refusal, Tokens
from txaware.config import Settings
from txaware.errors import BadRequest, NotAuthorized, RequestTooLarge, TxAwareError
from txaware.http.server.admission import (
    WORTH_BYTES,
    Admission,
    Bodies,
    ClientGone,
    Gzip,
    Memory,
    Receive,
    compressed,
    takes_gzip,
)
from txaware.http.server.exchange import (
    Headers,
    Peer,
    Reply,
    Request,
    Stream,
    check_query,
)
from txaware.http.server.failures import error_reply, name_of, reply_to, status_of
from txaware.http.server.hidden_paths import HiddenPaths
from txaware.http.server.idempotency import INSTANCE, KEY, Idempotency
from txaware.http.server.permissions import Origins
from txaware.http.server.routing import Answer, Match, Route, Routes

log = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

_GZIPPED = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
# The most that is kept for a client whose protocol has no chunks.
GATHERED_BYTES = 64 << 20
_SINGLE = frozenset(
    (
        *(b"authorization", b"host", b"origin", b"sec-fetch-site"),
        *(b"content-type", b"content-encoding"),
    )
) | {KEY, INSTANCE}


class Observer(Protocol):
    """An observer that is told of every answer; it raises nothing."""

    def observe(self, route: str, status: int, took_s: float) -> None:
        """Tells that a request to that route was answered."""

    def count_error(self, name: str) -> None:
        """Tells that an error of that class was answered."""


class App:
    """Answers requests by the table of routes; of one event loop only."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        settings: Settings,
        admission: Admission,
        repeats: Idempotency,
        observer: Observer,
        origins: Origins,
        hidden_paths: HiddenPaths | None = None,
        tokens: Tokens | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._admission = admission
        self._routes = Routes(routes)
        self._bodies = Bodies(settings)
        self._repeats = repeats
        self._observer = observer
        self._origins = origins
        self._hidden_paths = hidden_paths or HiddenPaths()
        self._tokens = tokens
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request of ASGI."""
        began_s = time.perf_counter()
        peer: Peer = scope["state"]["peer"]
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        headers = dict(scope["headers"])
        match = self._routes.match("GET" if method == "HEAD" else method, path)
        answer: Answer
        if isinstance(match, Reply):
            answer, label = match, "(none)"
        else:
            label = match.route.path
            memory = Memory(self._admission)
            try:
                route = match.route
                with self._admission.entered(waits=route.waits, vital=route.is_vital):
                    answer = await self._answer(match, scope, headers, receive, memory)
                    if isinstance(answer, Stream) and scope["http_version"] == "1.0":
                        answer = await _gathered(answer)  # which knows no chunks
                    if isinstance(answer, Stream):
                        await _stream(answer, headers, send, peer)
            except ClientGone:
                return
            except TxAwareError as error:
                answer = self._refused(error, scope, headers, peer)
            except asyncio.CancelledError:  # the time to drain is up
                answer = error_reply(503, "Unavailable", "the server stopped meanwhile")
            finally:
                memory.give_back()
        if isinstance(answer, Reply):
            await _reply(answer, headers, send)
            status = answer.status
        else:
            status = 200
        self._observer.observe(label, status, time.perf_counter() - began_s)

    async def _answer(
        self,
        match: Match,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        memory: Memory,
    ) -> Answer:
        route = match.route
        if len(headers) != len(scope["headers"]):
            _check_single(scope["headers"])
        self._origins.check(headers, is_page=route.is_page)
        ask = partial(self._allowed, match, headers)
        principal = ask()
        if scope["query_string"] and route.query is not None:
            check_query(scope["query_string"], route.query)
        request = Request(
            scope["method"],
            scope["path"],
            match.params,
            headers,
            scope["query_string"],
            await self._body(route, headers, receive, memory),
            principal,
            scope["state"]["peer"],
            ask,
        )
        if route.keyed and headers.get(INSTANCE) == b"":
            raise BadRequest(
                "the header Txaware-Instance is empty; it names the instance that an "
                "earlier answer came from, or is left out"
            )
        key = headers.get(KEY) if route.keyed else None
        try:
            if key is None:
                return await route.handle(request)
            return await self._repeats.once(
                (principal.name, match.route.method, request.path, key),
                headers.get(INSTANCE),
                partial(_whole, route, request),
            )
        except TxAwareError:
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return error_reply(
                500, "InternalError", "the server failed; its log says why"
            )

    async def _body(
        self,
        route: Route,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        memory: Memory,
    ) -> bytes:
        """Reads the body; a GET has none, and takes no memory: it may need no token."""
        if route.method == "GET":
            return b""
        return await self._bodies.read(headers, receive, memory)

    def _allowed(self, match: Match, headers: Mapping[bytes, bytes]) -> Principal:
        """Returns the principal that asks, where the rules allow it to."""
        route = match.route
        principal = (
            self._visitor(headers) if route.is_open else self._principal(headers)
        )
        route.allow(principal, match.params)
        return principal

    def _visitor(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Returns the principal of a request that needs no token, and may have one."""
        try:
            return self._principal(headers)
        except NotAuthorized:
            return NOBODY

    def _principal(self, headers: Mapping[bytes, bytes]) -> Principal:
        if self._tokens is None:
            return ANYBODY
        value = headers.get(b"authorization")
        return self._tokens.principal(
            None if value is None else value.decode("latin-1")
        )

    def _refused(
        self,
        error: TxAwareError,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        peer: Peer,
    ) -> Reply:
        message, status = str(error), status_of(error)
        if status >= 500 and not self._visitor(headers).is_operator:
            message = self._hidden_paths.hidden_in(message)
        reply = reply_to(error, message)
        self._observer.count_error(name_of(error))
        if status == 500:
            log.error("%s %s failed: %s", scope["method"], scope["path"], error)
        if isinstance(error, NotAuthorized) and self._audit is not None:
            self._audit.refused(
                Refusal(
                    principal=self._name(headers),
                    remote=peer.address,
                    method=scope["method"],
                    path=scope["path"],
                    status=reply.status,
                    reason=str(error),
                )
            )
        return reply

    def _name(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the name of the token's principal; None where it is nobody's."""
        visitor = self._visitor(headers)
        return None if visitor is NOBODY else visitor.name


def _check_single(headers: Headers) -> None:
    """Refuses two tokens or two hosts: a proxy in front may read the other one."""
    names = [name for name, _ in headers if name in _SINGLE]
    if len(names) != len(set(names)):
        raise BadRequest("a header is there twice, and must not be")


async def _whole(route: Route, request: Request) -> Reply:
    answer = await route.handle(request)
    assert isinstance(answer, Reply)  # nothing that is streamed changes anything
    return answer


async def _reply(reply: Reply, asked: Mapping[bytes, bytes], send: Send) -> None:
    body, headers = reply.body, [*reply.headers]
    if len(body) >= WORTH_BYTES and takes_gzip(asked):
        body = compressed(body)
        headers += _GZIPPED
    if reply.content_type is not None:
        headers.append((b"content-type", reply.content_type.encode()))
    headers.append((b"content-length", b"%d" % len(body)))
    await send(
        {"type": "http.response.start", "status": reply.status, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})


async def _gathered(stream: Stream) -> Reply:
    body = bytearray()
    async for piece in stream.pieces:
        body += piece
        if len(body) > GATHERED_BYTES:
            raise RequestTooLarge("so much is answered in HTTP/1.1 only")
    return Reply(200, bytes(body), stream.content_type, stream.headers)


async def _stream(
    stream: Stream, asked: Mapping[bytes, bytes], send: Send, peer: Peer
) -> None:
    """Sends each piece once the one before it is on its way: no client is overrun."""
    gzip = Gzip() if takes_gzip(asked) else None
    headers = [*stream.headers, (b"content-type", stream.content_type.encode())]
    headers += _GZIPPED if gzip is not None else ()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for piece in stream.pieces:
            if peer.is_closed:
                return
            data = piece if gzip is None else gzip.piece(piece)
            if data:
                await send(
                    {"type": "http.response.body", "body": data, "more_body": True}
                )
    except Exception:
        log.exception("an answer was cut off")
        peer.cut()
        return
    end = b"" if gzip is None else gzip.end()
    await send({"type": "http.response.body", "body": end})
