"""A pusher or a worker of queues in a process of its own, until it is killed.

`pushes URL LOG NAME` pushes to both queues, and notes each push before and after it.
`works URL LOG NAME` publishes each job of queue `once` to topic `done`, in one
transaction with its end, and notes each job of queue `often` before it ends.
"""

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import txaware
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.queue import Job

ONCE, OFTEN, DONE = "once", "often", "done"
LEASE_S = 2.0
# Some pushes have so many items, and their pipes take fewer.
MANY, MAX_PUSHES = 8, 3
BEGAN, ENDED = "began", "ended"


def connected(url: str) -> Messaging:
    """Connects, however long there is no server."""
    while True:
        with suppress(TxAwareError):
            return txaware.connect(url)
        time.sleep(0.1)


class Log:
    """Lines of text, each of them written before the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def note(self, *words: str) -> None:
        """Writes a line."""
        with self._lock:
            self._file.write(" ".join(words) + "\n")


def pushes(url: str, log: Log, name: str) -> None:
    """Pushes in single calls, in transactions and many at once, in turn."""
    messaging, number = connected(url), 0
    while True:
        number += 1
        queue = (ONCE, OFTEN)[number % 2]
        items = [f"{name}-{number}"]
        if not number % 5:
            items = [f"{items[0]}.{of_push}" for of_push in range(MANY)]
        for item in items:
            log.note(BEGAN, queue, item)
        payloads = [item.encode() for item in items]
        try:
            if number % 3:
                messaging.queue(queue).push_all(payloads)
            else:
                with messaging.transaction():
                    messaging.queue(queue).push_all(payloads)
        except TxAwareError:
            time.sleep(0.05)  # it may be there or not: it is not pushed again
            continue
        for item in items:
            log.note(ENDED, queue, item)
        time.sleep(0.005)


def works(url: str, log: Log) -> None:
    """Works on both queues."""
    messaging = connected(url)

    def once(job: Job, _: object) -> None:
        messaging.publisher(DONE).publish(job.payload)

    def often(job: Job) -> None:
        log.note(ENDED, OFTEN, job.payload.decode())

    loops = [
        messaging.queue(ONCE).worker(
            once, threads=2, transaction=True, longest_pause_s=0.5
        ),
        messaging.queue(OFTEN).worker(often, threads=2, longest_pause_s=0.5),
    ]

    def for_ever(run: object) -> None:
        while True:
            with suppress(TxAwareError):
                run()  # type: ignore[operator]
            time.sleep(0.1)

    threads = [threading.Thread(target=for_ever, args=(one.run,)) for one in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    what, server_url, path, own = sys.argv[1:]
    noted = Log(Path(path))
    if what == "pushes":
        pushes(server_url, noted, own)
    else:
        works(server_url, noted)
