"""Loops with handlers that are coroutines: subscribers, processors and workers."""

import asyncio
import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, Self, TypeVar

from coordinator.callbacks import check_function
from txaware.client.aio.async_transaction import Workers, WorkerThread
from txaware.client.aio.handlers import Handlers
from txaware.consume import Subscriber, SubscriberMetrics
from txaware.errors import MisusedTransaction
from txaware.messaging.processor import Processor
from txaware.queue import Worker, WorkerMetrics


class Runs(Protocol):
    """A loop that blocks."""

    def run(self, stop: threading.Event | None = None) -> None:
        """Works until `stop` is set."""

    def run_once(self) -> int:
        """Handles what is there now, one transaction or job; returns how many."""

    def close(self) -> None:
        """Ends every `run`, when what is in work has ended."""


L = TypeVar("L", bound=Runs)
M = TypeVar("M", bound=Subscriber | Processor)


class AsyncLoop(ABC, Generic[L]):
    """A loop of threads whose handlers are called in the event loop.

    `await` opens it, and the first `run` does so where nobody has.
    """

    def __init__(
        self,
        make: Callable[[Handlers], L],
        workers: Workers,
        *,
        handles: str,
    ) -> None:
        self._make = make
        self._workers = workers
        self._handles = handles
        self._opening = asyncio.Lock()
        self._opened: L | None = None
        self._is_closed = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def run(self, stop: "asyncio.Event | threading.Event | None" = None) -> None:
        """Works until `stop` is set or `close` is called.

        A task that is cancelled ends it as well. In each case what is in work ends
        first. It raises what the loop that blocks raises.
        """
        self._require_none_open()
        loop = await self._opened_loop()
        stops = stop if isinstance(stop, threading.Event) else threading.Event()
        thread, here = WorkerThread(), contextvars.copy_context()
        running = asyncio.wrap_future(thread.submit(here.run, loop.run, stops))
        passing = None
        if isinstance(stop, asyncio.Event):
            passing = asyncio.create_task(_pass_on(stop, stops))
        cancelled: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:
                cancelled = error
                stops.set()
        thread.close()
        if passing is not None:
            passing.cancel()
        if cancelled is not None:
            raise cancelled from running.exception()
        running.result()

    async def run_once(self) -> int:
        """Handles what is there now, one transaction or job; returns how many."""
        self._require_none_open()
        loop = await self._opened_loop()
        return await self._workers.run(loop.run_once)

    async def close(self) -> None:
        """Ends every `run`; when it returns, no handler is at work."""
        self._is_closed = True
        async with self._opening:
            loop = self._opened
        if loop is not None:
            thread = WorkerThread()
            try:
                await thread.run(loop.close)
            finally:
                thread.close()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _open(self) -> Self:
        await self._opened_loop()
        return self

    async def _opened_loop(self) -> L:
        async with self._opening:
            if self._is_closed:
                raise MisusedTransaction(f"{self!r} is closed")
            if self._opened is None:
                handlers = Handlers(self._workers)
                self._opened = await self._workers.run(self._make, handlers)
            return self._opened

    def _require_none_open(self) -> None:
        transaction = self._workers.open_transaction()
        if transaction is not None:
            raise MisusedTransaction(
                f"a loop begins transactions of its own, and {transaction} is open here"
            )

    @abstractmethod
    def metrics(self) -> object:
        """Returns what it has counted so far."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._handles}>"


class _TopicLoop(AsyncLoop[M]):
    """A loop over a topic."""

    def metrics(self) -> SubscriberMetrics:
        """Returns what it has counted so far."""
        loop = self._opened
        return SubscriberMetrics() if loop is None else loop.metrics()


class AsyncSubscriber(_TopicLoop[Subscriber]):
    """The loop of `AsyncMessaging.subscribe`; see `Subscriber`."""


class AsyncProcessor(_TopicLoop[Processor]):
    """The loop of `AsyncMessaging.process`; see `Processor`."""


class AsyncWorker(AsyncLoop[Worker]):
    """The loop of an asyncio queue's `worker`; see `Worker`."""

    def metrics(self) -> WorkerMetrics:
        """Returns what it has counted so far."""
        loop = self._opened
        return WorkerMetrics() if loop is None else loop.metrics()


async def _pass_on(stop: asyncio.Event, stops: threading.Event) -> None:
    await stop.wait()
    stops.set()


def for_threads(
    options: dict[str, Any], handlers: Handlers, *names: str
) -> dict[str, Any]:
    """Returns options whose functions of these names are called in the event loop."""
    made = dict(options)
    for name in names:
        if made.get(name) is not None:
            check_function(made[name], what=name, may_await=True)
            made[name] = handlers.blocking(made[name])
    return made
