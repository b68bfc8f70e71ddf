"""Counts how many rows topics hold, reading a bounded number of them at a time."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from txaware.errors import TopicNotFound
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import Bounds
from txaware.service.monitor.turns import Budget, Failures, Turns
from txaware.store.keys import MESSAGE
from txaware.store.packed_rows import message_keys, stop_with_batches

LOOKS, ROWS = 2000, 50_000
STEP_ROWS, STEP_BYTES = 1000, 1 << 20
# Large rows count for more: reading them takes as long as many small ones.
ROW_BYTES = 1 << 10


@attrs.define
class _Count:
    """The rows of one generation from `steps[0]` to before `end`.

    Each step is the key that so many rows begin with; `last` is how many there are from
    the last step on, `first` how many of those from the first one are still there.
    """

    prefix: bytes
    steps: deque[bytes] = attrs.field(factory=deque)
    last: int = 0
    first: int = 0
    begin: bytes = b""
    end: bytes = b""

    @property
    def rows(self) -> int:
        if len(self.steps) < 2:
            return self.last
        return self.first + (len(self.steps) - 2) * STEP_ROWS + self.last

    def add(self, keys: list[bytes]) -> None:
        """Adds keys that follow."""
        for key in keys:
            if not self.steps or self.last == STEP_ROWS:
                if len(self.steps) == 1:
                    self.first = STEP_ROWS
                self.steps.append(key)
                self.last = 0
            self.last += 1
        self.end = keys[-1] + b"\0"


class RowCounts:
    """Remembers what was counted, so that only new rows and the oldest are looked at.

    Rows come at the end of a topic and go at its beginning. After a start, with very
    many rows, it takes a while until all are counted; the rest is not told until then.
    """

    def __init__(self, table: OrderedTable, prefix: Callable[[str], bytes]) -> None:
        self._table = table
        self._prefix = prefix
        self._turns = Turns()
        self._counts: dict[str, _Count] = {}

    def look(self, topics: Mapping[str, Bounds], failures: Failures) -> None:
        """Does a round over topics with these bounds."""
        for gone in self._counts.keys() - topics.keys():
            del self._counts[gone]
        budget = Budget(looks=LOOKS, rows=ROWS)
        for name in self._turns.of(topics):
            if budget.is_spent:
                break
            try:
                look = partial(self._look, name, topics[name], budget)
                failures.attempt("topic_rows", look, None)
            except TopicNotFound:
                self._counts.pop(name, None)

    def rows(self, topic: str) -> int | None:
        """Returns the rows counted so far; None where the count has not begun."""
        count = self._counts.get(topic)
        return None if count is None else count.rows

    def _look(self, name: str, bounds: Bounds, budget: Budget) -> None:
        prefix, stop = MESSAGE + self._prefix(name), bounds.next.row_key
        begin = stop if bounds.first is None else bounds.first.row_key
        count = self._counts.get(name)
        if count is None or count.prefix != prefix or begin > count.end:
            count = self._counts[name] = _Count(prefix, begin=begin, end=begin)
        if begin > count.begin:
            self._forget_before(count, begin, budget)
        while not budget.is_spent and (
            keys := self._read(count, count.end, stop, budget)
        ):
            count.add(keys)

    def _forget_before(self, count: _Count, begin: bytes, budget: Budget) -> None:
        """Takes off the oldest rows, which are gone or have expired."""
        steps = count.steps
        while len(steps) > 1 and steps[1] <= begin:
            steps.popleft()
        count.begin = begin
        if len(steps) < 2:
            count.steps, count.last, count.end = deque(), 0, begin
            return
        count.first, start = 0, begin
        while not budget.is_spent and (
            keys := self._read(count, start, steps[1], budget)
        ):
            count.first += len(keys)
            start = keys[-1] + b"\0"

    def _read(
        self, count: _Count, start: bytes, stop: bytes, budget: Budget
    ) -> list[bytes]:
        """Returns the keys of messages in a range, as far as one step goes."""
        if start >= stop:
            return []
        rows = self._table.scan(
            count.prefix,
            start=start,
            stop=stop_with_batches(stop) if self._table.has_batches else stop,
            limit=STEP_ROWS,
            max_bytes=STEP_BYTES,
        )
        size_bytes = sum([len(value) for _, value in rows])
        budget.spend(len(rows) + size_bytes // ROW_BYTES)
        if not self._table.has_batches:
            return [key for key, _ in rows]
        return [key for key in message_keys(rows) if start <= key < stop]
