"""Writes pages in JSON, part by part."""

import json
from collections.abc import Callable

from txaware.http.formats.avro_page_reading import read_items
from txaware.http.formats.json_bytes import to_base64
from txaware.http.wire.avro_reading import Cursor
from txaware.messages import BlockedBy, Message, MessageId

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _by_avro_rule(payload: bytes) -> str:
    return payload.decode("latin-1")


def _as_utf8(payload: bytes) -> str | dict[str, str]:
    """Text; what is not UTF-8 comes as {"base64": ...}, which a publish takes too."""
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
    """The seeds' answer: an array of {"id", "payload"}."""

    takes_encoded = False

    def __init__(self, payload_as: str) -> None:
        self._payload = _PAYLOAD[payload_as]
        self._comma = b""

    def begin(self) -> bytes:
        """The array begins."""
        return b"["

    def messages(self, messages: list[Message]) -> bytes:
        """Some objects more, and a comma between any two."""
        if not messages:
            return b""
        payload = self._payload
        comma, self._comma = self._comma, b","
        objects = [{"id": str(key), "payload": payload(data)} for key, data in messages]
        return comma + _dumps(objects)[1:-1].encode()

    def encoded(self, count: int, data: bytes) -> bytes:
        """The same, of messages in Avro."""
        return self.messages(read_items(Cursor(data, what="the messages"), count))

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """The array ends."""
        return b"]"


class JsonPage(JsonArray):
    """The answer to `"page": true`: the same array in an object that says more."""

    def begin(self) -> bytes:
        """The object and its array begin."""
        return b'{"messages":['

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """The array ends, and the other fields follow."""
        fields = {
            "next": str(next_id),
            "blockedBy": blocked_by and _blocked_by(blocked_by),
            "skippedBefore": skipped_before,
        }
        return b"]," + _dumps(fields)[1:].encode()


def _blocked_by(blocked_by: BlockedBy) -> dict[str, int]:
    return {"pointer": blocked_by.pointer, "sinceMs": blocked_by.since_ms}
