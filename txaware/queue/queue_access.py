"""What a queue of a program works with: the services, and how its values are made."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator
from txaware.model.clock import ClockMs
from txaware.model.encoding import Decode, Encode, decoder, encoded, encoder
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.queue_service import QueueService
from txaware.queue.worker import Worker
from txaware.tables import Table

PUSHED_TABLE = "txaware-pushed"
# A time is known for so long after it: who pushes it again comes before.
KEPT_S = 30 * 86_400


class FreePushers:
    """The names of pushers that nobody pushes as now.

    Each push has a name, and with it a pipe, to itself. There are as many as ever
    pushed at once.
    """

    def __init__(self) -> None:
        self._free: list[str] = []
        self._program = os.urandom(8).hex()
        self._lock = threading.Lock()
        self._count = 0

    def take(self) -> str:
        """Returns a name that nobody has."""
        with self._lock:
            if self._free:
                return self._free.pop()
            self._count += 1
            return f"{self._program}-{self._count}"

    def give_back(self, name: str) -> None:
        """Lets others have a name."""
        with self._lock:
            self._free.append(name)


class DueTimes:
    """The times up to which something was pushed, each in a row of its own.

    A row moves with the push, so that of two who push at once one commits.
    """

    def __init__(self, table: Callable[[str], Table], clock_ms: ClockMs) -> None:
        self._open_table = table
        self._clock_ms = clock_ms

    def has(self, queue: str, name: str, due_ms: int) -> bool:
        """Tells whether that time or a later one was pushed under a name."""
        last = self._open_table(PUSHED_TABLE).get(_due_key(queue, name))
        return last is not None and due_ms <= int(last)

    def save(self, queue: str, name: str, due_ms: int) -> None:
        """Notes a time with the open transaction."""
        left_s = max(0, due_ms - self._clock_ms()) / 1000
        self._open_table(PUSHED_TABLE).put(
            _due_key(queue, name), b"%d" % due_ms, ttl_s=left_s + KEPT_S
        )


def _due_key(queue: str, name: str) -> bytes:
    return f"{queue}\0{name}".encode()


@attrs.frozen(kw_only=True)
class QueueAccess:
    """The services behind a queue, and what its users in this program agree on.

    Payloads are bytes where neither `encode` nor `decode` says otherwise.
    """

    queues: QueueService
    service: MessagingService
    coordinator: Coordinator
    shares_journal: bool
    buffer_limit_bytes: int
    message_limit_bytes: int
    begin: Callable[..., TransactionContext]
    opened: Callable[[Worker], object]
    clock_ms: ClockMs
    due_times: DueTimes
    encode: Encode[Any] | None = None
    decode: Callable[[bytes], Any] | None = None
    free_pushers: FreePushers = attrs.field(factory=FreePushers)

    def typed(self, encode: Encode[Any] | None, decode: Decode[Any] | None) -> Self:
        """Returns the same, for values; pushers share the names that are free."""
        return attrs.evolve(
            self,
            encode=None if encode is None else encoder(encode),
            decode=None if decode is None else decoder(decode),
        )

    def payloads(self, values: Iterable[Any]) -> list[Payload]:
        """Returns what is pushed for some values."""
        encode = self.encode
        if encode is None:
            return list(values)
        return [encoded(value, encode) for value in values]
