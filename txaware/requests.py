"""Checks of what callers pass in: payloads, pointers, attempts, starts, limits."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

import attrs

from coordinator.transaction import Transaction
from txaware.errors import BadRequest, RequestTooLarge
from txaware.messages import ID_BYTES, MessageId, Outgoing

Payload = bytes | Outgoing
Pointer = Transaction | int
Start = MessageId | int | None

MAX_POINTER = 2**63 - 1
MAX_TIME_MS = 2**63 - 1
MAX_ATTEMPT_BYTES = 16


@attrs.frozen
class Payloads:
    """The payloads of one request; `expire_after_s` is None if none of them expires."""

    payloads: list[bytes]
    expire_after_s: list[float | None] | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def size_bytes(self) -> int:
        """The size of all payloads together."""
        return sum(map(len, self.payloads))


def checked_payloads(messages: Iterable[Payload], *, limit_bytes: int) -> Payloads:
    """Returns bytes and `Outgoing` as payloads; anything else is a `BadRequest`."""
    if messages.__class__ is not list and (
        isinstance(messages, bytes | str) or not isinstance(messages, Iterable)
    ):
        raise BadRequest(f"messages are a list of bytes, not {messages!r:.100}")
    listed = list(messages)
    payloads: list[bytes] = listed
    expiries: list[float | None] | None = None
    if not {*map(type, listed)} <= {bytes}:
        payloads = [_payload(message) for message in listed]
        expiries = [_expire_after_s(message) for message in listed]
        if expiries.count(None) == len(expiries):
            expiries = None
    if payloads and (largest := max(map(len, payloads))) > limit_bytes:
        raise RequestTooLarge(
            f"a message of {largest} bytes is above the limit of {limit_bytes} bytes"
        )
    return Payloads(payloads, expiries)


def _payload(message: object) -> bytes:
    payload = message.payload if isinstance(message, Outgoing) else message
    if not isinstance(payload, bytes):
        raise BadRequest(f"a message is bytes or Outgoing(bytes), not {payload!r}")
    return bytes(payload)


def _expire_after_s(message: object) -> float | None:
    seconds = message.expire_after_s if isinstance(message, Outgoing) else None
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadRequest(f"expire_after_s is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= MAX_TIME_MS / 2000:
        raise BadRequest(f"expire_after_s is above 0, not {seconds!r}")
    return float(seconds)


def checked_pointer(transaction: object) -> int:
    """Returns the first write pointer of a `Transaction`, or the number that is one."""
    if isinstance(transaction, Transaction):
        pointer: object = transaction.transaction_id
    else:
        pointer = transaction
    if isinstance(pointer, bool) or not isinstance(pointer, int):
        raise BadRequest(
            f"transaction is a Transaction or its write pointer, not {pointer!r}; "
            f"that of a context is its .transaction"
        )
    if not 0 < pointer <= MAX_POINTER:
        raise BadRequest(f"a write pointer is from 1 to {MAX_POINTER}, not {pointer}")
    return pointer


def checked_attempt(attempt: object) -> bytes:
    """Returns the name of an attempt; None becomes the empty name."""
    if attempt is None:
        return b""
    if not isinstance(attempt, bytes) or len(attempt) > MAX_ATTEMPT_BYTES:
        raise BadRequest(
            f"an attempt is named by up to {MAX_ATTEMPT_BYTES} bytes, not {attempt!r}"
        )
    return attempt


def checked_start(start: object) -> Start:
    """Returns a start: a message id, a time in ms, or None."""
    if start is None:
        return None
    if isinstance(start, MessageId) and len(start) == ID_BYTES:
        return start
    if isinstance(start, bytes):
        return MessageId.from_bytes(start)
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRequest(
            f"start is a MessageId, a time in ms or None, not {start!r}; "
            f"MessageId.parse reads text"
        )
    if not 0 <= start <= MAX_TIME_MS:
        raise BadRequest(f"a time is from 0 to {MAX_TIME_MS} ms, not {start}")
    return start


def parsed_start(text: str, *, words: str) -> MessageId | int:
    """Reads a start as text: an id of 40 hex digits, ms since 1970, or an ISO time.

    `words` names what else the caller takes, for the error.
    """
    try:
        if len(text) == 2 * ID_BYTES:
            return MessageId.parse(text)
        return MessageId.of(_time_ms(text)).publish_time_ms
    except (BadRequest, ValueError, OverflowError) as error:
        raise BadRequest(
            f"{text!r} is no place in a topic; an id of 40 hex digits, a time "
            f"(2026-01-31T12:00:00Z, or ms since 1970), {words} are"
        ) from error


def _time_ms(text: str) -> int:
    """Reads a time in ms since the epoch; an ISO time without a zone is UTC."""
    if text.isdecimal():
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def checked_limit(limit: object) -> int:
    """Returns the number of messages asked for, at least one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BadRequest(f"limit is a whole number above 0, not {limit!r}")
    return limit


def checked_wait_s(wait_s: object) -> float:
    """Returns the time to wait; below 0 there is no wait."""
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float):
        raise BadRequest(f"wait_s is a number of seconds, not {wait_s!r}")
    if math.isnan(wait_s):
        raise BadRequest("wait_s is a number of seconds, not NaN")
    return wait_s
