"""The parts of a server that all its routes work on."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator, OnWritten
from coordinator.optional_ports import InProcess, in_process
from coordinator.remote.named_transactions import NamedTransactions
from coordinator.remote.remote_barrier import writing_for
from txaware.auth import Principal
from txaware.errors import Unavailable
from txaware.model.clock import ClockMs
from txaware.model.settings import Settings
from txaware.server.admission import AnswerMemory
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.server_map import ServerMap, alone
from txaware.server.exchange import Settable
from txaware.server.failures import HiddenPaths
from txaware.server.idempotency import (
    HAS_NO_COPY,
    INSTANCE,
    SENT_TO,
    OutcomeUnknown,
)
from txaware.server.owners import Owners
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.server.write_entries import WriteEntries
from txaware.service.administration import Administration
from txaware.service.groups.local_groups import LocalGroups
from txaware.service.local import LocalService
from txaware.service.queue.event_loop_queues import EventLoopQueues
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.table_store import TableStore
from txaware.service.topic_handles import Place

MOST_CARRIED_BYTES = 256 << 10
SLOW_THREADS = 4
PLANNING_THREADS = 4
MONITOR_THREADS = 2


T = TypeVar("T")


class Threads:
    """Pools, by what their threads wait for; threads begin when needed.

    `rows` wait for the table, and `coordinator` for a coordinator elsewhere: while that
    hangs, rows are read and written. `slow` may take minutes. `planning` is for work
    that readers wait for before they begin: no clean-up keeps it waiting. `monitor` is
    for questions that machines ask all the time, and do not wait for long.
    """

    def __init__(self, count: int) -> None:
        self.rows = ThreadPoolExecutor(count, "txaware-http")
        self.coordinator = ThreadPoolExecutor(count, "txaware-coordinator")
        self.slow = ThreadPoolExecutor(SLOW_THREADS, "txaware-slow")
        self.planning = ThreadPoolExecutor(PLANNING_THREADS, "txaware-plan")
        self.monitor = ThreadPoolExecutor(MONITOR_THREADS, "txaware-monitor")
        self._pools = (
            *(self.rows, self.coordinator),
            *(self.slow, self.planning, self.monitor),
        )
        self._is_dropped = False

    def go_on(self, *_: object) -> None:
        """Raises once nobody waits; long work calls it now and then."""
        if self._is_dropped:
            raise Unavailable("the server stopped meanwhile")

    def drop(self) -> None:
        """Cancels queued work; what is running goes on.

        Long work ends at its next `go_on`.
        """
        self._is_dropped = True
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pool in self._pools:
            pool.shutdown()


class Outcomes:
    """Brings outcomes from any thread to one event loop.

    The loop is woken once for all that is posted until it comes to look. What is made
    of that can be written at its end: a write of its own would be one more turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[OnWritten, Unavailable | None]] = deque()
        self._called = self._is_delivering = False
        self._at_end: deque[Callable[[], object]] = deque()

    def post(self, on_written: OnWritten, error: Unavailable | None) -> None:
        """Has the loop call a function with that error, or None; for any thread."""
        self._posted.append((on_written, error))
        if not self._called:
            self._called = True
            # The loop may close at any moment, and the others of the batch have to be
            # called all the same.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def call(self, function: Callable[[T], None], value: T) -> None:
        """Has the loop call a function with a value; for any thread."""
        self.post(lambda _: function(value), None)

    def at_end(self, call: Callable[[], object]) -> bool:
        """Has `call` called when all that was posted is delivered; of the event loop.

        False, with nothing done, where nothing is being delivered.
        """
        if self._is_delivering:
            self._at_end.append(call)
        return self._is_delivering

    def _deliver(self) -> None:
        self._called = False  # first: what is posted from here on calls again
        self._is_delivering = True
        try:
            while self._posted:
                on_written, error = self._posted.popleft()
                on_written(error)
            while self._at_end:
                self._at_end.popleft()()
        finally:
            self._is_delivering = False
            # One has failed; the loop logs why, and here it goes on.
            if self._posted or self._at_end:
                self._called = True
                self._loop.call_soon(self._deliver)


class Stopping:
    """The order to the server to stop, and the events that it sets at once."""

    def __init__(self) -> None:
        self.is_set = False
        self._events: set[Settable] = set()

    def register(self, event: Settable) -> None:
        """Sets the event when the server is told to stop."""
        self._events.add(event)

    def forget(self, event: Settable) -> None:
        """Forgets an event that is not waited for any more."""
        self._events.discard(event)

    def set(self) -> None:
        """Sets all events: the server is told to stop."""
        self.is_set = True
        for event in self._events:
            event.set()


@attrs.frozen(eq=False, kw_only=True)
class ServerContext:
    """A store that is served: its parts, and the threads that wait for its disk.

    `shares_journal` is True when commits are kept in the same table as rows.
    `hidden_paths` are told to operators alone. `owners` knows who began which
    transaction, and `write_entries` which writes of other stores are under way; both
    are shared by all servers of the store. `parts_elsewhere` writes rows of commits in
    shards that other servers have. `commits_soon` is the coordinator if it
    commits for an event loop. `membership` is the part that the server has in a
    cluster, and `url` its address.
    """

    service: LocalService
    tables: TableStore
    queues: LocalQueues
    groups: LocalGroups
    administration: Administration
    coordinator: Coordinator
    settings: Settings
    clock_ms: ClockMs
    instance: str
    threads: Threads
    outcomes: Outcomes
    stopping: Stopping
    owners: Owners
    answers: AnswerMemory
    write_entries: WriteEntries | None = None
    parts_elsewhere: PartsElsewhere | None = None
    shares_journal: bool = False
    hidden_paths: HiddenPaths = attrs.field(factory=HiddenPaths)
    membership: ClusterPart | None = None
    url: str = ""
    loop_queues: EventLoopQueues = attrs.field(init=False)
    coordinator_here: InProcess | None = attrs.field(init=False)
    commits_soon: EmbeddedCoordinator | None = attrs.field(init=False)
    _turns: WeakValueDictionary[str, asyncio.Lock] = attrs.field(
        init=False, factory=WeakValueDictionary
    )

    @loop_queues.default
    def _loop_queues(self) -> EventLoopQueues:
        return EventLoopQueues(self.queues)

    @coordinator_here.default
    def _coordinator_here(self) -> InProcess | None:
        return in_process(self.coordinator)

    @commits_soon.default
    def _commits_soon(self) -> EmbeddedCoordinator | None:
        # A class derived from ours may replace any call, so it gets all of them.
        here = self.coordinator
        return here if type(here) is EmbeddedCoordinator else None

    def engine(self, port: str) -> Any:
        """Returns the part of the engine that has the verbs of a port."""
        return {
            "MessagingService": self.service,
            "OperatorService": self.administration,
            "ProducerService": self.service.producing,
            "BeginsTransactions": self.service.producing,
            "QueueService": self.queues,
            "GroupService": self.groups,
            "TableService": self.tables,
            "CommitsInSlots": self.service.slots,
            "NamedTransactions": NamedTransactions(
                self.coordinator, clock_ms=self.clock_ms, enrich=self.owners.enrich
            ),
        }[port]

    @property
    def instance_now(self) -> str:
        """The instance that answers name: that of all servers of the data together."""
        membership = self.membership
        return self.instance if membership is None else membership.map.instance

    def servers(self) -> ServerMap:
        """Returns the servers of this data: this one alone, unless there are more."""
        if self.membership is not None:
            return self.membership.map
        return alone(self.url, self.instance, self.service.handles.shards)

    @property
    def carried_bytes(self) -> int:
        """Tells how many bytes of messages, or of changed rows, a commit carries.

        It is so little that the rows of a commit, and its body, are within all limits.
        """
        settings = self.settings
        return min(
            MOST_CARRIED_BYTES,
            self.service.carried_bytes(self.coordinator) // 4,
            settings.request_limit_bytes // 4,
        )

    def redacted(self, principal: Principal, text: str) -> str:
        """Returns a report's sentence; only operators are told where the data is."""
        return text if principal.is_operator else self.hidden_paths.hidden_in(text)

    def turn_in(self, group: str) -> asyncio.Lock:
        """Returns the lock by which one change of a group at a time has a thread.

        The others wait in the event loop: many joins of one group hold no more threads.
        """
        return self._turns.setdefault(group, asyncio.Lock())

    def coordinator_may_wait(self) -> bool:
        """Tells whether asking the coordinator may take more than a moment."""
        here = self.coordinator_here
        return here is None or here.may_wait()

    def refuse_copy(self, pointer: int, headers: Mapping[bytes, bytes]) -> None:
        """Refuses a write that may be a copy of one which an earlier life has done.

        That life alone knew the key. A client of ours says with its first try which one
        it was sent to, and a connection of frames is of one life.
        """
        here = self.coordinator_here
        if here is None or here.barrier.is_of_this_life(pointer):
            return
        sent_to = headers.get(SENT_TO) or headers.get(INSTANCE)
        is_first = sent_to in (HAS_NO_COPY, self.instance_now.encode())
        if not is_first and here.barrier.is_open(pointer):
            raise OutcomeUnknown(
                f"the server was started anew since transaction {pointer} began, and "
                f"this does not say that it was sent since: it may be a copy of what "
                f"is written already; {SENT_TO.decode()} names the instance that a "
                f"client has heard of last"
            )

    def writing_for(self, principal: Principal) -> AbstractContextManager[None]:
        """Has the writes of a block be those of a principal.

        Where the coordinator is elsewhere, that one knows who began a transaction.
        """
        if self.coordinator_here is not None:
            return nullcontext()
        return writing_for(None if principal.is_operator else principal.name)

    async def place(self, topic: str) -> Place:
        """Finds a topic that exists, and keeps the event loop free."""
        found = self.service.found_at_once(topic)
        if found is not None:
            return found
        return await self.in_thread(self.service.found, topic)

    async def in_thread(self, act: Callable[..., T], *args: Any, **named: Any) -> T:
        """Has a thread do what may wait for a disk or take long."""
        return await _in(self.threads.rows, partial(act, *args, **named))

    async def in_coordinator_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """Has a thread ask the coordinator: if it hangs, no plain call waits."""
        return await _in(self._coordinator_threads, partial(act, *args, **named))

    def post_from_coordinator_thread(
        self, act: Callable[[], T], on_outcome: Callable[[T | Exception], None]
    ) -> None:
        """Has a thread ask the coordinator, and the event loop called with the outcome.

        That is two turns of the loop less than to await it.
        """

        def ask() -> None:
            try:
                outcome: T | Exception = act()
            except Exception as error:
                outcome = error
            self.outcomes.call(on_outcome, outcome)

        self._coordinator_threads.submit(ask)

    @property
    def _coordinator_threads(self) -> ThreadPoolExecutor:
        is_elsewhere = self.coordinator_here is None
        return self.threads.coordinator if is_elsewhere else self.threads.rows

    async def in_slow_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """Has a thread do what may take minutes: it keeps nothing else waiting."""
        return await _in(self.threads.slow, partial(act, *args, **named))

    async def in_planning_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """Has a thread do what readers wait for first: no clean-up keeps it waiting."""
        return await _in(self.threads.planning, partial(act, *args, **named))

    async def in_monitor_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """Has a thread tell how things stand: no check keeps it waiting."""
        return await _in(self.threads.monitor, partial(act, *args, **named))


async def _in(pool: ThreadPoolExecutor, act: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, act)
