"""The figures of work queues, beside other queues on this machine."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.benchmarks import queue_peers as peers
from tests.benchmarks.queue_processes import CARRIED, TASKS, working
from tests.support.messagings import table_of
from tests.support.queues import fill_pipes
from txaware.bench.measure import (
    Figure,
    in_turns,
    off_the_main_thread,
    per_second,
    per_second_of_threads,
)
from txaware.bench.server import serving
from txaware.bench.trial import PAYLOAD, Measured, Trial, batches, measured, payloads
from txaware.messaging import Messaging, connect
from txaware.queue import Queue

WORKERS, BATCH, DEEP, QUEUES, DELAYED = 16, 100, 1_000_000, 10_000, 1_000
PROCESSES = 8
FRAMES, HTTP, PEER = "in frames", "over HTTP", "PostgreSQL"
# What processes do at the same time; those like the last are counted.
WORKS = {
    "apart": ["push"] * PROCESSES + ["pop"] * PROCESSES,
    "processes": ["cycle"] * PROCESSES,
    "carried": [f"cycle{CARRIED}"] * PROCESSES,
    "tasks": ["tasks"],
    "tasks carried": [f"tasks{CARRIED}"],
}
# What figure e measures, and its floor in frames.
SERVED = {
    "threads": (f"push, pop and commit, {WORKERS} threads", 0.7),
    "apart": (f"{PROCESSES} processes push while {PROCESSES} pop", None),
    "processes": (f"push, pop and commit, {PROCESSES} processes", 0.6),
    "carried": (f"the same, each pop commits the job before, {PROCESSES} of them", 0.6),
    "tasks": (f"push, pop and commit, {TASKS} tasks of one process", 0.8),
    "tasks carried": (f"the same, each pop commits the job before, {TASKS} tasks", 0.8),
}
# What PostgreSQL does itself; all else is measured beside its processes.
OF_PEER = ("threads", "apart", "processes")
LOAD = 1000
POPS = 100


def _made(messaging: Messaging, name: str) -> Queue:
    messaging.create_queue(name)
    return messaging.queue(name)


def cycle_of(queue: Queue) -> Callable[[], object]:
    """Pushes one item, pops one, and commits it."""

    def cycle() -> None:
        queue.push(PAYLOAD)
        job = queue.pop()
        if job is not None:
            job.commit()

    return cycle


def one_worker(trial: Trial) -> list[Figure]:
    """Figure a."""
    with ExitStack() as opened:
        messaging = opened.enter_context(trial.connect("one"))
        raw = opened.enter_context(trial.raw("one"))
        other = opened.enter_context(peers.persist_queue(trial.directory, PAYLOAD))
        cycle, key = cycle_of(_made(messaging, "q")), bytes(16)

        def put() -> None:
            raw.put(key, PAYLOAD, sync=True)

        def run(work: Callable[[], object]) -> Callable[[], float]:
            return lambda: off_the_main_thread(
                lambda: per_second(work, for_s=trial.for_s)
            )

        found = in_turns(trial.rounds, ours=run(cycle), put=run(put), theirs=run(other))
    thirds = [value / 3 for value in found["put"]]
    name = "a) push, pop and commit, one worker"
    return [
        Figure(name, "/s", found["ours"], thirds, "put(sync) / 3", at_least=0.4),
        Figure(name, "/s", found["ours"], found["theirs"], "persist-queue"),
    ]


def _beside(trial: Trial, letter: str, batch: int, floor: float) -> list[Figure]:
    with ExitStack() as opened:
        messaging = opened.enter_context(trial.connect(f"beside-{letter}"))
        queue = _made(messaging, "q")
        home = trial.directory / f"peers-{letter}"
        home.mkdir()
        postgres = opened.enter_context(peers.postgres(home, has_pgmq=True))
        redis = opened.enter_context(peers.redis(home))

        def in_transaction() -> None:
            queue.push_all([PAYLOAD] * batch)
            with messaging.transaction():
                queue.pop_many(batch)

        ours = cycle_of(queue) if batch == 1 else in_transaction
        makes: dict[str, peers.Cycle] = {
            "ours": lambda _: ours,
            "postgres": peers.postgres_cycle(postgres, PAYLOAD, batch),
            "redis": peers.redis_cycle(redis, PAYLOAD, batch),
            "pgmq": peers.pgmq_cycle(postgres, PAYLOAD, batch),
        }
        workers = WORKERS if batch == 1 else 1

        def run(make: peers.Cycle) -> Callable[[], float]:
            return lambda: (
                batch * per_second_of_threads(workers, make, for_s=trial.for_s)
            )

        found = in_turns(
            trial.rounds, **{name: run(make) for name, make in makes.items()}
        )
    what = f"{WORKERS} workers" if batch == 1 else f"one worker, batches of {batch}"
    name = f"{letter}) push, pop and commit, {what}"
    ours_s = found["ours"]
    return [
        Figure(name, "/s", ours_s, found["postgres"], "PostgreSQL", at_least=floor),
        Figure(name, "/s", ours_s, found["redis"], "Redis Streams"),
        Figure(name, "/s", ours_s, found["pgmq"], "pgmq"),
    ]


def many_workers(trial: Trial) -> list[Figure]:
    """Figure b."""
    return _beside(trial, "b", 1, 1.5)


def in_batches(trial: Trial) -> list[Figure]:
    """Figure c."""
    return _beside(trial, "c", BATCH, 1.0)


def served(trial: Trial) -> list[Figure]:
    """Figure e: a server, and the work of threads, of processes and of tasks."""
    home = trial.directory / "served"
    home.mkdir()
    # The processor time of a job, of the server and of its clients.
    costs: defaultdict[str, list[float]] = defaultdict(list)
    with ExitStack() as opened:
        postgres = opened.enter_context(peers.postgres(home))
        server = opened.enter_context(serving(home / "data", trial.settings))
        by_way = {
            way: opened.enter_context(connect(server.url, frames=way == FRAMES))
            for way in (FRAMES, HTTP)
        }
        by_way[FRAMES].create_queue("q")

        def of_threads(make: peers.Cycle) -> Callable[[], float]:
            return lambda: per_second_of_threads(WORKERS, make, for_s=trial.for_s)

        def of_processes(name: str, way: str, works: list[str]) -> Callable[[], float]:
            address = postgres.dsn if way == PEER else server.url
            turn = opened.enter_context(
                working(address, works, for_s=trial.for_s, frames=way == FRAMES)
            )

            def run() -> float:
                began_s = server.cpu_s()
                done = turn()
                busy_s = server.cpu_s() - began_s
                jobs = max(done.per_second * trial.for_s, 1)
                costs[name].append(done.client_us)
                costs[f"{name} server"].append(busy_s / jobs * 1e6)
                return done.per_second

            return run

        def cycle(messaging: Messaging) -> peers.Cycle:
            does = cycle_of(messaging.queue("q"))
            return lambda _: does

        measures = {
            f"threads {way}": of_threads(cycle(one)) for way, one in by_way.items()
        }
        measures[f"threads {PEER}"] = of_threads(
            peers.postgres_cycle(postgres, PAYLOAD, 1)
        )
        for kind, works in WORKS.items():
            for way in (FRAMES, HTTP, PEER):
                if way != PEER or kind in OF_PEER:
                    name = f"{kind} {way}"
                    measures[name] = of_processes(name, way, works)
        found = in_turns(trial.rounds, **measures)
    shown = []
    for kind, (what, floor) in SERVED.items():
        beside = kind if kind in OF_PEER else "processes"
        for way in (FRAMES, HTTP):
            name, ours = f"e) {what}, {way}", f"{kind} {way}"
            bound = floor if way == FRAMES else None
            shown.append(
                Figure(
                    name,
                    "/s",
                    found[ours],
                    found[f"{beside} {PEER}"],
                    PEER,
                    at_least=bound,
                )
            )
            if ours in costs:
                shown.append(
                    Figure(
                        f"{name}, processor of the server for a job",
                        "us",
                        costs[f"{ours} server"],
                        costs[ours],
                        "of the client",
                    )
                )
    return shown


def flat(trial: Trial) -> list[Figure]:
    """Figure d: pops of queues that are deep, used up, many, or late."""
    deep, queues = trial.count(DEEP), trial.count(QUEUES)
    enough = POPS * trial.rounds * 2
    with trial.connect("alone") as other, trial.connect("flat") as messaging:
        small = _made(other, "small")
        names = ("deep", "used", "delayed", "among")
        made = {name: _made(messaging, name) for name in names}
        trial.tell(f"pushing {deep:,} items, twice")
        _fill(made["deep"], deep)
        _fill(made["used"], deep)
        trial.tell(f"popping {deep:,} items")
        _use_up(messaging, made["used"], deep)
        for number, payload in enumerate(payloads(DELAYED)):
            made["delayed"].push(payload, delay_s=3600 + number % 60)
        trial.tell(f"making {queues:,} queues")
        _make_many(messaging, queues)
        for queue in (small, made["used"], made["delayed"], made["among"]):
            _fill(queue, enough)
        found = in_turns(
            trial.rounds,
            small=_taking(small),
            **{name: _taking(queue) for name, queue in made.items()},
        )
    told = {
        "deep": f"at a depth of {deep:,}",
        "used": f"behind {deep:,} removed items",
        "delayed": f"with {DELAYED:,} delayed items in front",
        "among": f"among {queues:,} queues",
    }
    return [
        Figure(
            f"d) pop and commit {text}",
            "ms",
            found[name],
            found["small"],
            "small queue",
            at_most=1.3,
        )
        for name, text in told.items()
    ]


def first_pops(trial: Trial) -> list[Figure]:
    """Figure f: the first pop after a start, of queues with very many pipes."""
    found: list[Figure] = []
    for name, pipes, limit_s in (("many", 100_000, 0.3), ("most", 1_000_000, 3.0)):
        count = trial.count(pipes)
        trial.tell(f"writing {count:,} pipes")
        with trial.connect(name) as messaging:
            messaging.create_queue("q")
            fill_pipes(table_of(messaging), count, queue="q")
        with trial.connect(name) as messaging:
            queue = messaging.queue("q")
            began_s, busy_s = time.monotonic(), time.process_time()
            if queue.pop() is None:
                raise RuntimeError(f"{queue!r} is empty")
            took_s = time.monotonic() - began_s
            busy_s = time.process_time() - busy_s
        text = f"f) first pop after a start, {count:,} pipes"
        found += [
            Figure(text, "s", [took_s], [limit_s], "its limit", at_most=1.0),
            Figure(f"{text}, processor", "s", [busy_s], [limit_s], "the limit"),
        ]
    return found


def _fill(queue: Queue, count: int) -> None:
    some = payloads(BATCH)
    with queue.pusher() as pusher:
        for numbers in batches(count, BATCH):
            pusher.push_all(some[: len(numbers)])


def _use_up(messaging: Messaging, queue: Queue, count: int) -> None:
    left = count
    while left > 0:
        with messaging.transaction():
            left -= len(queue.pop_many(min(left, LOAD)))


def _taking(queue: Queue) -> Callable[[], float]:
    """Returns what pops and commits some, and answers the median time in ms.

    It is processor time: the disk takes the same for all, and much of the noise.
    """

    def run() -> float:
        times_s = []
        for _ in range(POPS):
            began_s = time.thread_time()
            job = queue.pop()
            if job is None:
                raise RuntimeError(f"{queue!r} is empty")
            job.commit()
            times_s.append(time.thread_time() - began_s)
        return statistics.median(times_s) * 1000

    return run


def _make_many(messaging: Messaging, count: int) -> None:
    def make(number: int) -> None:
        _made(messaging, f"q{number}").push(PAYLOAD)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(make, range(count)))


FIGURES = [
    Measured(
        "a",
        "One thread pushes an item of 100 bytes, pops and commits it; each of these "
        "is on disk when it returns. Against a third of plyvel's put(sync): at least "
        "0.4. And beside persist-queue's SQLiteAckQueue.",
        one_worker,
    ),
    Measured(
        "b",
        "The same with 16 threads. Against PostgreSQL with synchronous_commit: an "
        "insert, and a delete of one row FOR UPDATE SKIP LOCKED: at least 1.5. And "
        "beside Redis Streams with appendfsync always: XADD, XREADGROUP, XACK. And "
        "beside pgmq, whose SQL its package from pip has: send, read, delete.",
        many_workers,
    ),
    Measured(
        "c",
        "push_all of 100 items, and pop_many(100) in a transaction, in one thread. "
        "Against PostgreSQL's COPY of 100 rows and a delete of 100: at least 1.0. "
        "And beside Redis Streams, pipelined, and pgmq's send_batch.",
        in_batches,
    ),
    Measured(
        "d",
        "pop and commit of a queue of a million items, of one that a million were "
        "popped from, of one with 1,000 items that are not due, and of one among "
        "10,000; all in one directory. Against a small queue that is alone in another "
        "one, in turns, in processor time of the thread: at most 1.3.",
        flat,
    ),
    Measured(
        "e",
        "As b with a server in a process of its own, in frames and over HTTP, against "
        "PostgreSQL: at least 0.7 in frames. The same by 8 processes, against as many "
        "of PostgreSQL: at least 0.6, and by 16 tasks of one asyncio process: at least "
        "0.8 of those 8; both also where each pop commits the job before it. And the "
        "jobs that 8 processes pop and commit while 8 others push. Beside each the "
        "processor time of a job in the server and its clients.",
        served,
    ),
    Measured(
        "f",
        "The first pop after a start, of a queue with 100,000 pipes and of one with a "
        "million: at most 0.3 s and 3 s, and the processor time beside it.",
        first_pops,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)
# What each of them is measured beside.
PEERS = {
    "a": [peers.PERSIST_QUEUE],
    "b": [*peers.IN_POSTGRES, peers.PGMQ, *peers.IN_REDIS],
    "c": [*peers.IN_POSTGRES, peers.PGMQ, *peers.IN_REDIS],
    "d": [],
    "e": peers.IN_POSTGRES,
    "f": [],
}


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other; tells first which peers are missing."""
    needed = {one.name: one for letter in letters for one in PEERS[letter]}
    peers.require(needed.values())
    return measured(FIGURES, trial, letters)
