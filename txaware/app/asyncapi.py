"""The AsyncAPI 3 document of an app: its topics, its queues, and who handles them."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from txaware.app.declarations import Declaration
from txaware.model.event_type import JSON, EventType

SCHEMAS = "#/components/schemas/{name}"


def document(
    url: str,
    topics: Mapping[str, EventType[Any] | None],
    subscriptions: list[Declaration],
    work: list[Declaration],
    *,
    title: str,
    version: str,
) -> dict[str, Any]:
    """Describes what an app at an address publishes and handles."""
    made = _Document()
    for topic, event_type in topics.items():
        made.channel("topic", topic, event_type)
        handlers = [one for one in subscriptions if one.source == topic]
        if not handlers:
            made.operation("send", "topic", topic, None)
        for one in handlers:
            made.operation("receive", "topic", topic, one)
    for one in work:
        made.channel("queue", one.source, one.event_type)
        made.operation("receive", "queue", one.source, one)
    found: dict[str, Any] = {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "defaultContentType": JSON.decode(),
    }
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        found["servers"] = {"txaware": {"host": parts.netloc, "protocol": parts.scheme}}
    return found | {
        "channels": made.channels,
        "operations": made.operations,
        "components": {"messages": made.messages, "schemas": made.schemas},
    }


class _Document:
    """The parts of a document, as they come."""

    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}

    def channel(self, kind: str, name: str, event_type: EventType[Any] | None) -> None:
        """Describes a topic or a queue, with the one kind of messages that it has."""
        message = self._message(event_type)
        self.channels[f"{kind}.{_key(name)}"] = {
            "address": name,
            "title": f"{kind} {name}",
            "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        }

    def operation(
        self, action: str, kind: str, name: str, declared: Declaration | None
    ) -> None:
        """Describes that the app sends to a channel, or handles what comes there."""
        channel = f"{kind}.{_key(name)}"
        made: dict[str, Any] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
        }
        title = f"{action}.{channel}"
        if declared is not None:
            title = f"{title}.{_key(declared.name)}"
            group = declared.options.get("group")
            if group is not None:
                made["title"] = f"{declared.name} of group {group}"
            text = (declared.handler.__doc__ or "").strip()
            if text:
                made["summary"] = text.partition("\n")[0]
        self.operations[_free(title, self.operations)] = made

    def _message(self, event_type: EventType[Any] | None) -> str:
        if event_type is None:
            self.messages["bytes"] = {
                "name": "bytes",
                "contentType": "application/octet-stream",
            }
            return "bytes"
        name = _key(event_type.name)
        schema, parts = event_type.schema_parts(SCHEMAS)
        self.schemas.update(parts)
        if "$ref" not in schema:
            self.schemas[name] = schema
            schema = {"$ref": SCHEMAS.replace("{name}", name)}
        self.messages[name] = {
            "name": event_type.name,
            "contentType": JSON.decode(),
            "payload": schema,
        }
        return name


def _key(name: str) -> str:
    """Returns a name as the keys of components may be."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def _free(name: str, taken: Iterable[str]) -> str:
    known, number, found = set(taken), 1, name
    while found in known:
        number += 1
        found = f"{name}-{number}"
    return found
