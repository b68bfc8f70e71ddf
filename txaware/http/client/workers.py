"""Threads for what blocks, one for each transaction that is open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Worker:
    """One thread, for one user at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transaction")

    async def run(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Runs it to its end, also where the task is cancelled: that is raised then.

        What was begun in the thread has an end, by the time-outs of all it asks.
        """
        future = asyncio.wrap_future(self._thread.submit(function, *args, **options))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled from future.exception()
        return future.result()

    def close(self) -> None:
        """Ends the thread, once it has nothing to do."""
        self._thread.shutdown(wait=False)


class Workers:
    """So many threads at most; who finds none free waits for one."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._idle: list[Worker] = []
        self._closed = False

    async def take(self) -> Worker:
        """A worker, to be given back."""
        await self._free.acquire()
        return self._idle.pop() if self._idle else Worker()

    def give_back(self, worker: Worker) -> None:
        """For the next one who needs it."""
        if self._closed:
            worker.close()
        else:
            self._idle.append(worker)
        self._free.release()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Worker]:
        """A worker for a moment."""
        worker = await self.take()
        try:
            yield worker
        finally:
            self.give_back(worker)

    def close(self) -> None:
        """Ends the threads that are idle, and the others once they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
