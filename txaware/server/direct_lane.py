"""The direct lane: small whole requests are answered without a task and without ASGI.

What the lane cannot decide at once goes the general way before anything is done: other
routes, chunks, compressed and large bodies, what is pipelined behind another request.
"""

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol, Self

import attrs
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from txaware.auth import Principal
from txaware.server.admission import Bodies, ClientGone, Memory
from txaware.server.exchange import (
    Head,
    Headers,
    Peer,
    Reply,
    Send,
    Stream,
    dressed,
    send_stream,
)
from txaware.server.idempotency import KEY, KeyedRequest
from txaware.server.request_rules import RequestRules
from txaware.server.routing import Answer, Begun, Match, whole

# A larger body comes in pieces, between which others have their turn.
LANE_BYTES = 64 << 10
# A larger head is read each time: each connection would keep it.
KNOWN_BYTES = 4096
LINE = b"%s: %s\r\n"


class RequestLine(Peer, Protocol):
    """The connection of a request, as far as its answer needs it."""

    tasks: set[Any]
    loop: asyncio.AbstractEventLoop

    @property
    def default_headers(self) -> Headers:
        """The headers of every answer."""

    def answer(self, head: bytes, body: bytes, *, keep_alive: bool) -> None:
        """Sends a whole answer, and goes on with the next request."""

    def sender(self, request: "DirectRequest") -> Send:
        """Returns what sends the answer to that request in pieces."""


class Lane:
    """Decides which requests take it; one for all connections of a server."""

    def __init__(self, rules: RequestRules, bodies: Bodies) -> None:
        self.rules = rules
        self.bodies = bodies
        self.match = rules.routes.direct
        self._default_headers: Headers = ()
        self._default_lines = b""

    def request(
        self,
        match: Match,
        query_string: bytes,
        listed: Headers,
        line: RequestLine,
        *,
        keep_alive: bool,
    ) -> "DirectRequest | None":
        """Returns a request that takes the lane; None for the general way."""
        headers = dict(listed)
        size_bytes = headers.get(b"content-length")
        if (
            size_bytes is None
            or int(size_bytes) > LANE_BYTES
            or b"transfer-encoding" in headers
            or b"content-encoding" in headers
        ):
            return None
        head = Head("POST", match.path, query_string, headers, listed, line)
        return DirectRequest(self, match, head, line, keep_alive=keep_alive)

    def again(
        self, known: "KnownHead", data: bytes, line: RequestLine
    ) -> "DirectRequest":
        """Returns the request that came with a head that is known."""
        request = DirectRequest(self, known.match, known.head, line, keep_alive=True)
        request.body, request.more_body = data[len(known.sent) :], False
        return request

    def head(self, status: int, default: Headers, headers: Headers) -> bytes:
        """Returns the head of an answer, but for the line that ends it.

        No header has a value that a client chose, so none is looked at.
        """
        if default is not self._default_headers:  # there are new ones every second
            self._default_lines = b"".join([LINE % header for header in default])
            self._default_headers = default
        lines = [LINE % header for header in headers]
        return b"".join((STATUS_LINE[status], self._default_lines, *lines))


@attrs.frozen
class KnownHead:
    """A head as its client sent it, for a request of that size with its body.

    Most clients send the same head again and again. It is read once, as that takes a
    quarter of the time of a small request. All rules are asked again each time.
    """

    sent: bytes
    size_bytes: int
    match: Match
    head: Head

    def is_of(self, data: bytes) -> bool:
        """Tells whether this is one whole request with that head."""
        return len(data) == self.size_bytes and data.startswith(self.sent)


class DirectRequest:
    """One request in the lane; uvicorn takes it for a cycle of its own, and a task.

    So it sets `disconnected` and then `message_event`, waits for it before the server
    ends, and cancels it when the time to drain is up.
    """

    body = b""
    more_body = True
    disconnected = response_started = response_complete = False
    _is_counted = _is_over = False
    _principal: Principal | None = None
    _repeat: KeyedRequest | None = None
    _tokens_state: object = None

    def __init__(
        self,
        lane: Lane,
        match: Match,
        head: Head,
        line: RequestLine,
        *,
        keep_alive: bool,
    ) -> None:
        self.keep_alive = keep_alive
        self._began_s = time.perf_counter()
        self._lane = lane
        self._rules = lane.rules
        self._match = match
        self._head = head
        self._line = line
        self._memory = Memory(lane.rules.admission, line.stop_body)

    @property
    def message_event(self) -> Self:
        """This object: uvicorn sets it when something has happened to the request."""
        return self

    def set(self) -> None:
        """Gives up if the client is gone, or refused, before its body was there."""
        if self.disconnected and self.more_body and not self._is_over:
            self._is_over = True
            self._leave()

    def go_on(self) -> bool:
        """Does what can be done with what has come; True when that was all.

        It is called outside of the parser, as an answer may have it go on.
        """
        begun: Begun | Exception = None
        try:
            if self._principal is None and not self._is_over:
                self._principal = self._admitted()
            elif not self._is_over:
                self._memory.came(len(self.body) - self._memory.taken_bytes)
                if not self.more_body:
                    self._memory.has_come()
            if self._principal is None or self._is_over or self.more_body:
                return self._is_over
            begun = self._begun(self._principal)
        except Exception as error:
            begun = error
        if begun is None:
            if not self._is_over:  # it may have been told already
                self._line.tasks.add(self)
        elif isinstance(begun, Reply | Exception):
            self._end(begun)
            begun = None  # an error has this frame, and would wait for the collector
        else:
            self._wait(self._streamed(begun) if isinstance(begun, Stream) else begun)
        return True

    def known_head(self, data: bytes) -> KnownHead | None:
        """Returns its head if `data` is this request, whole, and nothing else."""
        end = len(data) - len(self.body)
        if self.more_body or not self.keep_alive or end > KNOWN_BYTES:
            return None
        if KEY in self._head.headers:  # which is another one each time
            return None
        sent = data[:end]
        if sent.find(b"\n\r\n") != end - 3 or b"\n\n" in sent:
            return None
        return KnownHead(sent, len(data), self._match, self._head)

    def finish(self, outcome: Reply | BaseException) -> None:
        """Answers; unless that was cancelled, as the server ended meanwhile."""
        if not self._is_over:
            self._end(outcome)

    def cancel(self, msg: object = None) -> None:
        """Answers soon that the time to drain is up; uvicorn goes through all first."""
        self._line.loop.call_soon(self.finish, asyncio.CancelledError(msg))

    def _admitted(self) -> Principal:
        rules, route = self._rules, self._match.route
        rules.admission.enter(waits=route.waits, vital=route.is_vital)
        self._is_counted = True
        self._tokens_state = rules.tokens_state
        principal = rules.asks(self._match, self._head)
        memory = self._memory
        memory.holder = self._holder(principal)
        self._lane.bodies.check_announced(self._head.headers)
        memory.take(len(self.body))
        if self.more_body:
            memory.expect_more()
        return principal

    def _holder(self, principal: Principal) -> str | None:
        return self._rules.holder_of(principal, self._head)

    def _begun(self, principal: Principal) -> Begun:
        rules, match, head = self._rules, self._match, self._head
        request = rules.request(match, head, principal, self.body)
        if rules.forwarding is not None:
            match = rules.forwarding.placed(match, request)
        repeat = rules.repeat_of(match, request)
        if repeat is not None:
            if rules.repeats.begin(repeat) is not None:
                perform = partial(whole, match.route, request)
                return rules.repeats.once(repeat, perform)
            self._repeat = repeat
        begin = match.route.begin
        if begin is None:
            return match.route.handle(request)
        return begin(request, self.finish)

    def _wait(self, answering: Coroutine[Any, Any, Answer]) -> None:
        task = self._line.loop.create_task(self._awaited(answering))
        task.add_done_callback(self._line.tasks.discard)
        self._line.tasks.add(task)

    async def _awaited(self, answering: Coroutine[Any, Any, Answer]) -> None:
        outcome: Answer | BaseException
        try:
            outcome = await answering
            if isinstance(outcome, Stream) and not self.response_started:
                await self._streamed(outcome)
        except (Exception, asyncio.CancelledError) as error:
            outcome = error
        self._end(outcome)
        del outcome  # as in `go_on`

    async def _streamed(self, stream: Stream) -> Stream:
        self.response_started = True
        try:
            await send_stream(stream, self._head, self._line.sender(self))
        except asyncio.CancelledError:
            self._line.cut()
            raise
        return stream

    def _end(self, outcome: Answer | BaseException) -> None:
        rules, status = self._rules, 200
        self._is_over = True
        self._line.tasks.discard(self)
        if self._repeat is not None:
            assert not isinstance(outcome, Stream)
            rules.repeats.end(self._repeat, outcome)
        if isinstance(outcome, ClientGone) and self._line.is_closed:
            self._leave()
            return
        if isinstance(outcome, BaseException):
            outcome = rules.refusal(outcome, self._head)
        self._leave()
        if isinstance(outcome, Reply):
            status = outcome.status
            self._send(outcome)
        took_s = time.perf_counter() - self._began_s
        rules.observer.observe(self._match.route.path, status, took_s)

    def _leave(self) -> None:
        """Gives back what it had while it was answered."""
        if self._is_counted:
            self._is_counted = False
            self._rules.admission.leave(waits=self._match.route.waits)
        self._memory.give_back()

    def _send(self, reply: Reply) -> None:
        if self.disconnected or self.response_started:
            return
        self.response_started = self.response_complete = True
        body, headers = dressed(reply, self._head.headers)
        head = self._lane.head(reply.status, self._line.default_headers, headers)
        head += b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._line.answer(head, body, keep_alive=self.keep_alive)
