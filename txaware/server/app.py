"""The application: the general way of a request, from ASGI to its answer."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from txaware.errors import TxAwareError
from txaware.server.admission import Bodies, ClientGone, Memory, Receive
from txaware.server.direct_lane import Lane
from txaware.server.exchange import (
    Head,
    Reply,
    Request,
    Send,
    Stream,
    dressed,
    gathered,
    send_stream,
)
from txaware.server.frame_connection import FrameRules
from txaware.server.request_rules import RequestRules
from txaware.server.routing import Answer, Match, Route, whole

Scope = Mapping[str, Any]


class AsgiApp:
    """Answers requests of ASGI by the table of routes; of one event loop only.

    The `lane` answers others before they come here, by the same rules. `frames` grants
    an upgrade, and is set by a server that has them.
    """

    frames: FrameRules | None = None

    def __init__(self, rules: RequestRules, bodies: Bodies) -> None:
        self.lane = Lane(rules, bodies)
        self._rules = rules
        self._admission = rules.admission
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request of ASGI."""
        began_s = time.perf_counter()
        head = _head(scope)
        match = self._rules.routes.match(
            "GET" if head.method == "HEAD" else head.method,
            scope["raw_path"].decode("latin-1"),
        )
        answer: Answer
        if isinstance(match, Reply):
            answer, label = match, "(none)"
        else:
            label = match.route.path
            try:
                answer = await self._answer(match, head, scope, receive, send)
            except ClientGone as error:
                if head.peer.is_closed:
                    # Nobody gets it, but uvicorn logs an error where nothing is sent.
                    await _reply(Reply(400), head.headers, send)
                    return
                answer = self._rules.refusal(error, head)
            except (TxAwareError, asyncio.CancelledError) as error:
                answer = self._rules.refusal(error, head)
        if isinstance(answer, Reply):
            await _reply(answer, head.headers, send)
            status = answer.status
        else:
            status = 200
        took_s = time.perf_counter() - began_s
        self._rules.observer.observe(label, status, took_s)

    async def _answer(
        self, match: Match, head: Head, scope: Scope, receive: Receive, send: Send
    ) -> Answer:
        """Answers with a reply, or sends a stream before it returns that."""
        rules, route, admission = self._rules, match.route, self._admission
        memory = Memory(admission, head.peer.stop_body)
        admission.enter(waits=route.waits, vital=route.is_vital)
        try:
            principal = rules.asks(match, head)
            memory.holder = rules.holder_of(principal, head)
            body = await self._body(route, head.headers, receive, memory)
            request = rules.request(match, head, principal, body)
            answer = await self._handled(match, request, head)
            if isinstance(answer, Stream) and scope["http_version"] == "1.0":
                return await gathered(answer)  # which knows no chunks
            if isinstance(answer, Stream):
                await send_stream(answer, head, send)
            return answer
        finally:
            admission.leave(waits=route.waits)
            memory.give_back()

    async def _handled(self, match: Match, request: Request, head: Head) -> Answer:
        if self._rules.forwarding is not None:
            match = self._rules.forwarding.placed(match, request)
        repeats, route = self._rules.repeats, match.route
        repeat = self._rules.repeat_of(match, request)
        try:
            if repeat is None:
                return await route.handle(request)
            return await repeats.once(repeat, partial(whole, route, request))
        except (TxAwareError, ClientGone):
            raise
        except Exception as error:
            return self._rules.refusal(error, head)

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


class Expecting:
    """An application for a client that waits to be told to send its body.

    A client that is answered before may send the body or not: nothing else can follow.
    """

    def __init__(self, cycle: Any, app: Any) -> None:
        self._cycle, self._app = cycle, app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_answer(message: Any) -> None:
            if self._cycle.waiting_for_100_continue:
                self._cycle.keep_alive = False
            await send(message)

        await self._app(scope, receive, send_answer)


def _head(scope: Scope) -> Head:
    listed = scope["headers"]
    return Head(
        scope["method"],
        scope["path"],
        scope["query_string"],
        dict(listed),
        listed,
        scope["state"]["peer"],
    )


async def _reply(
    reply: Reply, request_headers: Mapping[bytes, bytes], send: Send
) -> None:
    body, headers = dressed(reply, request_headers)
    await send(
        {"type": "http.response.start", "status": reply.status, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})
