"""The request of a publish: its parts, its type, and whether the server takes it."""

from collections.abc import Callable
from typing import TypeVar

import attrs

from txaware.client.calls.call import HttpAnswer
from txaware.client.server_info import ServerInfo
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.messages import Receipt
from txaware.model.requests import Payloads
from txaware.protocol.formats import (
    LABELLED,
    MAX_MESSAGES,
    OWN,
    WRONG_TYPE,
    PublishRequest,
)

T = TypeVar("T")
_OWN, _LABELLED = OWN.media_type.encode(), LABELLED.media_type.encode()


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """Raises `RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )


def request_of(
    pointer: int | None,
    payloads: Payloads,
    *,
    receipts: list[Receipt] | None = None,
    attempt: bytes | None = None,
) -> PublishRequest:
    """Makes the request of payloads, with their labels apart."""
    return PublishRequest(
        pointer,
        attrs.evolve(payloads, labels=None).messages(),
        receipts=receipts,
        attempt=attempt,
        labels=payloads.labels,
    )


def typed(
    request: PublishRequest, read: Callable[[HttpAnswer], T]
) -> tuple[bytes, Callable[[HttpAnswer], T]]:
    """Returns a type that an older server knows if it can, and what reads the answer.

    That type is also the one of the answer.
    """
    kind = type_of(request)
    return kind, read if kind is _OWN else by_newer(read)


def type_of(request: PublishRequest) -> bytes:
    """Returns the type of the body of a request."""
    return _OWN if request.labels is None else _LABELLED


def by_newer(read: Callable[[HttpAnswer], T]) -> Callable[[HttpAnswer], T]:
    """Returns a reader of what only a server answers that knows of labels."""

    def read_or_tell(answer: HttpAnswer) -> T:
        try:
            return read(answer)
        except BadRequest as error:
            if not str(error).startswith(WRONG_TYPE):
                raise
            raise BadRequest(
                f"{answer.url}: the server is older than this client, and knows "
                f"nothing of the keys and headers of messages; upgrade the server, or "
                f"take a client of its version. It says: {error}"
            ) from error

    return read_or_tell
