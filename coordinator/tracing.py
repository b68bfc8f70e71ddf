"""Spans and metrics of OpenTelemetry, which is on where the program has set it up.

The API is never imported for itself: a program that sets a `TracerProvider` has done
so, and without one nothing here costs more than a look.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

SYSTEM = "txaware"
PARENT, STATE = "traceparent", "tracestate"
# Who asks very often looks for it among the modules first, which is no call.
API = "opentelemetry.trace"
_QUIET = "txaware-quiet"
_UNKNOWN = object()
# A span has so many links at most.
MOST_LINKS = 128
TRANSACTION = "txaware.transaction.id"
MOST_OF_AN_ERROR = 1000
# The operations, by the types that the semantic conventions know.
CREATE, SEND, RECEIVE = "create", "send", "receive"
PROCESS, SETTLE = "process", "settle"

# The provider that was seen last, and what was made for it.
_known: tuple[object, "Tracing | None"] = (None, None)

Headers = Mapping[str, bytes]
NOTHING: Mapping[str, Any] = {}


def active() -> "Tracing | None":
    """Returns what makes spans; None where no `TracerProvider` was set."""
    api = sys.modules.get(API)
    if api is None:
        return None
    # The function beside it looks into the environment each time, for five times as
    # long as all of this; where the name is gone, that is asked.
    provider = getattr(api, "_TRACER_PROVIDER", _UNKNOWN)
    if provider is _UNKNOWN:
        provider = api.get_tracer_provider()
    elif provider is None:
        return None
    known, tracing = _known
    if provider is not known:
        tracing = _seen(api, provider)
    return None if tracing is None or tracing.is_quiet() else tracing


def carried(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that another thread runs in the span of here."""
    tracing = active()
    return function if tracing is None else tracing.within(function)


def _seen(api: Any, provider: Any) -> "Tracing | None":
    global _known
    is_set = not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
    tracing = Tracing(api, provider) if is_set else None
    _known = (provider, tracing)
    return tracing


class Tracing:
    """Makes spans by a provider, and counts by the meters beside it."""

    def __init__(self, api: Any, provider: Any) -> None:
        self._api = api
        self._tracer = provider.get_tracer(SYSTEM)
        self._context = import_module("opentelemetry.context")
        w3c = import_module("opentelemetry.trace.propagation.tracecontext")
        self._propagator = w3c.TraceContextTextMapPropagator()
        meter = import_module("opentelemetry.metrics").get_meter(SYSTEM)
        count, histogram = meter.create_counter, meter.create_histogram
        self._sent = count("messaging.client.sent.messages", "{message}")
        consumed = count("messaging.client.consumed.messages", "{message}")
        self._operation_s = histogram("messaging.client.operation.duration", "s")
        self._process_s = histogram("messaging.process.duration", "s")
        self._counters = {RECEIVE: consumed, SEND: self._sent}

    @contextmanager
    def sending(self, operation: str, to: str, count: int = 1) -> Iterator[Headers]:
        """Surrounds the sending of messages; yields the headers for each of them."""
        named = _attributes(operation, SEND, to)
        began_s = time.perf_counter()
        span = self._tracer.start_span(
            f"{operation} {to}",
            kind=self._api.SpanKind.PRODUCER,
            attributes=_counted(named, count),
        )
        try:
            yield self._headers(span.get_span_context())
        except BaseException as error:
            self._failed(span, error)
            raise
        finally:
            span.end()
            self._operation_s.record(time.perf_counter() - began_s, named)
        self._sent.add(count, named)

    def created(self, operation: str, to: str) -> Headers:
        """Tells of a message that goes out later, with others; returns its headers."""
        span = self._tracer.start_span(
            f"{operation} {to}",
            kind=self._api.SpanKind.PRODUCER,
            attributes=_attributes(operation, CREATE, to),
        )
        span.end()
        return self._headers(span.get_span_context())

    def _failed(self, span: Any, error: BaseException) -> None:
        span.record_exception(error)
        span.set_status(self._api.StatusCode.ERROR, str(error)[:MOST_OF_AN_ERROR])

    def _headers(self, context: Any) -> Headers:
        """Writes the context of a span as W3C says, faster than its propagator."""
        flags = int(context.trace_flags) & 0xFF
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
        headers = {PARENT: parent.encode()}
        if context.trace_state:
            headers[STATE] = context.trace_state.to_header().encode()
        return headers

    @contextmanager
    def processing(
        self, destination: str, headers: Sequence[Headers], *, group: str | None = None
    ) -> Iterator[None]:
        """Surrounds the handling of messages, in the trace of their publisher.

        Of several messages it links to all of theirs instead.
        """
        named = _attributes(PROCESS, PROCESS, destination)
        if group is not None:
            named = {**named, "messaging.consumer.group.name": group}
        is_one = len(headers) == 1
        parent = self._parent(headers[0]) if is_one else None
        began_s = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"process {destination}",
            context=parent,
            kind=self._api.SpanKind.CONSUMER,
            attributes=_counted(named, len(headers)),
            links=None if is_one else self._links(headers),
        ):
            try:
                yield
            finally:
                self._process_s.record(time.perf_counter() - began_s, named)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Surrounds calls of which one span tells, and none of their own."""
        context = self._context
        token = context.attach(context.set_value(_QUIET, True))
        try:
            yield
        finally:
            context.detach(token)

    def is_quiet(self) -> bool:
        """Tells whether another span tells of what is done here."""
        return bool(self._context.get_value(_QUIET))

    def begin_operation(self) -> "TracedOperation":
        """Notes when an operation begins, of which a span tells once it has ended."""
        return TracedOperation(self, time.time_ns())

    def record(
        self,
        name: str,
        began_ns: int,
        *,
        named: Mapping[str, Any],
        own: Mapping[str, Any] = NOTHING,
        headers: Iterable[Headers] = (),
        count: int = 0,
        error: BaseException | None = None,
    ) -> None:
        """Makes the span of an operation that has ended; what fails is logged.

        `own` are attributes of the span alone, which no metric has.
        """
        try:
            self._record(name, began_ns, named, own, headers, count, error)
        except Exception:
            logger.exception("nothing is told of %s", name)

    def _record(
        self,
        name: str,
        began_ns: int,
        named: Mapping[str, Any],
        own: Mapping[str, Any],
        headers: Iterable[Headers],
        count: int,
        error: BaseException | None,
    ) -> None:
        counter = self._counters.get(named["messaging.operation.type"])
        kind = self._api.SpanKind
        span = self._tracer.start_span(
            name,
            kind=kind.INTERNAL if counter is None else kind.CLIENT,
            attributes=_counted({**named, **own}, count),
            links=self._links(headers) if headers else None,
            start_time=began_ns,
        )
        measured = named
        if error is not None:
            measured = {**named, "error.type": type(error).__name__}
            span.set_attribute("error.type", type(error).__name__)
            self._failed(span, error)
        span.end()
        self._operation_s.record((time.time_ns() - began_ns) / 1e9, measured)
        if counter is not None and error is None:
            counter.add(count, measured)

    def within(self, function: Callable[P, R]) -> Callable[P, R]:
        """Returns a function that has the context of here in another thread."""
        context = self._context
        here = context.get_current()

        def call(*args: P.args, **options: P.kwargs) -> R:
            token = context.attach(here)
            try:
                return function(*args, **options)
            finally:
                context.detach(token)

        return call

    def _parent(self, headers: Headers) -> Any:
        """Returns the context that a message brings; None where it brings none."""
        if PARENT not in headers:
            return None
        carrier = {
            name: headers[name].decode(errors="replace")
            for name in (PARENT, STATE)
            if name in headers
        }
        return self._propagator.extract(carrier)

    def _links(self, headers: Iterable[Headers]) -> list[Any]:
        links: dict[Any, Any] = {}
        for one in headers:
            parent = self._parent(one)
            if parent is None:
                continue
            span = self._api.get_current_span(parent).get_span_context()
            if span.is_valid:
                links[span.trace_id, span.span_id] = self._api.Link(span)
            if len(links) == MOST_LINKS:
                break
        return list(links.values())


class TracedOperation:
    """An operation that has begun, and whose span is made when it has ended."""

    __slots__ = ("_began_ns", "_tracing")

    def __init__(self, tracing: Tracing, began_ns: int) -> None:
        self._tracing = tracing
        self._began_ns = began_ns

    def received(
        self, operation: str, destination: str, headers: Sequence[Headers]
    ) -> None:
        """Tells of messages that came, with links to those who sent them."""
        self._tracing.record(
            f"{operation} {destination}",
            self._began_ns,
            named=_attributes(operation, RECEIVE, destination),
            headers=headers,
            count=len(headers),
        )

    def sent(
        self,
        to: str,
        headers: Iterable[Headers],
        *,
        count: int,
        error: BaseException | None,
    ) -> None:
        """Tells of messages that went out together, with links to their spans."""
        self._tracing.record(
            f"send {to}",
            self._began_ns,
            named=_attributes("send", SEND, to),
            headers=headers,
            count=count,
            error=error,
        )

    def settled(
        self,
        operation: str,
        transaction_id: int | None = None,
        *,
        headers: Iterable[Headers] = (),
        count: int = 0,
        error: BaseException | None = None,
    ) -> None:
        """Tells of a commit, or of what a relay has carried over."""
        own = {} if transaction_id is None else {TRANSACTION: transaction_id}
        self._tracing.record(
            operation,
            self._began_ns,
            named=_attributes(operation, SETTLE),
            own=own,
            headers=headers,
            count=count,
            error=error,
        )


def begin_operation() -> TracedOperation | None:
    """Notes the beginning of an operation; None where nothing is traced."""
    tracing = active()
    return None if tracing is None else tracing.begin_operation()


@lru_cache(maxsize=1000)
def _attributes(
    operation: str, operation_type: str, destination: str | None = None
) -> Mapping[str, Any]:
    """Returns attributes that many spans have alike; nobody changes them."""
    named = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation_type,
    }
    if destination is not None:
        named["messaging.destination.name"] = destination
    return named


def _counted(named: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    return {**named, "messaging.batch.message_count": count} if count > 1 else named
