"""Sequences: what a producer published last in a topic, and what may come next."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple

from txaware.errors import (
    DuplicateSequence,
    OutOfOrderSequence,
    ProducerFenced,
    SequenceAhead,
    Unavailable,
)
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import MessageId
from txaware.model.producers import SEQUENCES, ProducerIdentity
from txaware.model.topics import TopicName
from txaware.store.producer_table import (
    REMEMBERED,
    ProducerTable,
    SequenceState,
    decode_state,
    next_of,
    sequence_key,
)

# The sequences of so many producers and topics are kept read.
KEPT = 50_000
LOOK_S = 0.5
_DO_ALL = deque[None](maxlen=0).extend


class SequenceGap(OutOfOrderSequence):
    """Messages before these are missing, which ends their producer."""


def judge(
    state: SequenceState | None, producer: ProducerIdentity, base: int, count: int
) -> list[MessageId] | None:
    """Returns the ids of a repeat, or None for what comes next; raises for others."""
    number = f"producer {producer.producer_id}"
    if state is not None and producer.epoch < state.epoch:
        raise ProducerFenced(
            f"{number} has published under epoch {state.epoch}, and {producer.epoch} "
            f"is older"
        )
    begins = state is None or producer.epoch > state.epoch
    expected = 0 if begins or state is None else state.next
    if base == expected:
        return None
    is_above = begins or (base - expected) % SEQUENCES < SEQUENCES // 2
    if producer.is_sender and is_above:
        raise SequenceAhead(
            f"{number} publishes at sequence {base}, and {expected} is next: send it "
            f"again when those before it are stored"
        )
    if state is None or begins:
        raise SequenceGap(
            f"{number} begins in this topic at sequence {base}, and not at 0: messages "
            f"are missing, and it publishes nothing more"
        )
    ids = state.repeated(base, count)
    if ids is not None:
        return ids
    if (base - expected) % SEQUENCES < SEQUENCES // 2:
        raise SequenceGap(
            f"{number} publishes at sequence {base}, and {expected} is next: messages "
            f"are missing, and it publishes nothing more"
        )
    raise DuplicateSequence(
        f"{number} publishes {count} messages at sequence {base} again, which are not "
        f"all among its last {REMEMBERED} requests; {expected} is next"
    )


def repeated(
    value: bytes | None, producer: ProducerIdentity, base: int, count: int
) -> list[MessageId] | None:
    """Returns what `judge` does of a sequence row; most need not be decoded."""
    if value is None:
        return judge(None, producer, base, count)
    if next_of(value) == (producer.epoch, base):
        return None
    return judge(decode_state(value), producer, base, count)


class SequenceLine:
    """The sequence of one producer in one topic; one request at a time goes on.

    Its row is read from the table unless it is known from the last request.
    """

    def __init__(self, row_key: bytes) -> None:
        self.row_key = row_key
        self.users = 0
        self.interrupted: Turn | None = None
        self.is_known = False
        self.value: bytes | None = None
        self.free: SimpleQueue[None] = SimpleQueue()
        self.free.put(None)

    @property
    def is_idle(self) -> bool:
        """True when nobody uses it, and no request is under way."""
        return not self.users and not self.free.empty()

    def enter(self, table: OrderedTable, turn: "Turn") -> None:
        """Waits until the request before has ended."""
        while not turn.took(self, LOOK_S):
            self._settle(table)

    def enter_at_once(self, turn: "Turn") -> bool:
        """Enters unless a request is under way, or the state has to be read."""
        if not self.is_known or not turn.took(self):
            return False
        if self.is_known:
            return True
        turn.leave()
        return False

    def _settle(self, table: OrderedTable) -> None:
        """Ends the turn of an interrupted thread, which may never be told of its end.

        Once a later batch is written, the end of every submitted one has been told.
        """
        turn = self.interrupted
        if turn is not None:
            table.submit([])()
            self.interrupted = None
            turn.leave(sure=False)


class Turn:
    """The turn of one request, which is left once.

    It is taken, and given back, in one step in C: no interrupt (Ctrl-C) comes between
    the step and the note of it.
    """

    _line: SequenceLine

    def __init__(self) -> None:
        self._taken: list[None] = []

    @property
    def row_key(self) -> bytes:
        """The key of the row with the state."""
        return self._line.row_key

    def took(self, line: SequenceLine, timeout_s: float = 0) -> bool:
        """Takes the turn in a line; False if it is not free in time."""
        self._line = line
        try:
            if timeout_s:
                self._taken.extend(map(line.free.get, (True,), (timeout_s,)))
            else:
                self._taken.extend(map(line.free.get, (False,)))
        except Empty:
            return False
        return True

    def value(
        self, rows: ProducerTable, producer_id: int, topic: TopicName
    ) -> bytes | None:
        """Returns the row of what was published before, read if need be."""
        line = self._line
        if not line.is_known:
            line.value = rows.value(producer_id, topic)
            line.is_known = True
        return line.value

    def ended(self, value: bytes, error: Unavailable | None) -> None:
        """Takes the new row of a request that was written, and leaves."""
        if error is None and self._taken:  # an interrupt may have this told twice
            self._line.value = value
        self.leave(sure=error is None)

    def interrupted(self) -> None:
        """Leaves it to the next request to find out how this one ended."""
        if self._taken:
            self._line.interrupted = self

    def leave(self, *, sure: bool = True) -> None:
        """Lets the next request go on; reads the state again unless that is `sure`."""
        if not sure and self._taken:
            self._line.is_known = False
        try:
            _DO_ALL(map(self._line.free.put, map(list.pop, (self._taken,))))
        except (AttributeError, IndexError):  # it was not taken, or left before
            return


class SequenceKey(NamedTuple):
    """A producer and a topic."""

    producer_id: int
    topic: TopicName


class Sequences:
    """The lines of all producers in all topics; the least recent are read again.

    A producer has one more, by its id, for its first request in a topic that is new to
    it.
    """

    def __init__(self, table: OrderedTable) -> None:
        self.rows = ProducerTable(table)
        self._table = table
        self._lock = threading.Lock()
        self._lines: OrderedDict[SequenceKey | int, SequenceLine] = OrderedDict()

    def enter(self, key: SequenceKey, turn: Turn) -> None:
        """Waits for the turn of a request of a producer in a topic."""
        if not self.enter_at_once(key, turn):
            with self.using(key) as line:
                line.enter(self._table, turn)

    def enter_first(self, producer_id: int, turn: Turn) -> None:
        """Waits for the turn of a producer's first request in a topic.

        It makes a row that is not in the table yet, so whoever removes all rows of a
        producer has this turn as well. It is entered after the turn in the topic.
        """
        with self.using(producer_id) as line:
            line.enter(self._table, turn)

    def enter_at_once(self, key: SequenceKey, turn: Turn) -> bool:
        """Takes the turn of a request, unless it has to wait, or to be read for."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                return False
            self._lines.move_to_end(key)
            return line.enter_at_once(turn)

    @contextmanager
    def using(self, key: SequenceKey | int) -> Iterator[SequenceLine]:
        """Yields the line of a producer, mostly in a topic, one for all its users."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                row_key = b"" if isinstance(key, int) else sequence_key(*key)
                line = self._lines[key] = SequenceLine(row_key)
                self._forget_oldest()
            line.users += 1
            self._lines.move_to_end(key)
        try:
            yield line
        finally:
            with self._lock:
                line.users -= 1

    def forget(self) -> None:
        """Reads all lines that are idle again, as another process had the rows."""
        with self._lock:
            for key, line in [*self._lines.items()]:
                if line.is_idle:
                    del self._lines[key]

    def _forget_oldest(self) -> None:
        surplus = len(self._lines) - KEPT
        for key in list(islice(self._lines, max(0, surplus))):
            if self._lines[key].is_idle:
                del self._lines[key]
