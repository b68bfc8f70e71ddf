"""Many threads of load on a directory, until somebody kills it.

    python -m tests.support.kill_load DIRECTORY LOG NAME

What was acknowledged stands in the log, a line for each event: before an operation
begins, and when its answer came.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.store_load import TOPICS, Client, Notes, Reader, Store
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.store.leveldb import LevelDbTable

SMALL_WRITE_BUFFER_BYTES = 1 << 16  # LevelDB takes no less; logs are switched often


def opened(directory: Path) -> Store:
    """A store that keeps some transactions in memory and writes others at once."""
    settings = Settings(
        write_buffer_bytes=SMALL_WRITE_BUFFER_BYTES, sync_limit_bytes=200
    )
    return Store(
        LevelDbTable.open(directory, settings, clock_ms=system_clock_ms),
        system_clock_ms,
    )


def for_ever(steps: Callable[[], object]) -> None:
    while True:
        steps()


def load(directory: Path, log: Path, name: str) -> None:
    """Writes, copies and reads in ten threads."""
    with log.open("w", buffering=1) as file:
        store, notes = opened(directory), Notes(file)
        for number in range(6):
            client = Client(store, notes, f"{name}.{number}", name)
            steps = [client.plain, client.both, client.both, client.spilled]
            steps += [client.rolled_back]

            def any_of(
                client: Client = client, steps: list[Callable[[], None]] = steps
            ) -> None:
                client.chance.choice(steps)()

            threading.Thread(target=for_ever, args=(any_of,), daemon=True).start()
        for number in range(2):
            copier = Client(store, notes, f"{name}.copier{number}", name)
            threading.Thread(target=for_ever, args=(copier.copy,), daemon=True).start()
        for topic in TOPICS:
            reader = Reader(
                store, notes, f"{name}.{topic}", topic, isolation="committed"
            )

            def look(reader: Reader = reader) -> None:
                reader.poll(200)
                time.sleep(0.01)

            threading.Thread(target=for_ever, args=(look,), daemon=True).start()
        threading.Event().wait()


if __name__ == "__main__":
    load(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
