"""Performs calls in the thread of the caller, over connections that threads share."""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import httpcore
import tenacity

from coordinator.brief_errors import shorten
from txaware.client.calls.call import Call, Steps
from txaware.client.calls.verb_calls import steps_of
from txaware.client.client_verbs import steps_for
from txaware.client.connections import ConnectionPool, destination, shown
from txaware.client.frame_connection import FrameConnection, upgrade_request
from txaware.client.frame_streams import FramedAnswer, head_of
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import (
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
from txaware.errors import TxAwareError, closed
from txaware.model.reports import MessagingStatus
from txaware.model.signatures import BlockingMethods, make_methods, signed_as
from txaware.protocol.frames import RequestHead
from txaware.protocol.verb import Verb

P = ParamSpec("P")
T = TypeVar("T")
Key = tuple[int, ServerPlace, bool]


class AsksInFrames(Protocol):
    """A connection of frames, as far as calls need it."""

    def ask(self, head: RequestHead, body: bytes, request: HttpRequest) -> FramedAnswer:
        """Sends a request, and returns its whole answer."""


class Transport:
    """Performs calls of any number of threads. A forked child has its own connections.

    Calls that wait for something have a pool of their own: however many they are, the
    others find a connection.
    """

    def __init__(
        self,
        link: Link,
        *,
        sleep: Callable[[float], None] = time.sleep,
        network_backend: httpcore.NetworkBackend | None = None,
    ) -> None:
        self.link = link
        self._sleep = sleep
        self._backend = network_backend or httpcore.SyncBackend()
        self._destinations = {place: destination(link, place) for place in link.places}
        # By process, by place, and whether for calls that wait. Of a parent's nothing
        # may be used, not even its locks.
        self._pools: dict[Key, ConnectionPool] = {}
        # Frames have one connection for all, and begin with the first call.
        self._choice = FrameChoice(link, can=network_backend is None)
        self._framed: dict[tuple[int, ServerPlace], FrameConnection] = {}
        self._connecting: dict[tuple[int, ServerPlace], threading.Lock] = {}
        self._upgrading: set[tuple[int, HttpConnection]] = set()
        # Why the last attempt failed: those who waited for it make none of their own.
        self._not_made: dict[tuple[int, ServerPlace], Exception] = {}
        self._closed = False

    def status(self, info: ServerInfo) -> MessagingStatus:
        """Tells how the last call went to the server that is asked now."""
        return MessagingStatus(self._choice.way, info.version, self.link.place.url)

    def run(self, steps: Steps[T] | Call[T]) -> T:
        """Performs the calls of a verb, and answers what it returns."""
        if isinstance(steps, Call):
            return self.perform(steps)
        try:
            call = steps.send(None)
            while True:
                try:
                    answer = self.perform(call)
                except TxAwareError as error:
                    call = steps.throw(error)  # which raises it, or goes on
                else:
                    call = steps.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    def perform(self, call: Call[T]) -> T:
        """Performs one call, with as many tries as it may have."""
        tries = Retry(call, self.link)
        try:
            return self._try(tries)
        except TxAwareError as error:
            if tries.pause_s is None:
                raise
            first = [error]

        def one_more() -> T:
            # The first try has been made: only its failure costs what follows.
            if first:
                raise first.pop()
            return self._try(tries)

        retrying = tenacity.Retrying(**again(tries), sleep=self._sleep)
        return retrying(one_more)

    def stream(self, call: Call[Any]) -> Generator[bytes, None, None]:
        """Yields the body of an answer in pieces, as they come, in one try.

        A body that was cut off ends with `Unavailable`. It may take as long as it
        comes: only its beginning has the time of a call.
        """
        tries = Retry(call, self.link)
        request = tries.request()
        try:
            framed = self._own_frames(tries, request)
        except FAILURES as error:
            raise tries.failed(error) from error
        if framed is not None:
            yield from self._stream_framed(framed, tries, request)
            return
        try:
            with self._one(tries) as connection:
                answer = connection.begin(tries.in_http(request), streams=True)
                while not answer.is_complete:
                    connection.read_more(answer)
                    if answer.status == 200:
                        connection.lift_deadline()
                        yield from answer.take_pieces()
        except FAILURES as error:
            raise tries.failed(error) from error
        if answer.status != 200:
            tries.answered(answer)

    def _stream_framed(
        self, framed: FrameConnection, tries: Retry[Any], request: HttpRequest
    ) -> Generator[bytes, None, None]:
        head, body = head_of(tries.call, request)
        other: list[bytes] = []
        try:
            for answer, pieces in framed.stream(head, body, request):
                if answer.status == 200:
                    yield from pieces
                else:
                    other += pieces
        except FAILURES as error:
            raise tries.failed(error) from error
        if answer.status != 200:
            answer.give_back(other)
            tries.answered(answer)

    def _try(self, tries: Retry[T]) -> T:
        request = tries.request()
        try:
            framed = self._in_frames(tries, request)
            tries.go_by(HTTP if framed is None else FRAMES)
            self._choice.used(tries.place, tries.way)
            if framed is not None:
                head, body = head_of(tries.call, request)
                answered: WholeAnswer = framed.ask(head, body, request)
            else:
                request = tries.in_http(request)
                with self._one(tries) as connection:
                    answered = connection.ask(request)
        except FAILURES as error:
            self._choice.lost(tries.place)
            raise tries.failed(error) from error
        return tries.answered(answered)

    def _in_frames(
        self, tries: Retry[Any], request: HttpRequest
    ) -> AsksInFrames | None:
        """Returns the connection that carries all calls, or None for HTTP."""
        return self._own_frames(tries, request)

    def _own_frames(
        self, tries: Retry[Any], request: HttpRequest
    ) -> FrameConnection | None:
        """Returns the connection that threads of this process share."""
        place = tries.place
        key = os.getpid(), place
        if not self._choice.tries_frames(place):
            return None
        found = self._framed.get(key)
        if found is not None and found.is_usable():
            return found
        before = self._not_made.get(key)
        with self._connecting.setdefault(key, threading.Lock()):
            found = self._framed.get(key)
            if found is not None and found.is_usable():
                return found
            if not self._choice.tries_frames(place):
                return None
            failed = self._not_made.pop(key, None)
            if failed is not None and failed is not before:
                self._not_made[key] = failed
                raise once_more(failed)
            try:
                return self._connect_frames(place, request)
            except Exception as error:
                self._not_made[key] = error
                raise

    def _connect_frames(
        self, place: ServerPlace, request: HttpRequest
    ) -> FrameConnection | None:
        pid = os.getpid()
        if self._closed:
            raise closed()
        for key in [key for key in list(self._framed) if key[0] != pid]:
            self._framed.pop(key).forsake()
        http = HttpConnection(self._destination(place), self._backend)
        made = FrameConnection(http)
        self._upgrading.add((pid, http))
        try:
            made.connect(upgrade_request(request, place.address.path))
        except NotGranted as error:
            self._keep(http, (pid, place, False))
            self._choice.refused(place, error.status)
            return None
        except FAILURES as error:
            raise_not_asked(error)
        finally:
            self._upgrading.discard((pid, http))
        self._framed[pid, place] = made
        self._choice.granted(place, made.version)
        if self._closed:  # just now, and it was not seen there
            made.close()
        return made

    def _destination(self, place: ServerPlace) -> ServerAddress:
        found = self._destinations.get(place)
        if found is None:
            found = self._destinations[place] = destination(self.link, place)
        return found

    def _keep(self, http: HttpConnection, key: Key) -> None:
        """Goes on in HTTP on the connection that asked for frames."""
        try:
            (self._pools.get(key) or self._open(key)).adopt(http)
        except BaseException:
            http.close()
            raise

    def _one(self, tries: Retry[Any]) -> AbstractContextManager[HttpConnection]:
        key = (os.getpid(), tries.place, tries.waits)
        pool = self._pools.get(key) or self._open(key)
        return pool.one(tries.deadline.within(self.link.settings.connect_timeout_s))

    def _open(self, key: Key) -> ConnectionPool:
        if self._closed:
            raise closed()
        for inherited in [one for one in list(self._pools) if one[0] != key[0]]:
            pool = self._pools.pop(inherited, None)
            if pool is not None:
                pool.forsake()
        _, place, waits = key
        limit = self.link.settings.limit(waits=waits)
        connect = partial(HttpConnection, self._destination(place), self._backend)
        pool = self._pools.setdefault(key, ConnectionPool(limit, connect))
        if self._closed:  # just now, and the pool was not seen there
            self.close()
            raise closed()
        return pool

    def close(self) -> None:
        """Closes all connections; what is asked later is `Unavailable`."""
        self._closed = True
        for process_id, http in list(self._upgrading):
            if process_id == os.getpid():
                with suppress(Exception):
                    http.shut_down()
        for at in list(self._framed):
            framed = self._framed.pop(at, None)
            if framed is not None:
                (framed.close if at[0] == os.getpid() else framed.forsake)()
        for key in list(self._pools):
            pool = self._pools.pop(key, None)
            if pool is None:
                continue
            if key[0] == os.getpid():
                pool.close()
            else:  # a parent's: shut down, they would be so for the parent as well
                pool.forsake()

    def lose(self, why: str) -> None:
        """Closes all connections; what was asked may have been done."""
        for (process_id, _), framed in list(self._framed.items()):
            if process_id == os.getpid():
                framed.lose(why)
        self.close()

    def __repr__(self) -> str:
        found = (*list(self._framed.items()), *list(self._pools.items()))
        own = [carrier for key, carrier in found if key[0] == os.getpid()]
        state = "closed" if self._closed else shown(*own)
        return f"<Transport to {self.link.url}, {state}>"


def blocking(
    verb: Callable[Concatenate[Any, P], T],
    steps: Callable[Concatenate[Any, P], Steps[T] | Call[T]],
) -> Callable[Concatenate[Any, P], T]:
    """Makes the method that performs a verb of a port, in the thread of its caller.

    Its object has a `_transport`, and `_calls`, whose method `steps` is.
    """

    def performed(self: Any, *args: P.args, **options: P.kwargs) -> T:
        try:
            answer: T = self._transport.run(steps(self._calls, *args, **options))
        except TxAwareError as error:
            shorten(error)
            raise
        return answer

    return signed_as(verb)(performed)


class BlockingVerbs(BlockingMethods):
    """Makes the methods of the verbs that a class of clients has."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        make_methods(cls, lambda found: blocking(found.verb, steps_for(found.verb)))


def blocking_verb(verb: Verb[P, T]) -> Callable[Concatenate[Any, P], T]:
    """Makes the method that performs a declared verb, in the thread of its caller."""
    return blocking(verb.does, steps_of(verb))
