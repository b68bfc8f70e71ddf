"""Work queues for asyncio: the same ones, with pops that wait in the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, Self, Unpack, overload

from coordinator import tracing
from coordinator.callbacks import check_function
from coordinator.interfaces import TransactionAware
from txaware.client.aio.async_loops import AsyncWorker
from txaware.client.aio.async_transaction import AsyncTransaction, Workers
from txaware.client.aio.handlers import Handlers, called
from txaware.client.aio.in_threads import Awaited, Shown, in_thread, shown, written
from txaware.errors import BadRequest
from txaware.model.encoding import Decode, Encode
from txaware.model.messages import T
from txaware.model.queues import Popped, QueueDescriptor, checked_count
from txaware.model.signatures import showing, signed_as
from txaware.queue import Job, Popper, Pusher, Queue, Worker
from txaware.queue.participants_of_threads import MakesParticipant
from txaware.queue.queue import popper_name
from txaware.queue.worker_options import THREADS, WorkerArguments

# Pops over the connections of the event loop, and takes no thread.
Pop = Callable[..., Awaitable[list[Popped]]]


class AsyncJob(Awaited[Job[T]], Generic[T]):
    """An item that was popped: `async with job:` commits it or rolls it back.

    See `Job`.
    """

    def __init__(self, job: Job[T], workers: Workers) -> None:
        super().__init__(job, workers)
        self.queue = job.queue

    payload: Shown[T] = shown(Job[T].payload)
    key: Shown[bytes | None] = shown(Job.key)
    headers: Shown[Mapping[str, bytes]] = shown(Job.headers)
    id: Shown[str] = shown(Job.id)
    deliveries: Shown[int] = shown(Job.deliveries)
    pushed_at: Shown[datetime] = shown(Job.pushed_at)
    lease_until: Shown[datetime | None] = shown(Job.lease_until)
    is_over: Shown[bool] = shown(Job.is_over)

    commit = in_thread(Job.commit)
    rollback = in_thread(Job.rollback)
    extend = in_thread(Job.extend)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._run(self._blocking.__exit__, *exc_info)

    def __repr__(self) -> str:
        return f"<Async{repr(self._blocking)[1:]}"


class AsyncPusher(Awaited[Pusher[T]], Generic[T]):
    """A pusher with pipes of its own; `async with` closes it. See `Pusher`."""

    def __init__(self, pusher: Pusher[T], workers: Workers) -> None:
        super().__init__(pusher, workers)
        self.queue = pusher.queue

    push = in_thread(Pusher[T].push)
    push_all = in_thread(Pusher[T].push_all)
    close = in_thread(Pusher.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncPusher of {self.queue}>"


class AsyncPopper(Awaited[Popper[T]], Generic[T]):
    """A popper with a name of its own; see `Popper`.

    Outside of transactions its pops wait in the event loop.
    """

    def __init__(self, popper: Popper[T], workers: Workers, pop: Pop) -> None:
        super().__init__(popper, workers)
        self.queue = popper.queue
        self._pop = pop

    @signed_as(Popper.pop)
    async def pop(self, *args: Any, **options: Any) -> AsyncJob[T] | None:
        jobs = await self.pop_many(1, *args, **options)
        return jobs[0] if jobs else None

    @signed_as(Popper.pop_many)
    async def pop_many(self, n: int, wait_s: float = 0) -> list[AsyncJob[T]]:
        popper = self._blocking
        if self._workers.open_transaction() is not None:
            jobs = await self._run(popper.pop_many, n, wait_s)
        else:
            begun = tracing.begun()
            options = popper.options(n, wait_s, unnamed=_task_name())
            popped = await self._pop(self.queue, **options)
            if begun is not None and popped:
                begun.received("pop", self.queue, [one.headers for one in popped])
            jobs = popper.jobs(popped)
        return [AsyncJob(job, self._workers) for job in jobs]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue}>"


class AsyncQueue(AsyncPopper[T]):
    """A queue for any number of tasks of one event loop; see `Queue`."""

    _blocking: Queue[T]

    def typed(
        self, *, encode: Encode[Any] | None = None, decode: Decode[Any] | None = None
    ) -> "AsyncQueue[Any]":
        """Returns the same queue, of values; see `Messaging.queue`."""
        queue = self._blocking.typed(encode=encode, decode=decode)
        return AsyncQueue(queue, self._workers, self._pop)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue

    async def descriptor(self) -> QueueDescriptor:
        """Returns the settings of the queue."""
        return await self._run(lambda: self._blocking.descriptor)

    push = written(Queue[T].push)
    push_all = written(Queue[T].push_all)
    push_once = in_thread(Queue[T].push_once)
    peek = in_thread(Queue.peek)
    browse = in_thread(Queue.browse)
    stats = in_thread(Queue.stats)
    pause = in_thread(Queue.pause)
    resume = in_thread(Queue.resume)
    truncate = in_thread(Queue.truncate)
    redrive = in_thread(Queue.redrive)

    def pusher(self) -> AsyncPusher[T]:
        """Returns a pusher with pipes of its own, to be closed at its end."""
        return AsyncPusher(self._blocking.pusher(), self._workers)

    @signed_as(Queue.popper)
    def popper(self, **options: Any) -> AsyncPopper[T]:
        popper = self._blocking.popper(**options)
        return AsyncPopper(popper, self._workers, self._pop)

    @overload
    def worker(
        self,
        handler: Callable[[AsyncJob[T]], object],
        *,
        transaction: Literal[False] = False,
        concurrency: int | None = None,
        **options: Unpack[WorkerArguments],
    ) -> AsyncWorker: ...

    @overload
    def worker(
        self,
        handler: Callable[[AsyncJob[T], AsyncTransaction], object],
        *,
        transaction: Literal[True],
        concurrency: int | None = None,
        **options: Unpack[WorkerArguments],
    ) -> AsyncWorker: ...

    @overload
    def worker(
        self,
        handler: Callable[..., object],
        *,
        transaction: bool,
        concurrency: int | None = None,
        **options: Unpack[WorkerArguments],
    ) -> AsyncWorker: ...

    @showing(Queue.worker)
    def worker(
        self,
        handler: Callable[..., object],
        *,
        concurrency: int | None = None,
        threads: int = THREADS,
        participants: Iterable[TransactionAware | MakesParticipant] = (),
        timeout_s: float | None = None,
        **options: Any,
    ) -> AsyncWorker:
        """Returns a loop that awaits `handler(job)`; `run` runs it.

        At most `concurrency` jobs are handled at once; `threads` is its other name, as
        each has a thread that pops. With `transaction` the handler is awaited with
        `(job, tx)` in a block of its task. A function among the `participants`, which
        may be `async def`, makes one for each. A handler that takes longer than
        `timeout_s` is cancelled. See `Queue.worker`.
        """
        check_function(handler, what="handler", may_await=True)
        if not isinstance(participants, Iterable):
            raise BadRequest(f"participants are many, not {participants!r:.100}")
        given = tuple(participants)
        most = threads if concurrency is None else concurrency
        checked_count("concurrency", most)

        async def handle(job: Job[T], *tx: object) -> None:
            block = self._workers.open_transaction()
            found = [] if block is None else [block]
            async with asyncio.timeout(timeout_s):
                await called(handler, AsyncJob(job, self._workers), *found)

        def make(handlers: Handlers) -> Worker:
            return self._blocking.worker(
                handlers.blocking(handle),
                threads=most,
                participants=[handlers.in_loop(one) for one in given],
                timeout_s=timeout_s,
                **options,
            )

        return AsyncWorker(make, self._workers, of=self.queue)


def _task_name() -> str:
    task = asyncio.current_task()
    return popper_name("a callback" if task is None else task.get_name())
