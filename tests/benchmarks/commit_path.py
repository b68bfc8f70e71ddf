"""The steps of a transaction of one message, and of a reader that waits for it.

Every step begins right after a sync, when the processor has forgotten the code. So the
times are those of a program, and not of a tight loop.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import attrs

from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.group_commit import Batch, GroupCommit
from coordinator.participants import Participants
from txaware.bench.measure import off_the_main_thread
from txaware.bench.trial import PAYLOAD, Trial
from txaware.messaging import Messaging
from txaware.publish.outbox import TransactionPublisher
from txaware.publish.publisher import Publisher
from txaware.service.read.reading import Reading
from txaware.service.wakeups import Signal
from txaware.store.leveldb_store import Database

TRANSACTIONS, RESTS_S, WAIT_S = 2000, 0.002, 30

REST = "the rest of the block"
ENTER, START, PUBLISH = "enter", "start", "publisher and publish"
CHECK, CARGO = "can_commit", "flush, or make the cargo"
COMMIT, LEAD, WRITE = "commit until it leads", "lead", "LevelDB's synced write"
TELL, ANNOUNCE = "apply and wake", "announce"

# The step that begins with each call, and ends with it.
STEPS: list[tuple[type[Any], str, str]] = [
    (TransactionContext, "__enter__", ENTER),
    (EmbeddedCoordinator, "start_short", START),
    (Messaging, "publisher", PUBLISH),
    (Publisher, "publish", PUBLISH),
    (EmbeddedCoordinator, "can_commit", CHECK),
    (TransactionPublisher, "commit_cargo", CARGO),
    (TransactionPublisher, "commit_tx", CARGO),
    (EmbeddedCoordinator, "commit", COMMIT),
    (EmbeddedCoordinator, "commit_with", COMMIT),
    (GroupCommit, "_lead", LEAD),
    (Batch, "notify_ends", TELL),
    (Participants, "announce", ANNOUNCE),
]
ORDER = [
    *(ENTER, START, PUBLISH, CHECK, CARGO, COMMIT, LEAD, WRITE, TELL, ANNOUNCE, REST)
]


@attrs.frozen
class Step:
    """A step and its median over all transactions, mostly of its time."""

    name: str
    value: float
    unit: str = "us"

    def line(self) -> str:
        """The step for people."""
        return f"{self.name:<42} {self.value:8.1f} {self.unit}".rstrip()


class Stopwatch:
    """The time of one thread, each moment of it in the step that was begun last."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._steps = [REST]
        self._since_ns = time.perf_counter_ns()
        self.spent_ns: dict[str, int] = {}

    def begin(self) -> None:
        """Begins to count anew."""
        self.spent_ns = dict.fromkeys(ORDER, 0)
        self._since_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Counts the time up to now."""
        now_ns = time.perf_counter_ns()
        self.spent_ns[self._steps[-1]] += now_ns - self._since_ns
        self._since_ns = now_ns

    def timed(self, call: Callable[..., Any], step: str) -> Callable[..., Any]:
        """Returns the same function, whose time counts for a step."""

        def run(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != self._thread:
                return call(*args, **options)
            self.end()
            self._steps.append(step)
            try:
                return call(*args, **options)
            finally:
                self.end()
                self._steps.pop()

        return run


class TimedBatch:
    """A batch of LevelDB that calls a function in place of `write`."""

    def __init__(self, batch: Any, write: Callable[[], None]) -> None:
        self.put, self.delete, self.write = batch.put, batch.delete, write


def commit_steps(trial: Trial, *, transactions: int) -> list[Step]:
    """Returns the steps of transactions in one thread that is not the main one."""
    return off_the_main_thread(lambda: _commit_steps(trial, transactions))


def _commit_steps(trial: Trial, transactions: int) -> list[Step]:
    rounds: list[dict[str, int]] = []
    untimed_ns: list[int] = []
    with trial.connect("steps") as messaging, ExitStack() as patches:
        messaging.create_topic("t")
        for _ in range(transactions):
            began_ns = time.perf_counter_ns()
            _transact(messaging)
            untimed_ns.append(time.perf_counter_ns() - began_ns)
        watch = Stopwatch()
        for owner, name, step in STEPS:
            if hasattr(owner, name):
                timed = watch.timed(getattr(owner, name), step)
                patches.enter_context(_replaced(owner, name, timed))
        patches.enter_context(_written(lambda write: watch.timed(write, WRITE)))
        for _ in range(transactions):
            watch.begin()
            _transact(messaging)
            watch.end()
            rounds.append(watch.spent_ns)
    steps = [Step(name, _median_us(one[name] for one in rounds)) for name in ORDER]
    whole = Step("all, with the time of measuring", sum(s.value for s in steps))
    return [
        *(step for step in steps if step.value),
        whole,
        Step("all, not divided", _median_us(untimed_ns)),
    ]


def _transact(messaging: Messaging) -> None:
    with messaging.transaction():
        messaging.publisher("t").publish(PAYLOAD)


def _median_us(times_ns: Iterable[int]) -> float:
    return statistics.median(times_ns) / 1000


@contextmanager
def _replaced(owner: type[Any], name: str, by: Callable[..., Any]) -> Iterator[None]:
    before = owner.__dict__[name]
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _written(timed: Callable[..., Callable[[], None]]) -> Iterator[None]:
    """Has `timed` wrap the writes of LevelDB's batches."""
    make = Database.batch

    def batch(database: Database, number: int) -> Any:
        found = make(database, number)
        return TimedBatch(found, timed(found.write))

    with _replaced(Database, "batch", batch):
        yield


# The moments between begin and received, in order, and what lies before each.
BEGUN, WRITES, SYNCED, TOLD, RUNS, LOOKS, HAS = (
    *("begun", "writes", "synced", "told", "runs", "looks", "has"),
)
PATH = [
    (BEGUN, WRITES, "begin until the batch is written"),
    (WRITES, SYNCED, WRITE),
    (SYNCED, TOLD, "until the reader is told"),
    (TOLD, RUNS, "until its thread runs"),
    (RUNS, LOOKS, "until it looks: range and snapshot"),
    (LOOKS, HAS, "until it has the page: rows, judged"),
    (BEGUN, HAS, "all"),
]


class Moments:
    """The last moment of each name, in any thread; and the looks at a topic."""

    def __init__(self) -> None:
        self.at_ns: dict[str, int] = {}
        self.looks = 0

    def marked(
        self, call: Callable[..., Any], *, before: str = "", after: str = ""
    ) -> Callable[..., Any]:
        """Returns the same function, which notes when it begins and when it ends."""

        def run(*args: Any, **options: Any) -> Any:
            self.at_ns[before] = time.perf_counter_ns()
            answer = call(*args, **options)
            self.at_ns[after] = time.perf_counter_ns()
            self.looks += after == LOOKS
            return answer

        return run


def reader_steps(trial: Trial, *, transactions: int) -> list[Step]:
    """Returns the steps until a waiting reader has the message, and its looks."""
    return off_the_main_thread(lambda: _reader_steps(trial, transactions))


def _reader_steps(trial: Trial, transactions: int) -> list[Step]:
    moments = Moments()
    found: list[dict[str, int]] = []
    with trial.connect("reader") as messaging, ExitStack() as patches:
        messaging.create_topic("t")
        for owner, name, before, after in (
            (Signal, "notify", TOLD, ""),
            (Signal, "wait", "", RUNS),
            (Reading, "begin", "", LOOKS),
        ):
            marked = moments.marked(getattr(owner, name), before=before, after=after)
            patches.enter_context(_replaced(owner, name, marked))
        patches.enter_context(
            _written(partial(moments.marked, before=WRITES, after=SYNCED))
        )
        arrived = threading.Semaphore(0)

        def read() -> None:
            at, inclusive = messaging.bounds("t").next, True
            while len(found) < transactions:
                at = messaging.poll(
                    "t",
                    start=at,
                    inclusive=inclusive,
                    isolation="committed",
                    wait_s=WAIT_S,
                ).next
                inclusive = False
                moments.at_ns[HAS] = time.perf_counter_ns()
                found.append(dict(moments.at_ns))
                arrived.release()

        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(transactions):
            time.sleep(RESTS_S)  # the reader waits again
            moments.at_ns[BEGUN] = time.perf_counter_ns()
            _transact(messaging)
            arrived.acquire()
        reader.join()
    steps = [
        Step(name, _median_us(one[last] - one[first] for one in found))
        for first, last, name in PATH
    ]
    return [
        *steps,
        Step("looks of the reader for each message", moments.looks / len(found), ""),
    ]
