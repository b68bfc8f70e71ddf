"""Work queues for asyncio: the same ones, with pops that wait in the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

import attrs

from coordinator import tracing
from coordinator.brief_errors import briefly
from coordinator.callbacks import check_function
from coordinator.interfaces import Coordinator, TransactionAware
from txaware.client.aio.async_loops import AsyncWorker
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    open_transaction,
)
from txaware.client.aio.handlers import Handlers, called
from txaware.errors import BadRequest
from txaware.model.encoding import Decode, Encode
from txaware.model.messages import Outgoing, T
from txaware.model.queues import (
    ItemState,
    Popped,
    QueueDescriptor,
    QueueItem,
    QueueStats,
    Waiting,
    checked_count,
)
from txaware.model.signatures import showing
from txaware.queue import Job, Popper, Pusher, Queue, Worker
from txaware.queue.participants_of_threads import MakesParticipant
from txaware.queue.queue import popper_name
from txaware.queue.worker_options import THREADS, WorkerArguments

R = TypeVar("R")


@attrs.frozen
class Loop:
    """Calls for tasks: in the thread of their transaction, or in a free one.

    `pop` asks over the connections of the event loop, and takes no thread.
    """

    coordinator: Coordinator
    workers: Workers
    pop: Callable[..., Awaitable[list[Popped]]]

    @briefly
    async def run(self, call: Callable[[], R]) -> R:
        """Calls something that blocks, in a thread."""
        return await self.workers.run(self.coordinator, call)

    @property
    def is_in_transaction(self) -> bool:
        """True when this task has a transaction open."""
        return open_transaction(self.coordinator) is not None


class AsyncJob(Generic[T]):
    """An item that was popped: `async with job:` commits it or rolls it back.

    See `Job`.
    """

    def __init__(self, job: Job[T], loop: Loop) -> None:
        self.queue = job.queue
        self._job = job
        self._loop = loop

    @property
    def payload(self) -> T:
        """The bytes that were pushed, or the value that `decode` makes of them."""
        return self._job.payload

    @property
    def key(self) -> bytes | None:
        """The key that was pushed with it, or None."""
        return self._job.key

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers that were pushed with it."""
        return self._job.headers

    @property
    def id(self) -> str:
        """The name of the item, the same in every delivery."""
        return self._job.id

    @property
    def deliveries(self) -> int:
        """The number of this delivery, from 1."""
        return self._job.deliveries

    @property
    def pushed_at(self) -> datetime:
        """The time of the push, in UTC."""
        return self._job.pushed_at

    @property
    def lease_until(self) -> datetime | None:
        """The end of the lease, in UTC; None where it ends with a transaction."""
        return self._job.lease_until

    @property
    def is_over(self) -> bool:
        """True once it was committed or rolled back here, or is its transaction's."""
        return self._job.is_over

    async def commit(self) -> None:
        """Ends the job for good; in a transaction, with its commit."""
        await self._loop.run(self._job.commit)

    async def rollback(self, delay_s: float = 0, *, error: str = "") -> None:
        """Has the job come again, after `delay_s`; `error` goes to its dead letter."""
        await self._loop.run(lambda: self._job.rollback(delay_s, error=error))

    async def extend(self, seconds: float) -> None:
        """Has the lease end `seconds` from now."""
        await self._loop.run(lambda: self._job.extend(seconds))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._loop.run(lambda: self._job.__exit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"<Async{repr(self._job)[1:]}"


class AsyncPusher(Generic[T]):
    """A pusher with pipes of its own; `async with` closes it. See `Pusher`."""

    def __init__(self, pusher: Pusher[T], loop: Loop) -> None:
        self.queue = pusher.queue
        self._pusher = pusher
        self._loop = loop

    async def push(self, payload: T | Outgoing[T], **options: Any) -> None:
        """Pushes one item; with the commit of this task's open transaction, if any."""
        await self._loop.run(lambda: self._pusher.push(payload, **options))

    async def push_all(
        self, payloads: Iterable[T | Outgoing[T]], **options: Any
    ) -> None:
        """Pushes many items in one piece: all or none."""
        await self._loop.run(lambda: self._pusher.push_all(payloads, **options))

    async def close(self) -> None:
        """Has its pipe take no more pushes; a second close does nothing."""
        await self._loop.run(self._pusher.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncPusher of {self.queue}>"


class AsyncPopper(Generic[T]):
    """A popper with a name of its own; see `Popper`."""

    def __init__(self, popper: Popper[T], loop: Loop) -> None:
        self.queue = popper.queue
        self._popper = popper
        self._loop = loop

    async def pop(self, wait_s: float = 0) -> AsyncJob[T] | None:
        """Returns the next job, leased to the caller; None if there is none in time.

        In the open transaction of this task the job is final with the commit.
        """
        jobs = await self.pop_many(1, wait_s)
        return jobs[0] if jobs else None

    async def pop_many(self, n: int, wait_s: float = 0) -> list[AsyncJob[T]]:
        """Returns up to `n` jobs; waits for the first, and for no more."""
        popper = self._popper
        if self._loop.is_in_transaction:
            jobs = await self._loop.run(lambda: popper.pop_many(n, wait_s))
        else:
            begun = tracing.begun()
            options = popper.options(n, wait_s, unnamed=_task_name())
            popped = await self._loop.pop(self.queue, **options)
            if begun is not None and popped:
                begun.received("pop", self.queue, [one.headers for one in popped])
            jobs = popper.jobs(popped)
        return [AsyncJob(job, self._loop) for job in jobs]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue}>"


class AsyncQueue(AsyncPopper[T]):
    """A queue for any number of tasks of one event loop; see `Queue`."""

    def __init__(self, queue: Queue[T], loop: Loop) -> None:
        super().__init__(queue, loop)
        self._queue = queue

    def typed(
        self, *, encode: Encode[Any] | None = None, decode: Decode[Any] | None = None
    ) -> "AsyncQueue[Any]":
        """Returns the same queue, of values; see `Messaging.queue`."""
        return AsyncQueue(self._queue.typed(encode=encode, decode=decode), self._loop)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue

    async def descriptor(self) -> QueueDescriptor:
        """Returns the settings of the queue."""
        return await self._loop.run(lambda: self._queue.descriptor)

    async def push(self, payload: T | Outgoing[T], **options: Any) -> None:
        """Pushes one item, with the options of `Queue.push`."""
        await self._loop.run(lambda: self._queue.push(payload, **options))

    async def push_all(
        self, payloads: Iterable[T | Outgoing[T]], **options: Any
    ) -> None:
        """Pushes many items in one piece; without a transaction all or none."""
        await self._loop.run(lambda: self._queue.push_all(payloads, **options))

    async def push_once(
        self, name: str, payload: T | Outgoing[T], *, at: datetime, **options: Any
    ) -> bool:
        """Pushes what is due `at` a time once; see `Queue.push_once`."""
        return await self._loop.run(
            lambda: self._queue.push_once(name, payload, at=at, **options)
        )

    def pusher(self) -> AsyncPusher[T]:
        """Returns a pusher with pipes of its own, to be closed at its end."""
        return AsyncPusher(self._queue.pusher(), self._loop)

    def popper(
        self, *, name: str | None = None, owns_pipe: bool = False
    ) -> AsyncPopper[T]:
        """Returns a popper with a name of its own, or with a pipe of its own."""
        return AsyncPopper(
            self._queue.popper(name=name, owns_pipe=owns_pipe), self._loop
        )

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
            block = open_transaction(self._loop.coordinator)
            found = [] if block is None else [block]
            async with asyncio.timeout(timeout_s):
                await called(handler, AsyncJob(job, self._loop), *found)

        def make(handlers: Handlers) -> Worker:
            return self._queue.worker(
                handlers.blocking(handle),
                threads=most,
                participants=[handlers.in_loop(one) for one in given],
                timeout_s=timeout_s,
                **options,
            )

        loop = self._loop
        return AsyncWorker(make, loop.coordinator, loop.workers, of=self.queue)

    async def peek(self, limit: int = 10) -> list[Waiting]:
        """Returns items that wait, the oldest first, and pops none."""
        return await self._loop.run(lambda: self._queue.peek(limit))

    async def browse(
        self, state: ItemState = "waiting", limit: int = 10
    ) -> list[QueueItem]:
        """Returns items that wait, are `in_work`, `delayed` or `dead`; pops none."""
        return await self._loop.run(lambda: self._queue.browse(state, limit))

    async def stats(self) -> QueueStats:
        """Returns the counts of the queue, and how it stands now."""
        return await self._loop.run(self._queue.stats)

    async def pause(self) -> None:
        """Has pops get nothing until `resume`; pushes go on."""
        await self._loop.run(self._queue.pause)

    async def resume(self) -> None:
        """Lets pops go on."""
        await self._loop.run(self._queue.resume)

    async def truncate(self) -> None:
        """Removes all items, also those in work, and sets the counts to zero."""
        await self._loop.run(self._queue.truncate)

    async def redrive(self, limit: int | None = None) -> int:
        """Moves dead letters back to their queue; returns how many."""
        return await self._loop.run(lambda: self._queue.redrive(limit))


def _task_name() -> str:
    task = asyncio.current_task()
    return popper_name("a callback" if task is None else task.get_name())
