"""The price of a trace: a commit that spans tell of beside one without, in turns."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

import txaware
from coordinator.tracing import API
from tests.benchmarks.measure import Figure, are_kept
from txaware.messaging import Messaging

pytestmark = pytest.mark.benchmark

COMMITS, ROUNDS = 50, 30
MOST_ON, MOST_OFF = 1.2, 1.03
PROCESSOR, CLOCK = "us of processor", "us"
# The limits are on the processor: a disk makes the rest of a commit long, or short.
CLOCKS = {PROCESSOR: time.process_time, CLOCK: time.perf_counter}
HEADERS = {"traceparent": b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"}


class Names(SpanExporter):
    """Keeps the names of spans: thousands of spans kept would be looked at as garbage.

    A program sends them away.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Notes the names."""
        self.found |= {span.name for span in spans}
        return SpanExportResult.SUCCESS


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{tmp_path}") as made:
        made.create_topic("t")
        yield made


def commits(messaging: Messaging) -> None:
    publisher, table = messaging.publisher("t"), messaging.table("rows")
    for number in range(COMMITS):
        with messaging.transaction():
            table.put(b"row", b"%d" % number)
            publisher.publish(b"-" * 100)


def commits_beside_spans(messaging: Messaging, tracer: Any) -> None:
    """Commits as above, and makes by hand the two spans of each, and the header."""
    publisher, table = messaging.publisher("t"), messaging.table("rows")
    named = {
        "messaging.system": "txaware",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
    }
    for number in range(COMMITS):
        with messaging.transaction():
            table.put(b"row", b"%d" % number)
            span = tracer.start_span("publish t", attributes=named)
            publisher.publish(b"-" * 100, headers=HEADERS)
            span.end()
        tracer.start_span("commit", attributes=named).end()


def test_a_commit_that_spans_tell_of_takes_a_fifth_more(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider()
    names, kept = Names(), dict[str, bool]()
    provider.add_span_processor(BatchSpanProcessor(names))
    tracer = provider.get_tracer("by hand")

    def traced() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(trace, "_TRACER_PROVIDER", provider)
            commits(messaging)

    took = took_us(
        lambda: commits(messaging),
        lambda: commits_beside_spans(messaging, tracer),
        traced,
    )
    provider.force_flush()
    provider.shutdown()
    assert names.found == {"publish t", "commit"}
    for by, (off_us, by_hand_us, on_us) in took.items():
        by_hand = Figure("spans made by hand", by, by_hand_us, off_us, "no trace")
        are_kept([by_hand])
        traced_us = Figure("a commit in a trace", by, on_us, off_us, "no trace")
        kept[by] = traced_us.report(at_most=MOST_ON)
    assert kept[PROCESSOR]


def test_a_commit_that_nothing_tells_of_takes_nothing_more(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_imported() -> None:
        with monkeypatch.context() as patched:
            patched.delitem(sys.modules, API)
            commits(messaging)

    took = took_us(not_imported, lambda: commits(messaging))
    without_us, off_us = took[PROCESSOR]
    off = Figure("tracing is off", PROCESSOR, off_us, without_us, "not imported")
    assert off.report(at_most=MOST_OFF)


def took_us(*calls: Callable[[], None]) -> dict[str, list[list[float]]]:
    """What a commit takes in each, by unit and round; in turns, which are drawn."""
    took: dict[str, list[list[float]]] = {unit: [[] for _ in calls] for unit in CLOCKS}
    drawn = random.Random(1)
    for _ in range(ROUNDS):
        for at in drawn.sample(range(len(calls)), len(calls)):
            began_s = {unit: clock_s() for unit, clock_s in CLOCKS.items()}
            calls[at]()
            for unit, clock_s in CLOCKS.items():
                each_s = (clock_s() - began_s[unit]) / COMMITS
                took[unit][at].append(each_s * 1e6)
    return took
