"""The metrics of a server: its parts, its requests, and its process."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.metrics_core import InfoMetricFamily, Metric

from txaware.http.metrics.metric_makers import age_s, counter, gauge, histogram
from txaware.http.metrics.moment import Moment


def parts(moment: Moment) -> Iterator[Metric]:
    """Yields whether each part works."""
    yield gauge(
        "up",
        "Whether this part works, 1 or 0; /health says why not.",
        {(part,): float(status == "OK") for part, status in moment.statuses().items()},
        "part",
    )


def requests(moment: Moment) -> Iterator[Metric]:
    """Yields the requests and errors that were answered over HTTP."""
    found = moment.requests()
    yield counter(
        "http_requests",
        "Requests that were answered; those that nobody waited for are not.",
        {(route, str(status)): n for (route, status), n in found.answers.items()},
        *("route", "status"),
    )
    yield histogram(
        "http_request_seconds",
        "How long it took, reading the body and waiting for messages included.",
        {(route,): took for route, took in found.took_s.items()},
        "route",
    )
    yield counter(
        "errors",
        "Requests that were answered with an error, by its class.",
        {(name,): count for name, count in found.errors.items()},
        "error",
    )


def network_transactions(moment: Moment) -> Iterator[Metric]:
    """Yields the transactions that were not begun."""
    yield counter(
        "refused_transactions",
        "Transactions that were not begun: their time-out was too long, they were long "
        "ones without that permission, or too many of a principal were open.",
        {(reason,): count for reason, count in moment.refusals().items()},
        "reason",
    )


def in_flight(moment: Moment) -> Iterator[Metric]:
    """Yields the requests that are being answered."""
    now = moment.in_flight
    yield gauge(
        "http_requests_in_flight",
        "Requests that are being answered, and those that wait for a message.",
        {("working",): now.in_flight, ("waiting",): now.waiting},
        "kind",
    )
    yield gauge("http_body_bytes", "What request bodies take.", {(): now.body_bytes})


def process(moment: Moment) -> Iterator[Metric]:
    """Yields the version of this server, and how long it has been running."""
    yield gauge(
        "uptime_seconds",
        "How long this server has been running.",
        {(): age_s(moment.now_ms, moment.started_ms)},
    )
    yield InfoMetricFamily(
        "txaware_build",
        "The version of this server.",
        {"version": _version(), "python": platform.python_version()},
    )


SERVER_FAMILIES = (parts, requests, network_transactions, in_flight, process)


def _version() -> str:
    try:
        return version("txaware")
    except PackageNotFoundError:
        return "unknown"
