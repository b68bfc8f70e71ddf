"""A program that handles the items of a queue with rows of a database, until killed.

`python -m tests.support.inbox_child DATA DATABASE WAY BEHIND`: it kills itself behind
so many commits of the database, before those of the store; 0 is never.
"""

import os
import signal
import sqlite3
import sys
import threading
from typing import Any

import txaware
from tests.support.mysql import connected
from txaware import participants
from txaware.messaging import Messaging
from txaware.participants.deciding_database import DecidingDatabase

WAYS = ("pop", "pop_many", "worker")


def kill_behind(count: int) -> None:
    """Kills this process behind that many commits of a database."""
    commit, done = DecidingDatabase.commit_tx, []

    def committed(database: DecidingDatabase) -> bool:
        commit(database)
        if database._noted:
            done.append(database)
        if len(done) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    setattr(DecidingDatabase, "commit_tx", committed)  # noqa: B010


def opened(messaging: Messaging, database: str) -> Any:
    """Opens the participant."""
    if database.startswith("postgresql:"):
        import psycopg

        connection = psycopg.connect(database)
        return participants.postgres(messaging, connection, outbox=True)
    if database.startswith("mysql:"):
        options: Any = {"outbox": True}
        return participants.mysql(messaging, connected(database), **options)
    file = sqlite3.connect(database, timeout=60)
    return participants.sqlite(messaging, file)


def handle(shop: Any, payload: bytes) -> None:
    """Writes the row of an item."""
    shop.connection.execute(f"INSERT INTO handled VALUES ('{payload.decode()}')")
    print(payload.decode(), flush=True)


def work(messaging: Messaging, database: str, threads: int) -> None:
    """Works until nothing is left."""

    def handler(job: Any, tx: Any) -> None:
        handle(tx.participants[0], job.payload)

    queue, stop = messaging.queue("mail"), threading.Event()
    worker = queue.worker(
        handler,
        threads=threads,
        transaction=True,
        participants=[lambda: opened(messaging, database)],
        idle_wait_s=0.02,
    )
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    while queue.stats().depth + queue.stats().in_work:
        stop.wait(0.01)
    worker.close()
    thread.join()


def main(data: str, database: str, way: str, behind: str) -> None:
    """Handles all that waits."""
    if int(behind):
        kill_behind(int(behind))
    with txaware.connect(f"leveldb:{data}") as messaging:
        if way == "worker":
            # What others have popped when it kills itself is lost before it is handled.
            work(messaging, database, threads=1 if int(behind) else 2)
            return
        queue, shop = messaging.queue("mail"), opened(messaging, database)
        while queue.stats().depth:
            with messaging.transaction(shop):
                for job in queue.pop_many(3 if way == "pop_many" else 1):
                    handle(shop, job.payload)
        shop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
