"""Remembers answers, so that a request which is repeated is not carried out twice."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import attrs

from txaware.errors import BadRequest, Unavailable, changed_nothing
from txaware.model.producers import KeyReused
from txaware.server.admission import ClientGone
from txaware.server.exchange import Reply

KEY, INSTANCE = b"idempotency-key", b"txaware-instance"
# The instance that a client had heard of last, when it sent a request the first time.
SENT_TO = b"txaware-sent-to"
# In its place, of a request in a frame: no copy of it can come.
HAS_NO_COPY = b"*"
UNKNOWN = (b"txaware-outcome", b"unknown")
LONGEST_KEY = 64
KEEP_S = 60.0
MOST, MOST_BYTES = 100_000, 64 << 20

Scope = tuple[str, str, str, bytes]


class KeyedRequest(NamedTuple):
    """A request with a key, as far as a repeat of it has to be the same.

    `scope` is the principal, the request's method and path, and the key. `instance` is
    that of the first try, which a repeat names. `digest` stands for all that it asks.
    """

    scope: Scope
    instance: bytes | None
    digest: int


class OutcomeUnknown(Unavailable):
    """The first try's outcome is not known here; it is not tried again."""


@attrs.define(eq=False)
class _First:
    digest: int
    reply: asyncio.Future[Reply]
    at_s: float = 0.0

    @property
    def size_bytes(self) -> int:
        """The size of the answer's body."""
        failed = self.reply.exception() is not None
        return 0 if failed else len(self.reply.result().body)


class Idempotency:
    """Remembers answers by key, for a minute; of one event loop only.

    A client that repeats a request names the instance of the server that it sent the
    first one to. Another instance does not know its outcome, and says so. The servers
    of a cluster have one `instance`, and another one when any of them ends.
    """

    def __init__(self, instance: str, clock_s: Callable[[], float]) -> None:
        self.instance = instance
        self._clock_s = clock_s
        self._forgetful_until_s = float("-inf")
        self._under_way: dict[Scope, _First] = {}
        self._remembered: OrderedDict[Scope, _First] = OrderedDict()
        self._size_bytes = 0

    async def once(
        self, keyed_request: KeyedRequest, perform: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """Returns the first answer to that key, which may be under way."""
        while (found := self.begin(keyed_request)) is not None:
            with suppress(ClientGone):  # the first: nothing was done for it
                return await asyncio.shield(found)
        try:
            reply = await perform()
        except BaseException as error:
            self.end(keyed_request, error)
            raise
        self.end(keyed_request, reply)
        return reply

    def begin(self, keyed_request: KeyedRequest) -> asyncio.Future[Reply] | None:
        """Returns the answer to the first request; None where this one is the first.

        `end` then has to be told its answer. Another request than the first is refused.
        """
        scope = keyed_request.scope
        if not 0 < len(scope[-1]) <= LONGEST_KEY:
            raise BadRequest(f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        self._forget_old()
        first = self._under_way.get(scope) or self._remembered.get(scope)
        if first is not None:
            if first.digest != keyed_request.digest:
                raise KeyReused
            return first.reply
        if keyed_request.instance is not None:
            self._check_repeat(keyed_request.instance)
        reply = asyncio.get_running_loop().create_future()
        self._under_way[scope] = _First(keyed_request.digest, reply)
        return None

    def end(self, keyed_request: KeyedRequest, outcome: Reply | BaseException) -> None:
        """Remembers how the first request ended; a refusal may go better next time."""
        scope = keyed_request.scope
        future = self._under_way[scope].reply
        if isinstance(outcome, Reply):
            future.set_result(outcome)
            if outcome.status >= 400:  # of a coordinator, passed on as it came
                del self._under_way[scope]
                return
        elif isinstance(outcome, ClientGone) or (
            isinstance(outcome, Exception) and changed_nothing(outcome)
        ):
            del self._under_way[scope]
            _fail(future, outcome)
            return
        else:
            _fail(future, OutcomeUnknown(f"the first request failed: {outcome}"))
        self._remember(scope)

    def _remember(self, scope: Scope) -> None:
        """Begins the minute with the answer, however long that took."""
        first = self._remembered[scope] = self._under_way.pop(scope)
        first.at_s = self._clock_s()
        self._size_bytes += first.size_bytes

    def _check_repeat(self, instance: bytes) -> None:
        """Raises where a key that is not known here may have come before."""
        if instance != self.instance.encode():
            raise OutcomeUnknown(
                "the server was started anew since the first try of this call; whether "
                "that took place is not known here"
            )
        if self._clock_s() < self._forgetful_until_s:
            raise OutcomeUnknown(
                "there were too many calls to remember them all; whether the first try "
                "of this one took place is not known"
            )

    def _forget_old(self) -> None:
        until_s = self._clock_s() - KEEP_S
        while self._remembered:
            oldest = next(iter(self._remembered.values()))
            if oldest.at_s > until_s:
                if len(self._remembered) <= MOST and self._size_bytes <= MOST_BYTES:
                    return
                self._forgetful_until_s = oldest.at_s + KEEP_S
            self._remembered.popitem(last=False)
            self._size_bytes -= oldest.size_bytes


def _fail(future: asyncio.Future[Reply], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # perhaps nobody else waits for it
