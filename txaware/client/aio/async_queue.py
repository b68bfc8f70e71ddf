"""Work queues for asyncio: the same ones, with pops that wait in the event loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, Unpack, overload

from coordinator import tracing
from coordinator.callbacks import check_function
from coordinator.interfaces import TransactionAware
from txaware.client.aio.async_loops import AsyncWorker
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    to_the_end,
)
from txaware.client.aio.async_transport import AsyncTransport, awaited, awaited_verb
from txaware.client.aio.handlers import Handlers, called
from txaware.client.aio.in_threads import Awaited, Shown, in_thread, shown
from txaware.client.calls.queue_calls import QueueCalls
from txaware.errors import BadRequest
from txaware.model.encoding import Decode, Encode
from txaware.model.messages import MessageOptions, Outgoing, T, outgoing
from txaware.model.queue_service import QueueService
from txaware.model.queues import Popped, QueueDescriptor, checked_count
from txaware.model.signatures import showing, signed_as
from txaware.protocol.jobs import COMMIT_JOB, PUSH
from txaware.publish.publisher import checked_many
from txaware.queue import Job, Popper, Pusher, Queue, Worker
from txaware.queue.job import committed_alone, note_end
from txaware.queue.participants_of_threads import MakesParticipant
from txaware.queue.queue import popper_name, pushing_alone
from txaware.queue.worker_options import THREADS, WorkerArguments


class JobCalls:
    """Calls for jobs on the connection of the event loop, which take no thread."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._calls = QueueCalls(transport.link)

    push = awaited_verb(PUSH)
    pop = awaited(QueueService.pop, QueueCalls.pop)
    commit_job = awaited_verb(COMMIT_JOB)


class AsyncJob(Awaited[Job[T]], Generic[T]):
    """An item that was popped: `async with job:` commits it or rolls it back.

    See `Job`.
    """

    def __init__(self, job: Job[T], workers: Workers, calls: JobCalls) -> None:
        super().__init__(job, workers)
        self.queue = job.queue
        self._calls = calls

    payload: Shown[T] = shown(Job[T].payload)
    key: Shown[bytes | None] = shown(Job.key)
    headers: Shown[Mapping[str, bytes]] = shown(Job.headers)
    id: Shown[str] = shown(Job.id)
    deliveries: Shown[int] = shown(Job.deliveries)
    pushed_at: Shown[datetime] = shown(Job.pushed_at)
    lease_until: Shown[datetime | None] = shown(Job.lease_until)
    is_over: Shown[bool] = shown(Job.is_over)

    @signed_as(Job.commit)
    async def commit(self) -> None:
        job = self._blocking
        is_alone = self._workers.open_transaction() is None
        commit = self._calls.commit_job
        if not (is_alone and await to_the_end(committed_alone(job, commit))):
            await self._run(job.commit)

    rollback = in_thread(Job.rollback)
    extend = in_thread(Job.extend)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and not self.is_over:
            await self.commit()
        else:
            await self._run(self._blocking.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Async{repr(self._blocking)[1:]}"


def _blocking_job(job: AsyncJob[Any]) -> Job[Any]:
    """Returns the job that one of an event loop stands for."""
    if not isinstance(job, AsyncJob):
        raise BadRequest(f"what a pop commits is a job, not {job!r:.100}")
    return job._blocking


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

    def __init__(self, popper: Popper[T], workers: Workers, calls: JobCalls) -> None:
        super().__init__(popper, workers)
        self.queue = popper.queue
        self._calls = calls

    async def pop(
        self, wait_s: float = 0, *, commits: AsyncJob[Any] | None = None
    ) -> AsyncJob[T] | None:
        """Returns the next job, or None; see `Popper.pop`.

        Where it is cancelled, a job that it commits may be committed or not.
        """
        jobs = await self.pop_many(1, wait_s, commits=commits)
        return jobs[0] if jobs else None

    async def pop_many(
        self, n: int, wait_s: float = 0, *, commits: AsyncJob[Any] | None = None
    ) -> list[AsyncJob[T]]:
        """Returns up to `n` jobs; see `Popper.pop_many`."""
        popper = self._blocking
        if self._workers.open_transaction() is not None:
            if commits is not None:
                await commits.commit()
            jobs = await self._run(popper.pop_many, n, wait_s)
        else:
            operation = tracing.begin_operation()
            popped = await self._pop_alone(n, wait_s, commits)
            if operation is not None and popped:
                operation.received("pop", self.queue, [one.headers for one in popped])
            jobs = popper.jobs(popped)
        return [AsyncJob(job, self._workers, self._calls) for job in jobs]

    async def _pop_alone(
        self, n: int, wait_s: float, commits: AsyncJob[Any] | None
    ) -> list[Popped]:
        pop, named_as = self._calls.pop, _task_name()
        if commits is not None:
            named = self._blocking._leased(_blocking_job(commits))
            if named is None:
                await commits.commit()
            else:
                options = self._blocking.options(n, 0, unnamed=named_as)
                popped = await pop(self.queue, **options, commits=named)
                note_end(_blocking_job(commits))
                if popped or not wait_s:
                    return popped
        options = self._blocking.options(n, wait_s, unnamed=named_as)
        return await pop(self.queue, **options)

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
        return AsyncQueue(queue, self._workers, self._calls)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue

    async def descriptor(self) -> QueueDescriptor:
        """Returns the settings of the queue."""
        return await self._run(lambda: self._blocking.descriptor)

    @signed_as(Queue[T].push)
    async def push(
        self,
        payload: T | Outgoing[T],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        due = {"delay_s": delay_s, "at": at, "priority": priority}
        if self._workers.open_transaction() is None:
            await self._push([outgoing(payload, options)], due)
            return
        push = partial(self._blocking.push, payload, **options)
        await self._workers.write(push, **due)

    @signed_as(Queue[T].push_all)
    async def push_all(
        self, payloads: Iterable[T | Outgoing[T]], **options: Any
    ) -> None:
        if self._workers.open_transaction() is None:
            many: Any = checked_many
            await self._push(many(payloads, call="push_all"), options)
            return
        await self._workers.write(self._blocking.push_all, payloads, **options)

    async def _push(self, values: Iterable[Any], options: dict[str, Any]) -> None:
        with pushing_alone(self._blocking, values, **options) as (payloads, named):
            if payloads:
                await to_the_end(self._calls.push(self.queue, payloads, **named))

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
        return AsyncPopper(popper, self._workers, self._calls)

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
                await called(handler, AsyncJob(job, self._workers, self._calls), *found)

        def make(handlers: Handlers) -> Worker:
            return self._blocking.worker(
                handlers.blocking(handle),
                threads=most,
                participants=[handlers.in_loop(one) for one in given],
                timeout_s=timeout_s,
                **options,
            )

        return AsyncWorker(make, self._workers, handles=self.queue)


def _task_name() -> str:
    task = asyncio.current_task()
    return popper_name("a callback" if task is None else task.get_name())
