"""Pipes that nobody works on: known by their ids, and read once they are needed."""

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import attrs

from txaware.model.interfaces import Write
from txaware.model.queues import PIPE_BYTES
from txaware.service.queue.pipe import Pipe
from txaware.store.keys import PIPE
from txaware.store.queue_table import PipeKind, PipeOutline, PopCounts


class PipeRange(NamedTuple):
    """A range of pipes by their ids, up to `stop` and without it."""

    first: int
    stop: int


@attrs.define(eq=False)
class RestingPipes:
    """The ids of the pipes of a queue that are not in memory, and sums over them.

    Each is in one of three: `rows` has those that came to rest in this process, with
    their rows, and `unsure` those of them that may have rows which nobody will see.
    The others were there at the start, and nobody has read them since: `counted` ones
    say in their row how much was pushed to them, or were counted, and `uncounted` ones
    are counted when somebody asks for that.

    `counts` and `pushed` add up all three; of `uncounted` ones it is what is gone.
    `later` has what waits in `counted` ones that are delayed. In the ranges of `empty`
    nothing waits: such pipes go away, a piece at each step.
    """

    rows: dict[int, bytes] = attrs.field(factory=dict)
    unsure: set[int] = attrs.field(factory=set)
    counted: set[int] = attrs.field(factory=set)
    uncounted: set[int] = attrs.field(factory=set)
    later: dict[int, int] = attrs.field(factory=dict)
    counts: PopCounts = attrs.field(factory=PopCounts)
    pushed: int = 0
    empty: deque[PipeRange] = attrs.field(factory=deque)

    def __len__(self) -> int:
        return len(self.rows) + len(self.counted) + len(self.uncounted)

    def __contains__(self, number: int) -> bool:
        return number in self.counted or number in self.uncounted or number in self.rows

    def __iter__(self) -> Iterator[int]:
        return chain(self.rows, self.counted, self.uncounted)

    def found(self, number: int, row: PipeOutline) -> None:
        """Takes in a pipe that was there at the start."""
        self._add_counts(row, 1)
        waiting = row.pushed - row.removed if row.is_final else 0
        self.pushed += row.removed + waiting
        if row.kind == PipeKind.DELAYED:
            self.later[number] = waiting
        if not row.is_final:
            self.uncounted.add(number)
            return
        self.counted.add(number)
        if not waiting:
            self.add_empty(number, number + 1)

    def count(self, number: int, waiting: int) -> None:
        """Notes what waits in a pipe, all of it committed."""
        self.uncounted.remove(number)
        self.counted.add(number)
        self.pushed += waiting
        if number in self.later:
            self.later[number] = waiting
        if not waiting:
            self.add_empty(number, number + 1)

    def doubt(self, number: int) -> None:
        """Notes that a pipe has to be counted anew, though its row says it is empty."""
        self.counted.discard(number)
        self.uncounted.add(number)

    def add_empty(self, first: int, stop: int) -> None:
        """Notes that nothing waits in a range of pipes."""
        if self.empty and self.empty[-1].stop == first:
            first = self.empty.pop().first
        self.empty.append(PipeRange(first, stop))

    def lay(self, pipe: Pipe) -> Write:
        """Lays a pipe to rest that nobody has read since it woke; returns its row."""
        pipe.is_final = True
        self.counts.add(pipe.counts)
        key, row = pipe.write()
        self.rows[pipe.id] = row or b""
        if not pipe.is_plain:
            self.unsure.add(pipe.id)
        self.pushed += pipe.pushed
        return key, row

    def writes(self, prefix: bytes) -> Iterator[Write]:
        """Makes the rows anew of the pipes that came to rest in this process."""
        for number, row in self.rows.items():
            yield PIPE + prefix + number.to_bytes(PIPE_BYTES, "big"), row

    def forget(self, number: int, row: PipeOutline, pushed: int) -> None:
        """Takes a pipe out, which is in memory from now on, or over.

        `pushed` is what it is in the sums with.
        """
        if number in self.uncounted:
            pushed = row.removed
        for numbers in (self.counted, self.uncounted, self.unsure):
            numbers.discard(number)
        self.rows.pop(number, None)
        self.later.pop(number, None)
        self.pushed -= pushed
        self._add_counts(row, -1)

    def _add_counts(self, row: PipeOutline, times: int) -> None:
        if row.popped or row.expired:
            self.counts.add(row.counts, times)
