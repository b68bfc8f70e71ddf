"""Whole transactions in JSON, as any program that speaks HTTP makes them."""

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coordinator import codec
from coordinator.remote.client import RemoteCoordinator
from tests.support.http_access import ROUTES, TRANSACTIONS, Caller
from tests.support.http_raw import Raw, request
from tests.support.http_served import ServedStore, served
from txaware.client import CoordinatorSend, Link, Transport
from txaware.client.calls.call import Call
from txaware.server.openapi.document import operation_of

TOPIC = "/v1/namespaces/default/topics/t"
JSON = {"Accept": "application/json"}
PAGE = Path(__file__).parents[2] / "docs" / "http.md"
NEVER = 5


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(transaction_timeout_s=20) as opened:
        opened.messaging.create_topic("t")
        yield opened


@pytest.fixture
def caller(store: ServedStore) -> Iterator[Caller]:
    with closing(Caller(store.url, None)) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "kind", "timeout_s"),
    [
        ({}, "short", 20),
        ({"timeoutS": 60.5}, "short", 60.5),
        ({"type": "short", "timeoutS": None}, "short", 20),
        ({"type": "long"}, "long", None),
    ],
)
@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, Application/JSON;q=0.9"]
)
def test_a_transaction_begins_in_json(
    caller: Caller, body: Any, kind: str, timeout_s: float | None, accept: str
) -> None:
    answer = caller.ask("POST", TRANSACTIONS, body, {"Accept": accept})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    tx = codec.decode(base64.b64decode(answer.json["transaction"]))
    assert answer.json == {
        "transactionId": tx.transaction_id,
        "writePointer": tx.write_pointer,
        "readPointer": tx.read_pointer,
        "type": kind,
        "timeoutS": timeout_s,
        "transaction": answer.json["transaction"],
    }
    assert tx.type.name.lower() == kind


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "application/octet-stream",
        "application/octet-stream, application/json",
    ],
)
@pytest.mark.parametrize("path", [TRANSACTIONS, TRANSACTIONS + "/snapshot"])
def test_otherwise_it_is_bytes_as_ever(
    caller: Caller, path: str, accept: str | None
) -> None:
    headers = {} if accept is None else {"Accept": accept}
    answer = caller.ask("POST", path, {}, headers)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert codec.decode(answer.body).transaction_id > 0


def test_clients_of_before_get_bytes_though_they_accept_json_alone(
    store: ServedStore,
) -> None:
    asked: list[bytes] = []

    def read(answer: Any) -> tuple[int, bytes]:
        asked.append(answer.header(b"content-type"))
        return answer.status, answer.body

    with closing(Transport(Link(store.url))) as transport:

        def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
            return transport.perform(Call(method, path, read, body))

        of_before = RemoteCoordinator(send)
        of_before.commit(of_before.start_short())
        assert of_before.snapshot().transaction_id > 0
        assert asked[0] == asked[2] == b"application/octet-stream"
        now = RemoteCoordinator(CoordinatorSend(transport))
        now.commit(now.start_short())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TRANSACTIONS, b""),
        (TRANSACTIONS, b"{}"),
        (TRANSACTIONS, b'{"timeoutS": 5}'),
        (TRANSACTIONS, b'{"type":"long"}'),
        (TRANSACTIONS + "/snapshot", b""),
    ],
)
def test_clients_with_the_fewest_headers_get_the_json_that_they_accept(
    store: ServedStore, path: str, body: bytes
) -> None:
    with Raw(store.url) as raw:
        answer = raw.ask(request("POST", path, body, "Accept: application/json"))
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["transactionId"] > 0


def test_a_snapshot_in_json_is_polled_with(caller: Caller, store: ServedStore) -> None:
    store.messaging.publish("t", [b"a"])
    snapshot = caller.ask("POST", TRANSACTIONS + "/snapshot", {}, JSON).json
    body = {"transaction": snapshot["transaction"]}
    (found,) = caller.ask("POST", TOPIC + "/poll", body).json
    assert (found["payload"], snapshot["timeoutS"]) == ("a", None)


@pytest.mark.parametrize("size", [1, 300_000])
@pytest.mark.parametrize(
    ("accept", "body"),
    [("application/json", b"{}"), ("*/*", b"{}"), (None, b""), ("text/html", b"")],
)
def test_a_plain_publish_in_json_answers_json_to_whoever_accepts_it(
    caller: Caller, accept: str | None, body: bytes, size: int
) -> None:
    headers = {} if accept is None else {"Accept": accept}
    sent = {"messages": ["x" * size]}
    answer = caller.ask("POST", TOPIC + "/publish", sent, headers)
    assert (answer.status, answer.body) == (200, body)
    is_json = answer.headers.get("content-type") == "application/json"
    assert is_json == bool(body)


def test_a_plain_publish_in_avro_answers_nothing(caller: Caller) -> None:
    headers = {"Content-Type": "avro/binary", "Accept": "*/*"}
    answer = caller.ask(
        "POST", TOPIC + "/publish", bytes.fromhex("0202026100"), headers
    )
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("pointer", [NEVER, 2**62])
@pytest.mark.parametrize("body", [{}, {"check": True}, {"repeat": True}])
def test_a_commit_of_what_never_began_is_refused(
    caller: Caller, pointer: int, body: dict[str, bool]
) -> None:
    answer = caller.ask("POST", f"{TRANSACTIONS}/{pointer}/commit", body)
    assert answer.status == 409
    assert answer.json["error"] == "TransactionNotInProgress"


def test_a_repeat_of_what_was_committed_is_a_yes(caller: Caller) -> None:
    pointer = caller.ask("POST", TRANSACTIONS, {}, JSON).json["transactionId"]
    for _ in range(2):
        body = {"check": True, "repeat": True}
        path = f"{TRANSACTIONS}/{pointer}/commit"
        assert caller.ask("POST", path, body).status == 200


@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}])
def test_an_empty_instance_is_refused(caller: Caller, key: dict[str, str]) -> None:
    headers = {"Txaware-Instance": "", **key}
    answer = caller.ask("POST", TOPIC + "/publish", {"messages": ["a"]}, headers)
    assert answer.status == 400
    assert "Txaware-Instance is empty" in answer.json["message"]
    assert caller.ask("POST", TOPIC + "/poll", {}).json == []


def test_fields_of_a_query_are_described_and_only_pages_and_ping_take_any() -> None:
    for route in ROUTES:
        assert set(operation_of(route).query) == set(route.query or ())
    lenient = {one.path for one in ROUTES if one.query is None}
    pages = {"/", "/docs", "/ping"}
    assert pages <= lenient
    assert all(path in pages or "." in path for path in lenient)
