"""All metrics of one server, as Prometheus reads them."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from txaware.errors import TopicNotFound, TxAwareError
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.metrics import GroupShare
from txaware.server.metrics.moment import InFlight, Moment, Sources
from txaware.server.metrics.parts import FAILURES, PARTS, MetricTable
from txaware.server.metrics.request_counts import RequestCounts
from txaware.server.metrics.topic_labels import SeenOnly, TopicLabels
from txaware.service.administration import Administration
from txaware.service.local import LocalService
from txaware.service.monitor.overview import Overview, Sight

log = logging.getLogger(__name__)

REMEMBERED_S = 1.0


class Exposition:
    """All metrics of one server, in a registry of its own.

    Each part is made by itself. One that fails is left out, logged and counted, and
    fails nothing else; so is what in a part cannot be looked at. Any number of threads
    may ask; they share one look a second.
    """

    def __init__(
        self,
        service: LocalService,
        administration: Administration,
        overview: Overview,
        in_flight: InFlight,
        *,
        refusals: Callable[[], Mapping[str, int]] = dict,
        shares: Callable[[], Mapping[tuple[str, str], GroupShare]] = dict,
        parts: Mapping[str, Sequence[MetricTable]] = PARTS,
        clock_ms: ClockMs = system_clock_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = RequestCounts()
        self._failures: Counter[str] = Counter()
        self._sources = Sources(
            administration=administration,
            service=service,
            overview=overview,
            in_flight=in_flight,
            requests=self._requests,
            labels=TopicLabels(_exists_in(service)),
            depths=administration.depths(),
            clock_ms=clock_ms,
            started_ms=clock_ms(),
            refusals=refusals,
            failures=self._failures,
            shares=shares,
        )
        self._parts = parts
        self._process = ProcessCollector(registry=None)
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._made: list[Metric] = []
        self._until_s = float("-inf")
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.observe = self._requests.observe
        self.count_error = self._requests.count_error

    def text(self, accept: str = "", sight: Sight | None = None) -> tuple[str, bytes]:
        """Returns the content type and the metrics, in the form that `accept` asks for.

        With `sight`, topics and queues that are out of sight are left out. It may read
        some tens of thousands of rows: it is not for an event loop.
        """
        encode, content_type = choose_encoder(accept)
        shown = self._registry if sight is None else SeenOnly(self._registry, sight)
        return content_type, encode(shown)

    def collect(self) -> Iterable[Metric]:
        """Returns all families to the registry, as of now or of a moment ago."""
        with self._lock:
            if self._clock_s() >= self._until_s:
                self._made = list(self._make(Moment(self._sources)))
                self._until_s = self._clock_s() + REMEMBERED_S
            return self._made

    def _make(self, moment: Moment) -> Iterator[Metric]:
        for name, tables in self._parts.items():
            made = chain.from_iterable(table.families(moment) for table in tables)
            yield from self._attempt(name, made)
        yield from self._attempt("operating_system", self._process.collect())
        self._failures.update(moment.left_out)
        yield from FAILURES.families(moment)

    def _attempt(self, name: str, made: Iterable[Metric]) -> list[Metric]:
        try:
            return [_checked(family) for family in made]
        except Exception:
            self._failures[name] += 1
            log.exception("metrics of %s are left out", name)
            return []


def _checked(family: Metric) -> Metric:
    """Raises now what the library would raise only while it writes everything."""
    for sample in family.samples:
        float(sample.value)
        "".join(sample.labels.values())
    return family


def _exists_in(service: LocalService) -> Callable[[str], bool]:
    def exists(topic: str) -> bool:
        try:
            service.topic(topic)
        except TopicNotFound:
            return False
        except TxAwareError:  # not known now, and a label once dropped is gone
            return True
        return True

    return exists
