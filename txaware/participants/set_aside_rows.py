"""What both databases do with the rows that cannot be carried over, in plain SQL."""

import time
from collections.abc import Callable, Sequence

from txaware.model.labels import unpacked
from txaware.model.queues import time_of
from txaware.participants.outbox_progress import Mark, Refused
from txaware.participants.outbox_row import (
    COLUMNS,
    OutboxDestination,
    SetAside,
    SetAsideMessage,
    new_token,
)
from txaware.participants.sql_dialect import Execute

COUNTED_S = 5.0

_KEPT = COLUMNS.replace("topic, ", "", 1).replace("token, ", "", 1)
_MOVE = f"""INSERT INTO txaware_set_aside ({COLUMNS}, reason, since_ms)
    SELECT {COLUMNS}, ?, ? FROM txaware_outbox WHERE id = ? AND token = ?"""
_REMOVE = "DELETE FROM txaware_outbox WHERE id = ? AND token = ?"
_ENTRIES = """SELECT first.topic, found.count, first.since_ms, first.reason
    FROM (SELECT min(id) AS id, count(*) AS count FROM txaware_set_aside GROUP BY topic)
    AS found JOIN txaware_set_aside AS first ON first.id = found.id ORDER BY first.id"""
_MESSAGES = """SELECT payload, "key", headers, reason, since_ms FROM txaware_set_aside
    WHERE topic = ? ORDER BY id LIMIT ?"""
_PUT_BACK = f"""INSERT INTO txaware_outbox (topic, token, {_KEPT})
    SELECT ?, ?, {_KEPT} FROM txaware_set_aside WHERE topic = ? ORDER BY id"""
_DISCARD = "DELETE FROM txaware_set_aside WHERE topic = ?"


class CountedLately:
    """A count that is made anew when it is some seconds old: it reads all rows."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._count = 0
        self._until_s = float("-inf")

    def get(self, count: Callable[[], int]) -> int:
        """Returns the count."""
        if self._clock_s() >= self._until_s:
            self._count = count()
            self._until_s = self._clock_s() + COUNTED_S
        return self._count

    def forget(self) -> None:
        """Has it counted anew at the next question."""
        self._until_s = float("-inf")


def set_aside_refused(execute: Execute, refused: Sequence[Refused]) -> list[SetAside]:
    """Sets rows aside that a relay refused; returns those of which none was before."""
    newly = []
    for one in refused:
        ask = "SELECT 1 FROM txaware_set_aside WHERE topic = ? LIMIT 1"
        is_new = execute(ask, (one.topic,)).fetchone() is None
        count = sum([_moved(execute, one, mark) for mark in one.marks])
        if is_new and count:
            to, since = OutboxDestination.of(one.topic), time_of(one.since_ms)
            newly.append(SetAside(to.name, to.is_queue, one.reason, since, count))
    return newly


def _moved(execute: Execute, refused: Refused, mark: Mark) -> int:
    execute(_MOVE, (refused.reason, refused.since_ms, *mark))
    return int(execute(_REMOVE, mark).rowcount)


def oldest_ms(execute: Execute) -> int | None:
    """Returns when the first row that waits was written; None where none waits."""
    ask = "SELECT written_ms FROM txaware_outbox ORDER BY id LIMIT 1"
    found = execute(ask, ()).fetchone()
    return None if found is None else found[0]


def waiting(execute: Execute) -> int:
    """Returns how many rows wait."""
    return int(execute("SELECT count(*) FROM txaware_outbox", ()).fetchone()[0])


def set_aside_count(execute: Execute) -> int:
    """Returns how many rows are set aside."""
    if execute("SELECT 1 FROM txaware_set_aside LIMIT 1", ()).fetchone() is None:
        return 0
    return int(execute("SELECT count(*) FROM txaware_set_aside", ()).fetchone()[0])


def entries(execute: Execute) -> list[SetAside]:
    """Returns what is set aside, by topic and queue; the oldest first."""
    found = []
    for topic, count, since_ms, reason in execute(_ENTRIES, ()).fetchall():
        to = OutboxDestination.of(topic)
        since = time_of(since_ms)
        found.append(SetAside(to.name, to.is_queue, reason, since, count))
    return found


def messages(execute: Execute, topic: str, *, limit: int) -> list[SetAsideMessage]:
    """Returns the first messages that are set aside for a topic."""
    return [
        SetAsideMessage(
            bytes(payload),
            None if key is None else bytes(key),
            {} if headers is None else unpacked(bytes(headers)),
            reason,
            time_of(since_ms),
        )
        for payload, key, headers, reason, since_ms in execute(
            _MESSAGES, (topic, limit)
        ).fetchall()
    ]


def put_back(execute: Execute, topic: str, *, to: str) -> int:
    """Has what is set aside for a topic wait again, as one block; within a transaction.

    Its token is a new one: what a relay wrote down of these rows is not of them now.
    """
    execute(_PUT_BACK, (to, new_token(), topic))
    return discard(execute, topic)


def discard(execute: Execute, topic: str) -> int:
    """Removes what is set aside for a topic; returns how many rows these are."""
    return int(execute(_DISCARD, (topic,)).rowcount)
