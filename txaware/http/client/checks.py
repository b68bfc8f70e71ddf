"""Checks what callers pass before anything is sent, as the service itself would."""

from collections.abc import Iterable
from typing import Any

import attrs

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.messages import ID_BYTES, MessageId, Outgoing, PublishResponse, Receipt
from txaware.requests import (
    Payload,
    Payloads,
    checked_attempt,
    checked_pointer,
    checked_receipts,
    checked_wait_s,
)
from txaware.topics import TopicName

_MOST_LONG, _MOST_INT = 2**63 - 1, 2**31 - 1


def checked_named(
    receipts: Iterable[Receipt] | None,
) -> list[Receipt] | None:
    """Returns receipts as `store` answered them, which the wire can carry."""
    if receipts is None:
        return None
    return [_checked_receipt(receipt) for receipt in checked_receipts(receipts)]


def checked_response(response: PublishResponse) -> PublishResponse:
    """Returns the answer to a transactional publish."""
    if not isinstance(response, PublishResponse):
        raise BadRequest(
            f"rollback takes the answer of a transactional publish, not {response!r}"
        )
    checked_pointer(response.transaction_write_pointer)
    # Whether they name rows is for the server to say, as long as they can be sent.
    for time_ms in (response.start_timestamp, response.end_timestamp):
        _checked_number(time_ms, "a time in it", _MOST_LONG, least=~_MOST_LONG)
    for sequence in (response.start_sequence_id, response.end_sequence_id):
        _checked_number(sequence, "a sequence in it", _MOST_INT, least=~_MOST_INT)
    return response


def checked_inclusive(inclusive: object) -> bool:
    """Returns a plain yes or no."""
    if not isinstance(inclusive, bool):
        raise BadRequest(f"inclusive is True or False, not {inclusive!r}")
    return inclusive


def checked_wait(wait_s: object, transaction: Transaction | None) -> float:
    """Returns how long to wait; a transaction cannot."""
    if wait_s and transaction is not None:
        raise BadRequest(
            "a poll in a transaction cannot wait: its snapshot sees nothing that "
            "commits later; wait before the transaction begins"
        )
    return checked_wait_s(wait_s)


def checked_position(position: MessageId | None) -> str | None:
    """Returns an id as text, or None."""
    if position is None:
        return None
    if not isinstance(position, MessageId) or len(position) != ID_BYTES:
        raise BadRequest(f"a position is a MessageId, not {position!r}")
    return str(position)


def messages_of(payloads: Payloads) -> list[Payload]:
    """Returns the messages, checked."""
    if payloads.expire_after_s is None:
        return list(payloads.payloads)
    pairs = zip(payloads.payloads, payloads.expire_after_s, strict=True)
    return [p if after_s is None else Outgoing(p, after_s) for p, after_s in pairs]


def _checked_receipt(receipt: Receipt) -> Receipt:
    TopicName.parse(receipt.topic)
    checked_pointer(receipt.pointer)
    _checked_number(receipt.count, "the count of a receipt", _MOST_INT)
    return attrs.evolve(receipt, attempt=checked_attempt(receipt.attempt))


def _checked_number(value: Any, name: str, most: int, *, least: int = 0) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name} is from {least} to {most}, not {value!r}")
