"""Plain HTTP as a client of CDAP speaks it, in `avro/binary` and in JSON.

Nothing of ours reads or writes these bodies: fastavro does, by CDAP's schemas.
"""

import base64
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs
import fastavro
import pytest

from coordinator import codec
from coordinator.transaction import Transaction
from tests.support.http_raw import Served, serving

Start = str | int | None
Found = list[tuple[str, bytes]]


def _record(name: str, **fields: Any) -> Any:
    listed = [{"name": key, "type": kind} for key, kind in fields.items()]
    return fastavro.parse_schema({"type": "record", "name": name, "fields": listed})


_MESSAGES = {"type": "array", "items": "bytes"}
PUBLISH_REQUEST = _record(
    "PublishRequest", transactionWritePointer=["long", "null"], messages=_MESSAGES
)
PUBLISH_RESPONSE = _record(
    "PublishResponse",
    transactionWritePointer=["long", "null"],
    startTimestamp="long",
    startSequenceId="int",
    endTimestamp="long",
    endSequenceId="int",
)
CONSUME_REQUEST = _record(
    "ConsumeRequest",
    startFrom=["bytes", "long", "null"],
    inclusive="boolean",
    limit=["int", "null"],
    transaction=["bytes", "null"],
)
CONSUME_RESPONSE = fastavro.parse_schema(
    {"type": "array", "items": _record("Message", id="bytes", payload="bytes")}
)


class Wire(Protocol):
    """One form of the bodies."""

    content_type: str

    def publish(self, pointer: int | None, messages: Sequence[bytes]) -> bytes:
        """What a publish or a store sends."""

    def rollback(self, fields: dict[str, Any]) -> bytes:
        """What a rollback sends."""

    def answer(self, body: bytes) -> dict[str, Any]:
        """What a publish in a transaction answers."""

    def poll(
        self,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> bytes:
        """What a poll sends."""

    def found(self, body: bytes) -> Found:
        """What a poll answers."""


class AvroWire:
    """CDAP's `avro/binary`."""

    content_type = "avro/binary"

    def publish(self, pointer: int | None, messages: Sequence[bytes]) -> bytes:
        value = {"transactionWritePointer": pointer, "messages": [*messages]}
        return _written(PUBLISH_REQUEST, value)

    def rollback(self, fields: dict[str, Any]) -> bytes:
        return _written(PUBLISH_RESPONSE, fields)

    def answer(self, body: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = _read(PUBLISH_RESPONSE, body)
        return fields

    def poll(
        self,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> bytes:
        value = {
            "startFrom": bytes.fromhex(start) if isinstance(start, str) else start,
            "inclusive": inclusive,
            "limit": limit,
            "transaction": None if transaction is None else codec.encode(transaction),
        }
        return _written(CONSUME_REQUEST, value)

    def found(self, body: bytes) -> Found:
        return [(one["id"].hex(), one["payload"]) for one in _read_all(body)]


class JsonWire:
    """The same records as JSON."""

    content_type = "application/json"

    def publish(self, pointer: int | None, messages: Sequence[bytes]) -> bytes:
        texts = [message.decode("latin-1") for message in messages]
        return _json(transactionWritePointer=pointer, messages=texts)

    def rollback(self, fields: dict[str, Any]) -> bytes:
        return _json(**fields)

    def answer(self, body: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(body)
        return fields

    def poll(
        self,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> bytes:
        encoded = None
        if transaction is not None:
            encoded = base64.b64encode(codec.encode(transaction)).decode()
        return _json(
            startFrom=start, inclusive=inclusive, limit=limit, transaction=encoded
        )

    def found(self, body: bytes) -> Found:
        return [
            (one["id"], one["payload"].encode("latin-1")) for one in json.loads(body)
        ]


@attrs.define
class Answer:
    """What came back."""

    status: int
    content_type: str | None
    body: bytes


class Client:
    """Speaks to a server over one connection; every call answers its status."""

    def __init__(
        self, served: Served, wire: Wire, *, namespace: str = "default"
    ) -> None:
        self.served = served
        self.wire = wire
        self.namespace = namespace
        self.topics = f"/v1/namespaces/{namespace}/topics"
        split = urlsplit(served.url)
        self._http = HTTPConnection(split.hostname or "", split.port, timeout=20)

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str | None = None,
    ) -> Answer:
        """One request; a path without a slash in front is below the topics."""
        headers = {"Content-Type": content_type or self.wire.content_type}
        if not path.startswith("/"):
            path = f"{self.topics}/{path}"
        self._http.request(method, path, body, headers)
        answer = self._http.getresponse()
        return Answer(answer.status, answer.headers.get("Content-Type"), answer.read())

    def create(self, topic: str, **properties: Any) -> int:
        """Creates a topic."""
        body = json.dumps(properties).encode() if properties else None
        return self.ask("PUT", topic, body).status

    def delete(self, topic: str) -> int:
        """Deletes a topic."""
        return self.ask("DELETE", topic).status

    def properties(self, topic: str) -> Any:
        """What a topic has been told."""
        described = json.loads(self.ask("GET", topic).body)
        assert described.keys() == {"name", "properties"}
        return described["properties"]

    def publish(
        self, pointer: int | None, *messages: bytes, topic: str = "t"
    ) -> dict[str, Any]:
        """Publishes, and answers what a rollback takes."""
        body = self.wire.publish(pointer, messages)
        answer = self.ask("POST", f"{topic}/publish", body)
        assert answer.status == 200, answer
        if pointer is None:
            assert answer.body == b""
            return {}
        assert answer.content_type == self.wire.content_type
        return self.wire.answer(answer.body)

    def rollback(self, fields: dict[str, Any], *, topic: str = "t") -> int:
        """Takes a publish back."""
        return self.ask("POST", f"{topic}/rollback", self.wire.rollback(fields)).status

    def poll(self, *, topic: str = "t", **options: Any) -> Found:
        """Polls."""
        answer = self.ask("POST", f"{topic}/poll", self.wire.poll(**options))
        assert (answer.status, answer.content_type) == (200, self.wire.content_type)
        return self.wire.found(answer.body)

    def payloads(self, **options: Any) -> list[bytes]:
        """What a poll delivers."""
        return [payload for _, payload in self.poll(**options)]


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _written(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, value)
    return file.getvalue()


def _read(schema: Any, body: bytes) -> Any:
    file = io.BytesIO(body)
    value = fastavro.schemaless_reader(file, schema, None)
    assert file.read() == b""
    return value


def _read_all(body: bytes) -> list[dict[str, bytes]]:
    found: list[dict[str, bytes]] = _read(CONSUME_RESPONSE, body)
    return found


@pytest.fixture(scope="module")
def wired() -> Iterator[Served]:
    """One server for all tests of a module, each of which has its own namespace.

    Its clients have small pointers, of another coordinator.
    """
    with serving(accept_unknown_pointers=True) as served:
        yield served


@pytest.fixture(params=[AvroWire, JsonWire], ids=["avro", "json"])
def client(request: pytest.FixtureRequest, wired: Served) -> Iterator[Client]:
    """A client in each form, in a namespace with an empty topic `t`."""
    namespace = f"n{next(_numbers)}"
    opened = Client(wired, request.param(), namespace=namespace)
    assert opened.create("t") == 200
    yield opened
    opened.close()


_numbers = itertools.count()
