"""Performs the same calls in an event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpcore
import tenacity

from coordinator.brief_errors import briefly, shorten
from txaware.client.aio.async_frame_connection import AsyncFrameConnection
from txaware.client.calls.call import Call, Steps
from txaware.client.calls.verb_calls import steps_of
from txaware.client.client_verbs import steps_for
from txaware.client.connections import CountedConnections, destination, shown
from txaware.client.frame_connection import upgrade_request
from txaware.client.frame_streams import FramedAnswer, head_of
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import (
    AsyncHttpConnection,
    HttpConnection,
    NotGranted,
    ServerAddress,
)
from txaware.client.link import (
    FRAMES,
    HTTP,
    FrameChoice,
    Link,
    ServerPlace,
    once_more,
    raise_not_asked,
)
from txaware.client.retry import FAILURES, Retry, WholeAnswer, again
from txaware.client.server_info import ServerInfo
from txaware.client.transport import AsksInFrames, Transport
from txaware.errors import TxAwareError, closed
from txaware.model.reports import MessagingStatus
from txaware.model.signatures import AwaitedMethods, make_methods, signed_as
from txaware.protocol.verb import Verb

# The time that a client which is closed may still give back what nobody waits for.
GIVE_BACK_S = 2.0


class AsyncConnections(CountedConnections[AsyncHttpConnection]):
    """Connections, each for one request at a time; of one event loop."""

    def __init__(self, limit: int, connect: Callable[[], AsyncHttpConnection]) -> None:
        super().__init__()
        self._connect = connect
        self._free = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def one(self, timeout_s: float) -> AsyncIterator[AsyncHttpConnection]:
        """Lends a connection for one request; `PoolTimeout` if none is free.

        A connection that is not at the end of its answer afterwards is closed.
        """
        await self._acquire(timeout_s)
        try:
            connection = await self._latest()
            self._used.add(connection)
            try:
                yield connection
            finally:
                self._used.discard(connection)
                await self._give_back(connection)
        finally:
            self._free.release()

    async def _acquire(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            raise httpcore.PoolTimeout from error

    async def _latest(self) -> AsyncHttpConnection:
        if len(self._idle) > 1 and self._idle[0].has_expired():
            await _close(self._idle.popleft())
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await _close(connection)
        return self._connect()

    async def _give_back(self, connection: AsyncHttpConnection) -> None:
        if self._closed or not connection.is_at_end:
            await _close(connection)
            return
        self._idle.append(connection)

    async def close(self) -> None:
        """Closes all, also those in use."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop())
        for connection in list(self._used):
            await _close(connection)


async def _close(connection: AsyncHttpConnection) -> None:
    with suppress(Exception):
        await connection.aclose()


async def _rest_of(connection: AsyncHttpConnection) -> WholeAnswer:
    try:
        return await connection.rest()
    finally:
        await _close(connection)


P = ParamSpec("P")
T = TypeVar("T")


class AsyncTransport:
    """Performs calls for any number of tasks of one event loop.

    A task that is cancelled gives its connection up; what it had asked for may be done.
    What it was given by then is given back by a task of its own.
    """

    def __init__(
        self,
        link: Link,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        network_backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self.link = link
        self._sleep = sleep
        self._backend = network_backend
        self._destinations = {place: destination(link, place) for place in link.places}
        self._pools: dict[tuple[ServerPlace, bool], AsyncConnections] = {}
        # Frames have one connection for all, and begin with the first call.
        self._choice = FrameChoice(link, can=network_backend is None)
        self._framed: dict[ServerPlace, AsyncFrameConnection] = {}
        self._connecting: dict[
            ServerPlace, asyncio.Task[AsyncFrameConnection | None]
        ] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._closed = False

    @briefly
    async def run(self, steps: Steps[T] | Call[T]) -> T:
        """Performs the calls of a verb, and answers what it returns."""
        if isinstance(steps, Call):
            return await self.perform(steps)
        try:
            call = steps.send(None)
            while True:
                try:
                    answer = await self.perform(call)
                except TxAwareError as error:
                    call = steps.throw(error)  # which raises it, or goes on
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    async def perform(self, call: Call[T]) -> T:
        """Performs one call, with as many tries as it may have."""
        tries = Retry(call, self.link)
        try:
            return await self._try(tries)
        except TxAwareError as error:
            if tries.pause_s is None:
                raise
            first = [error]

        async def one_more() -> T:
            if first:
                raise first.pop()
            return await self._try(tries)

        retrying = tenacity.AsyncRetrying(**again(tries), sleep=self._sleep)
        return await retrying(one_more)

    def _destination(self, place: ServerPlace) -> ServerAddress:
        found = self._destinations.get(place)
        if found is None:
            found = self._destinations[place] = destination(self.link, place)
        return found

    def _pool(self, place: ServerPlace, *, waits: bool) -> AsyncConnections:
        found = self._pools.get((place, waits))
        if found is None:
            connect = partial(
                AsyncHttpConnection, self._destination(place), self._backend
            )
            limit = self.link.settings.limit(waits=waits)
            found = self._pools[place, waits] = AsyncConnections(limit, connect)
        return found

    async def _try(self, tries: Retry[T]) -> T:
        request = tries.request()
        pool = self._pool(tries.place, waits=tries.waits)
        if self._closed:
            raise closed()
        try:
            framed = await self._in_frames(tries, request)
            tries.go_by(HTTP if framed is None else FRAMES)
            self._choice.used(tries.place, tries.way)
            if framed is not None:
                return tries.answered(await self._ask(framed, tries, request))
            connect_s = tries.deadline.within(self.link.settings.connect_timeout_s)
            request = tries.in_http(request)
            async with pool.one(connect_s) as connection:
                try:
                    answer = await connection.ask(request)
                except asyncio.CancelledError:
                    self._leave(tries, connection)
                    raise
        except FAILURES as error:
            self._choice.lost(tries.place)
            raise tries.failed(error) from error
        return tries.answered(answer)

    async def _ask(
        self, framed: AsyncFrameConnection, tries: Retry[Any], request: HttpRequest
    ) -> FramedAnswer:
        head, body = head_of(tries.call, request)
        answer = framed.begin(head, body, request)
        given_back = tries.call.given_back
        try:
            await framed.whole(answer, request)
        except asyncio.CancelledError:
            if given_back is None:
                framed.forget(answer)
            else:
                framed.end_wait(answer)
                rest = framed.rest(answer, request)
                self._give_back_soon(tries, rest, given_back)
            raise
        except BaseException:
            framed.forget(answer)
            raise
        framed.forget(answer)
        return answer

    async def _in_frames(
        self, tries: Retry[Any], request: HttpRequest
    ) -> AsyncFrameConnection | None:
        """Returns the connection that carries all calls, or None for HTTP."""
        place = tries.place
        if not self._choice.tries_frames(place):
            return None
        found = self._framed.get(place)
        if found is not None and found.is_usable():
            return found
        # All tasks wait for the same attempt, which none of them ends.
        attempt = self._connecting.get(place)
        if attempt is None:
            connect = self._connect_frames(place, request)
            attempt = self._connecting[place] = asyncio.create_task(connect)
            attempt.add_done_callback(partial(self._connected, place))
            return await asyncio.shield(attempt)
        try:
            async with asyncio.timeout(tries.deadline.within(request.read_s)):
                return await asyncio.shield(attempt)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except FAILURES as error:
            raise once_more(error) from error

    def _connected(self, place: ServerPlace, attempt: "asyncio.Task[Any]") -> None:
        del self._connecting[place]
        if not attempt.cancelled():
            attempt.exception()  # perhaps nobody waits for it any more

    async def _connect_frames(
        self, place: ServerPlace, request: HttpRequest
    ) -> AsyncFrameConnection | None:
        made = AsyncFrameConnection(HttpConnection(self._destination(place)))
        try:
            await made.open(upgrade_request(request, place.address.path))
        except NotGranted as error:
            self._choice.refused(place, error.status)
            return None
        except FAILURES as error:
            raise_not_asked(error)
        self._framed[place] = made
        if self._closed:
            made.close()
            raise closed()
        self._choice.granted(place, made.version)
        return made

    def status(self, info: ServerInfo) -> MessagingStatus:
        """Tells how the last call went to the server that is asked now."""
        return MessagingStatus(self._choice.way, info.version, self.link.place.url)

    def _leave(self, tries: Retry[Any], connection: AsyncHttpConnection) -> None:
        """Has another task give back what may have been given already."""
        given_back = tries.call.given_back
        other = None if given_back is None else connection.taken_over()
        if given_back is not None and other is not None:
            self._give_back_soon(tries, _rest_of(other), given_back)

    def _give_back_soon(
        self,
        tries: Retry[T],
        rest: Coroutine[Any, Any, WholeAnswer],
        given_back: Callable[[T], Iterable[Steps[None]]],
    ) -> None:
        task = asyncio.create_task(self._give_back(tries, rest, given_back))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(
        self,
        tries: Retry[T],
        rest: Coroutine[Any, Any, WholeAnswer],
        given_back: Callable[[T], Iterable[Steps[None]]],
    ) -> None:
        try:
            value = tries.answered(await rest)
        except (*FAILURES, TxAwareError):
            return  # nothing was given
        for steps in given_back(value):
            with suppress(TxAwareError):  # it comes back by itself, though later
                await self.run(steps)

    async def close(self) -> None:
        """Closes all connections; what is asked later is `Unavailable`."""
        try:
            if self._giving_back:
                await asyncio.wait(self._giving_back, timeout=GIVE_BACK_S)
        finally:
            self._closed = True
            for task in self._giving_back:
                task.cancel()
            for pool in self._pools.values():
                await pool.close()
            for attempt in [*self._connecting.values()]:
                attempt.cancel()
            for framed in self._framed.values():
                framed.close()

    def __repr__(self) -> str:
        state = (
            "closed"
            if self._closed
            else shown(*self._framed.values(), *self._pools.values())
        )
        return f"<AsyncTransport to {self.link.url}, {state}>"


class TransportOfThreads(Transport):
    """Performs calls of an event loop's threads, over the connection of the loop.

    `loop_of` returns that loop, once it is known. A thread that is the loop's own may
    not wait for it, and connects by itself; so does what goes by HTTP.
    """

    def __init__(
        self,
        of_loop: AsyncTransport,
        loop_of: Callable[[], asyncio.AbstractEventLoop | None],
    ) -> None:
        super().__init__(of_loop.link)
        self._of_loop = of_loop
        self._loop_of = loop_of
        self._choice = of_loop._choice

    def _in_frames(
        self, tries: Retry[Any], request: HttpRequest
    ) -> AsksInFrames | None:
        loop = self._loop_of()
        if loop is None or loop is asyncio._get_running_loop():
            return super()._in_frames(tries, request)
        if not self._choice.tries_frames(tries.place):
            return None
        found = self._of_loop._framed.get(tries.place)
        if found is None or not found.is_usable():
            found = self._connected(loop, tries, request)
        return found

    def _connected(
        self,
        loop: asyncio.AbstractEventLoop,
        tries: Retry[Any],
        request: HttpRequest,
    ) -> AsyncFrameConnection | None:
        connect = self._of_loop._in_frames(tries, request)
        try:
            return asyncio.run_coroutine_threadsafe(connect, loop).result()
        except (RuntimeError, CancelledError) as error:
            connect.close()
            raise httpcore.ConnectError("its event loop has ended") from error


def awaited(
    verb: Callable[Concatenate[Any, P], T],
    steps: Callable[Concatenate[Any, P], Steps[T] | Call[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Makes the coroutine method that performs a verb of a port.

    Its object has a `_transport`, and `_calls`, whose method `steps` is.
    """

    async def performed(self: Any, *args: P.args, **options: P.kwargs) -> T:
        try:
            answer: T = await self._transport.run(steps(self._calls, *args, **options))
        except TxAwareError as error:
            shorten(error)
            raise
        return answer

    return signed_as(verb)(performed)


class AwaitedVerbs(AwaitedMethods):
    """Makes the coroutine methods of the verbs that a class of clients has."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        make_methods(cls, lambda found: awaited(found.verb, steps_for(found.verb)))


def awaited_verb(
    verb: Verb[P, T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Makes the coroutine method that performs a declared verb."""
    return awaited(verb.does, steps_of(verb))
