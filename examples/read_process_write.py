"""A worker is killed again and again, and processes every input exactly once.

In one transaction it polls some readings, publishes what it makes of them to another
topic, counts them in a SQLite table of its own, and moves its position. It is killed
with SIGKILL at chosen moments, the worst of which is between writing and commit, and at
random ones. After each kill results, count and position agree, and the next worker goes
on from there.

Prints:
killed while processing:             135 results, as position and count say
killed before its commit:            270 results, as position and count say
  the table held a row that says 285, and nobody sees it
killed after its commit:             420 results, as position and count say
killed 4 times at random:            results, position and count agree each time
the last worker was left alone:      900 results, as position and count say
each reading exactly once, and in order
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import txaware
from coordinator import Transaction

READINGS = 900
AT_ONCE = 15
DEADLY_BATCH = 10


class Count:
    """A row in SQLite for each transaction that counted: its pointer and the sum."""

    transaction_aware_name = "count"

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("CREATE TABLE IF NOT EXISTS counts (pointer, total)")

    def start_tx(self, tx: Transaction) -> None:
        self._tx, self._more = tx, 0

    def update_tx(self, tx: Transaction) -> None:
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [b"count"] if self._more else []

    def commit_tx(self) -> bool:
        if self._more:
            row = (self._tx.write_pointer, self.total())
            self._rows.execute("INSERT INTO counts VALUES (?, ?)", row)
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        self._rows.executemany(
            "DELETE FROM counts WHERE pointer = ?",
            [(one,) for one in self._tx.pointers],
        )
        return True

    def add(self, number: int) -> None:
        self._more += number

    def total(self) -> int:
        """The newest row that the transaction may see, and what it adds."""
        for pointer, total in self._rows.execute(
            "SELECT pointer, total FROM counts ORDER BY pointer DESC"
        ):
            if self._tx.is_visible(pointer):
                return int(total) + self._more
        return self._more

    def written(self) -> int:
        """The newest row, whatever became of its transaction."""
        (total,) = self._rows.execute("SELECT max(total) FROM counts").fetchone()
        return int(total)

    def close(self) -> None:
        self._rows.close()


class Death:
    """A participant that kills the process, after all others have written or later."""

    transaction_aware_name = "death"
    flushes_last = True

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def start_tx(self, tx: Transaction) -> None:
        self.strike("while processing")

    def update_tx(self, tx: Transaction) -> None:
        pass

    def get_tx_changes(self) -> list[bytes]:
        return []

    def commit_tx(self) -> bool:
        self.strike("before its commit")
        return True

    def post_tx_commit(self) -> None:
        self.strike("after its commit")

    def rollback_tx(self) -> bool:
        return True

    def strike(self, moment: str) -> None:
        if moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


def process(reading: bytes) -> bytes:
    return b"%d squared is %d" % (int(reading), int(reading) ** 2)


def worker(directory: Path, moment: str) -> None:
    """Works until nothing is left, unless it dies before."""
    count = Count(directory / "count.sqlite")
    with txaware.connect(f"leveldb:{directory / 'topics'}") as messaging:
        readings = messaging.consumer("readings", group="workers")
        results = messaging.publisher("results")
        print("at work", flush=True)
        batch = 0
        while readings.wait(0):
            batch += 1
            with messaging.transaction(count) as tx:
                for message in readings.poll(AT_ONCE):
                    results.publish(process(message.payload))
                    count.add(1)
                if batch == DEADLY_BATCH:
                    tx.join(Death(moment))  # as the last one
        if moment == "at random":
            signal.pause()
    count.close()


def run(directory: Path, moment: str) -> int:
    """Runs a worker to its end, and answers how it ended."""
    command = [sys.executable, __file__, str(directory), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "at work\n"
            if moment == "at random":
                time.sleep(random.uniform(0, 0.1))
                child.kill()
            return child.wait(timeout=30)
        finally:
            child.kill()  # it has ended, unless something went wrong here


def check(directory: Path) -> tuple[int, int]:
    """The number of results that everybody sees, and the newest row of the table.

    In one snapshot, the results are those of the first readings in their order, as many
    as the count says, and the position is behind exactly those.
    """
    count = Count(directory / "count.sqlite")
    with txaware.connect(f"leveldb:{directory / 'topics'}") as messaging:
        everything = messaging.poll("readings", limit=READINGS)
        with messaging.transaction(count):
            results = [
                message.payload
                for message in messaging.consumer("results").poll(2 * READINGS)
            ]
            position = messaging.consumer("readings", group="workers").position
            total = count.total()
        written = count.written()
    count.close()
    assert position is not None
    done = [process(one.payload) for one in everything if one.id <= position]
    assert results == done, "a reading was lost, or processed twice"
    assert total == len(results), f"counted {total}, and made {len(results)}"
    return total, written


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with txaware.connect(f"leveldb:{directory / 'topics'}") as messaging:
            messaging.create_topic("readings")
            messaging.create_topic("results")
            messaging.publish("readings", [b"%d" % n for n in range(READINGS)])

        def tell(label: str, what: str) -> None:
            print(f"{label + ':':36} {what}")

        for moment in ("while processing", "before its commit", "after its commit"):
            assert run(directory, moment) == -signal.SIGKILL
            total, written = check(directory)
            tell(f"killed {moment}", f"{total} results, as position and count say")
            if written != total:
                print(f"  the table held a row that says {written}, and nobody sees it")

        for _ in range(4):
            assert run(directory, "at random") == -signal.SIGKILL
            check(directory)
        tell("killed 4 times at random", "results, position and count agree each time")

        assert run(directory, "never") == 0
        total, _ = check(directory)
        assert total == READINGS
        tell(
            "the last worker was left alone",
            f"{total} results, as position and count say",
        )
        print("each reading exactly once, and in order")


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else main()
