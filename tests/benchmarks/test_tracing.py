"""The price of a trace: a commit that spans tell of beside one without, in turns."""

import random
import statistics
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
from txaware.messaging import Messaging

pytestmark = pytest.mark.benchmark

COMMITS, ROUNDS = 50, 30
MOST_ON, MOST_OFF = 1.2, 1.03
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
    names = Names()
    provider.add_span_processor(BatchSpanProcessor(names))
    tracer = provider.get_tracer("by hand")

    def traced() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(trace, "_TRACER_PROVIDER", provider)
            commits(messaging)

    off_us, by_hand_us, on_us = took_us(
        lambda: commits(messaging),
        lambda: commits_beside_spans(messaging, tracer),
        traced,
    )
    ours = (on_us - by_hand_us) / off_us
    print(
        f"\n{off_us:.0f} us off, {on_us:.0f} on: {on_us / off_us:.2f}; with the spans "
        f"made by hand {by_hand_us:.0f}: {by_hand_us / off_us:.2f}; ours {ours:.2f}",
        end=" ",
    )
    provider.force_flush()
    provider.shutdown()
    assert names.found == {"publish t", "commit"}
    assert on_us / off_us <= MOST_ON


def test_a_commit_that_nothing_tells_of_takes_nothing_more(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_imported() -> None:
        with monkeypatch.context() as patched:
            patched.delitem(sys.modules, API)
            commits(messaging)

    without_us, off_us = took_us(not_imported, lambda: commits(messaging))
    ratio = off_us / without_us
    print(f"\n{without_us:.0f} us without it, {off_us:.0f} off: {ratio:.2f}", end=" ")
    assert ratio <= MOST_OFF


def took_us(*calls: Callable[[], None]) -> list[float]:
    """The processor time of a commit in each; in turns, which are drawn."""
    took: list[list[float]] = [[] for _ in calls]
    drawn = random.Random(1)
    for _ in range(ROUNDS):
        for call, each in drawn.sample([*zip(calls, took, strict=True)], len(calls)):
            began_s = time.process_time()
            call()
            each.append((time.process_time() - began_s) / COMMITS * 1e6)
    return [*map(statistics.median, took)]
