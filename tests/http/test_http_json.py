"""Whole transactions in JSON, as any program that speaks HTTP makes them."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coordinator import codec
from coordinator.remote.client import RemoteCoordinator
from tests.support.http_access import ROUTES, TRANSACTIONS, Answer, Caller
from tests.support.http_raw import Raw, request
from tests.support.http_served import ServedStore, served
from txaware.client import CoordinatorSend, Link, Transport
from txaware.client.calls.call import Call
from txaware.server.openapi.document import operation_of
from txaware.server.routing import Route

TOPIC = "/v1/namespaces/default/topics/t"
JSON = {"Accept": "application/json"}
PAGE = Path(__file__).parents[2] / "docs" / "http.md"
NEVER = 5
POSITION = "/v1/namespaces/default/groups/g/positions/t"
RANGE = ("from", "to", "transaction")


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


WRONG = (None, True, 5, 1.5, [None], {"None": True}, "x")
BODIES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("POST", TRANSACTIONS, lambda v: {"type": v}),
    ("POST", TRANSACTIONS, lambda v: {"type": "long", "timeoutS": v}),
    ("POST", TRANSACTIONS + "/truncate", lambda v: {"pointers": [v]}),
    ("POST", TRANSACTIONS + "/truncate", lambda v: {"beforeMs": v}),
    ("POST", TRANSACTIONS + "/5/can-commit", lambda v: {"changes": [v]}),
    ("POST", TRANSACTIONS + "/5/persist", lambda v: {"participants": [v]}),
    ("POST", TRANSACTIONS + "/5/prepare", lambda v: {"name": v}),
    ("POST", TRANSACTIONS + "/commit-prepared", lambda v: {"name": v}),
    (
        "POST",
        TRANSACTIONS + "/rollback-prepared",
        lambda v: {"name": "n", "transactionId": v},
    ),
    ("POST", TRANSACTIONS + "/5/abort", lambda v: {"checkpoints": [v]}),
    ("PUT", TOPIC, lambda v: {"ttl": v}),
    ("PUT", TOPIC, lambda v: {"x": v}),
    ("PATCH", TOPIC + "/properties", lambda v: {"publishing": v}),
    ("PATCH", TOPIC + "/properties", lambda v: {"generation": v}),
    ("POST", TOPIC + "/publish", lambda v: {"messages": v}),
    ("POST", TOPIC + "/publish", lambda v: {"messages": [v]}),
    ("POST", TOPIC + "/poll", lambda v: {"limit": v}),
    ("POST", TOPIC + "/poll", lambda v: {"startFrom": v}),
    ("POST", TOPIC + "/wait", lambda v: {"waitMs": v}),
    ("POST", TOPIC + "/first-undecided", lambda v: dict.fromkeys(RANGE, v)),
    ("POST", POSITION, lambda v: {"transaction": v}),
    ("PUT", POSITION, lambda v: {"position": v, "transaction": 5}),
    ("PUT", POSITION, lambda v: {"position": None, "transaction": v}),
    ("POST", "/v1/keepers", lambda v: {"name": v}),
    ("POST", "/v1/keepers", lambda v: {"name": "n", "smallestPointer": v}),
    ("POST", "/v1/keepers/forget", lambda v: {"name": v}),
    ("POST", "/v1/admin/clean-up/plan", lambda v: {"pieces": v}),
    ("POST", "/v1/admin/clean-up/piece", lambda v: {"plan": "p", "piece": v}),
    ("POST", "/v1/admin/clean-up/finish", lambda v: {"plan": v}),
    ("POST", "/v1/admin/prune", lambda v: {"exclusive": v}),
]
PYTHON = re.compile(r"None|True|False|Error|NoneType|dict|\b(str|int|bool)\b|_[A-Z]")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    BODIES,
    ids=[f"{m} {p} {b(0)}" for m, p, b in BODIES],
)
def test_what_a_client_sent_is_quoted_as_json_has_it(
    caller: Caller, method: str, path: str, body: Callable[[Any], Any]
) -> None:
    refused = 0
    for value in WRONG:
        answer = caller.ask(method, path, body(value))
        if answer.status == 400:
            refused += 1
            message = (
                answer.json["message"].replace("'None'", "").replace("txaware", "")
            )
            assert not PYTHON.search(message), message
        else:
            assert answer.status in (200, 404, 409), answer.json
    assert refused


def asked(caller: Caller, route: Route, query: str) -> Answer:
    names = {"namespace": "default", "topic": "t", "group": "g", "transaction": "5"}
    names |= {"table": "rows", "transactional_id": "loader-7", "producer": "7"}
    names |= {"queue": "mail"}
    path = route.path.format_map(names)
    return caller.ask(route.method, f"{path}?{query}", {})


@pytest.mark.parametrize(
    "route", ROUTES, ids=[f"{one.method} {one.path}" for one in ROUTES]
)
def test_a_field_of_a_query_that_is_not_known_is_refused(
    caller: Caller, route: Route
) -> None:
    assert set(operation_of(route).query) == set(route.query or ())
    answer = asked(caller, route, "misspelt=1")
    if route.query is None:
        assert answer.status == 200
        return
    assert answer.status == 400
    assert answer.json["message"] == "no such field in the query: misspelt"


def test_only_the_page_and_ping_take_any_query() -> None:
    lenient = {one.path for one in ROUTES if one.query is None}
    assert {"/", "/ping"} <= lenient
    assert all(path == "/ping" or "." in path or path == "/" for path in lenient)
