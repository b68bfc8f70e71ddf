"""One run of the figures: its directory, its duration, and its scale."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from txaware.bench.measure import Figure
from txaware.messaging import Messaging, connect
from txaware.model.settings import Settings
from txaware.store.leveldb_store import leveldb_at

PAYLOAD = b"x" * 100
MANY_MESSAGES = 5_000_000

Tell = Callable[[str], object]


def _tell_nobody(_: str) -> None:
    """Drops the words about what is being prepared."""


@attrs.frozen(kw_only=True)
class Trial:
    """A run: its directory and duration. `scale` shrinks what is counted in thousands.

    `hbase` is an address in an HBase, hbase://HOST:PORT/PREFIX, that may be measured.
    """

    directory: Path
    hbase: str | None = None
    settings: Settings = attrs.field(factory=Settings)
    rounds: int = 5
    for_s: float = 0.7
    scale: float = 1.0
    messages: int = MANY_MESSAGES
    tell: Tell = _tell_nobody

    def count(self, full: int) -> int:
        """Returns a count, smaller in a quick run; always whole thousands."""
        return max(1000, int(full * self.scale) // 1000 * 1000)

    def connect(self, name: str, **changes: Any) -> Messaging:
        """Opens a data directory of this run, or makes it."""
        settings = attrs.evolve(self.settings, **changes)
        return connect(f"leveldb:{self.directory / name}", settings=settings)

    @contextmanager
    def raw(self, name: str) -> Iterator[Any]:
        """Opens a bare plyvel database with the same settings, as a limit."""
        path = self.directory / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(leveldb_at(path, self.settings)()) as db:
            yield db


@attrs.frozen
class Measured:
    """One item of `txaware bench`: its letter, how it is measured, and the measure."""

    letter: str
    method: str
    run: Callable[[Trial], list[Figure]]


def measured(
    figures: Iterable[Measured], trial: Trial, letters: Collection[str]
) -> Iterator[Figure]:
    """Measures the items with these letters, one after the other."""
    for one in figures:
        if one.letter in letters:
            trial.tell(f"measuring {one.letter}")
            yield from one.run(trial)


def payloads(count: int, size_bytes: int = 100) -> list[bytes]:
    """Returns payloads that compress about as JSON does, the same in every run."""
    numbers = random.Random(7)
    return [_payload(numbers, number, size_bytes) for number in range(count)]


def _payload(numbers: random.Random, number: int, size_bytes: int) -> bytes:
    start = b'{"order": %d, "customer": "c%06d", "amount": %d.%02d, "note": "' % (
        number,
        numbers.randrange(10**6),
        numbers.randrange(10**4),
        numbers.randrange(100),
    )
    note = numbers.randbytes(max(0, size_bytes - len(start) - 2) // 2 + 1).hex()
    return (start + note.encode())[: size_bytes - 2] + b'"}'


def batches(count: int, size: int) -> Iterator[range]:
    """Yields the numbers up to `count`, `size` at a time."""
    return map(partial(_piece, count, size), range(0, count, size))


def _piece(count: int, size: int, first: int) -> range:
    return range(first, min(first + size, count))
