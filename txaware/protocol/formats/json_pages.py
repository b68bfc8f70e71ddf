"""Pages of messages as JSON: an array of them, or an object that says more."""

from collections.abc import Callable

import msgspec

from coordinator.remote.wire import to_base64
from txaware.model.labels import Labels
from txaware.model.message_fields import FIELDS
from txaware.model.messages import (
    BlockedBy,
    Message,
    PageEnd,
    Places,
    text_or_base64,
)
from txaware.protocol.json_values import Fields, camel

_dumps = msgspec.json.Encoder().encode


def _by_avro_rule(payload: bytes) -> str:
    return payload.decode("latin-1")


_PAYLOAD: dict[str, Callable[[bytes], str | dict[str, str]]] = {
    "avro": _by_avro_rule,
    "utf8": text_or_base64,
    "base64": to_base64,
}


class JsonArray:
    """CDAP's answer: an array of {"id", "payload"}.

    Messages of a `partition` say so.
    """

    items = None

    def __init__(self, payload_as: str) -> None:
        self.partition: int | None = None
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
        objects: list[Fields] = []
        names = [(camel(field.name), field) for field in FIELDS]
        for message in messages:
            message_id, data, key, headers, *_ = message
            written: Fields = {"id": str(message_id), "payload": payload(data)}
            if self.partition is not None:
                written["partition"] = self.partition
            objects.append(written)
            if key is None and not headers:  # as most are
                continue
            for name, field in names:
                value = field.of(message)
                if isinstance(value, dict):
                    if value:
                        written[name] = {k: payload(one) for k, one in value.items()}
                elif value is not None:
                    written[name] = payload(value)
        return comma + _dumps(objects)[1:-1]

    def blocks(self, blocks: list[tuple[int, bytes]], labels: Labels | None) -> bytes:
        """Writes nothing: the format has no form of items."""
        return b""

    def end(self, end: PageEnd) -> bytes:
        """Ends the array."""
        return b"]"


class JsonPage(JsonArray):
    """The answer to `"page": true`: the same array in an object that says more."""

    def begin(self) -> bytes:
        """Begins the object and its array."""
        return b'{"messages":['

    def end(self, end: PageEnd) -> bytes:
        """Ends the array, and writes the other fields."""
        fields = {
            "next": str(end.next) if end.places is None else _places(end.places),
            "blockedBy": end.blocked_by and _blocked_by(end.blocked_by),
            "skippedBefore": end.skipped_before,
            "lastStable": end.last_stable and str(end.last_stable),
        }
        return b"]," + _dumps(fields)[1:]


def _places(places: Places) -> dict[str, str]:
    return {str(number): str(place) for number, place in places.items()}


def _blocked_by(blocked_by: BlockedBy) -> dict[str, int]:
    return {"pointer": blocked_by.pointer, "sinceMs": blocked_by.since_ms}


PAYLOAD_AS = tuple(_PAYLOAD)
