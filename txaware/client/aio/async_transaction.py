"""`async with`: a transaction that begins, commits and undoes in a thread of its own.

There it is the same `TransactionContext` as everywhere, with the same participants,
which block and are called from that one thread. The event loop only waits for it. A
block that one database of asyncio decides takes no thread before something needs one.
"""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

from coordinator.brief_errors import briefly
from coordinator.callbacks import CallsBack, grouped
from coordinator.context import TransactionContext, entered_already, left_already
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.participants import note_others, raise_interrupt
from coordinator.tracing import carried
from coordinator.transaction import Status, Transaction
from txaware.errors import MisusedTransaction

P = ParamSpec("P")
R = TypeVar("R")


class DecidesInLoop(ABC):
    """A participant that decides its block, and needs no thread to do so.

    The event loop takes its steps ahead, and the block is told then: a call of
    `TransactionAware` returns or raises as the steps of that call have ended. What the
    block writes waits for `write_ahead`. A task that is cancelled meanwhile has a write
    end as a statement of the program's own does, and sees all else to its end.
    """

    @abstractmethod
    async def begin_ahead(self) -> None:
        """Begins its transaction; comes before `start_tx`, which tells of its errors.

        Raises only where it is in another block.
        """

    @abstractmethod
    async def write_ahead(self) -> None:
        """Writes what was published and pushed since the last call; raises."""

    @abstractmethod
    async def commit_ahead(self) -> bool:
        """Commits, or else rolls back; comes before `commit_tx`, and does not raise.

        Tells whether it has committed.
        """

    @abstractmethod
    async def roll_back_ahead(self) -> None:
        """Rolls back; comes before `rollback_tx`, and does not raise."""

    @abstractmethod
    def leave_loop(self) -> None:
        """Ends this, as the block has, or has a thread from now on."""


async def seen_through(
    work: "Coroutine[Any, Any, R] | asyncio.Future[R]",
) -> asyncio.CancelledError | None:
    """Has work done to its end; returns how the task was cancelled meanwhile, if so."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def to_the_end(work: "Coroutine[Any, Any, R] | asyncio.Future[R]") -> R:
    """Does work to its end, also if the task is cancelled: that is raised then.

    The work has an end, by the time-outs of all that it asks.
    """
    future = asyncio.ensure_future(work)
    cancelled = await seen_through(future)
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()


class WorkerThread:
    """One thread, for one user at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transaction")

    async def run(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Runs a call to its end; see `to_the_end`."""
        called = self.submit(function, *args, **options)
        return await to_the_end(asyncio.wrap_future(called))

    def submit(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> Future[R]:
        """Runs a call after all that came before it, without waiting."""
        return self._thread.submit(carried(function), *args, **options)

    def close(self) -> None:
        """Ends the thread, once it has nothing to do."""
        self._thread.shutdown(wait=False)


class Workers:
    """Threads, so many at most; a task that finds none free waits for one.

    They work in transactions of one coordinator.
    """

    def __init__(self, limit: int, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self._free = asyncio.Semaphore(limit)
        self._idle: list[WorkerThread] = []
        self._closed = False
        # That of the tasks which take threads, once one has.
        self.loop: asyncio.AbstractEventLoop | None = None

    async def take(self) -> WorkerThread:
        """Returns a worker, to be given back."""
        await self._free.acquire()
        self.loop = asyncio.get_running_loop()
        return self._idle.pop() if self._idle else WorkerThread()

    def give_back(self, worker: WorkerThread) -> None:
        """Gives a worker back, for the next task that needs one."""
        if self._closed:
            worker.close()
        else:
            self._idle.append(worker)
        self._free.release()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[WorkerThread]:
        """Lends a worker for a moment."""
        worker = await self.take()
        try:
            yield worker
        finally:
            self.give_back(worker)

    @briefly
    async def run(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Runs a call in the thread of this task's open transaction, or in a free one.

        The thread of the transaction waits anyway, and another may never be free.
        """
        block = self.open_transaction()
        if block is not None:
            return await block.run(function, *args, **options)
        async with self.one() as worker:
            return await worker.run(function, *args, **options)

    @briefly
    async def write(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Runs a call that writes with this task's open transaction, or in a thread.

        See `AsyncTransaction.write`.
        """
        block = self.open_transaction()
        if block is not None:
            return await block.write(function, *args, **options)
        return await self.run(function, *args, **options)

    def open_transaction(self) -> "AsyncTransaction | None":
        """Returns the transaction that this task has open, if any."""
        return open_transaction(self.coordinator)

    def close(self) -> None:
        """Ends the threads that are idle, and the others once they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class AsyncTransaction(CallsBack):
    """Commits at the end of the block, or undoes everything; belongs to its task.

    A task that is cancelled first undoes what the block did, or sees its commit to the
    end, and is cancelled then: the note of its error says how the transaction ended.
    """

    _may_await = True

    def __init__(
        self,
        context: TransactionContext,
        workers: Workers,
        *,
        decider: DecidesInLoop | None = None,
    ) -> None:
        self._context = context
        self._workers = workers
        # It has the block, which has no thread, until something needs one.
        self._decider = decider
        self._worker: WorkerThread | None = None
        self._task: object = None
        self._within = False

    @property
    def transaction(self) -> Transaction:
        """The snapshot it reads with, and the pointer it writes with now."""
        return self._context.transaction

    @property
    def status(self) -> Status:
        """The state of the transaction."""
        return self._context.status

    @property
    def participants(self) -> tuple[TransactionAware, ...]:
        """The participants that the block was begun with, in their order."""
        return self._context.participants

    def snapshot_for(self, call: str) -> Transaction:
        """Returns the snapshot for a reader in the block; refused after a rollback."""
        return self._context.snapshot_for(call)

    def is_of(self, coordinator: Coordinator) -> bool:
        """Tells whether it is open there, in this task."""
        return (
            self._context.coordinator is coordinator
            and self._within
            and self._task is asyncio.current_task()
            and self.status is not Status.COMMITTED
        )

    @briefly
    async def run(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Calls something that blocks, in the thread of the transaction.

        What joins the open transaction of its thread joins this one.
        """
        if self._decider is not None and self._within:
            await self._move_to_thread(self._decider)
        if self._worker is None:
            raise MisusedTransaction(f"{self._context} is not open")
        return await self._worker.run(function, *args, **options)

    @briefly
    async def write(
        self, function: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        """Calls something that publishes or pushes, and asks nobody but the database.

        Where a database decides the block in the event loop, it is called there.
        """
        decider = self._decider
        if decider is None or not self._within:
            return await self.run(function, *args, **options)
        try:
            return function(*args, **options)
        finally:
            await decider.write_ahead()

    async def _move_to_thread(self, decider: DecidesInLoop) -> None:
        """Goes on in a thread, for what blocks or needs an answer of the database."""
        worker = await self._workers.take()
        enter = self._context.move()
        self._worker, self._decider = worker, None
        decider.leave_loop()
        await worker.run(enter)

    async def join(self, participant: TransactionAware) -> None:
        """Adds a participant, and starts it at once."""
        await self.run(self._context.join, participant)

    async def checkpoint(self) -> Transaction:
        """Lets participants write what was changed, and goes on with a new pointer."""
        return await self.run(self._context.checkpoint)

    async def flush(self) -> None:
        """Lets participants write what others may read before the commit.

        See `TransactionContext.flush`.
        """
        await self.run(self._context.flush)

    async def prepare(self, name: str) -> None:
        """Prepares the transaction, as the last call of the block; others end it.

        See `TransactionContext.prepare`.
        """
        await self.run(self._context.prepare, name)

    async def abort(self) -> None:
        """Undoes everything; a block that ends after it commits nothing."""
        if self._decider is not None and self._within:
            await self._aborted(self._decider)
        else:
            await self.run(self._context.abort)
        for failure in await self._await_callbacks():
            raise failure

    def __enter__(self) -> NoReturn:
        """Refuses `with`, which cannot wait in an event loop."""
        raise MisusedTransaction(
            "a transaction of asyncio is a block of `async with`, not of `with`"
        )

    def __exit__(self, *_: object) -> None:
        """Is never called: no such block begins."""

    async def __aenter__(self) -> Self:
        if self._task is not None or self.status is not Status.NEW:
            raise entered_already(self.status)
        outer = open_transaction(self._context.coordinator)
        if outer is not None and outer.status in (Status.ACTIVE, Status.ENDING):
            raise MisusedTransaction(
                f"{outer} is already open in this task; begin the other one in a task "
                f"of its own"
            )
        self._task = asyncio.current_task()
        try:
            if self._decider is not None:
                await self._begun(self._decider)
            else:
                self._worker = await self._workers.take()
                await self.run(self._context.__enter__)
            _open.set((*_open.get(), self))
        except BaseException as error:
            await self._end(error)
            self._task = None
            raise
        self._within = True  # in one step: an interrupt came before, or comes within
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, _: object
    ) -> None:
        if not self._within:
            raise left_already(self)
        try:
            await self._end(error)
        except BaseException as ended:
            self._leave(ended)
            await self._notify(ended)
            raise
        await self._notify(error)

    async def _begun(self, decider: DecidesInLoop) -> None:
        try:
            await decider.begin_ahead()
        except BaseException:
            self._decider = None  # which is another block's
            raise
        try:
            self._context.__enter__()
        except BaseException as error:
            await self._undone(decider, error)
            raise

    async def _undone(self, decider: DecidesInLoop, error: BaseException) -> None:
        """Takes what an error has left to be done; that it fails is a note of it."""
        work = asyncio.ensure_future(decider.write_ahead())
        await seen_through(work)
        other = work.exception()
        if other is not None:
            note_others(error, [other])

    async def _aborted(self, decider: DecidesInLoop) -> None:
        cancelled = None
        if self.status is Status.ACTIVE:
            cancelled = await seen_through(decider.roll_back_ahead())
        self._context.abort()
        if cancelled is not None:
            raise cancelled

    async def _end_in_loop(
        self, decider: DecidesInLoop, error: BaseException | None
    ) -> None:
        cancelled, refusal = None, None
        if self.status is Status.ACTIVE and error is None:
            try:
                self._context.require_decidable()
            except BaseException as refused:
                error = refusal = refused
        if self.status is Status.ACTIVE:
            end = decider.commit_ahead if error is None else decider.roll_back_ahead
            cancelled = await seen_through(end())
        try:
            self._context.__exit__(None if error is None else type(error), error, None)
            if refusal is not None:
                raise refusal
        except BaseException as ended:
            await self._undone(decider, ended)
            if cancelled is not None:
                raise cancelled from ended
            raise
        if cancelled is not None:
            raise cancelled

    async def _end(self, error: BaseException | None) -> None:
        if not self._context.is_entered:  # its start has undone what there was
            self._leave(error)
            return
        kind = None if error is None else type(error)
        try:
            if self._decider is not None and not self._context.begins_later:
                try:  # the coordinator is asked
                    await self._move_to_thread(self._decider)
                except asyncio.CancelledError as cancelled:
                    await self._end_in_loop(self._decider, cancelled)
                    raise
            if self._decider is not None:
                await self._end_in_loop(self._decider, error)
            elif self._worker is not None:
                run = self._worker.run
                await run(self._context.__exit__, kind, error, None)
        except BaseException as ended:
            if isinstance(ended, asyncio.CancelledError):
                ended.add_note(f"{self._context} is {self.status.value}")
            self._leave(ended)
            raise
        self._leave(None)

    def _require_active(self, call: str) -> None:
        if not self._within or self.status is not Status.ACTIVE:
            raise MisusedTransaction(f"{call}() needs an open block, not {self!r}")

    async def _notify(self, error: BaseException | None) -> None:
        """Tells that the transaction has ended; what that raises is a note of `error`.

        Without an error it is raised.
        """
        failures = await self._await_callbacks()
        if error is not None:
            note_others(error, failures)
            raise_interrupt(failures, error)
        elif failures:
            first, *others = failures
            first.add_note(f"{self._context} is {self.status.value}")
            note_others(first, others)
            raise first

    async def _await_callbacks(self) -> list[BaseException]:
        """Calls the functions for this end; none where the outcome is not known."""
        ended = (Status.COMMITTED, Status.ABORTED, Status.INVALIDATED)
        if self._callbacks is None or self.status not in ended:
            return []
        committed = self.status is Status.COMMITTED
        errors: list[BaseException] = []
        while (function := self._callbacks.take(committed=committed)) is not None:
            try:
                answer = function()
                if inspect.isawaitable(answer):
                    await answer
            except BaseException as failed:
                errors.append(failed)
        return grouped(errors, committed=committed)

    def _leave(self, error: BaseException | None) -> None:
        """Gives the thread back; it first undoes what an interrupt left open."""
        worker, self._worker, self._within = self._worker, None, False
        if self._decider is not None:
            self._decider.leave_loop()
        if worker is not None:
            if error is not None and self._context.may_undo:
                worker.submit(self._context.__exit__, type(error), error, None)
            self._workers.give_back(worker)
        _open.set(tuple([one for one in _open.get() if one._within]))

    def __str__(self) -> str:
        return str(self._context)

    def __repr__(self) -> str:
        return f"<AsyncTransaction {self}, {self.status.value}>"


_open: ContextVar[tuple[AsyncTransaction, ...]] = ContextVar("_open", default=())


@contextmanager
def entered(block: AsyncTransaction) -> Iterator[None]:
    """Makes a block one of those that this task is in."""
    token = _open.set((*_open.get(), block))
    try:
        yield
    finally:
        _open.reset(token)


def open_transaction(coordinator: Coordinator) -> AsyncTransaction | None:
    """Returns what this task has open there; not that of the task that made it."""
    return next((one for one in _open.get() if one.is_of(coordinator)), None)


def surrounding_transaction(coordinator: Coordinator) -> AsyncTransaction | None:
    """Returns what this task has open there, or the one that has called this thread."""
    if asyncio._get_running_loop() is not None:
        return open_transaction(coordinator)
    opened = [one for one in _open.get() if one._within]
    return next(
        (one for one in opened if one._workers.coordinator is coordinator), None
    )
