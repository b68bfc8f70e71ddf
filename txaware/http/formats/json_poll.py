"""Reads what JSON polls for."""

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.http.formats.expiry import seconds
from txaware.http.formats.json_bytes import base64_or_tagged, by_avro_rule, from_utf8
from txaware.http.wire.json_values import (
    checked_fields,
    flag,
    load,
    number,
    number_or_none,
    shown,
)
from txaware.http.wire.requests import PollRequest
from txaware.interfaces import UNCOMMITTED
from txaware.messages import ID_BYTES, MessageId
from txaware.requests import Start

PAYLOAD_AS = ("avro", "utf8", "base64")
_FIELDS = (
    *("startFrom", "inclusive", "limit", "transaction"),
    *("isolation", "waitMs", "page", "payloadAs"),
)


def read_poll(body: bytes) -> PollRequest:
    """A poll; every field may be missing."""
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
