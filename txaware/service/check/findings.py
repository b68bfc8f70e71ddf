"""The findings of a check: how much there is of everything, and what is wrong."""

from collections import Counter

from txaware.model.reports import Problem, Report

# The list of problems is cut off here; all of them are counted.
LISTED = 100


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
