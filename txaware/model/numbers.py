"""Numbers: what is counted and measured, each declared at the field that holds it.

    misses: Annotated[int, counter("cache_misses", "Reads past it.")] = 0

What tells numbers follows these declarations: `/metrics`, the reports and their
JSON, and docs/metrics.md. A number that no report has is declared at a property.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

import attrs

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"

# Labels that say of what a number is, and how many topics have one of their own.
TOPIC, QUEUE, DATABASE = "topic", "queue", "database"
MOST_TOPICS = 200
OTHER = "(other)"  # no topic can have that name

F = TypeVar("F", bound=Callable[[Any], Any])
# The values of labels, and the number.
Samples = Iterator[tuple[tuple[str, ...], Any]]


@attrs.frozen
class Number:
    """A number: its kind, its name as Prometheus has it, and what it says.

    A field with many, by what `labels` name, is a mapping; `most` of them are told and
    the others summed. The unit is at the end of the field's name, and of `_ms` seconds
    are told: of an `is_age` those since then, which are 0 where there is no such time.
    """

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    most: int | None = attrs.field(default=None, kw_only=True)
    is_age: bool = attrs.field(default=False, kw_only=True)

    def __call__(self, function: F) -> F:
        """Declares the number at the function of a property."""
        function.number = self  # type: ignore[attr-defined]
        return function

    def samples(self, value: Any, field: str, now_ms: int) -> Samples:
        """Yields what a field holds, but for what is not known."""
        for key, one in self._by_label(value):
            if self.is_age:
                yield key, max(0, now_ms - one) / 1000 if one else 0.0
            elif one is not None:
                yield key, one / 1000 if field.endswith("_ms") else one

    def _by_label(self, value: Any) -> Samples:
        if not self.labels:
            yield (), value
            return
        found = [
            (key if isinstance(key, tuple) else (key,), value[key]) for key in value
        ]
        if self.most is not None:
            found.sort(key=lambda item: -item[1])
            rest = sum([number for _, number in found[self.most :]])
            found = [*found[: self.most], ((OTHER,), rest)]
        for key, one in found:
            yield tuple(map(str, key)), one


counter = partial(Number, COUNTER)
gauge = partial(Number, GAUGE)
age = partial(Number, GAUGE, is_age=True)
histogram = partial(Number, HISTOGRAM)


@cache
def numbers_of(kind: type) -> Mapping[str, Number]:
    """Returns the numbers of a class by their fields, and then by its properties."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
    found = {
        name: number
        for name in names
        for number in getattr(hints[name], "__metadata__", ())
        if isinstance(number, Number)
    }
    for name, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else None
        if isinstance(number := getattr(function, "number", None), Number):
            found[name] = number
    return found


def in_order(*names: str) -> Callable[[type, list[Any]], list[Any]]:
    """Places these fields of an attrs class first, as JSON has always had them."""

    def placed(_: type, fields: list[Any]) -> list[Any]:
        by_name = {field.name: field for field in fields}
        return [by_name.pop(name) for name in names] + list(by_name.values())

    return placed
