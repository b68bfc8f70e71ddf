"""A connection of frames: many requests under way at once, within limits.

It takes a connection over that asked for the upgrade, and leads each request to the
rules and routes that requests of HTTP have.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec

from txaware.errors import RequestTooLarge, TxAwareError
from txaware.model.settings import Settings
from txaware.protocol.frames import (
    AT_ONCE,
    CANCEL,
    CREDIT,
    FRAMES_PATH,
    HELLO,
    PIECE,
    PIECE_BYTES,
    PROTOCOL,
    REPLY,
    REQUEST,
    Frame,
    FrameReader,
    Hello,
    ReplyHead,
    RequestHead,
    SendQueue,
    WrongFrame,
    credit_frame,
    head_frame,
    hello_frame,
    read_credit,
    read_head,
    read_hello,
)
from txaware.server.admission import AnswerMemory, Full
from txaware.server.connection_limits import ConnectionLimits
from txaware.server.direct_lane import Lane
from txaware.server.exchange import Again, Head, Headers, Reply
from txaware.server.failures import error_reply
from txaware.server.frame_request import KnownRequest, RequestStream, shared_headers
from txaware.server.routes.verb_routes import UPGRADE, FrameRoute
from txaware.server.server_context import Outcomes

log = logging.getLogger(__name__)

# Of answers that wait on one connection, above this all are counted together.
HELD_BYTES = 64 << 10
# A client that reads nothing of this much is not read from either.
UNREAD_BYTES = 256 << 10
# So many requests that may come again, of so many bytes, are known of a connection.
MOST_KNOWN, KNOWN_BYTES = 1024, 1024
# And so many of all connections together, each of which takes about 3 KiB.
MOST_KNOWN_OF_ALL = 10_000
CUT_S = 0.05
# A read may bring ten thousand requests, which take a third of a second. Of more frames
# than these so many are taken before others have their turn.
TURN_FRAMES = 32
# A row that has not ended for so long leaves so much time between turns.
BUSY_S, REST_S = 0.05, 0.001
# A connection's number is one of so many, by chance.
_NUMBERS = 2**32 - 1


class FrameLimits:
    """Counts requests of frames under way, those of each principal apart.

    `known` are the requests of all connections that are kept as they may come again.
    """

    def __init__(self, settings: Settings) -> None:
        self.known = 0
        self.most_of_connection = settings.frame_requests
        every = settings.in_flight_requests + settings.waiting_requests
        self._most = settings.frame_requests_per_principal or -(-every * 9 // 10)
        self._of_holder: dict[str | None, int] = {}

    def enter(self, holder: str | None) -> None:
        """Counts a request until `leave`; `Full` where its principal has too many."""
        under_way = self._of_holder.get(holder, 0)
        if under_way >= self._most:
            raise Full(
                f"{holder or 'this place'} has {self._most:,} requests under way, as "
                f"many as one may have; see frame_requests_per_principal"
            )
        self._of_holder[holder] = under_way + 1

    def leave(self, holder: str | None) -> None:
        """Counts a request no more."""
        under_way = self._of_holder.pop(holder) - 1
        if under_way:
            self._of_holder[holder] = under_way


class FrameTurns:
    """Connections that have sent many frames at once: one has its turn at a time.

    Others are read between two turns, however many wait here. Where the row has not
    ended for `BUSY_S`, the event loop rests for a moment after each turn: threads that
    answer others get no turn of the interpreter beside a loop that never waits.
    """

    def __init__(self) -> None:
        self._waiting: deque[FrameConnection] = deque()
        self._began_s = 0.0

    def wait(self, connection: "FrameConnection") -> None:
        """Has a connection take its frames when its turn comes, until none is left."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            self._began_s = connection.loop.time()
            connection.loop.call_soon(self._next)

    def _next(self) -> None:
        connection, has_more = self._waiting[0], False
        try:
            has_more = connection.take_turn()
        finally:
            self._waiting.popleft()
            if has_more:
                self._waiting.append(connection)
            if self._waiting:
                loop = connection.loop
                is_long = loop.time() - self._began_s > BUSY_S
                loop.call_later(REST_S if is_long else 0, self._next)


@attrs.frozen(eq=False)
class FrameRules:
    """Grants the upgrade to connections of a server, and has what all of them share."""

    lane: Lane
    routes: Mapping[int, FrameRoute]
    limits: FrameLimits
    hello: Hello
    settings: Settings
    answers: AnswerMemory
    connection_limits: ConnectionLimits
    outcomes: Outcomes
    turns: FrameTurns = attrs.field(factory=FrameTurns, init=False)

    def upgraded(
        self, http_connection: Any, url: bytes, listed: Headers
    ) -> "FrameConnection | None":
        """Returns what takes over a connection that asked for it and may have it.

        Others go on in HTTP, and hear there what is missing.
        """
        path, _, query = url.partition(b"?")
        headers, rules = dict(listed), self.lane.rules
        if path.decode("latin-1") != FRAMES_PATH:
            return None
        if headers.get(b"upgrade", b"").lower() != PROTOCOL.encode():
            return None
        match = rules.routes.match("GET", FRAMES_PATH)
        assert not isinstance(match, Reply)
        head = Head("GET", FRAMES_PATH, query, headers, listed, http_connection)
        try:
            rules.asks(match, head)
        except TxAwareError:
            return None
        return FrameConnection(self, http_connection, head)


class FrameConnection(asyncio.Protocol):
    """Takes frames from one client, and sends those of the answers in turn.

    `http_connection` is the connection of HTTP that it was, which is counted until this
    one ends.
    """

    def __init__(self, rules: FrameRules, http_connection: Any, upgrade: Head) -> None:
        self.rules = rules
        self.loop: asyncio.AbstractEventLoop = http_connection.loop
        self.tasks: set[Any] = http_connection.tasks
        self.transport: Any = http_connection.transport
        self.address: str | None = http_connection.address
        self.host_and_port: str | None = http_connection.host_and_port
        self._http_connection = http_connection
        self._connections = http_connection.connections
        self.lane, self.routes = rules.lane, rules.routes
        self.headers = shared_headers(upgrade)
        self.listed = tuple(self.headers.items())
        self.body_timeout_s = rules.settings.body_timeout_s
        self._upgrade = msgspec.structs.replace(upgrade, headers=self.headers)
        self._reader = FrameReader()
        self.queue = SendQueue(REPLY)
        self._streams: dict[int, RequestStream] = {}
        # Requests that may come again as they were, by their bytes.
        self._known: dict[bytes, KnownRequest] = {}
        self._instance = rules.lane.rules.repeats.instance
        self._number = 1 + secrets.randbelow(_NUMBERS)
        self._greeted = False
        self._is_paused = self._is_reading_paused = self._flushes = False
        self._is_taking = False  # which ends with a flush
        self._untaken: list[Frame] = []  # of the next turn
        self._waits_for_turn = False
        self._ends = False  # nothing more is begun; it closes when all is sent
        self.is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._came_s = self._wrote_s = self.loop.time()
        # Called once when it is lost.
        self._lost: set[Callable[[], object]] = set()
        # Streams whose answer goes on when what was made of it is on its way.
        self.waiting: set[RequestStream] = set()

    @property
    def connection(self) -> "FrameConnection":
        """This connection."""
        return self

    @property
    def renamed(self) -> str | None:
        """The instance of the server, where that is not what its HELLO said."""
        instance = self.rules.lane.rules.repeats.instance
        return None if instance == self._instance else instance

    # ---- its life
    def begin(self, data: bytes) -> None:
        """Takes the connection over, with what came behind the upgrade's request."""
        self._connections.discard(self._http_connection)
        self._connections.add(self)
        self.transport.set_protocol(self)
        lines = [b"HTTP/1.1 101 Switching Protocols\r\n"]
        for headers in (UPGRADE, self._http_connection.default_headers):
            lines += [b"%b: %b\r\n" % header for header in headers]
        hello = hello_frame(
            msgspec.structs.replace(
                self.rules.hello, instance=self._instance, connection=self._number
            )
        )
        self.transport.write(b"".join([*lines, b"\r\n", hello]))
        self._timer = self.loop.call_later(
            self.rules.settings.header_timeout_s, self._hello_is_late
        )
        if data:
            self.data_received(data)

    def when_lost(self, call: Callable[[], object]) -> bool:
        """Has `call` called once it is lost, however often it is named."""
        self._lost.add(call)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything, and tells those who wait for messages for this client."""
        self.is_closed = True
        self._drop_untaken()
        for call in self._lost:
            call()
        self._connections.discard(self)
        self.rules.connection_limits.leave(self._http_connection)
        self.rules.answers.release(self)
        for timer in (self._timer, self._write_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self.rules.limits.known -= len(self._known)
        self._known.clear()
        for stream in list(self._streams.values()):
            stream.give_up()  # what is performed counts until that is done

    def eof_received(self) -> bool:
        """Ends with the client: nobody reads the answers under way."""
        return False

    def cut(self) -> None:
        """Closes the connection at once."""
        self.is_closed = True
        self.transport.abort()

    def end(self, why: str) -> None:
        """Says why the connection ends, and ends it."""
        if self._ends or self.is_closed:
            return
        log.info("frames of %s end: %s", self.host_and_port, why)
        body = error_reply(400, "BadRequest", why).body
        self.queue.add(head_frame(REPLY, 0, ReplyHead(400, len(body)), body))
        self._close_soon()

    def _close_soon(self) -> None:
        """Sends what can be sent, and closes; soon, if nobody reads it."""
        self._ends = True
        self._flush()
        self.transport.close()
        timeout_s = self.rules.settings.write_timeout_s
        self._end_timer = self.loop.call_later(timeout_s, self._cut_if_open)

    def _cut_if_open(self) -> None:
        if not self.is_closed:
            self.cut()

    def shutdown(self) -> None:
        """Stops with the server: what is under way has the drain time-out to end."""
        self._ends = True
        timeout_s = self.rules.settings.drain_timeout_s
        self._end_timer = self.loop.call_later(timeout_s, self._is_late_for_end)
        self._close_if_done()

    def _is_late_for_end(self) -> None:
        if not self.is_closed:
            self.transport.close()
            self.loop.call_later(CUT_S, self.cut)

    def _close_if_done(self) -> None:
        """Closes a connection that ends, once all is answered and sent."""
        if not self._streams and self.queue.is_empty:
            self.transport.close()

    def _hello_is_late(self) -> None:
        self.end("its HELLO did not come in time")

    def _rest(self) -> None:
        """Closes the connection once nothing came for long."""
        settings = self.rules.settings
        left_s = self._came_s + settings.idle_timeout_s - self.loop.time()
        if self._streams:
            left_s = settings.idle_timeout_s
        if left_s > 0:
            self._timer = self.loop.call_later(left_s, self._rest)
            return
        timeout_s = settings.idle_timeout_s
        log.info(
            "frames of %s end: nothing came in %g s", self.host_and_port, timeout_s
        )
        self.transport.close()

    # ---- what comes
    def data_received(self, data: bytes) -> None:
        """Takes frames, as far as they are whole."""
        if self._ends and not self._streams:
            return
        self._came_s = self.loop.time()
        if self._waits_for_turn:
            self._reader.add(data)
            return
        frames = self._next_frames(data)
        if self._reader.has_more:
            self._untaken = frames
            self._waits_for_turn = True
            self.rules.turns.wait(self)
            self._read_or_not()
        else:
            self._take_all(frames)

    def _next_frames(self, data: bytes = b"") -> list[Frame]:
        try:
            return self._reader.feed(data, TURN_FRAMES)
        except WrongFrame as error:
            self._end_wrong(error)
            return []

    def take_turn(self) -> bool:
        """Takes the frames of one turn; True where some are left for the next one."""
        self._take_all(self._untaken)
        self._untaken = self._next_frames()
        self._waits_for_turn = bool(self._untaken)
        self._read_or_not()
        return self._waits_for_turn and not self.is_closed

    def _drop_untaken(self) -> None:
        """Takes none of the frames that wait for their turn."""
        self._untaken, self._reader = [], FrameReader()

    def _take_all(self, frames: list[Frame]) -> None:
        self._is_taking = True
        try:
            for one in frames:
                if self.is_closed:
                    return
                self._take(one)
        except WrongFrame as error:
            self._end_wrong(error)
        finally:
            self._is_taking = False
            self._flush_if_due()
            if self._waits_for_turn or self._is_reading_paused:
                self._read_or_not()

    def _end_wrong(self, error: WrongFrame) -> None:
        self._drop_untaken()
        for stream in list(self._streams.values()):
            stream.give_up()
        self.end(str(error))

    def _take(self, one: Frame) -> None:
        kind, stream = one.kind, self._streams.get(one.stream)
        if not self._greeted:
            self._greet(one)
        elif kind == REQUEST:
            self._request(one)
        elif kind == PIECE:
            if stream is not None:
                stream.piece(one.body)
        elif kind == CREDIT:
            self.queue.credit(one.stream, read_credit(one.body))
            self.flush()
        elif kind == CANCEL:
            if one.body != AT_ONCE:
                self.queue.drop(one.stream)
                if stream is not None:
                    stream.give_up()
            elif stream is not None:
                stream.end_wait()
        else:
            raise WrongFrame(f"a client sends no frame of kind {kind} now")

    def _greet(self, one: Frame) -> None:
        if one.kind != HELLO:
            raise WrongFrame("its first frame is no HELLO")
        self.queue.limit(read_hello(one.body))
        self._greeted = True
        if self._timer is not None:
            self._timer.cancel()
        self._rest()

    def _request(self, one: Frame) -> None:
        is_used = one.stream in self._streams or self.queue.is_sending(one.stream)
        if not one.stream or is_used:
            raise WrongFrame(f"stream {one.stream} is in use")
        if self._known and self._is_again(one):
            return
        head, body = read_head(RequestHead, one.body)
        # Nothing that lies on the way may ask once more, perhaps in a later life of the
        # server, what its client asks once.
        if head.connection not in (0, self._number):
            raise WrongFrame("a request was written for another connection")
        if head.size_bytes < len(body):
            raise WrongFrame("a request has more bytes than it says")
        is_whole = head.size_bytes == len(body) and len(one.body) <= KNOWN_BYTES
        came = one.body if is_whole else b""
        stream = RequestStream(self, one.stream, head, came)
        try:
            if self._ends:
                raise Full("the server stops")
            self._admit(stream)
        except TxAwareError as error:
            stream.refuse(error)
            return
        stream.begin(body)

    def _is_again(self, one: Frame) -> bool:
        """Has a request performed that came before as it is, and found no news.

        It is not read again, which takes most of the time of a heartbeat.
        """
        if len(one.body) > KNOWN_BYTES or self._ends:
            return False
        known = self._known.pop(one.body, None)
        if known is None:
            return False
        rules, most = self.rules, self.rules.limits.most_of_connection
        rules.limits.known -= 1
        if len(self._streams) >= most or self.unsent_bytes > HELD_BYTES:
            return False
        stream = known.stream
        try:
            rules.limits.enter(stream.holder)
        except Full:
            return False
        self._streams[one.stream] = stream
        if stream.begin_again(one.stream, known):
            return True
        del self._streams[one.stream]
        rules.limits.leave(stream.holder)
        return False

    def _know(self, stream: RequestStream, again: Again) -> None:
        """Keeps a request that may come again, in place of the oldest one.

        Where all connections have too many, one keeps as many as it has.
        """
        known = None if self._ends or self.is_closed else stream.known(again)
        if known is None:
            return
        own, limits = self._known, self.rules.limits
        if own.pop(stream.came, None) is not None:
            limits.known -= 1
        if own and (len(own) >= MOST_KNOWN or limits.known >= MOST_KNOWN_OF_ALL):
            del own[next(iter(own))]
            limits.known -= 1
        if limits.known < MOST_KNOWN_OF_ALL:
            own[stream.came] = known
            limits.known += 1

    def _admit(self, stream: RequestStream) -> None:
        """Lets a request in: its body may come."""
        rules, lane = self.rules, self.rules.lane
        most = rules.limits.most_of_connection
        if len(self._streams) >= most:
            raise Full(f"{most:,} requests are under way on this connection")
        size_bytes = stream.request_head.size_bytes
        limit = rules.settings.request_limit_bytes
        if not 0 <= size_bytes <= limit:
            raise RequestTooLarge(
                f"a request's body has at most {limit} bytes; this one has {size_bytes}"
            )
        if self.unsent_bytes > HELD_BYTES:
            rules.answers.require_room()
            if self.unsent_bytes > rules.settings.answer_memory_bytes // 2:
                raise Full(
                    f"answers of {self.unsent_bytes} bytes wait on this connection"
                )
        principal = lane.rules.principal(self.headers)
        holder = lane.rules.holder_of(principal, self._upgrade)
        rules.limits.enter(holder)
        stream.holder = holder
        self._streams[stream.number] = stream

    # ---- what goes
    def answer(self, stream: RequestStream, reply: Reply) -> None:
        """Sends a whole answer; where a token is gone, that ends the connection."""
        head = stream.reply_head(reply)
        head.size_bytes = len(reply.body)
        if not self.is_closed:
            self.queue.begin(stream.number, head, reply.body)
            self.flush()
        if reply.again is not None:
            self._know(stream, reply.again)
        self.ended(stream)
        if reply.status == 401 and not self._ends:
            log.info("frames of %s end: their token is gone", self.host_and_port)
            self._close_soon()

    def ended(self, stream: RequestStream) -> None:
        """Counts a request no more: it is answered, or nobody wants that."""
        if self._streams.get(stream.number) is stream:
            del self._streams[stream.number]
            self.rules.limits.leave(stream.holder)
        if self._ends:
            self._close_if_done()

    def take_more(self, stream: RequestStream, size_bytes: int) -> None:
        """Lets the client send so much more of a body."""
        self.queue.add(credit_frame(stream.number, size_bytes))
        self.flush()

    def flush(self) -> None:
        """Writes what has its turn, with all that this turn of the event loop adds.

        What frames that came make, or a batch that is on disk, goes at the end of that.
        """
        if not self._flushes:
            self._flushes = True
            if not (self._is_taking or self.rules.outcomes.at_end(self._flush_if_due)):
                self.loop.call_soon(self._flush_if_due)

    def _flush_if_due(self) -> None:
        if self._flushes:
            self._flush()

    def _flush(self) -> None:
        """Writes what has its turn, as long as the client reads."""
        self._flushes = False
        queue = self.queue
        while queue.is_ready and not self._is_paused and not self.is_closed:
            self.transport.write(queue.take_bytes(PIECE_BYTES))
            self._wrote_s = self.loop.time()
        if self.waiting:
            sent = [one for one in self.waiting if not queue.is_sending(one.number)]
            self.waiting.difference_update(sent)
            for stream in sent:
                stream.sent()
        if self.is_closed:
            return
        if self.unsent_bytes > HELD_BYTES:
            self.rules.answers.hold(self)
            if self._write_timer is None:
                self._expect_reading(self.rules.settings.write_timeout_s)
        elif self._write_timer is not None:
            self.rules.answers.release(self)
            self._write_timer.cancel()
            self._write_timer = None
        if self._is_paused or self._is_reading_paused:
            self._read_or_not()
        if self._ends:
            self._close_if_done()

    def _expect_reading(self, timeout_s: float) -> None:
        self._write_timer = self.loop.call_later(timeout_s, self._look_for_reading)

    def _look_for_reading(self) -> None:
        """Cuts the connection off, if its client took nothing for long."""
        timeout_s = self.rules.settings.write_timeout_s
        left_s = self._wrote_s + timeout_s - self.loop.time()
        if left_s > 0:
            self._expect_reading(left_s)
            return
        log.info(
            "frames of %s end: nothing was taken of %d bytes in %g s",
            self.host_and_port,
            self.unsent_bytes,
            timeout_s,
        )
        self.cut()

    def _read_or_not(self) -> None:
        """Reads on, unless answers are not read: each request makes one more.

        Nor does it while frames wait for their turn.
        """
        if self.is_closed:
            return
        stops = self._waits_for_turn or (
            self._is_paused and self.unsent_bytes > UNREAD_BYTES
        )
        if stops and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()
        elif not stops and self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    @property
    def unsent_bytes(self) -> int:
        """The bytes of answers that the other end has not taken."""
        written: int = self.transport.get_write_buffer_size()
        return written + self.queue.waiting_bytes

    def pause_writing(self) -> None:
        """Waits until the client reads."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Goes on when the client reads on."""
        self._is_paused = False
        self._wrote_s = self.loop.time()
        self._flush()
