"""The queues of this process: finds them by name, and checks arguments."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from coordinator.main_thread_calls import MainThreadCalls, whole
from coordinator.transaction import Transaction, TransactionType
from txaware.errors import (
    BadRequest,
    LeaseLost,
    MisusedTransaction,
    QueueExists,
    QueueNotFound,
    TopicNotFound,
    closed,
)
from txaware.model.queues import (
    MOST_LENT,
    MOST_POPPED,
    ItemState,
    LeasedJob,
    PipeName,
    PipeShare,
    Popped,
    QueueDescriptor,
    QueueItem,
    QueueStats,
    Waiting,
    check_commits,
    checked_count,
    checked_item_state,
    checked_items,
    checked_leased,
    checked_push,
    checked_text,
    described,
    is_queue,
    pipe_of,
    row_name,
)
from txaware.model.requests import (
    Payload,
    Payloads,
    Pointer,
    checked_flag,
    checked_payloads,
    checked_pointer,
    checked_snapshot,
    checked_wait_s,
)
from txaware.model.topics import QueueName, Topic, checked_namespace
from txaware.service.local import LocalService
from txaware.service.queue.dead_letters import bury, check_way, send_all_back
from txaware.service.queue.loading import loaded
from txaware.service.queue.popping import PopCaller
from txaware.service.queue.pushing import Pushing
from txaware.service.queue.work_queue import WorkQueue
from txaware.service.read.reading import Reading
from txaware.service.retention.deletion import Deleting
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.service.retention.planning import first_kept
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Signal
from txaware.service.write.publishing import Publishing
from txaware.store.journaled_table import keep_earlier_versions_away
from txaware.store.keys import LEASE, MARK, MESSAGE, PAYLOAD, PIPE

_TABLES = (MESSAGE, PAYLOAD, MARK, PIPE, LEASE)


class LocalQueues:
    """`QueueService` over one table and one coordinator."""

    def __init__(self, store_context: StoreContext, service: LocalService) -> None:
        self._store_context = store_context
        self._handles = service.handles
        self._topics = service.handles.topics
        self._latencies = service.latencies
        self._publishing = Publishing(store_context)
        self._make_judge = Reading(store_context).judge
        self._lock = threading.RLock()
        self._queues: dict[str, WorkQueue] = {}
        self._described: tuple[Sequence[Topic], list[QueueDescriptor]] = (), []
        self._is_closed = False
        self.calls = MainThreadCalls("queues")
        self._handles.pipes = self._pipe

    @whole
    def create_queue(
        self, name: str, *, exist_ok: bool = False, **options: Any
    ) -> QueueDescriptor:
        """Creates a queue; one that exists is returned only with `exist_ok`."""
        wanted = described(name, options)
        checked_flag("exist_ok", exist_ok)
        with self._lock:
            if not self._is_there(name):
                check_way(wanted, self.queue_descriptor)
                keep_earlier_versions_away(self._store_context.table)
                return QueueDescriptor.of(self._topics.create(wanted.topic()))
            found = self.queue_descriptor(name)
        if not exist_ok:
            raise QueueExists(f"queue {found.name} exists already")
        return found.agreeing({key: getattr(wanted, key) for key in options})

    def _is_there(self, name: str) -> bool:
        try:
            self.queue_descriptor(name)
        except QueueNotFound:
            return False
        return True

    @whole
    def update_queue(self, name: str, **settings: Any) -> QueueDescriptor:
        """Changes the settings that are named and leaves the rest."""
        with self._lock:
            made = self.queue_descriptor(name).changed(settings)
            check_way(made, self.queue_descriptor)
            self._topics.update(row_name(name), lambda _: made.topic())
            queue = self._queues.get(made.name)
            if queue is not None:
                with queue.state.lock:
                    queue.state.descriptor = made
        if queue is not None:
            queue.state.signal.notify()
        return made

    def queue_descriptor(self, name: str) -> QueueDescriptor:
        """Returns the settings of a queue."""
        try:
            return QueueDescriptor.of(self._topics.get(row_name(name)))
        except TopicNotFound as error:
            raise QueueNotFound(f"queue {name} does not exist") from error

    def queues(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's queues, in order."""
        prefix = f"{checked_namespace(namespace)}:".encode("ascii")
        return [
            QueueName.parse(QueueDescriptor.of(topic).name).name
            for topic in self._topics.queues(prefix)
            if topic.generation > 0
        ]

    def descriptors(self) -> Sequence[QueueDescriptor]:
        """Returns the settings of all queues, of every namespace."""
        listed, (before, found) = self._topics.listed(), self._described
        if listed is not before:
            found = [
                QueueDescriptor.of(topic)
                for topic in listed
                if topic.generation > 0 and is_queue(topic.topic)
            ]
            self._described = listed, found
        return found

    def is_in_use(self, name: str) -> bool:
        """Tells whether this process has used a queue."""
        return name in self._queues

    @whole
    def delete_queue(self, name: str) -> None:
        """Deletes a queue with all that waits in it."""
        with self._lock:
            self.queue_descriptor(name)
            self._end(str(QueueName.parse(name)))
            self._topics.delete(row_name(name))

    @whole
    def truncate_queue(self, name: str) -> None:
        """Removes all items, in work or not, and sets all counts to zero."""
        with self._lock:
            self.queue_descriptor(name)
            self._end(str(QueueName.parse(name)))
            self._topics.renew(row_name(name))

    def _end(self, name: str) -> None:
        """Has everybody notice that the generation of a queue is over."""
        queue = self._queues.pop(name, None)
        if queue is not None:
            with queue.state.lock:
                queue.state.is_gone = True
            queue.state.signal.notify()

    @whole
    def pause_queue(self, name: str, *, paused: bool) -> None:
        """Has pops get nothing, or go on."""
        with self._lock:
            queue = self._queue(name)
            made = attrs.evolve(queue.state.descriptor, is_paused=paused)
            self._topics.update(row_name(name), lambda _: made.topic())
            with queue.state.lock:
                queue.state.descriptor = made
        queue.state.signal.notify()

    @whole
    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> None:
        """Pushes in one piece, all or none; on disk when it returns."""
        items = self.checked_items(messages)
        options = checked_push(pusher, delay_s, priority)
        while True:
            queue = self._queue(name)
            try:
                return queue.pushing.push(items, **options)
            except QueueNotFound:  # nothing was pushed, as it was truncated just now
                if not queue.state.is_gone:
                    raise

    def checked_items(self, messages: Iterable[Payload]) -> Payloads:
        """Returns the items of a push; raises where they are none, or too large."""
        limit_bytes = self._store_context.settings.message_limit_bytes
        payloads = checked_payloads(messages, limit_bytes=limit_bytes)
        if not len(payloads):
            raise BadRequest("a push has items")
        return payloads

    @whole
    def pipe_for(
        self,
        name: str,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> str:
        """Returns the name of a pipe, to publish to like a topic in a transaction."""
        [share] = self.pipes_for(
            name,
            1,
            transaction=transaction,
            pusher=pusher,
            delay_s=delay_s,
            priority=priority,
        )
        return share.pipe

    @whole
    def pipes_for(
        self,
        name: str,
        items: int,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> list[PipeShare]:
        """Lends pipes with room for items to a transaction, until its end."""
        pointer, queue = checked_pointer(transaction), self._queue(name)
        push = checked_push(pusher, delay_s, priority)
        count = checked_count("items", items, most=MOST_LENT)
        writes = self._store_context.writes
        entry = writes.enter(pointer)  # or nothing would ever release it
        try:
            return queue.pushing.reserve(pointer, count, **push)
        finally:
            writes.leave(entry)

    @whole
    def close_pusher(self, name: str, pusher: str) -> None:
        """Has the pipes of a pusher take no more pushes."""
        self._queue(name).pushing.close_pusher(checked_text("pusher", pusher))

    def pop(
        self,
        name: str,
        *,
        limit: int = 1,
        wait_s: float = 0,
        popper: str = "",
        owns_pipe: bool = False,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
        commits: LeasedJob | None = None,
        is_local: bool = True,
        most_bytes: int | None = None,
    ) -> list[Popped]:
        """Leases up to `limit` items; waits up to `wait_s` for the first.

        The one with which they have `most_bytes` together is the last. A job that it
        `commits` ends in the same step.
        """
        checked_count("n", limit, most=MOST_POPPED)
        wait_s = checked_wait_s(wait_s)
        checked_flag("owns_pipe", owns_pipe)
        checked_flag("has_inbox", has_inbox)
        checked_snapshot(transaction)
        check_commits(checked_leased(commits), wait_s=wait_s, transaction=transaction)
        if transaction is not None and transaction.type is TransactionType.LONG:
            raise MisusedTransaction(
                f"queue {name} cannot be popped in a long transaction, which would "
                f"keep its jobs for a day: pop in short ones"
            )
        pointer = None if transaction is None else transaction.transaction_id
        who = PopCaller(
            checked_text("popper", popper),
            pointer,
            is_local,
            owns_pipe,
            most_bytes,
            has_inbox,
        )
        self._bury(self._queue(name))
        undo = partial(self.put_back, name)
        is_main = threading.get_ident() == self.calls.main_thread
        chooses = owns_pipe or transaction is not None
        until_s = time.monotonic() + wait_s if wait_s else 0
        while True:
            queue = self._queue(name)  # another one, once it was truncated
            seen = queue.state.signal.count
            look = partial(queue.pop, who, transaction, limit=limit, commits=commits)
            try:
                popped = self.calls(look, undo=undo) if is_main else look()
            except QueueNotFound:
                if not queue.state.is_gone:
                    raise
                continue
            left_s = until_s - time.monotonic() if wait_s else 0
            if popped or left_s <= 0:
                self._bury(queue)
                return popped
            queue.state.signal.wait(seen, min(left_s, queue.pause_s()), chooses=chooses)

    @whole
    def put_back(self, name: str, popped: Iterable[Popped]) -> None:
        """Has items wait again whose popper never got them, as if not popped."""
        queue = self._queue(name)
        for one in popped:
            with suppress(LeaseLost):  # it waits again already
                queue.put_back(one.id, one.lease)

    def signal(self, name: str) -> Signal:
        """Returns the signal that is told when there may be something to pop."""
        return self._queue(name).state.signal

    def pause_s(self, name: str) -> float:
        """Returns after what time a popper that waits has to look again."""
        return self._queue(name).pause_s()

    @whole
    def commit_job(
        self,
        name: str,
        item: str,
        lease: str,
        *,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> None:
        """Ends a job for good: now, or with the commit of a transaction."""
        checked_snapshot(transaction)
        checked_flag("has_inbox", has_inbox)
        queue = self._queue(name)
        if transaction is None:
            queue.driver.perform(queue.commit(item, lease))
        else:
            queue.attach(item, lease, transaction, has_inbox=has_inbox)

    @whole
    def end_handled(
        self, name: str, items: Iterable[str], *, transaction: Pointer | None = None
    ) -> list[str]:
        """Ends items that an inbox names; returns those that are still there."""
        pointer = None if transaction is None else checked_pointer(transaction)
        queue = self._queue(name)
        return queue.driver.perform(queue.end_handled(checked_items(items), pointer))

    @whole
    def rollback_job(
        self, name: str, item: str, lease: str, *, delay_s: float = 0, error: str = ""
    ) -> None:
        """Has a job wait again; `error` says why, for its dead letter."""
        queue = self._queue(name)
        step = queue.give_back(item, lease, delay_s=delay_s, error=error)
        queue.driver.perform(step)
        self._bury(queue)

    @whole
    def extend_job(self, name: str, item: str, lease: str, seconds: float) -> int:
        """Has a lease end `seconds` from now; returns that time in ms."""
        queue = self._queue(name)
        return queue.driver.perform(queue.extend(item, lease, seconds))

    @whole
    def release_jobs(self, name: str, transaction: Pointer) -> None:
        """Gives back what a transaction popped; called before it is aborted."""
        queue = self._queue(name)
        queue.driver.perform(queue.release(checked_pointer(transaction)))
        self._bury(queue)

    @whole
    def settle_jobs(self, name: str) -> None:
        """Ends the jobs of transactions that committed; it may be left out."""
        self._queue(name).settle()

    @whole
    def peek_queue(self, name: str, limit: int = 10) -> list[Waiting]:
        """Returns items that wait and are due, the oldest first; leases none."""
        return self._queue(name).peek(checked_count("limit", limit, most=MOST_POPPED))

    @whole
    def browse_queue(
        self, name: str, state: ItemState = "waiting", limit: int = 10
    ) -> list[QueueItem]:
        """Returns items that are in that state, and leases none."""
        state = checked_item_state(state)
        most, queue = checked_count("limit", limit, most=MOST_POPPED), self._queue(name)
        self._bury(queue)
        if state != "dead":
            return queue.browse(state, most)
        made = queue.state.descriptor
        if not self._exists(made.dead_letters):
            return []
        return self._queue(made.dead_letters).letters_of(made.name, most)

    @whole
    def queue_stats(self, name: str) -> QueueStats:
        """Returns the counts of a queue, and how it stands now."""
        queue = self._queue(name)
        self._bury(queue)
        return queue.stats()

    @whole
    def redrive(
        self,
        name: str,
        limit: int | None = None,
        *,
        may_push: Callable[[str], bool] | None = None,
    ) -> int:
        """Moves dead letters back to where they came from; returns how many.

        `name` is the queue that they came from, or the one that has them. Letters stay
        whose queue the caller may not push to.
        """
        most = MOST_POPPED if limit is None else checked_count("limit", limit)
        queue, wanted = self._queue(name), self.queue_descriptor(name).name
        letters, only = queue, None
        if self._exists(queue.state.descriptor.dead_letters):
            letters, only = self._queue(queue.state.descriptor.dead_letters), wanted

        def target(origin: str) -> WorkQueue | None:
            if only not in (None, origin) or not self._exists(origin):
                return None
            may = may_push is None or origin == wanted or may_push(origin)
            return self._queue(origin) if may else None

        return send_all_back(letters, most, target, popper=f"redrive of {wanted}")

    def clean_up(self, invalid: Collection[int], marking: Marking) -> int:
        """Ends what is over, and marks rows of invalid transactions; counts those."""
        marked = 0
        for topic in list(self._topics.queues()):
            key, stop = topic.topic.key, first_kept(topic)
            deleting = Deleting(
                self._store_context.table, self._store_context.rewriting
            )
            for table in _TABLES:
                deleting.delete_range(table + key, stop=stop)
            if topic.generation > 0 and self._has_pipes(topic.prefix):
                self._reap(QueueDescriptor.of(topic).name)
                marked += marking.mark_items(topic.prefix, invalid)
        return marked

    def close(self) -> None:
        """Ends all waits, and refuses later pops."""
        with self._lock:
            self._is_closed = True
            for name in list(self._queues):
                self._end(name)
        self.calls.close()

    @whole
    def _reap(self, name: str) -> None:
        queue = self._queue(name)
        queue.reap()
        self._bury(queue)

    def _has_pipes(self, prefix: bytes) -> bool:
        return bool(self._store_context.table.scan(PIPE + prefix, limit=1))

    def _exists(self, name: str) -> bool:
        try:
            self._queue(name)
        except (QueueNotFound, BadRequest):  # anybody may push any headers
            return False
        return True

    def in_memory(self, name: str) -> WorkQueue | None:
        """Returns a queue that this process has used; None where it has to be found."""
        return self._queues.get(name)

    def _queue(self, name: str) -> WorkQueue:
        found = self._queues.get(name) if name.__class__ is str else None
        return self._known(name) if found is None else found

    @whole
    def _known(self, name: str) -> WorkQueue:
        with self._lock:
            if self._is_closed:
                raise closed()
            descriptor = self.queue_descriptor(name)
            found = self._queues.get(descriptor.name)
            if found is None:
                found = self._queues[descriptor.name] = self._loaded(descriptor)
            return found

    def _loaded(self, descriptor: QueueDescriptor) -> WorkQueue:
        now_ms = self._store_context.table.clock.now_ms()
        state = loaded(self._store_context.table, descriptor, self._make_judge, now_ms)
        pushing = Pushing(self._store_context, state, self._publishing, self._latencies)
        return WorkQueue(
            self._store_context, state, pushing, self._publishing, self._make_judge
        )

    def _pipe(self, name: str) -> TopicHandle | None:
        """Finds a pipe by the name that `pipe_for` gave out; None for other names."""
        pipe = pipe_of(name)
        return None if pipe is None else self._lent(pipe)

    @whole
    def _lent(self, pipe: PipeName) -> TopicHandle:
        queue = self._queue(pipe.queue)
        if queue.state.descriptor.generation != pipe.generation:
            raise QueueNotFound(
                f"queue {queue.state.descriptor.name} was truncated since the push"
            )
        return queue.pushing.lent(pipe.pipe)

    def _bury(self, queue: WorkQueue) -> None:
        """Moves what was delivered too often to the dead letters."""
        if queue.state.dying:
            self._bury_all(queue)

    @whole
    def _bury_all(self, queue: WorkQueue) -> None:
        while queue.state.dying:
            with queue.state.lock:
                dying, queue.state.dying = queue.state.dying, []
            target = queue.state.descriptor.dead_letters
            try:
                self.create_queue(target, exist_ok=True)
                while dying:
                    bury(queue, dying[-1], self._queue(target))
                    dying.pop()
            finally:
                with queue.state.lock:
                    queue.state.dying += dying
