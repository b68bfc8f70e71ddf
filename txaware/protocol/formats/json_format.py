"""`application/json`, as the server sees it."""

import json
import re
from collections.abc import Mapping

import attrs

from coordinator.remote.wire import shown, to_base64
from txaware.errors import BadRequest
from txaware.model.interfaces import COMMITTED, UNCOMMITTED
from txaware.model.message_fields import FIELDS, MessageField
from txaware.model.messages import (
    ID_BYTES,
    MessageId,
    Outgoing,
    PublishResponse,
    Receipt,
)
from txaware.model.requests import (
    MAX_ATTEMPT_BYTES,
    MAX_MESSAGES,
    MAX_TIME_MS,
    Payload,
    Start,
)
from txaware.protocol.fields import (
    FLAG,
    Body,
    Field,
    Kind,
    int_,
    long,
    read_transaction,
    text,
)
from txaware.protocol.formats.interfaces import PageWriter
from txaware.protocol.formats.json_pages import PAYLOAD_AS, JsonArray, JsonPage
from txaware.protocol.formats.requests import PollRequest, PublishRequest, expiring
from txaware.protocol.json_schema import (
    BASE64,
    HEX_ID,
    INT_MAX,
    LATIN_1,
    NULL,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    ref,
    tagged,
    whole,
)
from txaware.protocol.json_values import (
    Fields,
    base64_or_tagged,
    by_avro_rule,
    camel,
    checked_fields,
    checked_object,
    from_base64,
    from_utf8,
    items,
    number,
    number_or_none,
    read_quickly,
    seconds,
    untagged,
)

POINTER = "transactionWritePointer"
_PARTITION = re.compile("[0-9]{1,5}")
_COUNT = int_(1, INT_MAX)
_POINTER = long(1)
# Fixed-size text of base64 is 4 characters for 3 bytes.
_ATTEMPT = Kind(
    base64_or_tagged,
    any_of(
        BASE64 | {"maxLength": (MAX_ATTEMPT_BYTES + 2) // 3 * 4},
        fields({"bytes": LATIN_1 | {"maxLength": MAX_ATTEMPT_BYTES}}),
    ),
)
_EXPIRY = Field("expireAfterMs", long(1, MAX_TIME_MS // 2).or_null(), default=None)
_WAYS = {"utf8": Kind(from_utf8, TEXT), "base64": Kind(from_base64, BASE64)}


def _bytes(value: object, *, what: str) -> bytes:
    """Reads text by Avro's rule, {"utf8": it}, or {"base64": it}."""
    if isinstance(value, str):
        return by_avro_rule(value, what=what)
    sent = checked_fields(value, what=f"{what} that is no string", known=_WAYS)
    return _in_one_way(sent, what=what)


def _in_one_way(sent: Fields, *, what: str) -> bytes:
    ways = [way for way in _WAYS if way in sent]
    if len(ways) != 1:
        raise BadRequest(f"{what} is either utf8 or base64, not {shown(sent)}")
    found: bytes = _WAYS[ways[0]].read(sent[ways[0]], what=f"the {ways[0]} of {what}")
    return found


def _headers(value: object, *, what: str) -> dict[str, bytes]:
    return {
        name: _bytes(each, what=f"the header {shown(name)}")
        for name, each in checked_object(value, what=what).items()
    }


_BYTES = Kind(
    _bytes, any_of(LATIN_1, *(fields({way: _WAYS[way].schema}) for way in _WAYS))
)
_MAP = Kind(
    _headers, fields({}, others=_BYTES.schema) | {"propertyNames": {"minLength": 1}}
)


def _kind_of(field: MessageField) -> Kind:
    return _MAP if field.is_map else _BYTES


def _message(value: object, known: Mapping[str, MessageField | None]) -> Payload:
    """Reads a message; by hand, as there may be very many in one body."""
    if isinstance(value, str):
        return by_avro_rule(value, what="a message")
    if isinstance(value, dict) and len(value) == 1 and "utf8" in value:
        return from_utf8(value["utf8"], what="the utf8 of a message")
    sent = checked_fields(value, what="a message that is no string", known=known)
    payload = _in_one_way(sent, what="a message")
    if len(sent) == 1:
        return payload
    after_ms = number_or_none(sent.get(_EXPIRY.name), what=_EXPIRY.name)
    values = {
        field.name: _kind_of(field).read(sent[name], what=name)
        for name, field in known.items()
        if field is not None and sent.get(name) is not None
    }
    if not values:
        return expiring(payload, after_ms)
    after_s = None if after_ms is None else seconds(after_ms)
    return Outgoing.of_fields(payload, values, after_s)


@attrs.frozen
class MessageArrays:
    """The kind of arrays of messages: strings, or objects with all declared fields."""

    least: int = 0

    @property
    def schema(self) -> Schema:
        """Describes it."""
        beside = [
            Field(camel(field.name), _kind_of(field).or_null(), default=None)
            for field in FIELDS
        ]
        ways = [
            Body("a message", (Field(name, kind), _EXPIRY, *beside)).schema
            for name, kind in _WAYS.items()
        ]
        listed = array(any_of(LATIN_1, *ways), maxItems=MAX_MESSAGES)
        return listed | {"minItems": self.least} if self.least else listed

    def read(self, value: object, *, what: str) -> list[Payload]:
        """Reads messages; the service checks how many there have to be."""
        known: dict[str, MessageField | None] = dict.fromkeys((*_WAYS, _EXPIRY.name))
        known |= {camel(field.name): field for field in FIELDS}
        return [_message(one, known) for one in items(value, what=what)]


MESSAGES = MessageArrays()
RECEIPT = Body(
    "a receipt",
    (
        Field("pointer", _POINTER),
        Field("topic", text()),
        Field("attempt", _ATTEMPT),
        Field("count", _COUNT),
    ),
    of="a receipt",
)


def _receipts(value: object, *, what: str) -> list[Receipt]:
    listed = items(untagged(value, tag="array"), what=what)
    return [Receipt(**RECEIPT.read(one)) for one in listed]


PUBLISH = Body(
    "a PublishRequest",
    (
        Field(POINTER, _POINTER.or_null(), default=None),
        Field(
            "messages",
            MESSAGES,
            missing="messages is missing; [] publishes the reference to a store",
        ),
        Field(
            "receipts",
            Kind(
                _receipts, tagged("array", array(ref("Receipt"), maxItems=MAX_MESSAGES))
            ).or_null(),
            default=None,
        ),
        Field("attempt", _ATTEMPT.or_null(), default=None),
    ),
)


def read_publish(body: bytes) -> PublishRequest:
    """Reads what to publish or to store."""
    sent = read_quickly(body, PUBLISH.read)
    return PublishRequest(
        sent[POINTER],
        sent["messages"],
        receipts=sent["receipts"],
        attempt=sent["attempt"],
    )


def receipt_fields(receipt: Receipt) -> Fields:
    """Returns a receipt as `read_publish` takes it."""
    values = (receipt.pointer, receipt.topic, to_base64(receipt.attempt), receipt.count)
    return dict(zip(RECEIPT.names, values, strict=True))


_ENDS = (
    Field("startTimestamp", long(0)),
    Field("startSequenceId", int_(0, 65_535)),
    Field("endTimestamp", long(0)),
    Field("endSequenceId", int_(0, 65_535)),
)
RESPONSE = Body("a PublishResponse", (Field(POINTER, _POINTER), *_ENDS))
_NESTED = "rollbackRange"
NESTED_RESPONSE = Body(
    RESPONSE.what, (Field(POINTER, _POINTER), Field(_NESTED, Body(_NESTED, _ENDS)))
)


def read_response(body: bytes) -> PublishResponse:
    """Reads what to take back; the four ends may stand in a rollbackRange."""
    return read_quickly(body, _response)


def _response(value: object) -> PublishResponse:
    if isinstance(value, dict) and _NESTED in value:
        nested = NESTED_RESPONSE.read(value)
        return PublishResponse(nested[POINTER], *nested[_NESTED].values())
    return PublishResponse(*RESPONSE.read(value).values())


def response_fields(response: PublishResponse) -> Fields:
    """Returns a PublishResponse as `read_response` takes it."""
    values = (
        response.transaction_write_pointer,
        response.start_timestamp,
        response.start_sequence_id,
        response.end_timestamp,
        response.end_sequence_id,
    )
    return dict(zip(RESPONSE.names, values, strict=True))


def _read_start(value: object, *, what: str) -> Start:
    if value is None:
        return None
    if isinstance(value, str):
        if len(value) != 2 * ID_BYTES:
            raise BadRequest(
                f"{what} is an id of {2 * ID_BYTES} hex digits or a time in ms, "
                f"not {shown(value)}"
            )
        return MessageId.parse(value)
    if isinstance(value, dict) and value and all(map(_PARTITION.fullmatch, value)):
        return {
            int(name): MessageId.parse(text().read(place, what=f"{what}.{name}"))
            for name, place in value.items()
        }
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return MessageId.from_bytes(by_avro_rule(value["bytes"], what=what))
    return number(value, what=what)


def _read_payload_as(value: object, *, what: str) -> str:
    if not isinstance(value, str) or value not in PAYLOAD_AS:
        raise BadRequest(f"{what} is one of {PAYLOAD_AS}, not {shown(value)}")
    return value


START_FROM = Kind(
    _read_start,
    any_of(
        NULL,
        HEX_ID,
        tagged("long", whole(0, MAX_TIME_MS)),
        fields({"bytes": LATIN_1 | {"minLength": ID_BYTES}}),
        {
            "type": "object",
            "patternProperties": {"^[0-9]{1,5}$": HEX_ID},
            "minProperties": 1,
            "additionalProperties": False,
            "description": "The id after which each partition goes on.",
        },
    ),
)
_TRANSACTION = Kind(read_transaction, any_of(BASE64, fields({"bytes": LATIN_1})))
POLL = Body(
    "a ConsumeRequest",
    (
        Field("startFrom", START_FROM, default=None),
        Field("inclusive", FLAG, default=True),
        Field("limit", _COUNT.or_null(), default=None),
        Field("transaction", _TRANSACTION.or_null(), default=None),
        Field(
            "isolation",
            text({"enum": [UNCOMMITTED, COMMITTED]}),
            default=UNCOMMITTED,
        ),
        Field("waitMs", long(0), default=0),
        Field("page", FLAG, default=False),
        Field(
            "payloadAs",
            Kind(_read_payload_as, {"enum": list(PAYLOAD_AS)}),
            default="avro",
        ),
    ),
)


def read_poll(body: bytes) -> PollRequest:
    """Reads a poll; every field may be missing."""
    sent = read_quickly(body, POLL.read)
    return PollRequest(
        start=sent["startFrom"],
        inclusive=sent["inclusive"],
        limit=sent["limit"],
        transaction=sent["transaction"],
        isolation=sent["isolation"],
        wait_s=seconds(sent["waitMs"]),
        page=sent["page"],
        payload_as=sent["payloadAs"],
    )


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
