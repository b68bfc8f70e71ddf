"""The range of topics and ids that filters leave to read."""

import calendar
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Self

import attrs
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from txaware.model.messages import ID_BYTES, MessageId

_LEAST, _GREATEST = MessageId(bytes(ID_BYTES)), MessageId(b"\xff" * ID_BYTES)


@attrs.frozen
class Narrowed:
    """Topics and ids outside of which no row can pass the filters.

    Spark applies the filters themselves again, so these bounds may be too wide.
    """

    topics: frozenset[str] | None = None
    start: MessageId = _LEAST
    stop: MessageId = _GREATEST

    @classmethod
    def by(cls, filters: Iterable[Filter]) -> Self:
        """Narrows by all of these filters; one of another kind narrows nothing."""
        narrowed = cls()
        for each in filters:
            narrowed = narrowed._by(each)
        return narrowed

    def _by(self, one: Filter) -> Self:
        column = getattr(one, "attribute", ())
        if column == ("topic",):
            return self._among(_topics(one))
        bounds = None
        if column == ("id",):
            bounds = _of_ids(one)
        elif column == ("publish_time",):
            bounds = _of_times(one)
        if bounds is None:
            return self
        return attrs.evolve(
            self, start=max(self.start, bounds[0]), stop=min(self.stop, bounds[1])
        )

    def _among(self, topics: frozenset[str] | None) -> Self:
        if topics is None:
            return self
        return attrs.evolve(
            self, topics=topics if self.topics is None else self.topics & topics
        )


def _topics(one: Filter) -> frozenset[str] | None:
    if isinstance(one, EqualTo):
        return frozenset([one.value])
    if isinstance(one, In):
        return frozenset(one.value)
    return None


def _of_ids(one: Filter) -> tuple[MessageId, MessageId] | None:
    value = getattr(one, "value", None)
    if not isinstance(value, bytes | bytearray):
        return None
    # Shorter values sort before, and longer ones behind, all that begin with them.
    padded = MessageId(bytes(value[:ID_BYTES]).ljust(ID_BYTES, b"\0"))
    least = padded if len(value) <= ID_BYTES else padded.after()
    behind = padded if len(value) < ID_BYTES else padded.after()
    return _bounds(one, least, behind)


def _of_times(one: Filter) -> tuple[MessageId, MessageId] | None:
    value = getattr(one, "value", None)
    if not isinstance(value, datetime):
        return None
    try:
        us = _us(value)
    except (ValueError, OverflowError):  # at either end of what Python has of time
        return None
    if us < 0:
        return None
    # The times of messages are whole milliseconds.
    least, behind = MessageId.of(-(-us // 1000)), MessageId.of(us // 1000 + 1)
    return _bounds(one, least, behind)


def _bounds(
    one: Filter, least: MessageId, behind: MessageId
) -> tuple[MessageId, MessageId] | None:
    """Returns the least id that passes, and the first one behind that does not.

    `least` is the least one not below the value, `behind` the least one above it.
    """
    if isinstance(one, EqualTo):
        return least, behind
    if isinstance(one, GreaterThan):
        return behind, _GREATEST
    if isinstance(one, GreaterThanOrEqual):
        return least, _GREATEST
    if isinstance(one, LessThan):
        return _LEAST, least
    if isinstance(one, LessThanOrEqual):
        return _LEAST, behind
    return None


def _us(time: datetime) -> int:
    utc = time.astimezone(UTC)  # one without a zone is of this process's own
    return calendar.timegm(utc.timetuple()) * 1_000_000 + utc.microsecond
