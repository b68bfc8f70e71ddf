"""Messages that carry the context of their trace, in their headers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from coordinator.tracing import Headers, Tracing, active
from txaware.errors import BadRequest
from txaware.model.labels import FixedHeaders
from txaware.model.messages import Outgoing


def carrying(payload: Any, context: Mapping[str, bytes]) -> Any:
    """Returns a message with the headers of a context, if it has room for them.

    Those that a message has already stay as they are: it is passed on for another.
    """
    if context.__class__ is not FixedHeaders:
        context = FixedHeaders(context)  # which are packed once
    said = payload if isinstance(payload, Outgoing) else Outgoing(payload)
    headers = said.headers
    if headers is None:
        return Outgoing(said.payload, said.key, context, said.expire_after_s)
    if not isinstance(headers, Mapping):
        return payload  # which is refused
    try:
        both = FixedHeaders({**context, **headers})
    except (TypeError, BadRequest):  # too large for both, or refused, as above
        return payload
    return Outgoing(said.payload, said.key, both, said.expire_after_s)


def all_carrying(payloads: Iterable[Any], context: Mapping[str, bytes]) -> list[Any]:
    """Returns messages with the headers of a context."""
    fixed = FixedHeaders(context)
    return [carrying(payload, fixed) for payload in payloads]


def sent(
    operation: str, to: str, payloads: list[Any]
) -> AbstractContextManager[list[Any]]:
    """Surrounds the sending of messages; gives them as they go.

    Where somebody traces it they carry the context of its span.
    """
    tracing = active()
    if tracing is None or not payloads:
        return nullcontext(payloads)
    return _traced(tracing, operation, to, payloads)


@contextmanager
def _traced(
    tracing: Tracing, operation: str, to: str, payloads: list[Any]
) -> Iterator[list[Any]]:
    with tracing.sending(operation, to, len(payloads)) as context:
        yield all_carrying(payloads, context)


def sending(
    operation: str, to: str, payloads: list[Any]
) -> AbstractContextManager[Headers | None]:
    """Surrounds the sending of messages; gives the headers to add where it is traced.

    It is for those who compare what they are given with what they were given before.
    """
    tracing = active()
    if tracing is None or not payloads:
        return nullcontext()
    return tracing.sending(operation, to, len(payloads))
