"""Reads what JSON publishes, stores and takes back."""

from typing import Any

from txaware.errors import BadRequest
from txaware.http.formats.expiry import expiring
from txaware.http.formats.json_bytes import (
    base64_or_tagged,
    by_avro_rule,
    from_base64,
    from_utf8,
    to_base64,
)
from txaware.http.wire.json_values import (
    Fields,
    checked_fields,
    items,
    load,
    number,
    number_or_none,
    shown,
    untagged,
)
from txaware.http.wire.requests import PublishRequest
from txaware.messages import PublishResponse, Receipt
from txaware.requests import Payload

POINTER = "transactionWritePointer"
_PUBLISH = (POINTER, "messages", "receipts", "attempt")
_EXPIRY = "expireAfterMs"
_ENCODED = {"utf8": from_utf8, "base64": from_base64}
_MESSAGE = (*_ENCODED, _EXPIRY)
_RECEIPT = ("pointer", "topic", "attempt", "count")
_RANGE = ("startTimestamp", "startSequenceId", "endTimestamp", "endSequenceId")
_NESTED = "rollbackRange"


def read_publish(body: bytes) -> PublishRequest:
    """What to publish or to store."""
    fields = checked_fields(load(body), what="a PublishRequest", known=_PUBLISH)
    if "messages" not in fields:
        raise BadRequest("messages is missing; [] publishes the reference to a store")
    return PublishRequest(
        number_or_none(fields.get(POINTER), what=POINTER),
        [*map(_message, items(fields["messages"], what="messages"))],
        receipts=_receipts(untagged(fields.get("receipts"), tag="array")),
        attempt=_attempt(fields.get("attempt")),
    )


def _message(value: object) -> Payload:
    if isinstance(value, str):
        return by_avro_rule(value, what="a message")
    fields = checked_fields(value, what="a message that is no string", known=_MESSAGE)
    ways = [way for way in _ENCODED if way in fields]
    if len(ways) != 1:
        raise BadRequest(f"a message is either utf8 or base64, not {shown(value)}")
    payload = _ENCODED[ways[0]](fields[ways[0]], what=f"the {ways[0]} of a message")
    return expiring(payload, number_or_none(fields.get(_EXPIRY), what=_EXPIRY))


def _attempt(value: object) -> bytes | None:
    return None if value is None else base64_or_tagged(value, what="attempt")


def _receipts(value: object) -> list[Receipt] | None:
    if value is None:
        return None
    return [*map(_receipt, items(value, what="receipts"))]


def _receipt(value: object) -> Receipt:
    fields = _whole(value, what="a receipt", names=_RECEIPT)
    return Receipt(
        pointer=number(fields["pointer"], what="the pointer of a receipt"),
        topic=from_utf8(fields["topic"], what="the topic of a receipt").decode(),
        attempt=base64_or_tagged(fields["attempt"], what="the attempt of a receipt"),
        count=number(fields["count"], what="the count of a receipt", kind="int"),
    )


def receipt_fields(receipt: Receipt) -> Fields:
    """A receipt as `read_publish` takes it."""
    values = (receipt.pointer, receipt.topic, to_base64(receipt.attempt), receipt.count)
    return dict(zip(_RECEIPT, values, strict=True))


def read_response(body: bytes) -> PublishResponse:
    """What to take back; the four ends may stand in a rollbackRange of their own."""
    value = load(body)
    what = "a PublishResponse"
    if isinstance(value, dict) and _NESTED in value:
        fields = _whole(value, what=what, names=(POINTER, _NESTED))
        ends = _whole(fields[_NESTED], what=_NESTED, names=_RANGE)
    else:
        fields = ends = _whole(value, what=what, names=(POINTER, *_RANGE))
    return PublishResponse(
        transaction_write_pointer=number(fields[POINTER], what=POINTER),
        start_timestamp=number(ends[_RANGE[0]], what=_RANGE[0]),
        start_sequence_id=number(ends[_RANGE[1]], what=_RANGE[1], kind="int"),
        end_timestamp=number(ends[_RANGE[2]], what=_RANGE[2]),
        end_sequence_id=number(ends[_RANGE[3]], what=_RANGE[3], kind="int"),
    )


def response_fields(response: PublishResponse) -> Fields:
    """A PublishResponse as `read_response` takes it."""
    return {
        POINTER: response.transaction_write_pointer,
        "startTimestamp": response.start_timestamp,
        "startSequenceId": response.start_sequence_id,
        "endTimestamp": response.end_timestamp,
        "endSequenceId": response.end_sequence_id,
    }


def _whole(value: object, *, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    fields = checked_fields(value, what=what, known=names)
    if missing := [name for name in names if name not in fields]:
        raise BadRequest(f"{what} has no {missing[0]}")
    return fields
