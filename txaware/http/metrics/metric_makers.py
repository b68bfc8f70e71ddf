"""Makes metrics of numbers by their labels, as Prometheus reads them."""

from collections.abc import Mapping
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from txaware.model.metrics import Histogram

# The values of labels, and the number.
Numbers = Mapping[tuple[str, ...], float]


def counter(name: str, text: str, numbers: Numbers, *labels: str) -> Metric:
    """Makes a metric that only rises; its name gets `_total` behind it."""
    family = CounterMetricFamily(f"txaware_{name}", text, labels=labels)
    for values, number in numbers.items():
        family.add_metric(values, number)
    return family


def gauge(name: str, text: str, numbers: Numbers, *labels: str) -> Metric:
    """Makes a metric that rises and falls."""
    family = GaugeMetricFamily(f"txaware_{name}", text, labels=labels)
    for values, number in numbers.items():
        family.add_metric(values, number)
    return family


def histogram(
    name: str, text: str, found: Mapping[tuple[str, ...], Histogram], *labels: str
) -> Metric:
    """Makes a metric of how many values were how large."""
    family = HistogramMetricFamily(f"txaware_{name}", text, labels=labels)
    for values, one in found.items():
        bounds = [*map(str, one.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(one.counts), strict=True))
        family.add_metric(values, buckets, one.total)
    return family


def age_s(now_ms: int, since_ms: int) -> float:
    """Returns the seconds since a time; 0 if there was none."""
    return max(0, now_ms - since_ms) / 1000 if since_ms else 0.0
