"""Handlers of loops that are coroutines: the loop has a thread, and they do not.

A loop (a subscriber, a processor, a worker) is the one that blocks, in threads of its
own. While a thread waits for a handler, it makes the calls of the block that the
handler is in: so the block stays that of one thread, as everywhere.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from coordinator.callbacks import Callback, check_answer
from coordinator.context import TransactionContext, current_transaction
from coordinator.tracing import active, carried
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    WorkerThread,
    entered,
)
from txaware.consume.batches import Handled, HandlesAtOnce
from txaware.queue.participants_of_threads import is_function

P = ParamSpec("P")
R = TypeVar("R")
Calls = SimpleQueue[Callable[[], object] | None]
# Awaits what a function makes, in a block that is lent to the task.
Lend = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]


class WaitingThread(WorkerThread):
    """A thread that waits for a coroutine, and meanwhile makes the calls of that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: Calls = SimpleQueue()

    def submit(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> Future[R]:
        """Has the thread make a call, after all that came before it."""
        future: Future[R] = Future()
        in_span = carried(function)

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(in_span(*args, **options))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(call)
        return future

    def wait_for(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine in the event loop, called by this thread; returns its end.

        One that was cancelled raises `asyncio.CancelledError`, an interrupt.
        """
        ended: Future[R] = Future()
        self._loop.call_soon_threadsafe(self._begin, coroutine, ended)
        while (call := self._calls.get()) is not None:
            call()
        try:
            return ended.result()
        except CancelledError as error:
            raise asyncio.CancelledError(*error.args) from None

    def _begin(self, coroutine: Coroutine[Any, Any, R], ended: Future[R]) -> None:
        """Begins a task, with the context variables of the thread."""
        task = self._loop.create_task(coroutine)

        def end(task: asyncio.Task[R]) -> None:
            if task.cancelled():
                ended.cancel()
            elif (error := task.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(task.result())
            self._calls.put(None)

        task.add_done_callback(end)

    def close(self) -> None:
        """Does nothing: the thread is that of a loop."""


class LentTransaction(AsyncTransaction):
    """The block of a loop, in which a handler is: the loop begins and ends it."""

    def __init__(
        self, context: TransactionContext, workers: Workers, thread: WaitingThread
    ) -> None:
        super().__init__(context, workers)
        self._thread = thread

    @contextmanager
    def entered(self) -> Iterator["LentTransaction"]:
        """Makes it the open block of this task."""
        self._worker, self._task = self._thread, asyncio.current_task()
        self._within = True
        try:
            with entered(self):
                yield self
        finally:
            self._worker, self._within = None, False

    def _keep(self, function: Callback, *, committed: bool) -> None:
        """Has the block of the loop call it, by way of the event loop."""
        take = self._context.on_commit if committed else self._context.on_rollback
        take(lambda: self._thread.wait_for(called(function)))


def processing(
    function: Callable[..., Any], topic: str, group: str | None
) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Makes a handler of one message whose call is in a span of its own."""

    async def call(message: Any) -> Any:
        tracing = active()
        if tracing is None:
            return await called(function, message)
        with tracing.processing(topic, [message.headers], group=group):
            return await called(function, message)

    return call


class Handlers:
    """Makes functions for the threads of a loop out of handlers for the event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._loop = asyncio.get_running_loop()

    def blocking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes one that calls a function, or coroutine, in the event loop.

        There the block that is open in the thread is that of its task.
        """

        def call(*args: Any, **options: Any) -> Any:
            with self._within() as (thread, lend):
                return thread.wait_for(
                    lend(partial(called, function, *args, **options))
                )

        return call

    def in_loop(self, participant: Any) -> Any:
        """Returns a participant, or what makes one in the event loop."""
        return self.blocking(participant) if is_function(participant) else participant

    def at_once(self, function: Callable[[Any], Any], most: int) -> HandlesAtOnce:
        """Makes one that calls a function with several messages, so many at once.

        Those of one key come one after the other.
        """

        def call(messages: list[Any], is_late: Callable[[], bool]) -> list[Handled]:
            with self._within() as (thread, lend):

                async def one(message: Any, after: "asyncio.Task[Any] | None") -> Any:
                    if after is not None:
                        await after
                    return await lend(partial(called, function, message))

                return thread.wait_for(_each(messages, one, most, is_late))

        return call

    @contextmanager
    def _within(self) -> Iterator[tuple[WaitingThread, Lend]]:
        """Lends this thread, and the block that is open in it."""
        thread = WaitingThread(self._loop)
        context = current_transaction(self._workers.coordinator)

        async def lend(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
            if context is None:
                return await make()
            with LentTransaction(context, self._workers, thread).entered():
                return await make()

        yield thread, lend


async def _each(
    messages: list[Any],
    handle: Callable[[Any, "asyncio.Task[Any] | None"], Coroutine[Any, Any, Any]],
    most: int,
    is_late: Callable[[], bool],
) -> list[Handled]:
    """Handles messages, so many at once; none begins after a failure, or late."""
    begun: list[asyncio.Task[Any]] = []
    last: dict[bytes, asyncio.Task[Any]] = {}
    free = asyncio.Semaphore(most)

    def end(task: "asyncio.Task[Any]") -> None:
        free.release()

    try:
        for message in messages:
            await free.acquire()
            failed = any(task.done() and _error(task) for task in begun)
            if failed or (begun and is_late()):
                break
            key = message.key
            task = asyncio.create_task(handle(message, last.get(key)))
            task.add_done_callback(end)
            begun.append(task)
            if key is not None:
                last[key] = task
        if begun:
            await asyncio.wait(begun)
    finally:
        for task in begun:
            task.cancel()
    return [
        Handled(error, None if error else task.result())
        for task in begun
        for error in [_error(task)]
    ]


def _error(task: "asyncio.Task[Any]") -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def called(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a function, and awaits its answer where that can be."""
    answer = function(*args, **options)
    if inspect.isawaitable(answer):
        answer = await answer
    check_answer(answer)
    return answer
