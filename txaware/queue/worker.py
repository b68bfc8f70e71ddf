"""The loop that hands the jobs of a queue to a handler, in several threads."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from coordinator.context import current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.threads import Event
from txaware.consume.loop_retry import retrying
from txaware.errors import MisusedTransaction, TxAwareError
from txaware.model.queues import QueueDescriptor
from txaware.queue.handling import (
    HandledJob,
    Handling,
    HandlingInThread,
    JobOutcome,
)
from txaware.queue.job import Job
from txaware.queue.worker_options import WorkerMetrics, WorkerOptions

logger = logging.getLogger(__name__)

# So many handlers may be behind their time limit before their threads are missed.
MOST_STUCK = 100
# A worker looks after its jobs so often at least.
LONGEST_TICK_S = 1.0


class Pops(Protocol):
    """The queue of a worker."""

    @property
    def descriptor(self) -> QueueDescriptor:
        """The settings of the queue."""

    def pop(
        self, wait_s: float = 0, *, commits: Job[Any] | None = None
    ) -> Job[Any] | None:
        """Returns the next job, or None if there is none in time."""


class Worker:
    """The loop that pops jobs, calls a handler, and ends them; see `queue.worker`.

    The pop of the next job commits the one before, in one call, and waits afterwards.
    While a handler runs, the lease of its job is extended. A job whose handler raises
    comes again after a pause. Threads beyond the time limit are replaced by others.
    """

    def __init__(
        self,
        queue: Pops,
        handling: Handling,
        options: WorkerOptions,
        *,
        coordinator: Coordinator,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._queue = queue
        self._handling = handling
        self._options = options
        self._coordinator = coordinator
        self._sleep = sleep
        self._closed: threading.Event = Event()
        self._stops: set[threading.Event] = set()
        self._lock = threading.Lock()
        self._handled: set[HandledJob] = set()
        self._metrics = WorkerMetrics()
        self._ended: threading.Event = Event()
        self._ended.set()
        guard(self)

    def run(self, stop: threading.Event | None = None) -> None:
        """Handles jobs until `stop` is set or `close` is called.

        Then it waits for the handlers that are at work; those behind their time limit
        are left alone. After a failure to pop it pauses, longer each time, and tries
        again.
        """
        self._check_may_run()
        stop = Event() if stop is None else stop
        lease_s = self._queue.descriptor.lease_s
        crew = Crew(self._serve, stop)
        self._stops.add(stop)
        self._ended.clear()
        try:
            crew.hire(self._options.threads)
            tick_s = self._tick_s(lease_s)
            while not (self._closed.is_set() or stop.wait(tick_s)):
                self._look_after(lease_s, crew)
        finally:
            crew.leaving.set()
            while crew.is_at_work():
                self._look_after(lease_s, crew)
            self._stops.discard(stop)
            self._ended.set()

    def run_once(self) -> int:
        """Handles one job that waits, in this thread; returns how many there were.

        A handler that raises is logged, and its job comes again, as in `run`.
        """
        self._check_may_run()
        leaving = Event()
        leaving.set()  # which makes its pauses none
        myself = Hand(leaving)
        with self._handling.thread() as handling:
            handling.ready()
            job = self._queue.pop()
            if job is None:
                return 0
            self._work(job, handling.call, myself, leaving)
            self._end_last(myself)
        return 1

    def metrics(self) -> WorkerMetrics:
        """Returns what the worker has counted so far."""
        with self._lock:
            late = sum(one.is_late for one in self._handled)
            in_work = len(self._handled) - late
            return self._metrics.plus(in_work=in_work, stuck=late)

    def close(self) -> None:
        """Ends a `run`; when it returns, no handler within its time is at work."""
        self._closed.set()
        for stop in tuple(self._stops):
            stop.set()
        self._ended.wait()

    def _check_may_run(self) -> None:
        if self._closed.is_set() or not self._ended.is_set():
            how = "closed" if self._closed.is_set() else "running already"
            raise MisusedTransaction(f"{self!r} is {how}")
        context = current_transaction(self._coordinator)
        if context is not None:
            raise MisusedTransaction(
                f"a worker begins transactions of its own, and {context} is open here"
            )

    def _tick_s(self, lease_s: float) -> float:
        """Returns how often leases and time limits are looked after."""
        limit_s = self._options.timeout_s
        times_s = [lease_s / 3, LONGEST_TICK_S]
        return min(times_s if limit_s is None else [*times_s, limit_s / 10])

    def _serve(self, leaving: threading.Event, myself: "Hand") -> None:
        """Handles one job after the other in this thread."""
        stops = (leaving, self._closed, myself.stop)
        again = retrying(
            self,
            first_pause_s=self._options.first_pause_s,
            longest_pause_s=self._options.longest_pause_s,
            jitter_s=self._options.first_pause_s,
            stops=stops,
            sleep=self._sleep or leaving.wait,
        )
        with self._handling.thread() as handling:
            try:
                while not (myself.is_replaced or any(one.is_set() for one in stops)):
                    job = again(self._next, handling, myself)
                    if job is not None:
                        self._work(job, handling.call, myself, leaving)
            finally:
                self._end_last(myself)

    def _next(self, handling: HandlingInThread, myself: "Hand") -> Job[Any] | None:
        if myself.handled is not None:
            job = self._next_after(myself.handled, myself)
            if job is not None:
                return job
        handling.ready()
        return self._queue.pop(self._options.idle_wait_s)

    def _next_after(self, done: HandledJob, myself: "Hand") -> Job[Any] | None:
        """Pops what is there, and commits the job before it with that.

        Where that fails, the job is committed by itself, or comes again.
        """
        job, outcome = None, JobOutcome("done")
        try:
            job = self._queue.pop(commits=done.job)
        except TxAwareError as error:
            logger.info("%r is not committed by the next pop: %s", done.job, error)
            outcome = self._handling.end(done)
        self._count_end(done, outcome, myself)
        return job

    def _end_last(self, myself: "Hand") -> None:
        """Commits a job that is done, where no pop follows."""
        if (done := myself.handled) is not None:
            self._count_end(done, self._handling.end(done), myself)

    def _work(
        self,
        job: Job[Any],
        handle: Callable[[HandledJob], JobOutcome],
        myself: "Hand",
        leaving: threading.Event,
    ) -> None:
        handled = HandledJob(job)
        myself.handled = handled
        with self._lock:
            self._handled.add(handled)
            self._metrics = self._metrics.plus(popped=1)
        outcome = JobOutcome("failed")
        try:
            outcome = handle(handled)
        finally:
            if outcome.name != "done" or job.is_over:
                self._count_end(handled, outcome, myself)
        if outcome.pause_s:
            (self._sleep or leaving.wait)(outcome.pause_s)

    def _count_end(
        self, handled: HandledJob, outcome: JobOutcome, myself: "Hand"
    ) -> None:
        with self._lock:
            self._handled.discard(handled)
            numbers = {} if handled.is_late else {outcome.name: 1}
            self._metrics = self._metrics.plus(**numbers, handling_s=handled.took_s())
        myself.handled = None

    def _look_after(self, lease_s: float, crew: "Crew") -> None:
        """Extends the leases of jobs at work, and gives up those that take too long."""
        with self._lock:
            handled = [one for one in self._handled if not one.is_late]
        for one in handled:
            limit_s = self._options.timeout_s
            if limit_s is not None and one.took_s() >= limit_s and not one.is_done:
                why = f"its handler took longer than {limit_s:g} s"
                pause_s = self._options.pause_s(one.job.deliveries)
                if one.give_up(why, pause_s=pause_s):
                    with self._lock:
                        self._metrics = self._metrics.plus(timed_out=1)
                    self._replace(one, crew)
            else:
                one.extend(lease_s)

    def _replace(self, late: HandledJob, crew: "Crew") -> None:
        stuck = self.metrics().stuck
        if stuck <= MOST_STUCK:
            crew.replace(late)
            return
        logger.error("%r: %d handlers are stuck; no more threads begin", self, stuck)

    def __repr__(self) -> str:
        return f"<Worker of {self._queue!r}, {self._options.threads} threads>"


class Hand:
    """A thread of a worker, and the job that it handles, or has yet to commit."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.handled: HandledJob | None = None
        self.is_replaced = False
        self.thread: threading.Thread | None = None


class Crew:
    """The threads of one `run`."""

    def __init__(
        self, serve: Callable[[threading.Event, Hand], None], stop: threading.Event
    ) -> None:
        self.leaving: threading.Event = Event()
        self._serve = serve
        self._stop = stop
        self._hands: list[Hand] = []
        self._count = 0

    def hire(self, count: int) -> None:
        """Begins threads; a handler that never returns does not keep the process."""
        for _ in range(count):
            self._count += 1
            hand = Hand(self._stop)
            hand.thread = threading.Thread(
                target=self._serve,
                args=(self.leaving, hand),
                name=f"thread {self._count}",
                daemon=True,
            )
            self._hands.append(hand)
            hand.thread.start()

    def replace(self, late: HandledJob) -> None:
        """Begins a thread for one that is behind its time limit."""
        for hand in self._hands:
            if hand.handled is late:
                hand.is_replaced = True
                self._hands.remove(hand)
                if not self.leaving.is_set():
                    self.hire(1)
                return

    def is_at_work(self) -> bool:
        """Waits a moment for the threads; tells whether one is still at work."""
        for hand in self._hands:
            thread = hand.thread
            if thread is not None and thread.is_alive():
                thread.join(0.05)
                return True
        return False
