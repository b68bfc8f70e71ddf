"""A field of messages that is made up here is stored, sent, shown and described."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import txaware
from tests.support.cli_runs import run as run_command
from tests.support.cli_runs import run_json
from txaware.errors import BadRequest
from txaware.model.labels import Labels, packed_fields
from txaware.model.message_fields import FIELDS, MessageField
from txaware.model.messages import Outgoing
from txaware.model.requests import Payload

JSON = {"Content-Type": "application/json", "Accept": "application/json"}
TOPIC = "/v1/namespaces/default/topics/t"


@pytest.fixture
def trace() -> Iterator[MessageField]:
    made_up = MessageField("trace_id", tag=b"t")
    FIELDS.append(made_up)
    yield made_up
    FIELDS.remove(made_up)


def asked(url: str, path: str, value: Any = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(url + path, body, JSON)
    with urlopen(request) as answer:
        return json.loads(answer.read())


def test_a_declared_field_is_there_without_other_code(
    trace: MessageField, tmp_path: Path
) -> None:
    place = f"leveldb:{tmp_path / 'data'}"
    many: list[Payload] = [
        Outgoing(b"a", more={"trace_id": b"1"}),
        Outgoing(b"b", b"k", {"h": b"v"}, more={"trace_id": b"\xff"}),
        b"c",
    ]

    async def by_asyncio(url: str) -> list[Any]:
        async with txaware.connect_async(url) as client:
            await client.publish("t", [Outgoing(b"d", more={"trace_id": b"4"})])
            return [one.more for one in await client.poll("t")]

    with txaware.connect(place) as owner, owner.serve() as server:
        owner.create_topic("t")
        with txaware.connect(server.url) as client:
            client.publish("t", many)
            with client.transaction():
                client.publisher("t").publish_all(many[:1])
            found = client.poll("t")
            assert [one.more for one in found[:3]] == [
                {"trace_id": b"1"},
                {"trace_id": b"\xff"},
                {},
            ]
            assert (found[1].key, found[1].headers) == (b"k", {"h": b"v"})
            assert found[3].more == {"trace_id": b"1"}
            with pytest.raises(BadRequest, match="no field 'other'; they have key, h"):
                client.publish("t", [Outgoing(b"a", more={"other": b"1"})])
            with pytest.raises(BadRequest, match="trace_id is bytes, not 5"):
                client.publish("t", [Outgoing(b"a", more={"trace_id": 5})])  # type: ignore[dict-item]
        assert asyncio.run(by_asyncio(server.url))[4] == {"trace_id": b"4"}
        sent = {"messages": [{"utf8": "e", "key": "k", "traceId": {"utf8": "5"}}]}
        assert asked(server.url, TOPIC + "/publish", sent) == {}
        rows = asked(server.url, TOPIC + "/poll", {"payloadAs": "utf8"})
        assert rows[1]["traceId"] == {"base64": "/w=="}
        assert rows[5] == {"id": rows[5]["id"], "payload": "e", "key": "k"} | {
            "traceId": "5"
        }
        schemas = asked(server.url, "/openapi.json")["components"]["schemas"]
        assert "traceId" in schemas["ConsumeResponse"]["items"]["properties"]
        (_, in_utf8, _) = schemas["PublishRequest"]["properties"]["messages"]["items"][
            "anyOf"
        ]
        assert "traceId" in in_utf8["properties"]
        shown = run_json("poll", "t", obj=owner)
        assert (shown[0]["trace_id"], "trace_id" in shown[2]) == ("1", False)
        run_command("publish", "t", "f", "--trace-id", "6", obj=owner)
        assert owner.poll("t")[6].more == {"trace_id": b"6"}
        lines = run_command("poll", "t", obj=owner).output.splitlines()
        assert lines[0].endswith("trace_id=1  a")
        assert lines[1].endswith(r"[k] {h: v} trace_id=\xff  b")
    with txaware.connect(place) as again:
        assert again.poll("t")[0].more == {"trace_id": b"1"}
        assert again.check().is_clean


def test_a_field_that_is_no_longer_declared_is_passed_over(tmp_path: Path) -> None:
    made_up = MessageField("trace_id", tag=b"t")
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        FIELDS.append(made_up)
        try:
            sent = Outgoing(b"a", None, {"h": b"v"}, more={"trace_id": b"1"})
            messaging.publish("t", [sent])
        finally:
            FIELDS.remove(made_up)
        (message,) = messaging.poll("t")
        assert (message.headers, message.more) == ({"h": b"v"}, {})


def test_spark_has_a_column_of_a_declared_field(trace: MessageField) -> None:
    columns = pytest.importorskip("txaware.spark.columns")
    types = pytest.importorskip("pyspark.sql.types")
    named = columns.schema_text().split(", ")
    assert named.index("trace_id binary") == named.index("time timestamp") - 1
    schema = types.StructType().add("trace_id", types.BinaryType())
    labels = Labels([None, None], [packed_fields(None, {"trace_id": b"1"}), b""])
    rows = columns.MessageColumns("t", bytes(40), [b"a", b"b"], labels)
    batch = columns.TableMaker(schema).of(rows)
    assert batch.to_pydict() == {"trace_id": [b"1", None]}
