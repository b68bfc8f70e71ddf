"""Answers to values: what the server said, or the error that it raised there."""

import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar

from txaware import errors
from txaware.errors import (
    BadRequest,
    NotAuthenticated,
    NotAuthorized,
    RequestTooLarge,
    TxAwareError,
    Unavailable,
)
from txaware.http.client.call import Answer
from txaware.http.wire.values import from_json, read_json

T = TypeVar("T")

CLASSES: dict[str, type[TxAwareError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TxAwareError)
}
# What a proxy on the way answers with as well, in words of its own.
_BY_STATUS: dict[int, type[TxAwareError]] = {
    401: NotAuthenticated,
    403: NotAuthorized,
    413: RequestTooLarge,
}
_SHOWN_BYTES = 200


def error_of(answer: Answer) -> TxAwareError:
    """The error that was raised there; of others, the status and how they begin."""
    try:
        fields = json.loads(answer.body)
        kind, message = CLASSES[fields["error"]], str(fields["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = _BY_STATUS.get(answer.status, Unavailable)
        beginning = answer.body[:_SHOWN_BYTES].decode("utf-8", "replace")
        message = f"{answer.url}: the answer was {answer.status}, {beginning!r}"
    return kind(message)


def reading(parse: Callable[[bytes], T]) -> Callable[[Answer], T]:
    """Reads the body of a good answer.

    One that makes no sense is `Unavailable`: what was asked may have been done.
    """

    def read(answer: Answer) -> T:
        if not 200 <= answer.status < 300:
            raise error_of(answer)
        try:
            return parse(answer.body)
        except (BadRequest, ValueError, TypeError, OverflowError) as error:
            raise Unavailable(
                f"{answer.url}: the answer cannot be read, {error}"
            ) from error

    return read


def reading_json(kind: type[T]) -> Callable[[Answer], T]:
    """Reads a value that `values` knows."""
    return reading(lambda body: from_json(kind, body))


def reading_field(name: str, take: Callable[[Any], T]) -> Callable[[Answer], T]:
    """Reads one field of an object."""

    def parse(body: bytes) -> T:
        fields = read_json(body)
        if not isinstance(fields, dict) or name not in fields:
            raise BadRequest(f"it has no {name}")
        return take(fields[name])

    return reading(parse)


def nothing(_: bytes) -> None:
    """A body that says nothing."""


done = reading(nothing)
