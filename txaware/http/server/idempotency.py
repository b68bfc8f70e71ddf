"""Remembers answers, so that a request which is repeated is not carried out twice."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs

from txaware.errors import BadRequest, Unavailable, changed_nothing
from txaware.http.server.admission import ClientGone
from txaware.http.server.exchange import Reply

KEY, INSTANCE = b"idempotency-key", b"txaware-instance"
UNKNOWN = (b"txaware-outcome", b"unknown")
LONGEST_KEY = 64
KEEP_S = 60.0
MOST, MOST_BYTES = 100_000, 64 << 20

Scope = tuple[str, str, str, bytes]


class OutcomeUnknown(Unavailable):
    """The first try's outcome is not known here; it is not tried again."""


@attrs.define(eq=False)
class _Remembered:
    at_s: float
    reply: asyncio.Future[Reply]

    @property
    def size_bytes(self) -> int:
        """The size of the answer's body."""
        failed = self.reply.exception() is not None
        return 0 if failed else len(self.reply.result().body)


class Idempotency:
    """Remembers answers by key, for a minute; of one event loop only.

    A client that repeats a request names the instance of the server that it sent the
    first one to. Another instance does not know its outcome, and says so.
    """

    def __init__(self, instance: str, clock_s: Callable[[], float]) -> None:
        self._instance = instance.encode()
        self._clock_s = clock_s
        self._forgetful_until_s = float("-inf")
        self._under_way: dict[Scope, asyncio.Future[Reply]] = {}
        self._remembered: OrderedDict[Scope, _Remembered] = OrderedDict()
        self._size_bytes = 0

    async def once(
        self,
        scope: Scope,
        instance: bytes | None,
        perform: Callable[[], Awaitable[Reply]],
    ) -> Reply:
        """Returns the answer of the first request with that key; it may be under way.

        `scope` is the principal, the request's method and path, and the key.
        """
        while (found := self.begin(scope, instance)) is not None:
            with suppress(ClientGone):  # the first: nothing was done for it
                return await asyncio.shield(found)
        try:
            reply = await perform()
        except BaseException as error:
            self.end(scope, error)
            raise
        self.end(scope, reply)
        return reply

    def begin(
        self, scope: Scope, instance: bytes | None
    ) -> asyncio.Future[Reply] | None:
        """Returns the answer to the first request; None where this one is the first.

        `end` then has to be told its answer.
        """
        if not 0 < len(scope[-1]) <= LONGEST_KEY:
            raise BadRequest(f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
        self._forget_old()
        if scope in self._under_way:
            return self._under_way[scope]
        if scope in self._remembered:
            return self._remembered[scope].reply
        if instance is not None:
            self._check_repeat(instance)
        self._under_way[scope] = asyncio.get_running_loop().create_future()
        return None

    def end(self, scope: Scope, outcome: Reply | BaseException) -> None:
        """Remembers how the first request ended."""
        future = self._under_way[scope]
        if isinstance(outcome, Reply):
            future.set_result(outcome)
        elif isinstance(outcome, ClientGone) or (
            isinstance(outcome, Exception) and changed_nothing(outcome)
        ):
            del self._under_way[scope]  # it may go better the next time
            _fail(future, outcome)
            return
        else:
            _fail(future, OutcomeUnknown(f"the first request failed: {outcome}"))
        self._remember(scope)

    def _remember(self, scope: Scope) -> None:
        """Begins the minute with the answer, however long that took."""
        future = self._under_way.pop(scope)
        remembered = _Remembered(self._clock_s(), future)
        self._remembered[scope] = remembered
        self._size_bytes += remembered.size_bytes

    def _check_repeat(self, instance: bytes) -> None:
        """Raises where a key that is not known here may have come before."""
        if instance != self._instance:
            raise OutcomeUnknown(
                "the server was started anew since the first request with this key; "
                "what became of that is not known here"
            )
        if self._clock_s() < self._forgetful_until_s:
            raise OutcomeUnknown(
                "there were too many keys to remember them all; what became of the "
                "first request with this one is not known"
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
