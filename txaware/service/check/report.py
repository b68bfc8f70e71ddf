"""The findings of a check: how much there is of everything, and what is wrong."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

# The list of problems is cut off here; all of them are counted.
LISTED = 100


@attrs.frozen
class Problem:
    """One thing that is not as it has to be: what kind, at which key, in a sentence."""

    kind: str
    key: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key or '-'}: {self.sentence}"


@attrs.frozen
class Report:
    """The result of a check.

    `needed` is, for each topic, the smallest pointer among its rows that is invalid and
    not yet marked in the row: the coordinator must not forget it before. It is None
    where a coordinator elsewhere was not asked which are invalid: then nobody knows.
    `coordinator` is `embedded`, the address of another one, or None if that is unknown.
    """

    counts: Mapping[str, int]
    problems: tuple[Problem, ...]
    problem_count: int
    needed: Mapping[str, int] | None
    coordinator: str | None = None

    @property
    def is_clean(self) -> bool:
        """True when nothing is wrong."""
        return not self.problem_count

    @property
    def least_needed(self) -> int | None:
        """The smallest pointer that any topic still needs; None also for unknown."""
        return min((self.needed or {}).values(), default=None)

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "clean": self.is_clean,
            "counts": dict(self.counts),
            "problem_count": self.problem_count,
            "problems": [attrs.asdict(problem) for problem in self.problems],
            "needed": None if self.needed is None else dict(self.needed),
            "least_needed": self.least_needed,
            "coordinator": self.coordinator,
        }


class Findings:
    """A report in the making; it stays small, however much is wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.knows_needed = True
        self.coordinator: str | None = None
        self._needed: dict[str, int] = {}
        self._problems: list[Problem] = []
        self._problem_count = 0

    def problem(self, kind: str, key: bytes, sentence: str) -> None:
        """Something is wrong with a row."""
        self._problem_count += 1
        if len(self._problems) < LISTED:
            self._problems.append(Problem(kind, key.hex(), sentence))

    def needs(self, topic: str, pointer: int) -> None:
        """A row of a topic has that invalid pointer, and is not marked."""
        self._needed[topic] = min(pointer, self._needed.get(topic, pointer))

    def report(self) -> Report:
        """Returns all findings as a report."""
        return Report(
            dict(self.counts),
            tuple(self._problems),
            self._problem_count,
            dict(sorted(self._needed.items())) if self.knows_needed else None,
            self.coordinator,
        )
