"""Checks what is to be published: a wrong message fails at once, not at the commit."""

from collections.abc import Iterable

from txaware.errors import BadRequest, RequestTooLarge
from txaware.interfaces import Payload
from txaware.requests import checked_payloads

# What a message takes in memory beside its payload, so that a limit in bytes also
# bounds how many small ones are held.
OVERHEAD_BYTES = 64


def checked_size_bytes(payload: Payload, limit_bytes: int) -> int:
    """What a message takes in memory; `BadRequest` where it cannot be published."""
    # Nearly every payload is bytes; the whole check would take twice the time of all
    # the rest of a `publish`.
    if payload.__class__ is not bytes:
        payload = checked_payloads([payload], limit_bytes=limit_bytes).payloads[0]
    size_bytes = len(payload)
    if size_bytes > limit_bytes:
        raise RequestTooLarge(
            f"a message of {size_bytes} bytes is above the limit of {limit_bytes} bytes"
        )
    return size_bytes + OVERHEAD_BYTES


def checked_many(payloads: Iterable[Payload]) -> Iterable[Payload]:
    """The same, where it holds many; one message alone is a `BadRequest`."""
    if isinstance(payloads, Iterable) and not isinstance(payloads, bytes | str):
        return payloads
    raise BadRequest(
        f"publish_all takes many messages, not one {type(payloads).__name__}"
    )


def checked_setting(name: str, value: float, *, least: float = 1) -> None:
    """`BadRequest` for a limit or a time that leaves no room."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} is a number, not {value!r}")
    if not value >= least:
        raise BadRequest(f"{name} is at least {least}, not {value}")
