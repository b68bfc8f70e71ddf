"""One request of frames: its body as it comes, what answers it, and its end."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import attrs

from txaware.auth import Principal
from txaware.errors import BadRequest, TxAwareError
from txaware.protocol.frames import (
    ANY_ROUTE,
    CANCEL,
    CREDIT_BYTES,
    SERVER,
    ReplyHead,
    RequestHead,
    SendQueue,
    WrongFrame,
    frame,
)
from txaware.server import exchange
from txaware.server.admission import Full, Memory
from txaware.server.direct_lane import DirectRequest, Lane
from txaware.server.exchange import Again, Head, Headers, Reply, Send, Settable
from txaware.server.idempotency import HAS_NO_COPY, INSTANCE, KEY, SENT_TO
from txaware.server.routes.verb_routes import FrameRoute
from txaware.server.routing import Answer, Match

log = logging.getLogger(__name__)

# The headers of the upgrade that all requests of its connection have.
_OF_ALL = frozenset((b"authorization", b"host", b"origin", b"sec-fetch-site", SERVER))
# Those that a request may have of its own.
_OF_ONE = ("accept", "content-type", SENT_TO.decode())


def shared_headers(upgrade: Head) -> dict[bytes, bytes]:
    """Returns the headers that all requests of a connection have."""
    return {name: value for name, value in upgrade.headers.items() if name in _OF_ALL}


@attrs.frozen
class KnownRequest:
    """A request that was performed, and may be once more when it comes again."""

    stream: "RequestStream"
    request: "FrameRequest"
    again: Again


class StreamLine(Protocol):
    """The connection of a stream."""

    loop: asyncio.AbstractEventLoop
    tasks: set[Any]
    queue: SendQueue
    lane: Lane
    routes: Mapping[int, FrameRoute]
    headers: Mapping[bytes, bytes]
    listed: Headers
    body_timeout_s: float
    waiting: "set[RequestStream]"
    is_closed: bool
    address: str | None
    host_and_port: str | None
    renamed: str | None

    def when_lost(self, call: Callable[[], object]) -> bool:
        """Has `call` called once it is lost."""

    def answer(self, stream: "RequestStream", reply: Reply) -> None:
        """Sends a whole answer; the stream has ended with it."""

    def ended(self, stream: "RequestStream") -> None:
        """Counts the request no more."""

    def take_more(self, stream: "RequestStream", size_bytes: int) -> None:
        """Lets the client send so much more of the body."""

    def flush(self) -> None:
        """Writes what has its turn."""


class RequestStream:
    """A request on its way; the peer of the routes that answer it.

    `holder` is who has its share of what all have, once it was let in. `came` are the
    bytes of a small one that came in one frame; they tell when it comes again.
    """

    default_headers: Headers = ()
    _is_given_up = _waits_no_more = False
    _when_gone: Settable | None = None
    _memory: Memory | None = None
    _timer: asyncio.TimerHandle | None = None
    _came_bytes = _untold_bytes = 0
    _request: "FrameRequest | None" = None
    _writable: asyncio.Event | None = None

    def __init__(
        self, line: Any, number: int, head: RequestHead, came: bytes = b""
    ) -> None:
        self.line: StreamLine = line
        self.number, self.came = number, came
        self.request_head = head
        self.holder: str | None = None
        self.loop, self.tasks = line.loop, line.tasks
        self._body = bytearray()

    # ---- the other end, as routes see it
    @property
    def connection(self) -> Any:
        """The connection as a whole."""
        return self.line

    @property
    def is_gone(self) -> bool:
        """True when nobody waits for the answer any more."""
        return self._waits_no_more or self.is_closed

    @property
    def is_closed(self) -> bool:
        """True when nothing can be sent any more."""
        return self._is_given_up or self.line.is_closed

    @property
    def address(self) -> str | None:
        """The address of the other end."""
        return self.line.address

    @property
    def host_and_port(self) -> str | None:
        """The address with its port."""
        return self.line.host_and_port

    def cut(self) -> None:
        """Tells the client that the answer is broken, and ends it."""
        if not self.is_closed:
            self.line.queue.drop(self.number)
            self.line.queue.add(frame(CANCEL, self.number))
            self.line.flush()
        self.give_up()

    def stop_body(self) -> None:
        """Refuses the request whose body is coming: others needed its place."""
        self._refuse(
            BadRequest(
                "the request's body stopped coming, and others needed its place"
            ),
            status=408,
        )

    async def writable(self) -> None:
        """Returns once the client has taken what was sent of this answer."""
        while self.line.queue.is_sending(self.number) and not self.is_closed:
            self._writable = asyncio.Event()
            self.line.waiting.add(self)
            await self._writable.wait()

    def sent(self) -> None:
        """Goes on with an answer in pieces, where the one before is on its way."""
        if self._writable is not None:
            self._writable.set()

    def set_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the client goes, or cancels; None takes that back."""
        self._when_gone = event
        if event is not None and self.is_gone:
            event.set()

    def when_lost(self, call: Callable[[], object]) -> bool:
        """Has `call` called once the connection is lost; a client has only this one."""
        return self.line.when_lost(call)

    def sender(self, request: DirectRequest) -> Send:
        """Is not there: a stream sends pieces by itself."""
        raise NotImplementedError

    def begin_again(self, number: int, known: KnownRequest) -> bool:
        """Has the request performed once more, as a new stream; see `Again`."""
        self.number, self._request = number, known.request
        if known.request.begin_again(known.again):
            return True
        self._request = None
        return False

    def known(self, again: Again) -> KnownRequest | None:
        """Returns what it takes to perform it `again`, if it is worth keeping."""
        if self._request is None or not self.came:
            return None
        return KnownRequest(self, self._request, again)

    def end_wait(self) -> None:
        """Notes that the client wants what there is, and no more."""
        if self._request is None:
            self.cut()
            return
        self._waits_no_more = True
        if self._when_gone is not None:
            self._when_gone.set()

    def give_up(self) -> None:
        """Notes that nobody wants the answer: the client is gone, or has cancelled."""
        self._is_given_up = True
        self._forget_body()
        if self._request is None:
            self.line.ended(self)
        else:  # it counts until its work is done
            self._request.disconnected = True
        if self._when_gone is not None:
            with suppress(RuntimeError):
                self._when_gone.set()
        self.sent()

    def performed(self) -> None:
        """Ends the stream, whose request was performed.

        It lets go of that, which has the body and knows the stream: such a ring would
        wait for the collector of garbage.
        """
        self._request = None
        self.line.ended(self)

    # ---- the request
    def begin(self, body: bytes) -> None:
        """Takes the head and the beginning of the body."""
        if len(body) == self.request_head.size_bytes:
            self._whole(body)
            return
        memory = self._memory = Memory(self.line.lane.rules.admission, self.stop_body)
        memory.holder = self.holder
        memory.expect_more()
        self._timer = self.loop.call_later(self.line.body_timeout_s, self._is_late)
        self.piece(body)

    def piece(self, data: bytes) -> None:
        """Takes some more of the body; what comes behind a refusal is dropped."""
        memory = self._memory
        if memory is None:
            return
        self._came_bytes += len(data)
        if self._came_bytes > self.request_head.size_bytes:
            raise WrongFrame("a request has more bytes than it says")
        try:
            memory.came(len(data))
        except TxAwareError as error:
            self.refuse(error)
            return
        self._body += data
        self._untold_bytes += len(data)
        if self._came_bytes == self.request_head.size_bytes:
            body = bytes(self._body)
            self._forget_body()
            self._whole(body)
        elif self._untold_bytes >= CREDIT_BYTES // 2:
            self.line.take_more(self, self._untold_bytes)
            self._untold_bytes = 0

    def _is_late(self) -> None:
        self._refuse(BadRequest("the request's body did not come in time"), status=408)

    def _forget_body(self) -> None:
        self._body = bytearray()
        if self._timer is not None:
            self._timer.cancel()
        if self._memory is not None:
            self._memory.give_back()
            self._memory = None

    def _whole(self, body: bytes) -> None:
        """Has the request answered, whose body has come."""
        try:
            match = self._match(body)
        except TxAwareError as error:
            self.refuse(error)
            return
        if isinstance(match, Reply):
            self.answer(match)
            return
        self._request = FrameRequest(self, match, self.head(match.path), body)
        self._request.go_on()

    def _match(self, body: bytes) -> Match | Reply:
        head, line = self.request_head, self.line
        if head.verb == ANY_ROUTE:
            path, routes = head.path.partition("?")[0], line.lane.rules.routes
            # Paths of transactions, each of which is new, are known by what is around
            # their number.
            direct = routes.direct(path.encode()) if head.method == "POST" else None
            return routes.match(head.method, path) if direct is None else direct[0]
        route = line.routes.get(head.verb)
        if route is None:
            raise BadRequest(f"there is no verb {head.verb}")
        return route.match(body)

    def head(self, path: str | None = None) -> Head:
        """Returns the head that a request of HTTP has."""
        head, line = self.request_head, self.line
        own: list[tuple[bytes, bytes]] = []
        if head.key is not None:
            own.append((KEY, head.key.encode()))
            # No other connection takes it. Servers pass on how they got a request.
            if head.connection and SERVER not in line.headers:
                own.append((SENT_TO, HAS_NO_COPY))
        if head.instance is not None:
            own.append((INSTANCE, head.instance.encode()))
        for name in _OF_ONE if head.headers else ():
            if name in head.headers:
                own.append((name.encode(), head.headers[name].encode()))
        headers, listed = line.headers, line.listed
        if own:
            headers = {**headers, **dict(own)}
            listed = [*headers.items()]
        route = line.routes.get(head.verb)
        if route is not None:
            method, path, query = route.verb.method, path or route.verb.path, ""
        else:
            method = head.method
            found, _, query = head.path.partition("?")
            path = path or found
        return Head(
            method,
            path,
            query.encode("latin-1", "replace"),
            headers,
            listed,
            self,
            head.verb,
        )

    # ---- the answer
    def _refuse(self, error: TxAwareError, *, status: int) -> None:
        reply = self.line.lane.rules.refusal(error, self.head())
        self._forget_body()
        self.answer(Reply(status, reply.body, reply.content_type, reply.headers))

    def refuse(self, error: TxAwareError) -> None:
        """Answers that the request is not begun."""
        self._forget_body()
        self.answer(self.line.lane.rules.refusal(error, self.head()))

    def answer(self, reply: Reply) -> None:
        """Sends a whole answer."""
        self.line.answer(self, reply)

    def reply_head(self, reply: Reply | exchange.Stream) -> ReplyHead:
        """Returns the head of an answer, but for its size."""
        headers: dict[str, str] = {}
        retry_after, is_unknown = None, False
        if reply.headers:
            headers = {name.decode(): value.decode() for name, value in reply.headers}
            retry_after = headers.pop("retry-after", None)
            is_unknown = headers.pop("txaware-outcome", None) is not None
        if self.request_head.verb == ANY_ROUTE and reply.content_type is not None:
            headers["content-type"] = reply.content_type
        renamed = self.line.renamed
        if renamed is not None:
            headers.setdefault("txaware-instance", renamed)
        return ReplyHead(
            reply.status if isinstance(reply, Reply) else 200,
            None,
            None if retry_after is None else int(retry_after),
            is_unknown,
            headers,
        )


class FrameRequest(DirectRequest):
    """A request of frames that has come as a whole, by the rules of all requests."""

    def __init__(
        self, stream: RequestStream, match: Match, head: Head, body: bytes
    ) -> None:
        super().__init__(
            stream.line.lane,
            match,
            head,
            stream,  # type: ignore[arg-type]
            keep_alive=True,
        )
        self._stream = stream
        self.body, self.more_body = body, False

    def begin_again(self, again: Again) -> bool:
        """Is performed once more, within the limits; see `Again`.

        Who may ask is not asked where that was decided by the same tokens and rules.
        """
        rules, match = self._rules, self._match
        if rules.tokens_state is not self._tokens_state:
            return False
        if rules.forwarding is not None:
            assert self._principal is not None
            request = rules.request(match, self._head, self._principal, self.body)
            if rules.forwarding.placed(match, request) is not match:
                return False
        try:
            rules.admission.enter(waits=match.route.waits, vital=match.route.is_vital)
            self._is_counted = True
            self._memory.take(len(self.body))
        except Full:
            self._leave()
            return False
        self._began_s = time.perf_counter()
        self._is_over = self.response_started = self.response_complete = False
        if not again():
            self._is_over = True
            self._leave()
            return False
        if not self._is_over:  # it may have been told already
            self._line.tasks.add(self)
        return True

    def _holder(self, _: Principal) -> str | None:
        return self._stream.holder

    def _send(self, reply: Reply) -> None:
        if not self.disconnected and not self.response_started:
            self.response_started = self.response_complete = True
            self._stream.answer(reply)

    def _end(self, outcome: Answer | BaseException) -> None:
        super()._end(outcome)
        self._stream.performed()

    async def _streamed(self, stream: exchange.Stream) -> exchange.Stream:
        """Sends each piece once the one before it is on its way."""
        self.response_started = True
        line, number = self._stream.line, self._stream.number
        line.queue.begin(number, self._stream.reply_head(stream), b"")
        line.flush()
        try:
            async for piece in stream.pieces:
                if self._stream.is_closed:
                    return stream
                if piece:
                    line.queue.go_on(number, piece)
                    line.flush()
                del piece
                await self._stream.writable()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, Exception):
                log.exception("an answer was cut off")
            self._stream.cut()
            return stream
        line.queue.go_on(number, b"")
        line.flush()
        return stream
