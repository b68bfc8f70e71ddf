"""Keeps the rows of recent polls in memory: decoded, and the newest of each topic."""

import logging
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from itertools import islice
from operator import ge

import attrs

from txaware.store.message_table import Block, joined, part

log = logging.getLogger(__name__)

# The memory of a decoded row beside its payload (measured), and the rows of a block.
ROW_BYTES = 140
BLOCK_ROWS = 512
# A joined block is encoded anew as a whole, even for a reader of a part of it.
JOINED_BYTES = 1 << 18

# Shares of the limit: above the second, the oldest rows go until the first is reached.
KEEP, TRIM = 0.5, 0.7
# So many topics have a version of their own; a topic that was deleted keeps one.
MOST_VERSIONS = 10_000


def weight_bytes(block: Block) -> int:
    """Returns about how much memory a block takes, as it is now."""
    packed_bytes = sum([len(span.packed.data) for span in block.spans])
    beside_bytes = ROW_BYTES * len(block) + block.encoded.size_bytes
    return block.size_bytes + packed_bytes + beside_bytes


class CachedSpan:
    """Rows of one topic without a gap, in blocks.

    Each change is one step, so an interrupt (Ctrl-C) comes before or after it.
    """

    def __init__(self, start: bytes) -> None:
        self.start = start
        self.blocks: list[Block] = []

    @property
    def end(self) -> bytes:
        """The key at which the next rows have to begin."""
        return self.blocks[-1].keys[-1] + b"\0" if self.blocks else self.start

    def block_with(self, start: bytes) -> Block:
        """Returns the first block that has a row at or after a key."""
        at = bisect_left(self.blocks, start, key=lambda block: block.keys[-1])
        return self.blocks[at]

    def append(self, block: Block) -> None:
        """Adds rows that follow the last one."""
        last = self.blocks[-1] if self.blocks else None
        if (
            last is not None
            and len(last) + len(block) <= BLOCK_ROWS
            and last.size_bytes + block.size_bytes <= JOINED_BYTES
        ):
            self.blocks[-1] = joined([last, block])
        else:
            self.blocks.append(block)

    def drop_first(self) -> Block:
        """Forgets the oldest block."""
        self.start = self.blocks[0].keys[-1] + b"\0"
        return self.blocks.pop(0)


class ScanCache:
    """A cache of rows, bounded in bytes for all topics together.

    The topics that were read least recently go first. Only settled rows come in. A row
    changes in one way only, by a rollback, and `negate` says so here too.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._spans: OrderedDict[bytes, CachedSpan] = OrderedDict()
        # Counted by topic, or by all where a topic has none of its own.
        self._versions: dict[bytes, int] = {}
        self._changes = self._version_of_others = 0
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def read(
        self, prefix: bytes, start: bytes, stop: bytes, limit: int
    ) -> Block | None:
        """Returns rows of one block from `start` on; None where the cache has none.

        A batch comes as a whole, also where that is more than `limit`.
        """
        with self._lock:
            span = self._spans.get(prefix)
            if span is None or not span.start <= start < span.end:
                self.misses += 1
                return None
            self._spans.move_to_end(prefix)
            self.hits += 1
            block = span.block_with(start)
        first = bisect_left(block.keys, start)
        stop_at = bisect_left(block.keys, stop)
        last = min(stop_at, first + limit)
        for batch in block.spans:
            if batch.first < last < batch.last:
                last = min(stop_at, batch.last)
        return block if last - first == len(block) else part(block, first, last)

    def has(self, prefix: bytes, key: bytes) -> bool:
        """Tells whether the rows from a key on are kept."""
        with self._lock:
            span = self._spans.get(prefix)
            return span is not None and span.start <= key < span.end

    def recount(self) -> None:
        """Counts the memory of all blocks anew: they grow when they are encoded."""
        with self._lock:
            self.size_bytes = sum(
                weight_bytes(block)
                for span in self._spans.values()
                for block in span.blocks
            )
            self._trim()

    def has_message(self, prefix: bytes, key: bytes) -> bool:
        """Tells whether a row is kept, and is a message and not a reference."""
        with self._lock:
            span = self._spans.get(prefix)
            if span is None or not span.start <= key < span.end:
                return False
            block = span.block_with(key)
        at = bisect_left(block.keys, key)
        return block.keys[at] == key and block.payloads[at] is not None

    def start_of(self, prefix: bytes) -> bytes | None:
        """Returns the key from which on rows of a topic are kept, or None."""
        span = self._spans.get(prefix)
        return span.start if span is not None else None

    def version(self, prefix: bytes) -> int:
        """Returns the version of a topic; take it before reading rows for `add`."""
        return self._versions.get(prefix, self._version_of_others)

    def add(self, prefix: bytes, start: bytes, block: Block, version: int) -> None:
        """Keeps rows that were read from `start` on, if they continue the kept rows.

        Rows before the kept ones are left out, so that reading old rows again does not
        cost other readers theirs. Rows behind a gap replace the kept ones.
        """
        if not len(block) or weight_bytes(block) > self._limit_bytes:
            return
        if any(map(ge, block.keys, islice(block.keys, 1, None))):
            log.error("rows do not rise; the cache of a topic is dropped")
            self.drop(prefix)
            return
        with self._lock:
            if self.version(prefix) != version:
                return
            span = self._spans.get(prefix)
            if span is not None and start != span.end:
                if start < span.end:
                    return
                self._forget(prefix)
                span = None
            if span is None:
                span = self._spans[prefix] = CachedSpan(start)
            span.append(block)
            self._spans.move_to_end(prefix)
            self.size_bytes += weight_bytes(block)
            self._trim()

    def negate(self, prefix: bytes, keys: Collection[bytes]) -> None:
        """Marks kept rows as rolled back."""
        with self._lock:
            self._change(prefix)
            span = self._spans.get(prefix)
            if span is None:
                return
            wanted = set(keys)
            for at, block in enumerate(span.blocks):
                if wanted.intersection(block.keys):
                    span.blocks[at] = _negated(block, wanted)

    def drop(self, prefix: bytes) -> None:
        """Forgets the rows of a topic that was deleted, or had rows removed."""
        with self._lock:
            self._change(prefix)
            self._forget(prefix)

    def clear(self) -> None:
        """Forgets everything."""
        for prefix in list(self._spans):
            self.drop(prefix)

    def _change(self, prefix: bytes) -> None:
        """Makes a version outdated; many topics that are gone have one together."""
        self._changes += 1
        if prefix not in self._versions and len(self._versions) >= MOST_VERSIONS:
            self._versions.clear()
            self._version_of_others = self._changes
        self._versions[prefix] = self._changes

    def _forget(self, prefix: bytes) -> None:
        span = self._spans.pop(prefix, None)
        if span is not None:
            self.size_bytes -= sum(map(weight_bytes, span.blocks))

    def _trim(self) -> None:
        if self.size_bytes <= self._limit_bytes * TRIM:
            return
        while self.size_bytes > self._limit_bytes * KEEP:
            prefix, span = next(iter(self._spans.items()))
            lightest = weight_bytes(span.blocks[0])
            if self.size_bytes - lightest < self._limit_bytes * KEEP and (
                self.size_bytes <= self._limit_bytes
            ):
                return
            self.size_bytes -= weight_bytes(span.drop_first())
            if not span.blocks:
                del self._spans[prefix]


def _negated(block: Block, keys: set[bytes]) -> Block:
    pointers = [
        -abs(pointer) if pointer is not None and key in keys else pointer
        for key, pointer in zip(
            block.keys, block.pointers or [None] * len(block), strict=True
        )
    ]
    return attrs.evolve(block, pointers=pointers)
