"""Processes that push to a queue, pop from it, or both, at the same time.

`python -m tests.benchmarks.queue_processes WORK ADDRESS SECONDS [--no-frames]`, where
WORK is push, pop, cycle or tasks, or one of the last two where each pop carries the
commit before it: cycle-carried, tasks-carried. The address is that of a server of ours,
or names a PostgreSQL as psycopg wants it. It says when it is ready, begins with each
line of its input, and tells how many items it had, and what processor time that took.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs

from tests.benchmarks import queue_peers as peers
from tests.benchmarks.started import READY, workers
from txaware import connect, connect_async
from txaware.bench.trial import PAYLOAD
from txaware.client.aio.async_queue import AsyncQueue
from txaware.queue import Job, Queue

NO_FRAMES = "--no-frames"
CARRIED = "-carried"
TASKS = 16


@attrs.frozen
class Work:
    """What does one item and answers how many that were, and the end of a turn."""

    once: Callable[[], int]
    end: Callable[[], object] = lambda: None


@attrs.frozen
class Jobs:
    """What the last of some processes of the same kind have done."""

    per_second: float
    client_us: float  # processor time of all processes for each job


@contextmanager
def working(
    address: str, works: Sequence[str], *, for_s: float, frames: bool = True
) -> Iterator[Callable[[], Jobs]]:
    """Starts a process for each of the works; a call of what it yields is a turn.

    What those like the last one did is counted.
    """
    options = [] if frames else [NO_FRAMES]
    commands = [["-m", __name__, work, address, str(for_s), *options] for work in works]
    with workers(commands) as work_once:

        def turn() -> Jobs:
            told = work_once()
            done = sum(
                one.count
                for work, one in zip(works, told, strict=True)
                if work == works[-1]
            )
            busy_s = sum(one.busy_s for one in told)
            return Jobs(done / for_s, busy_s / max(done, 1) * 1e6)

        yield turn


def _cycle(queue: Queue) -> int:
    queue.push(PAYLOAD)
    return _pop(queue)


def _pop(queue: Queue) -> int:
    job = queue.pop()
    if job is None:
        return 0
    job.commit()
    return 1


def _push(queue: Queue) -> int:
    queue.push(PAYLOAD)
    return 1


class _Carried:
    """Cycles in which each pop commits the job before it, as a worker's do."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._last: Job | None = None

    def cycle(self) -> int:
        self._queue.push(PAYLOAD)
        self._last = self._queue.pop(commits=self._last)
        return int(self._last is not None)

    def end(self) -> None:
        if self._last is not None:
            self._last.commit()
            self._last = None


def _work(work: str, address: str, opened: ExitStack, *, frames: bool) -> Work:
    if address.startswith("http"):
        messaging = opened.enter_context(connect(address, frames=frames))
        queue = messaging.queue("q")
        if work.endswith(CARRIED):
            carried = _Carried(queue)
            return Work(carried.cycle, carried.end)
        does = {"push": _push, "pop": _pop, "cycle": _cycle}[work]
        return Work(lambda: does(queue))
    connection = opened.enter_context(peers.Postgres(address)())

    def insert() -> int:
        connection.execute(peers.PUSH, (PAYLOAD,))
        return 1

    def delete() -> int:
        return len(connection.execute(peers.POP, (1,)).fetchall())

    def cycle() -> int:
        insert()
        return delete()

    return Work({"push": insert, "pop": delete, "cycle": cycle}[work])


class _Tasks:
    """Does cycles in as many tasks of one event loop, turn by turn."""

    def __init__(self, queue: AsyncQueue, for_s: float, *, carries: bool) -> None:
        self._queue, self._for_s = queue, for_s
        self._work = self._carrier if carries else self._worker

    async def turn(self) -> int:
        """Returns how many jobs were done."""
        until_s = time.perf_counter() + self._for_s
        return sum(await asyncio.gather(*(self._work(until_s) for _ in range(TASKS))))

    async def _worker(self, until_s: float) -> int:
        done = 0
        while time.perf_counter() < until_s:
            await self._queue.push(PAYLOAD)
            job = await self._queue.pop()
            if job is not None:
                await job.commit()
                done += 1
        return done

    async def _carrier(self, until_s: float) -> int:
        done, last = 0, None
        while time.perf_counter() < until_s:
            await self._queue.push(PAYLOAD)
            last = await self._queue.pop(commits=last)
            done += last is not None
        if last is not None:
            await last.commit()
        return done


async def _of_tasks(work: str, address: str, for_s: float, *, frames: bool) -> None:
    async with connect_async(address, frames=frames) as messaging:
        queue = await messaging.queue("q")
        tasks = _Tasks(queue, for_s, carries=work.endswith(CARRIED))
        print(READY, flush=True)
        while sys.stdin.readline():
            began_s = time.process_time()
            done = await tasks.turn()
            print(done, time.process_time() - began_s, flush=True)


def main(work: str, address: str, for_s: float, *, frames: bool) -> None:
    """Works for so long after each line that is read, and prints what was done."""
    if work.startswith("tasks"):
        asyncio.run(_of_tasks(work, address, for_s, frames=frames))
        return
    with ExitStack() as opened:
        does = _work(work, address, opened, frames=frames)
        print(READY, flush=True)
        while sys.stdin.readline():
            done, began_s = 0, time.process_time()
            until_s = time.perf_counter() + for_s
            while time.perf_counter() < until_s:
                done += does.once()
            does.end()
            print(done, time.process_time() - began_s, flush=True)


if __name__ == "__main__":
    _, asked, place, seconds, *options = sys.argv
    main(asked, place, float(seconds), frames=NO_FRAMES not in options)
