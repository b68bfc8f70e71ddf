"""Polls that wait: no thread, no looking, until something happens in the topic."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import attrs

from txaware.server.exchange import Peer
from txaware.server.server_context import ServerContext, Stopping
from txaware.service.read.reading import FIRST_PAUSE_S, AnyScan
from txaware.service.topic_handles import PartitionedTopic, Place
from txaware.service.wakeups import Signal


class Read(Protocol):
    """Reads the next piece of a scan; a quick one does not wait for the disk."""

    def __call__(
        self, scan: AnyScan, *, quick: bool = False, fresh: bool = False
    ) -> None:
        """Reads a piece; `fresh` rows were written just now, and are in memory."""


async def read_piece(
    server_context: ServerContext, read: Read, scan: AnyScan, *, fresh: bool = False
) -> None:
    """Reads the next piece here as far as it is cached, and the rest in a thread."""
    scan.is_paused = True
    if fresh or scan.is_cached:
        read(scan, quick=True, fresh=fresh)
    if scan.is_paused:
        await server_context.in_thread(read, scan)


class Begin(Protocol):
    """Begins a look at a topic; who was `woken` looks at something new."""

    def __call__(self, place: Place, *, woken: bool = False) -> AnyScan:
        """Returns the look, to be read in pieces."""


@attrs.frozen
class PollLook:
    """Says how to look at a topic, and how long to wait for something to be there.

    The topic is found anew for every look. `asks_coordinator` tells whether a look
    begins with a snapshot.
    """

    topic: str
    begin: Begin
    read: Read
    peer: Peer
    wait_s: float = attrs.field(kw_only=True)
    asks_coordinator: bool = attrs.field(kw_only=True)


class LongPolls:
    """Looks until something is there, the time is up, or nobody wants it any more."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context

    def at_once(self, look: PollLook, place: Place) -> AnyScan | None:
        """Looks as far as nothing waits; the scan is paused where there is more.

        Returns None where the look itself would wait.
        """
        if look.asks_coordinator or isinstance(place, PartitionedTopic):
            return None
        scan = look.begin(place)
        scan.is_paused = True
        if scan.is_cached:
            look.read(scan, quick=True)
        return scan

    async def first_piece(self, look: PollLook, scan: AnyScan | None = None) -> AnyScan:
        """Returns the scan of the last look, whose first piece is read.

        `scan` is a look that has begun. Rows that a signal tells of were written just
        now, and are in memory: a look after it needs no thread, unless rows come over a
        network.
        """
        server_context, pause_s = self._server_context, FIRST_PAUSE_S
        reads_wait = server_context.service.reads_wait
        until_s = time.monotonic() + min(
            look.wait_s, server_context.settings.long_poll_s
        )
        is_signalled = False
        while True:
            is_fresh = is_signalled and not reads_wait
            if scan is None:
                scan = await self._looked(look, is_fresh=is_fresh)
            elif scan.is_paused:
                await server_context.in_thread(look.read, scan)
            left_s = until_s - time.monotonic() if look.wait_s > 0 else 0
            peer = look.peer
            if (
                scan.count
                or left_s <= 0
                or peer.is_gone
                or server_context.stopping.is_set
            ):
                return scan
            pause_s = server_context.service.pause_s(scan, pause_s)
            timeout_s = min(left_s, pause_s)
            signal, stopping = scan.place.signal, server_context.stopping
            is_signalled = await signalled(
                signal, scan.seen, timeout_s, peer=peer, stopping=stopping
            )
            server_context.answers.require_room()
            scan = None

    async def _looked(self, look: PollLook, *, is_fresh: bool) -> AnyScan:
        server_context = self._server_context
        place = await server_context.place(look.topic)
        is_here = is_fresh and not isinstance(place, PartitionedTopic)
        if look.asks_coordinator and (
            not is_here or server_context.coordinator_may_wait()
        ):
            return await server_context.in_coordinator_thread(
                _begun_and_read, look.begin, look.read, place
            )
        if isinstance(place, PartitionedTopic):  # even to begin it may take a while
            return await server_context.in_thread(
                _begun_and_read, look.begin, look.read, place
            )
        scan = look.begin(place, woken=is_fresh)
        await read_piece(server_context, look.read, scan, fresh=is_fresh)
        return scan


class SignalWait:
    """A wait of the event loop without a task, until something may have changed.

    `on_end` is called once, in the loop and never before this returns: with False where
    the time is up, with True where the signal was told since the look that had `seen`,
    its peer is gone, or the server stops.
    """

    def __init__(
        self,
        signal: Signal,
        seen: int,
        timeout_s: float,
        *,
        peer: Peer,
        stopping: Stopping,
        on_end: Callable[[bool], object],
        chooses: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._signal, self._peer, self._stopping = signal, peer, stopping
        self._on_end = on_end
        self._is_over = False
        self._timer = self._loop.call_later(timeout_s, self._end, False)
        stopping.register(self)
        peer.set_when_gone(self)
        if not signal.listen(seen, self.set, chooses=chooses):
            self.set()

    def set(self) -> None:
        """Ends it soon: something may have changed. Any thread may say so."""
        with suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._end, True)

    def close(self) -> bool:
        """Ends it without a word; False where it had ended."""
        if self._is_over:
            return False
        self._is_over = True
        self._timer.cancel()
        self._signal.forget(self.set)
        self._stopping.forget(self)
        self._peer.set_when_gone(None)
        return True

    def _end(self, has_changed: bool) -> None:
        if self.close():
            self._on_end(has_changed)


async def signalled(
    signal: Signal,
    seen: int,
    timeout_s: float,
    *,
    peer: Peer,
    stopping: Stopping,
    chooses: bool = False,
) -> bool:
    """Waits until something may have changed since the look that had `seen`.

    Returns whether it did; otherwise the time is up.
    """
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_end(has_changed: bool) -> None:
        if not ended.done():  # whoever waited may have been cancelled just now
            ended.set_result(has_changed)

    waiting = SignalWait(
        signal,
        seen,
        timeout_s,
        peer=peer,
        stopping=stopping,
        on_end=on_end,
        chooses=chooses,
    )
    try:
        return await ended
    finally:
        waiting.close()


def _begun_and_read(begin: Begin, read: Read, place: Place) -> AnyScan:
    scan = begin(place)
    read(scan)
    return scan
