"""Calls under way on one connection of frames; does no I/O.

Whoever has the connection feeds what comes, and sends what `queue` has.
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import httpcore

from txaware.client.calls.call import Call
from txaware.client.http11 import AnswerTooLarge, HttpRequest
from txaware.protocol.frames import (
    ANY_ROUTE,
    AT_ONCE,
    CANCEL,
    CREDIT,
    HELLO,
    PIECE,
    REPLY,
    REQUEST,
    VERSION,
    WHOLE_BYTES,
    Frame,
    FrameReader,
    Hello,
    ReplyHead,
    RequestHead,
    SendQueue,
    WrongFrame,
    credit_frame,
    frame,
    hello_frame,
    read_credit,
    read_head,
    read_hello,
)

# What a server may send of one answer before it is taken.
CREDIT_BYTES = 4 << 20
SOFTWARE = f"txaware {version('txaware')}"
# Nobody waits any more for one whose stream is not under way.
_OF_ANSWERS = frozenset((REPLY, PIECE, CANCEL))
_KEY, _INSTANCE = b"Idempotency-Key", b"Txaware-Instance"


def head_of(call: Call[Any], request: HttpRequest) -> tuple[RequestHead, bytes]:
    """Returns the head and the body of a call in a frame."""
    key = instance = None
    for name, value in request.headers:
        if name == _KEY:
            key = value.decode("latin-1")
        elif name == _INSTANCE:
            instance = value.decode("latin-1")
    if call.framed is not None:
        number, fields = call.framed()
        return RequestHead(number, len(fields), key, instance), fields
    own, body = {"accept": call.accept.decode()}, call.body
    if body:
        own["content-type"] = call.content_type.decode()
    method, path = call.method, call.path
    return RequestHead(ANY_ROUTE, len(body), key, instance, method, path, own), body


def nothing() -> None:
    """Tells nobody."""


class FramedAnswer:
    """An answer on its way, with the attributes of an answer of HTTP."""

    def __init__(self, number: int, limit_bytes: int) -> None:
        self.number = number
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.is_complete = False
        self.error: Exception | None = None
        self.came_s = time.monotonic()
        self.heard_before = 0  # how often something came to the connection
        self.notify: Callable[[], object] = nothing
        self.is_streamed = self.is_verb = False
        self._limit_bytes = limit_bytes
        self._size_bytes: int | None = 0
        self._came_bytes = self._untold_bytes = 0
        self._pieces: list[bytes] = []

    @property
    def is_sized(self) -> bool:
        """True when its head said how many bytes the body has."""
        return self._size_bytes is not None

    @property
    def is_over(self) -> bool:
        """True when nothing more comes, be it whole or not."""
        return self.is_complete or self.error is not None

    @property
    def is_there(self) -> bool:
        """True when it is over, or has pieces to take where it is streamed."""
        return (
            self.is_complete
            or self.error is not None
            or (self.is_streamed and bool(self._pieces))
        )

    def left_s(self, request: HttpRequest) -> float:
        """Returns how long the next of it may take; `ReadTimeout` where that is over.

        One that is streamed may take as long as it comes.
        """
        left_s = self.came_s + request.read_s - time.monotonic()
        if not (self.is_streamed and self.status):
            left_s = request.deadline.within(left_s)
        if left_s <= 0:
            raise httpcore.ReadTimeout
        return left_s

    def body(self) -> bytes:
        """Returns the body."""
        return b"".join(self._pieces)

    def take_pieces(self) -> list[bytes]:
        """Returns the pieces that came since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def give_back(self, pieces: list[bytes]) -> None:
        """Takes pieces back that were taken: they are the body of a refusal."""
        self._pieces = pieces

    def begin(self, head: ReplyHead, body: bytes, instance: bytes) -> None:
        """Takes the head of the answer, and how its body begins."""
        self.status, self._size_bytes = head.status, head.size_bytes
        self.headers = {b"txaware-instance": instance}
        for name, value in head.headers.items():
            self.headers[name.encode()] = value.encode()
        if head.retry_after_s is not None:
            self.headers[b"retry-after"] = b"%d" % head.retry_after_s
        if head.is_unknown:
            self.headers[b"txaware-outcome"] = b"unknown"
        if not self.is_streamed:
            self._check_size(head.size_bytes or 0)
        self.piece(body, is_first=True)

    def piece(self, data: bytes, *, is_first: bool = False) -> None:
        """Takes a piece of the body."""
        self.came_s = time.monotonic()
        if data:
            self._pieces.append(data)
        self._came_bytes += len(data)
        self._untold_bytes += len(data)
        if self._size_bytes is None:
            if not self.is_streamed:
                self._check_size(self._came_bytes)
            self.is_complete = not data and not is_first
        else:
            self.is_complete = self._came_bytes >= self._size_bytes
        if self.is_complete or self.is_streamed:
            self.notify()

    def to_credit(self) -> int:
        """Returns how many bytes were taken, once that is much, and counts anew."""
        if self.is_complete or self._untold_bytes < CREDIT_BYTES // 2:
            return 0
        taken, self._untold_bytes = self._untold_bytes, 0
        return taken

    def fail(self, error: Exception) -> None:
        """Ends it: no more comes."""
        if not self.is_over:
            self.error = error
            self.notify()

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise AnswerTooLarge(
                f"an answer of {size_bytes} bytes or more is above the limit of "
                f"{self._limit_bytes} bytes; see answer_limit_bytes"
            )


class FrameStreams:
    """The calls of one connection, each on a stream of its own."""

    def __init__(self) -> None:
        self.queue = SendQueue(REQUEST)
        self.hello: Hello | None = None
        self._reader = FrameReader(WHOLE_BYTES)
        self._answers: dict[int, FramedAnswer] = {}
        self._last = 0
        self._instance, self._connection = b"", 0
        hello = Hello(VERSION, SOFTWARE, "", WHOLE_BYTES, CREDIT_BYTES)
        self.queue.add(hello_frame(hello))

    @property
    def under_way(self) -> list[FramedAnswer]:
        """The answers that are waited for."""
        return list(self._answers.values())

    @property
    def is_in_use(self) -> bool:
        """True when answers are waited for."""
        return bool(self._answers)

    @property
    def is_full(self) -> bool:
        """True when the server takes no more calls at once."""
        most = 0 if self.hello is None else self.hello.streams
        return 0 < most <= len(self._answers)

    def begin(
        self,
        head: RequestHead,
        body: bytes,
        limit_bytes: int,
        *,
        is_streamed: bool = False,
    ) -> FramedAnswer:
        """Begins a call; its request is in the queue now."""
        self._last += 1
        head.connection = self._connection
        answer = FramedAnswer(self._last, limit_bytes)
        answer.is_streamed, answer.is_verb = is_streamed, head.verb != ANY_ROUTE
        self._answers[answer.number] = answer
        try:
            self.queue.begin(answer.number, head, body)
        except WrongFrame as error:
            del self._answers[answer.number]
            raise httpcore.LocalProtocolError(str(error)) from error
        return answer

    def forget(self, answer: FramedAnswer) -> None:
        """Ends a call that is answered, or that nobody waits for; tells the server."""
        found = self._answers.pop(answer.number, None)
        if found is not None and not answer.is_over:
            self.queue.drop(answer.number)
            self.queue.add(frame(CANCEL, answer.number))

    def end_wait(self, answer: FramedAnswer) -> None:
        """Has the server answer at once with what it has."""
        if not answer.is_over:
            self.queue.add(frame(CANCEL, answer.number, AT_ONCE))

    def taken(self, answer: FramedAnswer) -> None:
        """Lets the server send more of an answer whose pieces were taken."""
        size_bytes = answer.to_credit()
        if size_bytes and answer.number in self._answers:
            self.queue.add(credit_frame(answer.number, size_bytes))

    def fed(self, data: bytes) -> None:
        """Takes what came; `RemoteProtocolError` for what is no frame."""
        try:
            for one in self._reader.feed(data):
                self._take(one)
        except WrongFrame as error:
            raise httpcore.RemoteProtocolError(
                f"it sends no frames: {error}"
            ) from error

    def fail(self, error: Exception) -> None:
        """Ends all calls: the connection is gone.

        `ConnectError` for those of whose requests no byte was taken to be sent.
        """
        unsent = self.queue.unsent()
        for answer in self.under_way:
            if answer.number in unsent:
                not_sent = httpcore.ConnectError(str(error))
                not_sent.__cause__ = error
                answer.fail(not_sent)
            else:
                answer.fail(error)

    def _take(self, one: Frame) -> None:
        answer = self._answers.get(one.stream)
        if answer is not None and one.kind in _OF_ANSWERS:
            self._take_answer(answer, one)
        elif one.kind == HELLO:
            self.hello = read_hello(one.body)
            self._instance = self.hello.instance.encode()
            self._connection = self.hello.connection
            self.queue.limit(self.hello)
        elif one.kind == CREDIT:
            self.queue.credit(one.stream, read_credit(one.body))
        elif one.kind == REPLY and not one.stream:
            _, body = read_head(ReplyHead, one.body)
            raise WrongFrame(body.decode("utf-8", "replace")[:500])

    def _take_answer(self, answer: FramedAnswer, one: Frame) -> None:
        try:
            if one.kind == REPLY:
                head, body = read_head(ReplyHead, one.body)
                answer.begin(head, body, self._instance)
            elif one.kind == PIECE:
                answer.piece(one.body)
            elif one.kind == CANCEL:
                answer.fail(httpcore.RemoteProtocolError("it ended within an answer"))
        except AnswerTooLarge as error:
            self._answers.pop(answer.number)
            self.queue.add(frame(CANCEL, answer.number))
            answer.fail(error)
            return
        if answer.is_over:
            self._answers.pop(answer.number, None)
            self.queue.drop(answer.number)  # of a request that was refused meanwhile
        elif not answer.is_streamed:
            self.taken(answer)
