"""The metrics of work queues."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from txaware.http.metrics.families import counter, gauge
from txaware.http.metrics.moment import Moment
from txaware.service.monitor.queue_overviews import MOST_QUEUES

_WHICH = f"{MOST_QUEUES} queues at most, those in use first."
_COUNTERS = {
    "pushed": "Items that were pushed, by commits or without a transaction.",
    "popped": "Jobs that were handed out, again for each further delivery.",
    "committed": "Jobs that ended for good.",
    "rolled_back": "Jobs that were given back.",
    "expired_leases": "Jobs that came again as their lease ended without a commit.",
    "expired": "Items that expired before anybody popped them.",
    "dead_letters": "Items that were delivered too often.",
}
_GAUGES = {
    "depth": ("depth", "Items that wait, delayed ones included."),
    "delayed": ("delayed", "Items that wait for their time."),
    "in_work": ("in_work", "Jobs that somebody has now."),
    "oldest_age_s": ("oldest_seconds", "Age of the oldest item that waits and is due."),
    "average_wait_s": (
        "wait_seconds",
        "Average time from a push to the first pop, in the last minute.",
    ),
    "average_work_s": (
        "work_seconds",
        "Average time from a pop to the commit, in the last minute.",
    ),
    "is_paused": ("paused", "Whether pops get nothing, 1 or 0."),
}


def queues(moment: Moment) -> Iterator[Metric]:
    """Yields the counts of queues, and how they stand."""
    report = moment.report()
    if "queues" in report.left_out:
        return
    yield gauge("queues", "Work queues that exist.", {(): report.queue_count})
    for field, text in _COUNTERS.items():
        yield counter(
            f"queue_{field}",
            f"{text} {_WHICH}",
            {(one.queue,): getattr(one, field) for one in report.queues},
            "queue",
        )
    for field, (name, text) in _GAUGES.items():
        yield gauge(
            f"queue_{name}",
            f"{text} {_WHICH}",
            {(one.queue,): float(getattr(one, field)) for one in report.queues},
            "queue",
        )
