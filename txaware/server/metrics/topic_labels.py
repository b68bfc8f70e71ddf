"""Labels of topics in metrics: which have one of their own, and which are seen."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter, sub
from typing import Protocol

import attrs
from prometheus_client.metrics_core import Metric

from txaware.model.metrics import Metrics, TopicMetrics
from txaware.model.numbers import (
    DATABASE,
    MOST_TOPICS,
    OTHER,
    QUEUE,
    TOPIC,
    numbers_of,
)
from txaware.service.monitor.overview import Sight

FIELDS = tuple(numbers_of(TopicMetrics))
_values: Callable[[TopicMetrics], tuple[int, ...]] = attrgetter(*FIELDS)
_NONE = (0,) * len(FIELDS)

# The counts of a topic, in the order of `FIELDS`.
Values = tuple[int, ...]


class TopicLabels:
    """Gives topics a label until they are deleted, or their counters would jump.

    What a topic counted before it had a label stays with the rest, so that no sum ever
    falls.
    """

    def __init__(self, exists: Callable[[str], bool], most: int = MOST_TOPICS) -> None:
        self._exists = exists
        self._most = most
        self._since: dict[str, Values] = {}
        self._gone = _NONE
        self._before: Mapping[str, Values] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that have a label."""
        return list(self._since)

    def divide(
        self, counts: Mapping[str, TopicMetrics], others: Iterable[str] = ()
    ) -> dict[str, Values]:
        """Returns the counts by label; `others` are topics that may have one, too."""
        now = {name: _values(count) for name, count in counts.items()}
        self._forget(now)
        self._choose(now, others)
        self._before = now
        own = {
            name: _less(now.get(name, _NONE), since)
            for name, since in self._since.items()
        }
        rest = _less(_sum(now.values()), _sum([self._gone, *own.values()]))
        if any(rest) or now.keys() - own.keys():
            own[OTHER] = rest
        return own

    def _forget(self, now: Mapping[str, Values]) -> None:
        """Drops labels of deleted topics; what these counted counts nowhere now."""
        for name in [name for name in self._since if not self._exists(name)]:
            own = _less(now.get(name, _NONE), self._since.pop(name))
            self._gone = _sum([self._gone, own])

    def _choose(self, now: Mapping[str, Values], others: Iterable[str]) -> None:
        """Gives labels to the busiest topics, as long as there is room."""
        if len(self._since) >= self._most:
            return
        found = [name for name in now.keys() | set(others) if name not in self._since]
        found.sort(key=lambda name: (-sum(now.get(name, _NONE)), name))
        for name in found:
            if len(self._since) >= self._most:
                return
            if self._exists(name):
                self._since[name] = self._before.get(name, _NONE)


def _less(one: Values, other: Values) -> Values:
    return tuple(map(sub, one, other))


def _sum(many: Iterable[Values]) -> Values:
    return tuple(map(sum, zip(_NONE, *many, strict=True)))


class Collector(Protocol):
    """A source of metric families."""

    def collect(self) -> Iterable[Metric]:
        """Returns all families."""


class SeenOnly:
    """The families of another, without topics and queues that are out of sight."""

    def __init__(self, collector: Collector, sight: Sight) -> None:
        self._collector = collector
        self._sight = sight

    def collect(self) -> Iterator[Metric]:
        """Returns copies of the families, without what may not be seen."""
        return seen_families(self._collector.collect(), self._sight)


def seen_families(families: Iterable[Metric], sight: Sight) -> Iterator[Metric]:
    """Yields the families without samples of what may not be seen; sums stay."""
    shows = _shows(sight)
    for family in families:
        seen = copy.copy(family)
        seen.samples = [one for one in family.samples if shows(one.labels)]
        yield seen


def seen_metrics(metrics: Metrics, sight: Sight) -> Metrics:
    """Leaves out topics that may not be seen, and their groups; sums stay."""
    unseen = metrics.expired_unseen.items()
    return attrs.evolve(
        metrics,
        topics={n: one for n, one in metrics.topics.items() if sight.topics(n)},
        expired_unseen={name: count for name, count in unseen if sight.topics(name)},
        groups=[group for group in metrics.groups if sight.topics(group.topic)],
    )


def _shows(sight: Sight) -> Callable[[Mapping[str, str]], bool]:
    def shows(labels: Mapping[str, str]) -> bool:
        topic, queue = labels.get(TOPIC, OTHER), labels.get(QUEUE)
        if queue is not None and not sight.queues(queue):
            return False
        if DATABASE in labels:  # it is for who sees everything
            return False
        return topic == OTHER or sight.topics(topic)

    return shows
