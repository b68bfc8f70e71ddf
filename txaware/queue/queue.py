"""Queues as a program has them: pushers, poppers, and what is for operators."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any, Generic, Literal, Self, Unpack, overload

from coordinator import tracing
from coordinator.brief_errors import briefly
from coordinator.callbacks import check_function
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import TransactionAware
from coordinator.retry import retry_on_conflict
from txaware.errors import BadRequest, MisusedTransaction, PublisherClosed
from txaware.model.encoding import Decode, Encode
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageOptions, Outgoing, Receipt, T, outgoing
from txaware.model.queues import (
    ItemState,
    LeasedJob,
    Popped,
    QueueDescriptor,
    QueueItem,
    QueueStats,
    Waiting,
    checked_count,
    checked_push,
    checked_text,
    delay_until_s,
    due_ms_of,
    pipe_of,
)
from txaware.model.requests import Pointer
from txaware.model.signatures import unpacked
from txaware.model.traced_messages import sent
from txaware.publish import TakesItems, TransactionPublisher, publisher_key
from txaware.publish.publisher import checked_many, checked_size_bytes
from txaware.queue.handling import Handling
from txaware.queue.job import Job, leased_alone, note_end
from txaware.queue.participants_of_threads import (
    MakesParticipant,
    checked_participants,
)
from txaware.queue.popped_jobs import PoppedJobs, joined_jobs
from txaware.queue.queue_access import FreePushers, QueueAccess
from txaware.queue.reserved_pipes import ReservedPipes
from txaware.queue.worker import Worker
from txaware.queue.worker_options import (
    IDLE_WAIT_S,
    THREADS,
    WorkerArguments,
    WorkerOptions,
)


@cache
def _host() -> str:
    return socket.gethostname()  # lets the interpreter go each time


def popper_name(within: str | None = None) -> str:
    """Returns a name for others: process, host, and this thread if nothing is named."""
    within = within or threading.current_thread().name
    return f"process {os.getpid()} on {_host()}, {within}"


class Pusher(Generic[T]):
    """A pusher with pipes of its own: what it pushes is popped in that order, mostly.

    `close` ends its pipe; nothing is pushed after that.
    """

    def __init__(
        self, access: QueueAccess, queue: str, name: str | None = None
    ) -> None:
        self.queue = queue
        self._access = access
        self._name = name
        self._free = access.free_pushers
        self._is_closed = self._is_known = False
        guard(self)

    @unpacked
    @briefly
    def push(
        self,
        payload: T | Outgoing[T],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Pushes one item, visible at once or with the transaction that is open.

        It is popped `delay_s` later at the earliest, or `at` a time with its zone, up
        to ten years ahead. A higher `priority` (0 to 9) is popped first.
        """
        due = self._options(delay_s, at, priority)
        self._push([outgoing(payload, options)], due)

    @briefly
    def push_all(
        self,
        payloads: Iterable[T | Outgoing[T]],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
    ) -> None:
        """Pushes many items in one piece: all or none."""
        many: Any = checked_many
        options = self._options(delay_s, at, priority)
        self._push(many(payloads, call="push_all"), options)

    def _options(
        self, delay_s: float, at: datetime | None, priority: int
    ) -> dict[str, Any]:
        delay_s = delay_until_s(at, delay_s, self._access.clock_ms)
        return {"delay_s": delay_s, "priority": priority}

    def _push(self, values: Iterable[Any], options: dict[str, Any]) -> None:
        access = self._access
        with self._checked(values) as (payloads, sizes):
            if not payloads:
                return
            context = current_transaction(access.coordinator)
            if context is not None:
                self._push_within(context, payloads, sizes, options)
                return
            with self._named() as name:
                access.queues.push(self.queue, payloads, pusher=name, **options)

    @contextmanager
    def _checked(
        self, values: Iterable[Any]
    ) -> Iterator[tuple[list[Payload], list[int]]]:
        """Yields the payloads of values that are pushed within the block, and sizes."""
        if self._is_closed:
            raise PublisherClosed(f"{self!r} is closed; nothing was pushed")
        limit_bytes = self._access.message_limit_bytes
        with sent("push", self.queue, self._access.payloads(values)) as payloads:
            yield payloads, [checked_size_bytes(one, limit_bytes) for one in payloads]

    @contextmanager
    def _named(self) -> Iterator[str]:
        """Yields the name of this pusher, or a free one, which nobody else takes."""
        if self._name is not None:
            yield self._name
            return
        name = self._free.take()
        try:
            yield name
        finally:
            self._free.give_back(name)

    def _push_within(
        self,
        context: TransactionContext,
        payloads: list[Payload],
        sizes: list[int],
        options: dict[str, Any],
    ) -> None:
        """Pushes with a transaction: its messages go to a pipe like to a topic."""
        access = self._access
        joined = context.joined(publisher_key(access.service), self._publisher)
        if isinstance(joined, TakesItems):
            self._push_by(joined, payloads, options)
            return
        kept = context.joined(
            (ReservedPipes, id(access.queues)), lambda: ReservedPipes(access.queues)
        )
        shares = kept.pipes_for(
            self.queue, len(payloads), pusher=self._name, free=self._free, **options
        )
        items = zip(payloads, sizes, strict=True)
        for share in shares:
            for payload, size_bytes in islice(items, share.items):
                joined.publish(
                    share.pipe,
                    payload,
                    size_bytes=size_bytes,
                    limit_bytes=access.buffer_limit_bytes,
                )

    def _push_by(
        self, taker: TakesItems, payloads: list[Payload], options: dict[str, Any]
    ) -> None:
        """Has somebody take the items who pushes them later, to a queue that exists."""
        checked = checked_push(self._name or "", **options)
        if taker.looks_up and not self._is_known:
            self._access.queues.queue_descriptor(self.queue)
            self._is_known = True
        taker.push(self.queue, payloads, checked)

    def push_stored(
        self, context: TransactionContext, receipts: Iterable[Receipt]
    ) -> None:
        """Pushes with a transaction what others stored in a pipe of this queue."""
        stored: dict[str, list[Receipt]] = {}
        for receipt in receipts:
            pipe = pipe_of(receipt.topic)
            if pipe is None or pipe.queue != self.queue:
                raise BadRequest(
                    f"what is stored in {receipt.topic} is no push to queue "
                    f"{self.queue}"
                )
            stored.setdefault(receipt.topic, []).append(receipt)
        joined = context.joined(publisher_key(self._access.service), self._publisher)
        for name, of_pipe in stored.items():
            joined.publish_stored(name, of_pipe)

    def _publisher(self) -> TransactionPublisher:
        return TransactionPublisher(
            self._access.service, shares_journal=self._access.shares_journal
        )

    def close(self) -> None:
        """Has its pipe take no more pushes; a second close does nothing."""
        if not self._is_closed and self._name is not None:
            self._access.queues.close_pusher(self.queue, self._name)
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue}>"


class Popper(Generic[T]):
    """A popper with a name of its own, which others are told.

    With `owns_pipe` it keeps to one pipe until it was idle for as long as a lease: less
    to look for, and less order. By default all poppers take turns over all pipes.
    """

    def __init__(
        self,
        access: QueueAccess,
        queue: str,
        *,
        name: str | None = None,
        owns_pipe: bool = False,
    ) -> None:
        if not isinstance(owns_pipe, bool):
            raise BadRequest(f"owns_pipe is true or false, not {owns_pipe!r:.100}")
        self.queue = queue
        self._access = access
        self._popper = name
        self._owns_pipe = owns_pipe
        guard(self)

    def pop(
        self, wait_s: float = 0, *, commits: Job[Any] | None = None
    ) -> Job[T] | None:
        """Returns the next job, leased to the caller; None if there is none in time.

        In a transaction the job is final with the commit, and goes back with the
        rollback. Then only what was committed before it began is popped.

        A job that it `commits` is on disk as committed when it returns, as by
        `commit()`, which it saves: both are one call. It is committed before a wait
        begins. Where its lease is over it raises `LeaseLost`, and nothing is popped.
        After any other error the job may be committed or not.
        """
        jobs = self.pop_many(1, wait_s, commits=commits)
        return jobs[0] if jobs else None

    def pop_many(
        self, n: int, wait_s: float = 0, *, commits: Job[Any] | None = None
    ) -> list[Job[T]]:
        """Returns up to `n` jobs; waits for the first, and for no more."""
        access, operation = self._access, tracing.begin_operation()
        context = current_transaction(access.coordinator)
        within = None
        if context is None:
            popped = self._pop_alone(n, wait_s, commits)
        else:
            if commits is not None:
                commits.commit()
            within = joined_jobs(context, access.queues, self.queue)
            popped = self._pop_within(context, within, n, wait_s)
        if operation is not None and popped:
            operation.received("pop", self.queue, [one.headers for one in popped])
        return self.jobs(popped, within)

    def _pop_alone(
        self, n: int, wait_s: float, commits: Job[Any] | None
    ) -> list[Popped]:
        pop = self._access.queues.pop
        if commits is not None:
            named = self._leased(commits)
            if named is None:
                commits.commit()
            else:
                popped = pop(self.queue, **self.options(n, 0), commits=named)
                note_end(commits)
                if popped or not wait_s:
                    return popped
        return pop(self.queue, **self.options(n, wait_s))

    def _leased(self, job: Job[Any]) -> LeasedJob | None:
        """Returns how a pop here names a job that it commits; see `leased_alone`."""
        return leased_alone(job, self._access.queues, self.queue)

    def _pop_within(
        self, context: TransactionContext, within: PoppedJobs, n: int, wait_s: float
    ) -> list[Popped]:
        """Pops with a transaction; what its database has handled is passed over."""
        found: list[Popped] = []
        began_s = time.monotonic()
        left_s = wait_s
        while True:
            with within.asking():
                popped = self._access.queues.pop(
                    self.queue,
                    transaction=context.transaction,
                    **self.options(n - len(found), left_s),
                    **within.options,
                )
            new = within.new_ones(popped)
            found += new
            if len(new) == len(popped):
                return found
            left_s = 0 if found else max(0, began_s + wait_s - time.monotonic())

    def options(
        self, n: int, wait_s: float, *, unnamed: str | None = None
    ) -> dict[str, Any]:
        """Returns the options of a pop; one without a name is called `unnamed`."""
        return {
            "limit": n,
            "wait_s": wait_s,
            "popper": self._popper or unnamed or popper_name(),
            "owns_pipe": self._owns_pipe,
        }

    def jobs(
        self, popped: Iterable[Popped], within: PoppedJobs | None = None
    ) -> list[Job[T]]:
        """Returns what was popped as jobs; `within` a transaction they end with it."""
        access = self._access
        return [
            Job(
                access.queues,
                access.coordinator,
                self.queue,
                one,
                within,
                decode=access.decode,
            )
            for one in popped
        ]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue}>"


class Queue(Popper[T]):
    """A queue: many push to it, and each item is done by one of many workers.

    Outside of transactions an item is done at least once, inside of them exactly once.
    Payloads are bytes, or values by `messaging.queue(name, encode=, decode=)`. Any
    number of threads may share it.
    """

    def __init__(self, access: QueueAccess, name: str) -> None:
        super().__init__(access, name)
        self._pusher: Pusher[T] = Pusher(access, name)

    def typed(
        self, *, encode: Encode[Any] | None = None, decode: Decode[Any] | None = None
    ) -> "Queue[Any]":
        """Returns the same queue, of values; see `messaging.queue`."""
        return Queue(self._access.typed(encode, decode), self.queue)

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue

    @property
    def descriptor(self) -> QueueDescriptor:
        """The settings of the queue."""
        return self._access.queues.queue_descriptor(self.queue)

    @unpacked
    def push(
        self,
        payload: T | Outgoing[T],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Pushes one item; see `Pusher.push`."""
        self._pusher.push(payload, delay_s=delay_s, at=at, priority=priority, **options)

    def push_all(
        self,
        payloads: Iterable[T | Outgoing[T]],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
    ) -> None:
        """Pushes many items in one piece; without a transaction all or none."""
        self._pusher.push_all(payloads, delay_s=delay_s, at=at, priority=priority)

    @unpacked
    def push_once(
        self,
        name: str,
        payload: T | Outgoing[T],
        *,
        at: datetime,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> bool:
        """Pushes what is due `at` a time, unless that was pushed under this name.

        Returns False where this time or a later one was. So many processes may push
        what is due next, or one of them again after a crash, and each time is pushed
        once. In the open transaction it commits with that: the job of one time can push
        the next. Two that push at once conflict.
        """
        named = checked_text("the name of what is pushed once", name)
        due_ms = due_ms_of(at)
        item = outgoing(payload, options)

        times = self._access.due_times

        def push() -> bool:
            if times.has(self.queue, named, due_ms):
                return False
            self._pusher.push(item, at=at, priority=priority)
            times.save(self.queue, named, due_ms)  # last: a push may be refused
            return True

        if current_transaction(self._access.coordinator) is not None:
            return push()

        @retry_on_conflict
        def push_in_a_block() -> bool:
            with self._access.begin():
                return push()

        return push_in_a_block()

    def reserve(self, transaction: Pointer) -> str:
        """Returns the name of a pipe to store in ahead of a transaction's commit.

        `messaging.store` takes it like a topic, in any process, until the transaction
        ends; `push_stored` pushes what was stored.
        """
        name = FreePushers().take()
        return self._access.queues.pipe_for(
            self.queue, transaction=transaction, pusher=name
        )

    def push_stored(self, receipts: Iterable[Receipt]) -> None:
        """Pushes with the open transaction what others stored in a reserved pipe."""
        context = current_transaction(self._access.coordinator)
        if context is None:
            raise MisusedTransaction(
                f"what others stored for queue {self.queue} is pushed in the "
                f"transaction that they stored it for, and none is open here"
            )
        self._pusher.push_stored(context, receipts)

    def pusher(self) -> Pusher[T]:
        """Returns a pusher with pipes of its own, to be closed at its end."""
        return Pusher(self._access, self.queue, FreePushers().take())

    def pusher_of(self, name: str) -> Pusher[T]:
        """Returns the pusher of a name that lasts, for who pushes what others left."""
        return Pusher(self._access, self.queue, name)

    def popper(self, *, name: str | None = None, owns_pipe: bool = False) -> Popper[T]:
        """Returns a popper with a name of its own, or with a pipe of its own."""
        return Popper(self._access, self.queue, name=name, owns_pipe=owns_pipe)

    @overload
    def worker(
        self,
        handler: Callable[[Job[T]], object],
        *,
        transaction: Literal[False] = False,
        **options: Unpack[WorkerArguments],
    ) -> Worker: ...

    @overload
    def worker(
        self,
        handler: Callable[[Job[T], Any], object],
        *,
        transaction: Literal[True],
        **options: Unpack[WorkerArguments],
    ) -> Worker: ...

    @overload
    def worker(
        self,
        handler: Callable[..., object],
        *,
        transaction: bool,
        **options: Unpack[WorkerArguments],
    ) -> Worker: ...

    def worker(
        self,
        handler: Callable[..., object],
        *,
        threads: int = THREADS,
        transaction: bool = False,
        participants: Iterable[TransactionAware | MakesParticipant] = (),
        timeout_s: float | None = None,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 60,
        idle_wait_s: float = IDLE_WAIT_S,
    ) -> Worker:
        """Returns a loop that calls `handler(job)` in `threads`; `run` runs it.

        A job is committed when its handler returns, and comes again after a pause when
        that raises, or when its payload cannot be decoded. With `transaction` the
        handler is called with `(job, tx)` in a transaction, which `participants` join,
        and which also ends the job. One of them may be a function that makes it: it is
        called in each thread, as a connection to a database serves one thread. A
        handler may be `async def`. `WorkerOptions` explains the options.
        """
        check_function(handler, may_await=True)
        if not isinstance(participants, Iterable):
            raise BadRequest(f"participants are many, not {participants!r:.100}")
        participants = checked_participants(participants, threads=threads)
        if participants and not transaction:
            raise BadRequest("participants join a transaction: say transaction=True")
        options = WorkerOptions(
            threads=checked_count("threads", threads),
            transaction=transaction,
            timeout_s=timeout_s,
            first_pause_s=first_pause_s,
            longest_pause_s=longest_pause_s,
            idle_wait_s=idle_wait_s,
        )
        access = self._access
        handling = Handling(
            handler,
            options,
            begin=access.begin,
            descriptor=lambda: self.descriptor,
            participants=participants,
        )
        worker = Worker(self, handling, options, coordinator=access.coordinator)
        access.opened(worker)
        return worker

    def peek(self, limit: int = 10) -> list[Waiting]:
        """Returns items that wait, the oldest first, and pops none."""
        return self._access.queues.peek_queue(self.queue, limit)

    def browse(self, state: ItemState = "waiting", limit: int = 10) -> list[QueueItem]:
        """Returns items that wait, are `in_work`, `delayed` or `dead`; pops none."""
        return self._access.queues.browse_queue(self.queue, state, limit)

    def stats(self) -> QueueStats:
        """Returns the counts of the queue, and how it stands now."""
        return self._access.queues.queue_stats(self.queue)

    def pause(self) -> None:
        """Has pops get nothing until `resume`; pushes go on."""
        self._access.queues.pause_queue(self.queue, paused=True)

    def resume(self) -> None:
        """Lets pops go on."""
        self._access.queues.pause_queue(self.queue, paused=False)

    def truncate(self) -> None:
        """Removes all items, also those in work, and sets the counts to zero."""
        self._access.queues.truncate_queue(self.queue)

    def redrive(self, limit: int | None = None) -> int:
        """Moves dead letters back to their queue; returns how many."""
        return self._access.queues.redrive(self.queue, limit)


@contextmanager
def pushing_alone(
    queue: Queue[Any],
    values: Iterable[Any],
    *,
    delay_s: float = 0,
    at: datetime | None = None,
    priority: int = 0,
) -> Iterator[tuple[list[Payload], dict[str, Any]]]:
    """Checks a push without a transaction, which is made within the block.

    Yields its payloads and the options of `QueueService.push`.
    """
    pusher = queue._pusher
    options = pusher._options(delay_s, at, priority)
    with pusher._checked(values) as (payloads, _), pusher._named() as name:
        yield payloads, {"pusher": name, **options}
