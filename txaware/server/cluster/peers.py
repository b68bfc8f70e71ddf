"""Connections of frames to the other servers, one for each token of a caller."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import attrs

from txaware.client.aio.async_frame_connection import AsyncFrameConnection
from txaware.client.calls.call import Deadline
from txaware.client.connections import destination
from txaware.client.frame_connection import UPGRADE
from txaware.client.frame_streams import FramedAnswer
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import HttpConnection, NotGranted
from txaware.client.link import Link
from txaware.client.retry import FAILURES
from txaware.client.settings import ClientSettings
from txaware.protocol.frames import ANY_ROUTE, FRAMES_PATH, SERVER, RequestHead
from txaware.server.admission import ClientGone
from txaware.server.cluster.cluster_part import GONE, ClusterPart
from txaware.server.cluster.server_map import ServerEntry
from txaware.server.exchange import Peer

# A connection is made within this time, or the server counts as away.
CONNECT_S = 5.0
WRITE_S = 30.0
# The client waits as long as it likes: what ends a call is a server that is silent.
ANSWER_S = 86_400.0
# Why a call to such a server ends, as a caller reads it.
SILENT = "it says nothing any more"
_LOOKS = 4  # within the time of silence; after one without a word it is asked for one
MOST_CONNECTIONS = 1000


class NotAsked(Exception):
    """A server was not asked, as no connection to it could be made."""


class AnswerLost(Exception):
    """A server was asked, and whether it did anything is not known."""


class _Caller(NamedTuple):
    """The other server, and the token that it is asked with."""

    own: str
    authorization: bytes | None


class PeerCall:
    """A request at another server: its answer as it comes, until `end`."""

    def __init__(self, line: AsyncFrameConnection, head: RequestHead, body: bytes):
        self._line = line
        self._came = asyncio.Event()
        deadline = Deadline(time.monotonic() + ANSWER_S, time.monotonic)
        request = HttpRequest(
            "", "", [], b"", ANSWER_S, WRITE_S, deadline, MOST_ANSWER_BYTES
        )
        self.answer: FramedAnswer = line.begin(head, body, request, is_streamed=True)
        self.answer.notify = self._came.set

    async def head(self, peer: Peer | None = None) -> None:
        """Returns once the head of the answer is there.

        The other server hears of a client that goes, and `ClientGone` is raised where
        nothing can be sent to it any more.
        """
        if peer is not None:
            peer.set_when_gone(self._came)
        try:
            is_told = peer is None
            while not (self.answer.status or self.answer.is_over):
                await self._next()
                if not is_told and peer is not None and peer.is_gone:
                    self._leave(peer)
                    is_told = True
        finally:
            if peer is not None:
                peer.set_when_gone(None)
        self._check()

    def _leave(self, peer: Peer) -> None:
        if self.answer.status or self.answer.is_over:
            return
        if peer.is_closed:
            raise ClientGone
        self.end_wait()

    async def whole(self) -> bytes:
        """Returns the body, once it has come to its end."""
        found = []
        while True:
            found += self.answer.take_pieces()
            if self.answer.is_complete:
                return b"".join([*found, *self.answer.take_pieces()])
            self._check()
            self._line.took(self.answer)
            await self._next()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces, as they come."""
        try:
            while True:
                is_complete = self.answer.is_complete
                for piece in self.answer.take_pieces():
                    yield piece
                if is_complete:
                    return
                self._check()
                self._line.took(self.answer)
                await self._next()
        finally:
            self.end()

    def end_wait(self) -> None:
        """Has the other server answer with what it has by now."""
        self._line.end_wait(self.answer)

    def end(self) -> None:
        """Ends the call; the other server hears of one that is not answered."""
        self._line.forget(self.answer)

    async def _next(self) -> None:
        await self._came.wait()
        self._came.clear()

    def _check(self) -> None:
        if self.answer.error is not None:
            raise AnswerLost(str(self.answer.error)) from self.answer.error


# The most of a body that is not streamed on; a client has a limit of its own.
MOST_ANSWER_BYTES = 1 << 30


@attrs.define
class _Silence:
    """Counts the looks at a connection that says nothing while calls are under way.

    `heard` is how often something had come by it; `question` is what it was asked.
    """

    heard: int
    looks: int = 0
    question: PeerCall | None = None

    def end(self) -> None:
        if self.question is not None:
            self.question.end()
            self.question = None


class _SilentLines:
    """Ends connections that are cut: their server says nothing, although it is asked.

    A poll may wait for long, so a server is asked for a word where nothing comes.
    """

    def __init__(self, lines: dict[_Caller, AsyncFrameConnection], silence_s: float):
        self._lines = lines
        self._look_s = silence_s / _LOOKS
        self._silences: dict[_Caller, _Silence] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Looks from now on, as long as there are connections."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        self._timer = None
        for caller, line in [*self._lines.items()]:
            known = self._silences.get(caller)
            if known is None or known.heard != line.heard or not line.in_use:
                if known is not None:
                    known.end()
                self._silences[caller] = _Silence(line.heard)
                continue
            known.looks += 1
            if known.looks >= _LOOKS:
                line.lose(SILENT)
                known.end()
                del self._lines[caller]
            elif known.question is None:
                try:
                    known.question = PeerCall(line, _ANYBODY_THERE, b"")
                except FAILURES:  # as many calls as it takes are under way
                    known.looks = 0
        for caller in self._silences.keys() - self._lines.keys():
            self._silences.pop(caller).end()
        if self._lines:
            self.watch()

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()


_ANYBODY_THERE = RequestHead(ANY_ROUTE, 0, method="GET", path="/ping")


class Peers:
    """Asks other servers, over connections that all requests of a token share.

    One that says nothing for `silence_s` while it is asked is cut, and is made anew.
    """

    def __init__(self, membership: ClusterPart, *, silence_s: float) -> None:
        self._membership = membership
        self._settings = ClientSettings(
            certificate=membership.certificate, connect_timeout_s=CONNECT_S
        )
        self._lines: dict[_Caller, AsyncFrameConnection] = {}
        self._connecting: dict[_Caller, asyncio.Task[AsyncFrameConnection]] = {}
        self._silent = _SilentLines(self._lines, silence_s)
        membership.on_gone.append(self._lose)

    async def begin(
        self,
        server: ServerEntry,
        authorization: bytes | None,
        head: RequestHead,
        body: bytes,
    ) -> PeerCall:
        """Asks a server; `NotAsked` where that was not possible."""
        caller = _Caller(server.own, authorization)
        line = self._lines.get(caller)
        if line is None or not line.is_usable():
            line = await self._connected(caller)
        try:
            return PeerCall(line, head, body)
        except FAILURES as error:
            raise NotAsked(str(error)) from error

    async def _connected(self, caller: _Caller) -> AsyncFrameConnection:
        attempt = self._connecting.get(caller)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(caller))
            self._connecting[caller] = attempt
            attempt.add_done_callback(lambda _: self._connecting.pop(caller, None))
        try:
            return await asyncio.shield(attempt)
        except FAILURES as error:
            raise NotAsked(str(error) or type(error).__name__) from error
        except NotGranted as error:
            raise NotAsked(f"it answered {error.status} to the upgrade") from error

    async def _connect(self, caller: _Caller) -> AsyncFrameConnection:
        link = Link(caller.own, settings=self._settings)
        made = AsyncFrameConnection(HttpConnection(destination(link)))
        seal = self._membership.seal.header(self._membership.id)
        headers = [link.place.host, (SERVER, seal), *UPGRADE]
        if caller.authorization is not None:
            headers.append((b"Authorization", caller.authorization))
        await made.open(
            HttpRequest(
                "GET",
                FRAMES_PATH,
                headers,
                b"",
                CONNECT_S,
                CONNECT_S,
                Deadline(time.monotonic() + CONNECT_S, time.monotonic),
                1 << 20,
            )
        )
        self._lines.pop(caller, None)  # the newest one last
        self._lines[caller] = made
        self._silent.watch()
        self._let_go(MOST_CONNECTIONS, lambda line: not line.in_use)
        return made

    def _let_go(
        self, most: int, may_end: Callable[[AsyncFrameConnection], bool]
    ) -> None:
        """Closes idle connections beyond a number, the oldest first."""
        for caller in [*self._lines]:
            if len(self._lines) <= most:
                return
            if may_end(self._lines[caller]):
                self._lines.pop(caller).close()

    def _lose(self, own: str) -> None:
        """Ends calls to a server that has left the cluster, and may hang for ever."""
        for caller in [one for one in self._lines if one.own == own]:
            self._lines.pop(caller).lose(GONE)

    def close(self) -> None:
        """Closes all connections."""
        self._silent.close()
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        for attempt in [*self._connecting.values()]:
            attempt.cancel()
