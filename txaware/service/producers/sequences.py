"""Sequences: what a producer published last in a topic, and what may come next."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from txaware.errors import OutOfOrderSequence, ProducerFenced, Unavailable
from txaware.interfaces import OrderedTable
from txaware.messages import MessageId
from txaware.producers import SEQUENCES, ProducerIdentity
from txaware.store.producer_table import (
    REMEMBERED,
    ProducerTable,
    SequenceState,
    decode_state,
    next_of,
    sequence_key,
)
from txaware.topics import TopicName

# The sequences of so many producers and topics are kept read.
KEPT = 50_000
LOOK_S = 0.5


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
    raise OutOfOrderSequence(
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
        self._busy = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """True when nobody uses it, and no request is under way."""
        return not self.users and not self._busy.locked()

    def enter(self, table: OrderedTable) -> "Turn":
        """Waits until the request before has ended."""
        while not self._busy.acquire(timeout=LOOK_S):
            self._settle(table)
        return Turn(self)

    def enter_at_once(self) -> "Turn | None":
        """Enters unless a request is under way, or the state has to be read."""
        if not self.is_known or not self._busy.acquire(blocking=False):
            return None
        turn = Turn(self)
        if self.is_known:
            return turn
        turn.leave()
        return None

    def left(self) -> None:
        """Lets the next request go on."""
        self._busy.release()

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
    """The turn of one request, which is left once."""

    def __init__(self, line: SequenceLine) -> None:
        self._line = line
        self._is_over = threading.Lock()

    @property
    def row_key(self) -> bytes:
        """The key of the row with the state."""
        return self._line.row_key

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
        if error is None:
            self._line.value = value
        self.leave(sure=error is None)

    def interrupted(self) -> None:
        """Leaves it to the next request to find out how this one ended."""
        self._line.interrupted = self

    def leave(self, *, sure: bool = True) -> None:
        """Lets the next request go on; reads the state again unless that is `sure`."""
        if not self._is_over.acquire(blocking=False):
            return
        if not sure:
            self._line.is_known = False
        self._line.left()


class SequenceKey(NamedTuple):
    """A producer and a topic."""

    producer_id: int
    topic: TopicName


class Sequences:
    """The lines of all producers in all topics; the least recent are read again."""

    def __init__(self, table: OrderedTable) -> None:
        self.rows = ProducerTable(table)
        self._table = table
        self._lock = threading.Lock()
        self._lines: OrderedDict[SequenceKey, SequenceLine] = OrderedDict()

    def enter(self, key: SequenceKey) -> Turn:
        """Waits for the turn of a request of a producer in a topic."""
        turn = self.enter_at_once(key)
        if turn is not None:
            return turn
        with self.using(key) as line:
            return line.enter(self._table)

    def enter_at_once(self, key: SequenceKey) -> Turn | None:
        """Returns the turn of a request, unless it has to wait, or to be read for."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                return None
            self._lines.move_to_end(key)
            return line.enter_at_once()

    @contextmanager
    def using(self, key: SequenceKey) -> Iterator[SequenceLine]:
        """Yields the line of a producer in a topic, one for all its users."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = SequenceLine(sequence_key(*key))
                self._forget_oldest()
            line.users += 1
            self._lines.move_to_end(key)
        try:
            yield line
        finally:
            with self._lock:
                line.users -= 1

    def _forget_oldest(self) -> None:
        surplus = len(self._lines) - KEPT
        for key in list(islice(self._lines, max(0, surplus))):
            if self._lines[key].is_idle:
                del self._lines[key]
