"""Where rows of a table may be, topic by topic, as a look in large steps saw them."""

from collections.abc import Iterable

import attrs

from txaware.keys import after

_GENERATION_BYTES = 4


@attrs.define
class _Span:
    """Rows of one generation lie from `first` to `last`, or on to its end."""

    first: bytes
    last: bytes
    goes_on: bool = False


class Outline:
    """Tells which ranges surely have no row. Whatever was not looked at may have some.

    Keys are whole ones: the byte of the table, `namespace:topic:`, a generation.
    """

    def __init__(self) -> None:
        self._topics: dict[bytes, dict[bytes, _Span]] = {}
        self._unknown_from: bytes | None = None

    def saw(self, keys: Iterable[bytes]) -> None:
        """There are these keys."""
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
        """The rest of a generation that was seen was not looked at."""
        spans = self._topics[group[:-_GENERATION_BYTES]]
        spans[group[-_GENERATION_BYTES:]].goes_on = True

    def stopped_at(self, key: bytes) -> None:
        """From there on nothing was looked at."""
        if self._unknown_from is None or key < self._unknown_from:
            self._unknown_from = key

    def may_have(self, prefix: bytes, start: bytes, stop: bytes | None) -> bool:
        """Whether a row may lie from `start` and before `stop` below a prefix.

        That names a topic, with or without a generation.
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
    """A key as far as its generation; None for one that has none."""
    end = _topic_end(key)
    if not end or len(key) < end + _GENERATION_BYTES:
        return None
    return key[: end + _GENERATION_BYTES]


def _topic_end(key: bytes) -> int:
    """Where `namespace:topic:` ends; 0 where a key has no such beginning."""
    first = key.find(b":")
    return key.find(b":", first + 1) + 1 if first > 0 else 0
