"""Transactions over all shards; `python -m tests.support.sharded_load DIR SHARDS`.

Each says one number in every partition and in a table, and then on standard output.
Every third one is rolled back after its rows are on disk. It goes on until it is
killed.
"""

import itertools
import sys
import threading
from typing import Any

import txaware
from txaware.model.partitions import partition_of
from txaware.model.settings import Settings

THREADS = 4


class GivenUp(Exception):
    """Ends a block after its rows are written."""


def key_of(partition: int, partitions: int) -> bytes:
    """A key that goes to a partition."""
    keys = (b"%d" % number for number in itertools.count())
    return next(key for key in keys if partition_of(key, partitions) == partition)


def publish(messaging: Any, thread: int, said: threading.Lock, partitions: int) -> None:
    first = sum(1 for _ in messaging.table("done").scan())
    keys = [key_of(partition, partitions) for partition in range(partitions)]
    for count in itertools.count(first):
        number = b"%d-%d" % (thread, count)
        try:
            with messaging.transaction():
                if count % 2:
                    for key in keys:
                        messaging.publisher("orders").publish(number, key=key)
                else:
                    for partition in range(partitions):
                        messaging.publisher(f"orders.{partition}").publish(number)
                messaging.table("done").put(number, b"")
                if count % 3 == 2:
                    messaging.publisher("orders").flush()
                    messaging.publisher("orders.1").flush()
                    raise GivenUp
        except GivenUp:
            continue
        messaging.publisher(f"plain.{count % partitions}").publish(number)
        with said:
            print(number.decode(), flush=True)


def main() -> None:
    directory, shards = sys.argv[1], int(sys.argv[2])
    settings = Settings(shards=shards, janitor_interval_s=0)
    messaging = txaware.connect(f"leveldb:{directory}", settings=settings)
    for name in ("orders", "plain"):
        messaging.create_topic(name, partitions=2 * shards, exist_ok=True)
    said = threading.Lock()
    threads = [
        threading.Thread(target=publish, args=(messaging, one, said, 2 * shards))
        for one in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
