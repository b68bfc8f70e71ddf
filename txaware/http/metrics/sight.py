"""What of the metrics somebody may see: no topic that is hidden from them."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import attrs
from prometheus_client.metrics_core import Metric

from txaware.http.metrics.topic_labels import OTHER
from txaware.metrics import Metrics
from txaware.service.monitor.overview import Sees

TOPIC = "topic"  # the label


class Collector(Protocol):
    """Who has families of metrics."""

    def collect(self) -> Iterable[Metric]:
        """All of them."""


class Seen:
    """The families of another, without the topics that `sees` answers False for."""

    def __init__(self, collector: Collector, sees: Sees) -> None:
        self._collector = collector
        self._sees = sees

    def collect(self) -> Iterator[Metric]:
        """The families, each a copy where something is left out."""
        return seen_families(self._collector.collect(), self._sees)


def seen_families(families: Iterable[Metric], sees: Sees) -> Iterator[Metric]:
    """The families without samples of topics that may not be seen; sums stay."""
    shows = _shows(sees)
    for family in families:
        seen = copy.copy(family)
        seen.samples = [one for one in family.samples if shows(one.labels.get(TOPIC))]
        yield seen


def seen_metrics(metrics: Metrics, sees: Sees) -> Metrics:
    """The same without the topics that may not be seen, and their groups; sums stay."""
    unseen = metrics.expired_unseen.items()
    return attrs.evolve(
        metrics,
        topics={name: one for name, one in metrics.topics.items() if sees(name)},
        expired_unseen={name: count for name, count in unseen if sees(name)},
        groups=[group for group in metrics.groups if sees(group.topic)],
    )


def _shows(sees: Sees) -> Callable[[str | None], bool]:
    def shows(topic: str | None) -> bool:
        return topic is None or topic == OTHER or sees(topic)

    return shows
