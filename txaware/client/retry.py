"""One call, tried until it is answered: what goes out, and whether once more.

Pure: whoever performs the call sends, sleeps and tells what came of it.
"""

import ssl
from typing import Any, Generic, Protocol, TypeVar

import httpcore
import tenacity

from coordinator.brief_errors import from_server
from txaware.client.calls.call import Call, CallTimeout, Deadline, HttpAnswer, error_of
from txaware.client.http11 import AnswerTooLarge, HttpRequest
from txaware.client.link import Link
from txaware.errors import TxAwareError, Unavailable
from txaware.protocol.verb import Repeat

T = TypeVar("T")

# All errors that the way to the server and back may raise.
FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    OSError,
)
# The request was not sent yet.
_NOT_SENT = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_INSTANCE, _OUTCOME = b"txaware-instance", b"txaware-outcome"
_SENT_TO = b"Txaware-Sent-To"
_RETRY_AFTER, _OWNER = b"retry-after", b"txaware-owner"
# A proxy says this of a server that is not there.
_GATEWAYS = (502, 503, 504)


class WholeAnswer(Protocol):
    """A whole answer, by HTTP or in frames; `is_verb` for one to a verb's number."""

    status: int
    headers: dict[bytes, bytes]
    is_verb: bool

    def body(self) -> bytes:
        """Returns the body."""


class Retry(Generic[T]):
    """Decides after each try whether and when the next one comes: `pause_s`, or None.

    `place` is the server that is asked in this try. A server that is not there, does
    not answer or cannot serve is left, and the next try or call asks the next place.
    Whether there is a next try does not depend on that: what may have been done is not
    asked elsewhere.
    """

    def __init__(self, call: Call[T], link: Link) -> None:
        self.pause_s: float | None = None
        self.call = call
        self.place = link.place_of(call.about)
        self.way = ""
        self._link = link
        self._began_s = link.clock_s()
        self._longest_s = link.settings.call_timeout_s + call.longer_s
        self.deadline = Deadline(self._began_s + self._longest_s, link.clock_s)
        self._failed = self._unable = 0
        # The instance a first try may have reached, and whether its answer was lost.
        self._first_instance: bytes | None = None
        # The path and the body of HTTP, once they are needed.
        self._http: tuple[str, bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        """Makes the next try a first one, which nobody knows yet."""
        self._in_doubt = False
        self._headers = [(b"Accept", self.call.accept)]
        if self.call.repeat.is_keyed:
            self._headers.append((b"Idempotency-Key", self._link.new_key()))

    @property
    def waits(self) -> bool:
        """True when the server may take its time."""
        return self.call.longer_s > 0

    def request(self) -> HttpRequest:
        """Returns what the next try sends, in a frame; `in_http` makes the rest."""
        self.pause_s, self.place = None, self._link.place_of(self.call.about)
        call, headers = self.call, self._headers
        if not self._in_doubt:
            self._first_instance = self.place.instance
        elif call.repeat.is_keyed and self._first_instance is not None:
            headers = [*headers, (b"Txaware-Instance", self._first_instance)]
        return self._link.request(
            call.method,
            "",
            headers,
            b"",
            longer_s=call.longer_s,
            deadline=self.deadline,
            place=self.place,
        )

    def in_http(self, request: HttpRequest) -> HttpRequest:
        """Returns the request with its path and its body."""
        call = self.call
        if self._http is None:
            self._http = (call.path, call.body)
        path, body = self._http
        headers = request.headers
        if (
            call.repeat.is_keyed
            and not self._in_doubt
            and self._first_instance is not None
        ):
            # A copy that comes to a later life of the server is known by it.
            headers = [*headers, (_SENT_TO, self._first_instance)]
        if call.method != "GET":
            headers = [*headers, (b"Content-Length", b"%d" % len(body))]
            if body:
                headers.append((b"Content-Type", call.content_type))
        return request._replace(path=request.path + path, headers=headers, body=body)

    def go_by(self, way: str) -> None:
        """Notes the way of this try: a repeat in another form would be another call.

        Raises `Unavailable` where the first try went another way and has a key.
        """
        is_form = self.call.framed is not None and self.call.repeat.is_keyed
        if self._in_doubt and is_form and way != self.way:
            raise Unavailable(
                f"{self.place.url}: the connection was lost, and the server that "
                f"answers now is reached by {way} instead of {self.way}; whether the "
                f"call took place is not known"
            )
        self.way = way

    def answered(self, parsed: WholeAnswer) -> T:
        """Returns the value of an answer; raises what it says instead."""
        status, body = parsed.status, parsed.body()
        answer = HttpAnswer(
            status, body, parsed.headers, self.place.url, is_verb=parsed.is_verb
        )
        instance = answer.header(_INSTANCE)
        if instance is not None:
            self.place.instance = instance
        elif status in _GATEWAYS:
            self._link.leave(self.place)
        owner = answer.header(_OWNER)
        if owner is not None:
            self._link.follow(self.call.about, owner.decode("latin-1"), self.place)
        if status in (429, 503):
            self._refused(answer)
        return self.call.read(answer)

    def failed(self, error: Exception) -> Unavailable:
        """Returns the error that the caller gets for a try that got no answer."""
        if isinstance(error, _NOT_SENT):
            if not isinstance(error, httpcore.PoolTimeout):
                self._link.leave(self.place)
            if not isinstance(error.__cause__, ssl.SSLError):
                self._again(self._backoff_s())
        else:
            self._in_doubt = True
            if isinstance(error, httpcore.TimeoutException):
                self._link.leave(self.place)  # one that is gone refuses the next try
            if self._may_repeat and not isinstance(error, AnswerTooLarge | CallTimeout):
                self._again(self._backoff_s())
        return from_server(Unavailable(f"{self.place.url}: {self._why(error)}"))

    @property
    def _may_repeat(self) -> bool:
        """True when what may have been done is asked again: its instance is known."""
        if self.call.repeat.is_keyed:
            return self._first_instance is not None
        return self.call.repeat is Repeat.HARMLESS

    @property
    def _is_over(self) -> bool:
        """True when a try ended because the time of the call did."""
        return self._link.clock_s() - self._began_s >= self._longest_s

    def _refused(self, answer: HttpAnswer) -> None:
        """Tries again in a moment where the server was too busy to begin.

        A proxy, which answers for the server, cannot know that.
        """
        retry_after = answer.header(_RETRY_AFTER)
        if answer.header(_OUTCOME) is not None:
            if self.call.repeat is Repeat.ANEW:
                self._begin()
                self._again(self._backoff_s())
                if self.pause_s is not None:
                    raise error_of(answer)
            return
        is_ours = answer.header(_INSTANCE) is not None
        if retry_after is None:
            self._try_elsewhere(answer)
            return
        if not is_ours and self.call.repeat is not Repeat.HARMLESS:
            return
        is_number = retry_after.isdigit() and len(retry_after) < 10
        after_s = int(retry_after) if is_number else 1
        self._again(after_s * self._link.jitter(1.0, 1.25))
        if self.pause_s is not None:
            raise error_of(answer)

    def _try_elsewhere(self, answer: HttpAnswer) -> None:
        """Leaves a place that cannot serve; a harmless call asks each place once."""
        self._link.leave(self.place)
        self._unable += 1
        is_harmless = self.call.repeat is Repeat.HARMLESS
        if is_harmless and self._unable < len(self._link.places):
            self._again(0)
            if self.pause_s is not None:
                raise error_of(answer)

    def _backoff_s(self) -> float:
        """Returns the pause before the next try; at first none.

        A connection may have been closed while it was idle. There is no pause either
        while another place has not been asked.
        """
        self._failed += 1
        if self._failed <= len(self._link.places):
            return 0
        most_s = min(_FIRST_PAUSE_S * 2**self._failed, _LONGEST_PAUSE_S)
        return self._link.jitter(0, most_s)

    def _again(self, pause_s: float) -> None:
        spent_s = self._link.clock_s() - self._began_s
        most_s = min(self._link.settings.retry_for_s, self._longest_s)
        if spent_s + pause_s <= most_s:
            self.pause_s = pause_s

    def _why(self, error: Exception) -> str:
        settings = self._link.settings
        answer_s = settings.answer_timeout_s + self.call.longer_s
        if isinstance(error, httpcore.PoolTimeout):
            return f"all {settings.limit(waits=self.waits)} connections are in use"
        if isinstance(error, httpcore.ConnectTimeout):
            return f"no connection in {settings.connect_timeout_s:g} s"
        if isinstance(error, httpcore.ConnectError):
            return f"no connection, {error}"
        if isinstance(error, CallTimeout | AnswerTooLarge) or self._is_over:
            return str(error) or (
                f"no whole answer in {self._longest_s:g} s, the time of a call; see "
                f"call_timeout_s"
            )
        if isinstance(error, httpcore.WriteTimeout):
            return f"it took nothing more in {settings.answer_timeout_s:g} s"
        if isinstance(error, httpcore.TimeoutException):
            return f"no answer in {answer_s:g} s"
        return f"the connection was lost, {error or type(error).__name__}"


def again(tries: Retry[Any]) -> dict[str, Any]:
    """Returns tenacity's options, sync and async: repeat when and as `tries` says."""

    def is_due(error: BaseException) -> bool:
        return isinstance(error, TxAwareError) and tries.pause_s is not None

    return {
        "retry": tenacity.retry_if_exception(is_due),
        "wait": lambda _: tries.pause_s or 0,
        "reraise": True,
    }
