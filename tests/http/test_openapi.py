"""The server's description of itself: complete, exact, and what it really answers."""

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from coordinator.remote.calls import CAN_COMMIT, CHECKPOINT, COMMIT
from tests.support.http_access import ROUTES, Caller
from tests.support.openapi_runs import CHECKS, Run, outcome
from txaware.auth import EVERYTHING, Principal, Tokens, new_token
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.protocol.groups import POSITION_PATH as POSITION
from txaware.server.openapi.document import operations
from txaware.server.server import Access, HttpServer

SETTINGS = Settings(long_poll_s=0.01, janitor_interval_s=0)
# A number like 5.0 is a whole one to JSON Schema, and not here.
FUZZED = tuple(check for check in CHECKS if check != "positive_data_acceptance")
CHOSEN = {
    "path.topic": "orders",
    "path.namespace": "default",
    "path.group": "billing",
    "path.table": "accounts",
    "path.queue": "mail",
}
EACH_WRONG_TYPE = Run(
    examples=1,
    phases=("examples", "coverage"),
    parameters=CHOSEN,
    without=("DELETE",),
)
RUNS = {
    "examples": Run(examples=1, phases=("examples", "coverage")),
    "a topic": attrs.evolve(EACH_WRONG_TYPE, wrong_types=4),
    "each wrong type": EACH_WRONG_TYPE,
    "fuzzing": Run(examples=5, phases=("fuzzing",), checks=FUZZED),
    "fuzzing a topic": Run(
        examples=12,
        phases=("fuzzing",),
        parameters=CHOSEN,
        checks=FUZZED,
        without=("DELETE",),
    ),
}

SHORT = "a topic"  # each of the others takes half a minute of a processor as well


@attrs.frozen
class Described:
    """A server that asks for tokens, one of them, and what it says of itself."""

    messaging: Messaging
    server: HttpServer
    token: str
    document: dict[str, Any]


@pytest.fixture
def described() -> Iterator[Described]:
    with described_at("memory:") as found:
        yield found


@contextmanager
def described_at(data: str) -> Iterator[Described]:
    """A server of that data, what it describes, and a token for all of it."""
    token, tokens = new_token(), Tokens(Path("no file"))
    tokens.admit(token, Principal(name="ann", rules=(EVERYTHING,)))
    with txaware.connect(data, settings=SETTINGS) as messaging:
        assert messaging._parts.served is not None
        with HttpServer(messaging._parts.served, Access(tokens=tokens)) as server:
            messaging.create_topic("orders")
            messaging.create_queue("mail")
            url = f"{server.url}/openapi.json"
            with urllib.request.urlopen(url, timeout=10) as answer:
                yield Described(messaging, server, token, json.load(answer))


def assert_as_described(described: Described, run: Run) -> None:
    found = outcome(described.server.url, described.token, described.document, run)
    lines = [f"{' · '.join(kind)}\n    {what}" for kind, what in found.problems.items()]
    assert not lines, f"{len(lines)} problems\n" + "\n".join(lines[:20])
    assert found.requests > 100


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, id=name, marks=() if name == SHORT else pytest.mark.long)
        for name, run in RUNS.items()
    ],
)
def test_the_server_answers_as_it_is_described(described: Described, run: Run) -> None:
    assert_as_described(described, run)


def test_a_server_without_tokens_asks_for_none(described: Described) -> None:
    def asks(document: dict[str, Any]) -> bool:
        return "bearer" in json.dumps(document) or any(
            operation["security"]
            for operations in document["paths"].values()
            for operation in operations.values()
        )

    with (
        described.messaging.serve() as server,
        urllib.request.urlopen(f"{server.url}/openapi.json", timeout=10) as answer,
    ):
        assert not asks(json.load(answer))
    assert asks(described.document)


def test_bounds_are_described_as_they_are_checked(described: Described) -> None:
    paths, caller = (
        described.document["paths"],
        Caller(described.server.url, described.token),
    )
    push = paths["/v1/namespaces/{namespace}/queues/{queue}/push"]["post"]
    schema = push["requestBody"]["content"]["application/json"]["schema"]
    assert schema["allOf"][1]["properties"]["messages"]["minItems"] == 1
    path = "/v1/namespaces/default/queues/mail/push"
    assert caller.ask("POST", path, {"messages": []}).status == 400
    (older,) = paths["/v1/transactions/find-hanging"]["get"]["parameters"]
    assert older["schema"]["minimum"] == 0
    for value, status in (("-1", 400), ("-0.001", 400), ("0", 200)):
        where = f"/v1/transactions/find-hanging?olderThanS={value}"
        assert caller.ask("GET", where).status == status
    caller.close()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("run", [RUNS["fuzzing"], RUNS["fuzzing a topic"]])
def test_the_server_answers_as_it_is_described_for_long(
    described: Described, run: Run, seed: int
) -> None:
    assert_as_described(described, attrs.evolve(run, examples=60, seed=seed))


def test_every_route_is_described_and_nothing_else(described: Described) -> None:
    routes = {(route.method, route.path) for route in ROUTES}
    assert routes == set(operations())
    paths = described.document["paths"]
    assert {(name.upper(), path) for path in paths for name in paths[path]} == routes


def test_what_needs_no_token_says_so(described: Described) -> None:
    for route in ROUTES:
        operation = described.document["paths"][route.path][route.method.lower()]
        assert operation["security"] == ([] if route.is_open else [{"token": []}])
        assert ("401" in operation["responses"]) is not route.is_open


def test_every_schema_that_is_named_is_there_and_each_is_used(
    described: Described,
) -> None:
    document = described.document
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert named == set(document["components"]["schemas"])


def test_the_examples_work(tmp_path: Path) -> None:
    with described_at(f"leveldb:{tmp_path / 'data'}") as described:
        examples_work(described)


def examples_work(described: Described) -> None:
    tx = described.messaging.coordinator.start_short()
    with described.messaging.transaction() as prepared:
        prepared.prepare("order-8")
    paths = described.document["paths"]
    for path in sorted(paths, key=lambda one: one.endswith("-prepared")):  # those last
        methods = paths[path]
        example = methods.get("post", {}).get("requestBody", {}).get("content", {})
        example = example.get("application/json", {}).get("example")
        if example is None or path.endswith("/shards/give"):  # to another server
            continue
        where = path.format(
            namespace="default",
            topic="orders",
            group="billing",
            table="accounts",
            queue="mail",
            transactional_id="loader-7",
            transaction=described.messaging.coordinator.start_short().transaction_id,
        )
        for name in {"transactionWritePointer", "transaction"} & example.keys():
            example[name] = tx.transaction_id
        request = urllib.request.Request(
            described.server.url + where,
            json.dumps(example).encode(),
            {
                "Authorization": f"Bearer {described.token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200, where


def test_what_comes_too_late_is_refused_as_described(described: Described) -> None:
    """Nobody guesses a transaction that has ended, or a topic that is there."""
    tx = described.messaging.coordinator.start_short()
    described.messaging.coordinator.commit(tx)
    pointer, topic = tx.transaction_id, "/v1/namespaces/{namespace}/topics/{topic}"
    messages = {"transactionWritePointer": pointer, "messages": ["a"]}
    late: dict[tuple[str, str], object] = {
        ("PUT", topic): {},
        ("POST", topic + "/publish"): messages,
        ("POST", topic + "/store"): messages,
        ("PUT", POSITION): {"position": "00" * 20, "transaction": pointer},
        **{
            ("POST", call.path("{transaction}")): {}
            for call in (CAN_COMMIT, CHECKPOINT)
        },
        ("POST", COMMIT.path("{transaction}")): {},
    }
    caller = Caller(described.server.url, described.token)
    for (method, path), body in late.items():
        names = {"namespace": "default", "topic": "orders", "group": "billing"}
        where = path.format(transaction=pointer, **names)
        assert caller.ask(method, where, body).status == 409, (method, path)
        operation = described.document["paths"][path][method.lower()]
        assert "409" in operation["responses"], (method, path)
    caller.close()
