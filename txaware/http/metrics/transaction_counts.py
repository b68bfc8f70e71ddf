"""The metrics of transactions: open, prepared and invalid ones."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from txaware.http.metrics.metric_makers import age_s, gauge
from txaware.http.metrics.moment import Moment


def transactions(moment: Moment) -> Iterator[Metric]:
    """Yields open and invalid transactions; nothing while the coordinator is away."""
    report = moment.report()
    if report.invalid_transactions is None:
        return
    yield gauge(
        "open_transactions", "Transactions in progress.", {(): report.transaction_count}
    )
    began_ms = min((one.began_ms for one in report.transactions), default=0)
    yield gauge(
        "oldest_transaction_seconds",
        "Age of the oldest transaction in progress; 0 where there is none.",
        {(): age_s(moment.now_ms, began_ms)},
    )
    prepared = moment.prepared()
    if prepared is not None:
        yield gauge(
            "prepared_transactions",
            "Transactions that are prepared, and wait for somebody to end them.",
            {(): len(prepared)},
        )
        since_ms = min((one.since_ms for one in prepared), default=0)
        yield gauge(
            "oldest_prepared_seconds",
            "For how long the oldest one has been prepared; 0 where there is none.",
            {(): age_s(moment.now_ms, since_ms)},
        )
    yield gauge(
        "invalid_transactions",
        "Pointers of transactions that timed out, died or were aborted by an operator, "
        "and are not yet forgotten.",
        {(): report.invalid_transactions},
    )
