"""Polls that wait: no thread, no looking, until something happens in the topic."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from txaware.http.exchange import Peer
from txaware.http.hosted import Hosted
from txaware.service.reading import FIRST_PAUSE_S
from txaware.service.scan import Scan


class LongPolls:
    """Looks until something is there, the time is up, or nobody wants it any more."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    async def first_piece(
        self,
        begin: Callable[[], Scan],
        read: Callable[[Scan], None],
        *,
        wait_s: float,
        peer: Peer,
        needs_thread: bool,
    ) -> Scan:
        """The scan of the last look, whose first piece is read.

        `needs_thread` says that to begin may have to wait for something.
        """
        hosted, pause_s = self._hosted, FIRST_PAUSE_S
        until_s = time.monotonic() + min(wait_s, hosted.settings.long_poll_s)
        while True:
            scan = await self._look(begin, read, needs_thread=needs_thread)
            left_s = until_s - time.monotonic() if wait_s > 0 else 0
            if scan.count or left_s <= 0 or peer.is_gone or hosted.stopping.is_set:
                return scan
            pause_s = hosted.service.pause_s(scan, pause_s)
            await self._signalled(scan, min(left_s, pause_s), peer)

    async def _look(
        self,
        begin: Callable[[], Scan],
        read: Callable[[Scan], None],
        *,
        needs_thread: bool,
    ) -> Scan:
        if needs_thread:
            return await self._hosted.in_thread(_begun_and_read, begin, read)
        scan = begin()
        if scan.is_cached:
            read(scan)
        else:
            await self._hosted.in_thread(read, scan)
        return scan

    async def _signalled(self, scan: Scan, timeout_s: float, peer: Peer) -> None:
        """Returns when something may have changed since that look began."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        signal, stopping = scan.place.writer.signal, self._hosted.stopping

        def tell() -> None:
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(event.set)

        if not signal.listen(scan.seen, tell):
            return
        stopping.tell(event)
        peer.tell_when_gone(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await event.wait()
        finally:
            signal.forget(tell)
            stopping.forget(event)
            peer.tell_when_gone(None)


def _begun_and_read(begin: Callable[[], Scan], read: Callable[[Scan], None]) -> Scan:
    scan = begin()
    read(scan)
    return scan
