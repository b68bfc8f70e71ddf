"""Processes that push to a queue, or pop from it, at the same time.

`python -m tests.benchmarks.queue_processes push|pop ADDRESS SECONDS`, where the address
is that of a server of ours, or names a PostgreSQL as psycopg wants it. It says when it
is ready, begins with the next line of its input, and tells how many items it had.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.benchmarks import queue_peers as peers
from txaware.bench.trial import PAYLOAD
from txaware.messaging import connect

READY = "ready"
ENDS_S = 60
# One call of either does one item, and answers how many that were.
Work = Callable[[], int]


def jobs_per_second(address: str, processes: int, *, for_s: float) -> float:
    """Returns how many jobs are done in a second, with as many pushers as poppers."""
    children: list[subprocess.Popen[str]] = []
    with ExitStack() as opened:
        for verb in ("push", "pop"):
            for _ in range(processes):
                child = subprocess.Popen(
                    [sys.executable, "-m", __name__, verb, address, str(for_s)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                opened.callback(_ended, child)
                children.append(child)
        if any(_line(child) != READY for child in children):
            raise RuntimeError("a process to be measured does not start")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        done = [int(_line(child)) for child in children]
    return sum(done[processes:]) / for_s


def _line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _ended(child: "subprocess.Popen[str]") -> None:
    """Waits for the end of a process, and closes its pipes."""
    try:
        child.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def _work(verb: str, address: str, opened: ExitStack) -> Work:
    if address.startswith("http"):
        queue = opened.enter_context(connect(address)).queue("q")

        def push() -> int:
            queue.push(PAYLOAD)
            return 1

        def pop() -> int:
            job = queue.pop()
            if job is None:
                return 0
            job.commit()
            return 1

        return push if verb == "push" else pop
    connection = opened.enter_context(peers.Postgres(address)())

    def insert() -> int:
        connection.execute(peers.PUSH, (PAYLOAD,))
        return 1

    def delete() -> int:
        return len(connection.execute(peers.POP, (1,)).fetchall())

    return insert if verb == "push" else delete


def main(verb: str, address: str, for_s: str) -> None:
    """Works for so long after a line was read, and prints the number of items."""
    with ExitStack() as opened:
        work, done = _work(verb, address, opened), 0
        print(READY, flush=True)
        sys.stdin.readline()
        until_s = time.perf_counter() + float(for_s)
        while time.perf_counter() < until_s:
            done += work()
        print(done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
