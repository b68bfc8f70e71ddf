"""Counts requests by route and status, and errors by class."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import attrs

from txaware.model.metrics import LATENCY_S, Histogram
from txaware.model.numbers import OTHER, counter, histogram

# Routes and error classes are few. Should somebody pass a path, or a text, memory stays
# bounded all the same.
MOST = 200


@attrs.frozen
class RequestMetrics:
    """The counts so far: answers by route and status, times by route, and errors."""

    answers: Annotated[
        Mapping[tuple[str, int], int],
        counter(
            "http_requests",
            "Requests that were answered; those that nobody waited for are not.",
            labels=("route", "status"),
        ),
    ]
    took_s: Annotated[
        Mapping[str, Histogram],
        histogram(
            "http_request_seconds",
            "How long it took, reading the body and waiting for messages included.",
            labels=("route",),
        ),
    ]
    errors: Annotated[
        Mapping[str, int],
        counter(
            "errors",
            "Requests that were answered with an error, by its class.",
            labels=("error",),
        ),
    ]


class _Route:
    __slots__ = ("answers", "counts", "total_s")

    def __init__(self) -> None:
        self.answers: dict[int, int] = {}
        self.counts = [0] * (len(LATENCY_S) + 1)
        self.total_s = 0.0


class RequestCounts:
    """Counts requests and errors for any number of threads, in half a microsecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._routes: dict[str, _Route] = {}
        self._errors: Counter[str] = Counter()

    def observe(self, route: str, status: int, took_s: float) -> None:
        """Counts a request that was answered."""
        at = bisect_left(LATENCY_S, took_s)
        with self._lock:
            found = self._routes.get(route) or self._new(route)
            found.counts[at] += 1
            found.total_s += took_s
            found.answers[status] = found.answers.get(status, 0) + 1

    def _new(self, route: str) -> _Route:
        name = route if len(self._routes) < MOST else OTHER
        return self._routes.setdefault(name, _Route())

    def count_error(self, name: str) -> None:
        """Counts an error of that class that was answered."""
        with self._lock:
            known = name in self._errors or len(self._errors) < MOST
            self._errors[name if known else OTHER] += 1

    def snapshot(self) -> RequestMetrics:
        """Returns the counts as they are now."""
        with self._lock:
            routes = self._routes.items()
            return RequestMetrics(
                {
                    (name, status): count
                    for name, route in routes
                    for status, count in route.answers.items()
                },
                {
                    name: Histogram(LATENCY_S, tuple(route.counts), route.total_s)
                    for name, route in routes
                },
                dict(self._errors),
            )
