"""Spans of OpenTelemetry that a test looks at, and how they hang together."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Traces:
    """The spans that were exported, in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("a test")

    @classmethod
    @contextmanager
    def of_a_test(cls, monkeypatch: pytest.MonkeyPatch) -> Iterator[Self]:
        """Sets a provider for a while; the API itself lets nobody take one back."""
        made = cls()
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
        yield made
        made.provider.shutdown()

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order of their ends."""
        return [one for one in self._exporter.get_finished_spans() if one.name == name]

    def one(self, name: str) -> Any:
        """The only span of a name."""
        [found] = self.named(name)
        return found


def trace_of(span: Any) -> int:
    """The id of its trace."""
    found: int = span.get_span_context().trace_id
    return found


def parent_of(span: Any) -> int | None:
    """The id of its parent."""
    return None if span.parent is None else int(span.parent.span_id)


def links_of(span: Any) -> set[int]:
    """The ids of the spans that it links to."""
    return {link.context.span_id for link in span.links}


def id_of(span: Any) -> int:
    """Its own id."""
    found: int = span.get_span_context().span_id
    return found
