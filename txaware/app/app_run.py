"""The loops of an app in an event loop: begun together, and ended together."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from txaware.app.declarations import Declaration
from txaware.app.schedule import Ticker
from txaware.messaging import Messaging

if TYPE_CHECKING:
    from txaware.client.aio.async_messaging import AsyncMessaging

log = logging.getLogger(__name__)

# A look at schedules comes so often at least: clocks are set, and rows are moved.
LONGEST_PAUSE_S = 30.0
# The pause after a look that failed.
PAUSE_S = 1.0


class AppRun:
    """Handlers that are `def` have threads, and those that are `async def` tasks."""

    def __init__(
        self, messaging: Messaging, awaited: Callable[[], "AsyncMessaging"]
    ) -> None:
        self._messaging = messaging
        self._awaited = awaited
        self._closes: list[Callable[[], Awaitable[object]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[threading.Thread] = []

    async def begin(
        self,
        subscriptions: list[Declaration],
        work: list[Declaration],
        ticker: Ticker | None,
    ) -> None:
        """Begins all loops."""
        for declared in subscriptions:
            self._begin_loop(declared, await self.subscribed(declared))
        for declared in work:
            self._begin_loop(declared, await self.worker(declared))
        if ticker is not None:
            stop = threading.Event()
            self._in_thread("schedules", lambda: _tick(ticker, stop))

            async def end() -> None:
                stop.set()

            self._closes.append(end)

    async def subscribed(self, declared: Declaration) -> Any:
        """Makes the loop of a topic."""
        messaging = self._awaited() if declared.is_async else self._messaging
        options = declared.options_for(messaging, by_thread=False)
        return messaging.subscribe(declared.source, declared.handler, **options)

    async def worker(self, declared: Declaration) -> Any:
        """Makes the loop of a queue."""
        messaging: Any = self._awaited() if declared.is_async else self._messaging
        options = declared.options_for(messaging, by_thread=True)
        decode = options.pop("decode", None)
        queue = messaging.queue(declared.source)
        if declared.is_async:
            queue = await queue
        if decode is not None:
            queue = queue.typed(decode=decode)
        return queue.worker(declared.handler, **options)

    async def end(self) -> None:
        """Ends all loops; what is in work ends first."""
        await asyncio.gather(*(close() for close in self._closes))
        await asyncio.gather(*self._tasks)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _begin_loop(self, declared: Declaration, loop: Any) -> None:
        if declared.is_async:
            self._tasks.append(asyncio.create_task(_run(declared, loop)))
            self._closes.append(loop.close)
            return
        self._in_thread(declared.name, loop.run)
        self._closes.append(lambda: asyncio.to_thread(loop.close))

    def _in_thread(self, name: str, run: Callable[[], None]) -> None:
        def logged() -> None:
            try:
                run()
            except Exception:
                log.exception("the loop of %s has ended", name)

        thread = threading.Thread(target=logged, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


async def _run(declared: Declaration, loop: Any) -> None:
    try:
        await loop.run()
    except Exception:
        log.exception("the loop of %s has ended", declared.name)


def _tick(ticker: Ticker, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            ticker.tick()
            pause_s = ticker.pause_s(LONGEST_PAUSE_S)
        except Exception:
            log.warning("schedules are looked at again", exc_info=True)
            pause_s = PAUSE_S
        stop.wait(pause_s)
