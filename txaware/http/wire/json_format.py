"""`application/json`, as the server sees it."""

import json
from collections.abc import Callable
from typing import Any

from coordinator import codec
from coordinator.remote.wire import shown
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.http.wire.avro_reading import Cursor, read_items
from txaware.http.wire.interfaces import PageWriter
from txaware.http.wire.json_values import (
    Fields,
    base64_or_tagged,
    by_avro_rule,
    checked_fields,
    flag,
    from_base64,
    from_utf8,
    items,
    load,
    number,
    number_or_none,
    to_base64,
    untagged,
)
from txaware.http.wire.requests import PollRequest, PublishRequest, expiring, seconds
from txaware.interfaces import UNCOMMITTED
from txaware.messages import (
    ID_BYTES,
    BlockedBy,
    Message,
    MessageId,
    PublishResponse,
    Receipt,
)
from txaware.requests import Payload, Start

POINTER = "transactionWritePointer"
_PUBLISH = (POINTER, "messages", "receipts", "attempt")
_EXPIRY = "expireAfterMs"
_ENCODED = {"utf8": from_utf8, "base64": from_base64}
_MESSAGE = (*_ENCODED, _EXPIRY)
_RECEIPT = ("pointer", "topic", "attempt", "count")
_RANGE = ("startTimestamp", "startSequenceId", "endTimestamp", "endSequenceId")
_NESTED = "rollbackRange"


def read_publish(body: bytes) -> PublishRequest:
    """Reads what to publish or to store."""
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
    """Returns a receipt as `read_publish` takes it."""
    values = (receipt.pointer, receipt.topic, to_base64(receipt.attempt), receipt.count)
    return dict(zip(_RECEIPT, values, strict=True))


def read_response(body: bytes) -> PublishResponse:
    """Reads what to take back; the four ends may stand in a rollbackRange."""
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
    """Returns a PublishResponse as `read_response` takes it."""
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


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _by_avro_rule(payload: bytes) -> str:
    return payload.decode("latin-1")


def _as_utf8(payload: bytes) -> str | dict[str, str]:
    """Returns text, or {"base64": ...} for what is not UTF-8; a publish takes both."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": to_base64(payload)}


_PAYLOAD: dict[str, Callable[[bytes], str | dict[str, str]]] = {
    "avro": _by_avro_rule,
    "utf8": _as_utf8,
    "base64": to_base64,
}


class JsonArray:
    """CDAP's answer: an array of {"id", "payload"}."""

    takes_encoded = False

    def __init__(self, payload_as: str) -> None:
        self._payload = _PAYLOAD[payload_as]
        self._comma = b""

    def begin(self) -> bytes:
        """Begins the array."""
        return b"["

    def messages(self, messages: list[Message]) -> bytes:
        """Writes some more objects, and a comma between any two."""
        if not messages:
            return b""
        payload = self._payload
        comma, self._comma = self._comma, b","
        objects = [{"id": str(key), "payload": payload(data)} for key, data in messages]
        return comma + _dumps(objects)[1:-1].encode()

    def encoded(self, count: int, data: bytes) -> bytes:
        """Writes some more objects, of messages in Avro."""
        return self.messages(read_items(Cursor(data, what="the messages"), count))

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """Ends the array."""
        return b"]"


class JsonPage(JsonArray):
    """The answer to `"page": true`: the same array in an object that says more."""

    def begin(self) -> bytes:
        """Begins the object and its array."""
        return b'{"messages":['

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """Ends the array, and writes the other fields."""
        fields = {
            "next": str(next_id),
            "blockedBy": blocked_by and _blocked_by(blocked_by),
            "skippedBefore": skipped_before,
        }
        return b"]," + _dumps(fields)[1:].encode()


def _blocked_by(blocked_by: BlockedBy) -> dict[str, int]:
    return {"pointer": blocked_by.pointer, "sinceMs": blocked_by.since_ms}


PAYLOAD_AS = ("avro", "utf8", "base64")
_FIELDS = (
    *("startFrom", "inclusive", "limit", "transaction"),
    *("isolation", "waitMs", "page", "payloadAs"),
)


def read_poll(body: bytes) -> PollRequest:
    """Reads a poll; every field may be missing."""
    fields = checked_fields(load(body), what="a ConsumeRequest", known=_FIELDS)
    isolation = fields.get("isolation", UNCOMMITTED)
    return PollRequest(
        start=_start(fields.get("startFrom")),
        inclusive=flag(fields.get("inclusive", True), what="inclusive"),
        limit=number_or_none(fields.get("limit"), what="limit", kind="int"),
        transaction=_transaction(fields.get("transaction")),
        isolation=from_utf8(isolation, what="isolation").decode(),
        wait_s=seconds(number(fields.get("waitMs", 0), what="waitMs")),
        page=flag(fields.get("page", False), what="page"),
        payload_as=_payload_as(fields.get("payloadAs", "avro")),
    )


def _start(value: object) -> Start:
    if value is None:
        return None
    if isinstance(value, str):
        if len(value) != 2 * ID_BYTES:
            raise BadRequest(
                f"startFrom is an id of {2 * ID_BYTES} hex digits or a time in ms, "
                f"not {shown(value)}"
            )
        return MessageId.parse(value)
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return MessageId.from_bytes(by_avro_rule(value["bytes"], what="startFrom"))
    return number(value, what="startFrom")


def _transaction(value: object) -> Transaction | None:
    if value is None:
        return None
    return codec.decode(base64_or_tagged(value, what="transaction"))


def _payload_as(value: object) -> str:
    if not isinstance(value, str) or value not in PAYLOAD_AS:
        raise BadRequest(f"payloadAs is one of {PAYLOAD_AS}, not {shown(value)}")
    return value


JSON_TYPE = "application/json"


class JsonFormat:
    """CDAP's records as JSON, and what its Avro bodies cannot carry."""

    media_type = JSON_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest; messages by Avro's rule, as UTF-8 or as base64."""
        return read_publish(body)

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes a PublishResponse."""
        return json.dumps(response_fields(response)).encode()

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes a Receipt, as `publish_request` takes it."""
        return json.dumps(receipt_fields(receipt)).encode()

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads the PublishResponse of the publish to take back, flat or nested."""
        return read_response(body)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a ConsumeRequest."""
        return read_poll(body)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of an array, or of the whole page where it is asked for."""
        writer = JsonPage if request.page else JsonArray
        return writer(request.payload_as)


JSON = JsonFormat()
