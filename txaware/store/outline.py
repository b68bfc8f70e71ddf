"""The outline of a table: the ranges, topic by topic, that may have rows."""

from collections.abc import Iterable

import attrs

from txaware.store.keys import after

_GENERATION_BYTES = 4


@attrs.define
class _Span:
    """The range with rows of one generation: to `last`, or `goes_on` to its end."""

    first: bytes
    last: bytes
    goes_on: bool = False


class Outline:
    """The ranges of a table that may have rows, as seen by a look in large steps.

    All others surely have none. A range that was not looked at may have rows. Keys are
    whole: the byte of the table, `namespace:topic:`, a generation.
    """

    def __init__(self) -> None:
        self._topics: dict[bytes, dict[bytes, _Span]] = {}
        self._unknown_from: bytes | None = None

    def saw(self, keys: Iterable[bytes]) -> None:
        """Notes keys that exist."""
        for key in keys:
            group = group_of(key)
            if group is None:
                self.stopped_at(key)
                continue
            topic, generation = group[:-_GENERATION_BYTES], group[-_GENERATION_BYTES:]
            spans = self._topics.setdefault(topic, {})
            span = spans.get(generation)
            if span is None:
                spans[generation] = _Span(key, key)
            else:
                span.first, span.last = min(span.first, key), max(span.last, key)

    def passed_over(self, group: bytes) -> None:
        """Notes that the rest of a generation was not looked at."""
        spans = self._topics[group[:-_GENERATION_BYTES]]
        spans[group[-_GENERATION_BYTES:]].goes_on = True

    def stopped_at(self, key: bytes) -> None:
        """Notes that nothing was looked at from a key on."""
        if self._unknown_from is None or key < self._unknown_from:
            self._unknown_from = key

    def may_have(self, prefix: bytes, start: bytes, stop: bytes | None) -> bool:
        """Tells whether a row may lie from `start` to before `stop` below a prefix.

        The prefix names a topic, with or without a generation.
        """
        low, high = prefix + start, after(prefix) if stop is None else prefix + stop
        if self._unknown_from is not None and high > self._unknown_from:
            return True
        spans = self._topics.get(prefix[: _topic_end(prefix)], {})
        return any(
            span.first < high and (span.last >= low or span.goes_on)
            for span in spans.values()
        )


def group_of(key: bytes) -> bytes | None:
    """Cuts a key off after its generation; None for a key without one."""
    end = _topic_end(key)
    if not end or len(key) < end + _GENERATION_BYTES:
        return None
    return key[: end + _GENERATION_BYTES]


def _topic_end(key: bytes) -> int:
    """Finds the end of `namespace:topic:`; 0 if a key does not begin like that."""
    first = key.find(b":")
    return key.find(b":", first + 1) + 1 if first > 0 else 0
