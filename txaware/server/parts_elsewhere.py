"""Rows of a commit that lie in another shard: written there before it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs

from txaware.model.requests import Payloads

# Publishes messages to a partition, by its shard and name, in a transaction.
PublishPart = Callable[[int, str, Payloads, int], object]
_THREADS = 16


@attrs.frozen
class PartElsewhere:
    """The messages of a commit for one partition of another shard."""

    shard: int
    name: str
    payloads: Payloads


class PartsElsewhere:
    """Writes the parts of a commit that lie in other shards, at once in all of them.

    The start of the transaction is persisted before. Else a crash of this server would
    lose its pointer, of which the snapshots at other servers say nothing.
    """

    def __init__(self, publish: PublishPart, persist: Callable[[int], object]) -> None:
        self._publish, self._persist = publish, persist
        self._threads = ThreadPoolExecutor(_THREADS, "txaware-parts")

    def write(self, parts: Sequence[PartElsewhere], pointer: int) -> None:
        """Returns once all are on disk; raises where one is not, or may not be."""
        self._persist(pointer)
        *others, last = parts
        waiting = [self._threads.submit(self._write, one, pointer) for one in others]
        try:
            self._write(last, pointer)
        finally:
            errors = [
                error for one in waiting if (error := one.exception()) is not None
            ]
        if errors:
            raise errors[0]

    def _write(self, part: PartElsewhere, pointer: int) -> None:
        self._publish(part.shard, part.name, part.payloads, pointer)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
