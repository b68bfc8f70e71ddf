"""Triggers: what starts a workflow, as pure functions of what has been noted."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import attrs

import txaware

try:
    from cronsim import CronSim, CronSimError
except ImportError as error:  # pragma: no cover - it is a dependency of the example
    raise SystemExit(
        "cron expressions need cronsim: pip install -e '.[examples]'"
    ) from error

# Topics that any program may publish to; the key of a message says what it is about.
EVENTS, DATA, RUNS = "workflow-events", "workflow-data", "workflow-runs"
FILES = "files"
MANUAL, BACKFILL = "by hand", "backfill"
ENDS = ("succeeded", "failed", "cancelled")
# A workflow remembers so many notes of what it waits for.
MOST_NOTES = 5000

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class DefinitionError(ValueError):
    """A definition that cannot be carried out; its text says what is wrong with it."""


@attrs.frozen
class Note:
    """One thing that happened, as a workflow remembers it until a job has it."""

    source: str
    time_ms: int
    value: str = ""
    id: str = ""


class Trigger:
    """What starts a workflow: a tree whose leaves are named by what they wait for."""

    def leaves(self) -> Iterator["Leaf"]:
        """Yields the leaves."""
        raise NotImplementedError

    def chosen(self, notes: Sequence[Note]) -> list[Note] | None:
        """Returns the notes that start one run; None while they do not suffice."""
        raise NotImplementedError

    def plain(self) -> dict[str, Any]:
        """Returns it as TOML has it; `read_trigger` reads that."""
        raise NotImplementedError

    def __and__(self, other: "Trigger") -> "AllOf":
        return AllOf((self, other))

    def __or__(self, other: "Trigger") -> "AnyOf":
        return AnyOf((self, other))


@attrs.frozen
class Leaf(Trigger):
    """Waits for `count` notes of one source; `told` is the TOML that it came from."""

    source: str
    told: Mapping[str, Any] = attrs.field(eq=False)
    count: int = 1
    is_distinct: bool = False
    topic: str | None = None
    """The topic that its messages come from, if any."""
    key: str | None = None
    """The key that a message of the topic must have, if any."""

    def leaves(self) -> Iterator["Leaf"]:
        yield self

    def chosen(self, notes: Sequence[Note]) -> list[Note] | None:
        found = [note for note in notes if note.source == self.source]
        if not self.is_distinct:
            return found[: self.count] if len(found) >= self.count else None
        values: set[str] = set()
        for number, note in enumerate(found, 1):
            values.add(note.value)
            if len(values) == self.count:
                return found[:number]
        return None

    def plain(self) -> dict[str, Any]:
        return dict(self.told)


@attrs.frozen
class Cron(Leaf):
    """Waits for the times of a cron expression in a time zone."""

    expression: str = ""
    zone: str = "UTC"

    def times(self, after_ms: int, *, began_ms: int) -> Iterator[int]:
        """Yields the times after a moment, in ms, each greater than the one before.

        At the end of daylight saving an hour comes twice, and a time of the day once.
        """
        last_ms = after_ms
        after = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(self.zone))
        for time in CronSim(self.expression, after):
            time_ms = int(time.timestamp() * 1000)
            if time_ms > last_ms:
                yield time_ms
                last_ms = time_ms


@attrs.frozen
class Every(Leaf):
    """Waits for the end of each period since the schedule began."""

    period_ms: int = 0

    def times(self, after_ms: int, *, began_ms: int) -> Iterator[int]:
        """Yields the ends of periods after a moment, in ms."""
        over = max(0, (after_ms - began_ms) // self.period_ms)
        time_ms = began_ms + over * self.period_ms
        while True:
            time_ms += self.period_ms
            yield time_ms


@attrs.frozen
class AllOf(Trigger):
    """Waits until each of its parts has what it waits for."""

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves()

    def chosen(self, notes: Sequence[Note]) -> list[Note] | None:
        left, found = list(notes), list[Note]()
        for part in self.parts:
            chosen = part.chosen(left)
            if chosen is None:
                return None
            found += chosen
            left = without(left, chosen)
        return found

    def plain(self) -> dict[str, Any]:
        return {"all": [part.plain() for part in self.parts]}


@attrs.frozen
class AnyOf(Trigger):
    """Waits until one of its parts has what it waits for."""

    parts: tuple[Trigger, ...]

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves()

    def chosen(self, notes: Sequence[Note]) -> list[Note] | None:
        for part in self.parts:
            chosen = part.chosen(notes)
            if chosen is not None:
                return chosen
        return None

    def plain(self) -> dict[str, Any]:
        return {"any": [part.plain() for part in self.parts]}


def without(notes: Sequence[Note], taken: Sequence[Note]) -> list[Note]:
    """Returns the notes that are not among those taken; equal ones count singly."""
    gone = {id(note) for note in taken}
    return [note for note in notes if id(note) not in gone]


def event(name: str, *, count: int = 1) -> Leaf:
    """Waits for custom events: `trigger --event`, or messages of workflow-events."""
    told = {"event": _text("event", name)}
    return _counted(told, f"event {name}", count, topic=EVENTS, key=name)


def topic(name: str, *, count: int = 1, key: str | None = None) -> Leaf:
    """Waits for messages of a topic, of one key or all."""
    try:
        txaware.TopicName.parse(name)
    except txaware.BadRequest as error:
        raise DefinitionError(str(error)) from error
    told = {"topic": name} | ({} if key is None else {"key": key})
    source = f"topic {name}" + ("" if key is None else f" {key}")
    return _counted(told, source, count, topic=name, key=key)


def dataset(name: str, *, partitions: int = 1) -> Leaf:
    """Waits for so many different partitions of a data set, told to workflow-data."""
    _positive("partitions", partitions)
    told = {"dataset": _text("dataset", name), "partitions": partitions}
    source = f"dataset {name}"
    return Leaf(source, told, partitions, True, topic=DATA, key=name)


def file(pattern: str, *, count: int = 1) -> Leaf:
    """Waits for files that are new, or have changed, and that match a pattern."""
    told = {"file": _text("file", pattern)}
    return _counted(told, f"file {pattern}", count, topic=None, key=None)


def run_of(workflow: str, *, state: str = "succeeded", count: int = 1) -> Leaf:
    """Waits for runs of another workflow that end in a state."""
    if state not in ENDS:
        raise DefinitionError(f"a run ends as {', '.join(ENDS)}, not as {state!r}")
    told = {"workflow": _text("workflow", workflow), "state": state}
    source = f"workflow {workflow} {state}"
    return _counted(told, source, count, topic=RUNS, key=workflow)


def cron(expression: str, *, zone: str = "UTC") -> Cron:
    """Waits for the times of a cron expression in a time zone."""
    now = datetime.now(UTC).astimezone(zone_of(zone))
    _text("cron", expression)
    try:
        next(CronSim(expression, now))
    except (CronSimError, StopIteration) as error:
        raise DefinitionError(
            f"cron expression {expression!r:.100} {_what_is_wrong(expression, error)}"
        ) from error
    told = {"cron": expression, "zone": zone}
    return Cron(f"cron {expression} {zone}", told, expression=expression, zone=zone)


def _what_is_wrong(expression: str, error: Exception) -> str:
    """Says why a cron expression has no times."""
    fields = expression.split()
    try:  # of a day that no month of its has, the library says no more than of a 32nd
        for at in (-2, -3):  # both the day and the month are good, each by itself
            alone = ["*" if n == len(fields) + at else f for n, f in enumerate(fields)]
            CronSim(" ".join(alone), datetime.now(UTC))
    except CronSimError:
        return f"is not understood: {error}"
    return "can never fire: there is no such day in any of its months"


def every(period: float | str) -> Every:
    """Waits for the end of each period."""
    period_ms = int(seconds(period) * 1000)
    if period_ms < 100:
        raise DefinitionError(f"a period is at least 0.1 s, not {period!r}")
    return Every(f"every {period}", {"every": period}, period_ms=period_ms)


def zone_of(name: str) -> ZoneInfo:
    """Returns a time zone by its name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise DefinitionError(f"no time zone is called {name!r}") from error


def seconds(duration: float | str) -> float:
    """Returns the seconds of a number, or of a text such as `4s`, `15m` or `1.5h`."""
    try:
        if isinstance(duration, int | float) and not isinstance(duration, bool):
            found = float(duration)
        else:
            match = re.fullmatch(r"([0-9.]+) ?(ms|s|m|h|d)", str(duration))
            found = float(match[1]) * _SECONDS[match[2]] if match else -1.0
    except (ValueError, OverflowError):
        found = -1.0
    if not 0 <= found < 1e9:
        raise DefinitionError(
            f"a duration is a text such as 4s or 15m, not {duration!r:.100}"
        )
    return found


def read_trigger(told: object) -> Trigger:
    """Reads a trigger from TOML: a table, or a list of which any one suffices."""
    if isinstance(told, list):
        return AnyOf(_parts("any", told))
    if not isinstance(told, Mapping) or not told:
        raise DefinitionError(
            f"a trigger is a table such as {{event = 'arrived'}}, not {told!r}"
        )
    kinds = [name for name in _KINDS if name in told]
    if len(kinds) != 1:
        raise DefinitionError(
            f"a trigger has one of {', '.join(_KINDS)}, not {', '.join(map(str, told))}"
        )
    make, options = _KINDS[kinds[0]]
    value = told[kinds[0]]
    strange = set(told) - {kinds[0], *options}
    if strange:
        raise DefinitionError(
            f"a trigger by {kinds[0]} has no {', '.join(sorted(strange))}"
        )
    made: Trigger = make(
        value, **{name: told[name] for name in told if name in options}
    )
    return made


def _parts(kind: str, told: object) -> tuple[Trigger, ...]:
    if not isinstance(told, list) or not told:
        raise DefinitionError(f"{kind} without triggers can never fire")
    return tuple(map(read_trigger, told))


def _all(told: object) -> Trigger:
    return AllOf(_parts("all", told))


def _any(told: object) -> Trigger:
    return AnyOf(_parts("any", told))


_KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "cron": (cron, ("zone",)),
    "every": (every, ()),
    "event": (event, ("count",)),
    "topic": (topic, ("count", "key")),
    "dataset": (dataset, ("partitions",)),
    "file": (file, ("count",)),
    "workflow": (run_of, ("state", "count")),
    "all": (_all, ()),
    "any": (_any, ()),
}


def _counted(
    told: dict[str, Any],
    source: str,
    count: int,
    *,
    topic: str | None,
    key: str | None,
) -> Leaf:
    _positive("count", count)
    more = {} if count == 1 else {"count": count}
    return Leaf(source, told | more, count, topic=topic, key=key)


def _positive(name: str, number: int) -> None:
    is_count = isinstance(number, int) and not isinstance(number, bool)
    if not (is_count and 1 <= number <= MOST_NOTES):
        raise DefinitionError(
            f"{name} is a whole number from 1 to {MOST_NOTES}, not {number!r}"
        )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise DefinitionError(f"{name} is a text, not {value!r}")
    return value
