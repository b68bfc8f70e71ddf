"""One connection: uvicorn's, with the limits that it leaves to others."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from txaware.server.admission import AnswerMemory
from txaware.server.app import Expecting
from txaware.server.connection_limits import ConnectionLimits, is_vital
from txaware.server.direct_lane import DirectRequest, KnownHead, Lane
from txaware.server.exchange import Headers, Send, Settable
from txaware.server.failures import last_answer
from txaware.server.frame_connection import FrameConnection
from txaware.server.request_parser import BODY, HEAD, NOTHING, Feeding, WrongHead
from txaware.server.routing import Match
from txaware.server.server_context import Stopping
from txaware.server.sink import Flow, Sink

# The time a client may still send what is read to nowhere: a connection that is closed
# before is reset, and the answer is lost with it.
LINGER_S = 5.0
TLS_END_S = 1.0
# The time in which a connection beyond the limits has to say what it wants.
RESERVED_S = 2.0
# What waits of an answer below this is not counted.
HELD_BYTES = 64 << 10
CUT_S = 0.05  # the server leaves twice as much

Timer = asyncio.TimerHandle | None


class Connection(Feeding):
    """Limits heads and bodies in time, and the connections in number.

    A half-closed connection still gets its answers: a client that has shut down its
    sending side may wait for them. Like `settings`, `stopping`, `limits` and `answers`
    are set by the server.
    """

    stopping: Stopping
    limits: ConnectionLimits
    answers: AnswerMemory

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._request_timer: Timer = None
        self._write_timer: Timer = None
        self._when_gone: Settable | None = None
        self._has_ended = False  # the client sends nothing more
        self._refusal: bytes | None = None
        self._too_many: str | None = None  # why it is beyond the limits
        self._running: Any = None
        self._lane: Lane = self.app.lane
        self._frames: FrameConnection | None = None  # once it goes on as that
        self._direct: DirectRequest | None = None  # until all of it has come
        self._known: KnownHead | None = None  # of the last one
        self._is_driving = False
        self._idle_since_s = 0.0
        self.app_state = {"peer": self}
        # A handler of the root logger would get each request, query and all.
        self.access_log = False

    @property
    def connection(self) -> "Connection":
        """This connection: one request at a time has all of it."""
        return self

    @property
    def is_gone(self) -> bool:
        """True when nobody reads the answer any more."""
        return self._has_ended or self.is_closed

    @property
    def is_closed(self) -> bool:
        """True when nothing can be sent any more."""
        return self._sink.is_over

    def cut(self) -> None:
        """Closes the connection at once, so that a broken answer is noticed."""
        self._sink.is_over = True
        self.transport.abort()

    @property
    def host_and_port(self) -> str | None:
        """The address with its port, as it is written in a URL."""
        if not self.client:
            return None
        host, port = self.client[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def unsent_bytes(self) -> int:
        """The bytes of answers that the other end has not taken."""
        return self.transport.get_write_buffer_size()

    async def writable(self) -> None:
        """Returns once the client has read most of what was written."""
        if self.flow.write_paused:
            await self.flow.drain()

    def set_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the other end goes; None takes that back."""
        self._when_gone = event
        if event is not None and self.is_gone:
            event.set()

    def when_lost(self, call: Callable[[], object]) -> bool:
        """Returns False: a client has several, and may close one of them."""
        return False

    def pause_writing(self) -> None:
        """Cuts the connection off if its client reads nothing of what it asked for."""
        super().pause_writing()
        self._hold()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self.settings.write_timeout_s, self.cut
            )

    def resume_writing(self) -> None:
        """Goes on when the client reads on."""
        self.answers.release(self)
        self._reads_on()
        super().resume_writing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuses connections above the limit, with a reason."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else None
        self.flow = Flow(transport, self.pipeline)
        self._sink = Sink(transport, self._end, self._hold)
        if self.stopping.is_set or len(self.connections) > self.limits.most_at_all:
            self.cut()
            return
        self._too_many = self.limits.enter(self)
        timeout_s = self.settings.header_timeout_s
        if self._too_many is not None:
            timeout_s = min(timeout_s, RESERVED_S)
        self._expect(timeout_s, self._head_is_late)

    def stop_body(self) -> None:
        """Refuses the request whose body is coming: others needed its place."""
        if self.part is BODY and not self.is_closed:
            self.refuse(
                408,
                "BadRequest",
                "the request's body stopped coming, and others needed its place",
            )

    def make_room(self) -> None:
        """Ends this connection: it is beyond the limits, silent, and others came."""
        self._refuse_too_many()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything, and tells those who wait for messages for this client."""
        self.limits.leave(self)
        self.answers.release(self)
        self._sink.is_over = True
        self._stop_expecting()
        self._reads_on()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        self._tell_gone()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open for the answers under way."""
        self._tell_gone()
        if self.is_closed or self.scheme == "https":
            return False  # TLS has no half-closed connections
        incomplete = self.part is BODY and not self.has_unfed
        if (incomplete and not self._drop_incomplete()) or not self._is_answering:
            return False
        if not self.pipeline and not self.has_unfed:
            self._running.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, until nothing more is answered."""
        if self._sink.is_over or self._refusal is not None:
            return
        known, is_first = self._known, self.is_between
        if known is not None and known.is_of(data) and is_first and self._may_begin:
            self._begin_direct(self._lane.again(known, data, self))
            self._drive()
            return
        self.feed(data)
        if self._frames is not None:
            self._hand_over()
            return
        if self._direct is not None:
            self._known = self._direct.known_head(data) if is_first else None
            self._drive()
        if self.part is not NOTHING:
            self._expect_rest()

    def on_headers_complete(self) -> None:
        """Begins a request, or has it wait for the one before it."""
        if self._too_many is not None:
            self.limits.asks(self)
            method, path = self.parser.get_method(), self.url.partition(b"?")[0]
            if not is_vital(method.decode("ascii"), path.decode("latin-1")):
                raise WrongHead(503, "Unavailable", self._too_many)
        super().on_headers_complete()
        if self._too_many is not None:
            self.cycle.keep_alive = False
        if self._request_timer is not None:
            self._stop_expecting()

    def begin_request(self) -> None:
        """Begins a request in the direct lane, or the general way; or frames."""
        if self.parser.should_upgrade() and self._begin_frames():
            return
        found = self._lane.match(self.url)
        direct = None if found is None else self._direct_request(*found)
        if direct is None:
            super().begin_request()
            self.cycle.transport = self._sink  # type: ignore[assignment]
        else:
            self._begin_direct(direct)
            self.growing = direct

    def _begin_frames(self) -> bool:
        """Goes on in frames, where that is asked for and granted."""
        is_first = self._may_begin and self._too_many is None
        frames = self.app.frames
        is_first = is_first and self.parser.get_http_version() == "1.1"
        if frames is None or not is_first or self.parser.get_method() != b"GET":
            return False
        self._frames = frames.upgraded(self, self.url, self.headers)
        self.is_upgraded = self._frames is not None
        return self.is_upgraded

    def _hand_over(self) -> None:
        """Has frames take what comes from now on; they keep this object."""
        frames, self._frames = self._frames, None
        assert frames is not None
        self._stop_expecting()
        self._unset_keepalive_if_required()
        self._sink.is_over = True
        frames.begin(self.taken_over())

    def _begin_direct(self, direct: DirectRequest) -> None:
        self.cycle = self._running = self._direct = direct  # type: ignore[assignment]

    def _direct_request(self, match: Match, query: bytes) -> DirectRequest | None:
        """Returns a request for the lane, if this connection may have one now."""
        parser = self.parser
        if (
            not self._may_begin
            or self._too_many is not None
            or self.expect_100_continue
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
            or parser.get_method() != b"POST"
        ):
            return None
        keep_alive = parser.should_keep_alive()
        return self._lane.request(
            match, query, self.headers, self, keep_alive=keep_alive
        )

    def _drive(self) -> None:
        """Goes on with the request in the lane, outside of the parser."""
        self._is_driving = True
        if self._direct is not None and self._direct.go_on():
            self._direct = self.growing = None
        self._is_driving = False

    @property
    def default_headers(self) -> Headers:
        """The headers of every answer; others from second to second."""
        return self.server_state.default_headers

    def answer(self, head: bytes, body: bytes, *, keep_alive: bool) -> None:
        """Sends a whole answer, and goes on with the next request."""
        self._sink.write_whole(head, body)
        if not keep_alive:
            self._sink.close()
        self.on_response_complete()

    def sender(self, request: DirectRequest) -> Send:
        """Returns what sends the answer to that request in pieces, as uvicorn does."""
        cycle = RequestResponseCycle(
            scope={"method": "POST"},  # type: ignore[typeddict-item]
            transport=self._sink,  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=request.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.disconnected = request.disconnected
        self._running = cycle
        latest: object = self.cycle
        if latest is request:  # nothing is pipelined behind it
            self.cycle = cycle
        return cycle.send  # type: ignore[return-value]

    def on_message_complete(self) -> None:
        """Ends the wait for the request's rest; the next one's headers may follow."""
        super().on_message_complete()
        if self._request_timer is not None and self.part is NOTHING:
            self._stop_expecting()

    def on_response_complete(self) -> None:
        """Goes on with what waits, or ends."""
        sink = self._sink
        sink.flush()
        if sink.is_over:
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._rest()
        is_usual = self.part is NOTHING and self._refusal is None
        if not is_usual or self._has_ended or self.has_unfed:
            if self._is_driving:  # else each of many requests would call the next one
                self.loop.call_soon(self._go_on)
            else:
                self._go_on()

    def _go_on(self) -> None:
        if self.is_closed:
            return
        self.feed_unfed()
        if self._frames is not None:
            self._hand_over()
            return
        if self._direct is not None:
            self._drive()
        if self._is_answering or self.is_closed:
            self._expect_rest()
        elif self._refusal is not None:
            self._say_refusal()
        elif self._has_ended:
            self._close()
        elif self.part is BODY:
            # It was refused. Its body may go on for a while; then others may follow.
            self._expect(LINGER_S, self._end)

    def _rest(self) -> None:
        """Has the connection closed if nothing comes for long.

        One timer serves many requests: to set and cancel one for each costs them more.
        """
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection, if nothing came for long."""
        self.timeout_keep_alive_task = None
        if self.part is not NOTHING or self._is_answering:
            return  # the next answer sets it again
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                left_s, self.timeout_keep_alive_handler
            )
        else:
            self._close()

    def shutdown(self) -> None:
        """Stops with the server: what is under way has the drain time-out to end."""
        self.loop.call_later(self.settings.drain_timeout_s, self._is_late_for_end)
        if self.is_closed or not (self._is_answering or self.has_unfed):
            self._close()
            return
        self._has_ended = True
        if not self.pipeline and not self.has_unfed:
            self._running.keep_alive = False

    def _is_late_for_end(self) -> None:
        if self.part is BODY:
            self.refuse(503, "Unavailable", "the server has stopped")
        self.transport.close()
        self.loop.call_later(CUT_S, self.cut)

    def refuse(self, status: int, name: str, message: str) -> None:
        """Answers what never became a request, after the answers under way; and ends.

        A request whose own body is wrong gets this answer instead of its own.
        """
        self._stop_expecting()
        self.drop_unfed()
        self._refusal = last_answer(status, name, message)
        if self.part is BODY and not self._drop_incomplete():
            if self.cycle.response_started:
                self._end()  # two answers to one request would be one too many
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self._is_answering:
            self._say_refusal()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if cycle.waiting_for_100_continue:
            app = Expecting(cycle, app)
        super()._start_asgi_task(cycle, app)

    @property
    def _may_begin(self) -> bool:
        return not (self._is_answering or self.flow.write_paused)

    @property
    def _is_answering(self) -> bool:
        running = self._running
        return bool(self.pipeline) or not (
            running is None or running.response_complete or running.disconnected
        )

    def _drop_incomplete(self) -> bool:
        """Takes back the request whose body is incomplete, unless it is under way."""
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
            return True
        return False

    def _expect_rest(self) -> None:
        """Sets a time-out for the rest of what has begun to come."""
        if self._request_timer is not None or self.is_closed:
            return
        if self.part is HEAD:
            self._expect(self.settings.header_timeout_s, self._head_is_late)
        elif self.part is BODY and self.cycle is self._running:
            self._expect(self.settings.body_timeout_s, self._body_is_late)

    def _expect(self, timeout_s: float, late: Any) -> None:
        self._stop_expecting()
        self._request_timer = self.loop.call_later(timeout_s, late)

    def _stop_expecting(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _hold(self) -> None:
        """Counts what waits to be read, if that is much."""
        if self.unsent_bytes > HELD_BYTES:
            self.answers.hold(self)

    def _reads_on(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _refuse_too_many(self) -> None:
        self.refuse(503, "Unavailable", self._too_many or "there is no room")
        self._close()  # or so many that linger would be too many again

    def _head_is_late(self) -> None:
        if self._too_many is not None:
            self._refuse_too_many()
            return
        self.refuse(408, "BadRequest", "the request's headers did not come in time")

    def _body_is_late(self) -> None:
        self.refuse(408, "BadRequest", "the request's body did not come in time")

    def _say_refusal(self) -> None:
        if self._refusal is not None and not self.is_closed:
            self.transport.write(self._refusal)
        self._linger()

    def _end(self) -> None:
        """Ends when all is written; what the client still sends is read to nowhere."""
        if self.is_between and not self.pipeline:
            self._close()
        else:
            self._linger()

    def _linger(self) -> None:
        if self.is_closed:
            return
        self._sink.is_over = True
        self._stop_expecting()
        self.drop_unfed()
        self.pipeline.clear()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        """Closes when all is written; soon, if nobody reads it."""
        self._sink.is_over = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.settings.write_timeout_s, self.cut)
        elif self.scheme == "https":  # a client need not say that it has heard of it
            self.loop.call_later(TLS_END_S, self.cut)

    def _tell_gone(self) -> None:
        self._has_ended = True
        if self._when_gone is not None:
            with suppress(RuntimeError):
                self._when_gone.set()
