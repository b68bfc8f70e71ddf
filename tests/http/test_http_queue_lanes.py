"""Requests of queues are answered alike in the direct lane and the general way."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import Gate
from tests.support.concurrency import until
from tests.support.http_access import RULES, guarded
from tests.support.http_lanes import (
    DIFFERS,
    JSON,
    Lanes,
    answered,
    as_json,
    counts,
    on_disk,
)
from tests.support.http_raw import PING, Raw, Served, request
from txaware.auth import new_token

MAIL = "/v1/namespaces/default/queues/mail"
VERBS = ("push", "pop", "commit", "rollback", "extend")
ITEM = {"messages": ["a"]}


def asked(verb: str, body: Any = None, *headers: str) -> bytes:
    """One request about the queue."""
    return as_json(f"{MAIL}/{verb}", {} if body is None else body, *headers)


def odd_requests() -> Iterator[bytes]:
    """Whatever may be wrong with a request about a queue, and some that are right."""
    wrong: list[Any] = [{}, [], 5, None, {"a": 1}, {"id": 5, "lease": None}]
    for verb in VERBS:
        yield from (asked(verb, value) for value in wrong)
        yield request("POST", f"{MAIL}/{verb}", b"{", JSON)
        yield request("POST", f"{MAIL}/{verb}", None, JSON)
        yield request("GET", f"{MAIL}/{verb}")
        for path in (MAIL + "?a=b", MAIL[:-1] + "%6c", MAIL + "x", MAIL + "/"):
            yield as_json(f"{path}/{verb}", ITEM)
        yield asked(verb + "?a=b", ITEM)
        yield asked(verb, ITEM, "Idempotency-Key: " + "k" * 65)
        yield asked(verb, ITEM, "Origin: http://evil")
    for query in (
        *("pusher=p&delayMs=5&priority=9", "pusher=%41+b", "pusher=%00", "pusher=%zz"),
        *("priority=10", "delayMs=-1", "delayMs=x", "delay=1", "priority=1&priority=2"),
        *(
            "",
            "&&",
            "pusher",
            "=",
            "pusher=a;b",
            "pusher='",
            "pusher=\xe9",
            "pusher=a#b",
        ),
    ):
        yield asked("push?" + query, ITEM)
    pushed: list[Any] = [{"messages": []}, ITEM | {"receipts": []}]
    yield from (asked("push", value) for value in pushed)
    yield asked("push", ITEM, "Idempotency-Key: 1")
    yield asked("push", ITEM, "Idempotency-Key: 1")
    popped: list[Any] = [
        *({"limit": 0}, {"limit": 2}, {"waitMs": -1}, {"popper": "\0"}, {"popper": 5}),
        *({"ownsPipe": True}, {"ownsPipe": 1}, {"transaction": "AA=="}, {"waitMs": 1}),
    ]
    yield from (asked("pop", value) for value in popped)


def life_of_jobs(raw: Raw) -> list[Any]:
    """Asks what workers ask, and returns the answers."""

    def ask(verb: str, value: Any, *headers: str) -> Any:
        answer = raw.ask(asked(verb, value, *headers))
        answers.append((verb, answer.status, answer.body))
        return answer.json() if verb == "pop" else None

    answers: list[Any] = []
    item = {"utf8": "\u20ac", "key": "ann", "headers": {"h": "1", "\u20ac": ""}}
    ask("push?pusher=p", {"messages": ["a", item, {"utf8": "e", "expireAfterMs": 1}]})
    for key in ("a", "a", "b"):
        for job in ask("pop", {"popper": "w"}, f"Idempotency-Key: {key}"):
            given = {"id": job["id"], "lease": job["lease"]}
            ask("commit", given | {"lease": "0" * 16})
            ask("extend", given | {"forMs": 90_000})
            ask("rollback", given | {"error": "no", "delayMs": 0}, "Idempotency-Key: a")
            ask("commit", given)
    for job in ask("pop", {"limit": 5}) + ask("pop", {}) + ask("pop", {}):
        given = {"id": job["id"], "lease": job["lease"], "transaction": None}
        ask("commit", given, f"Idempotency-Key: {job['id'][:50]}")
        ask("commit", given, f"Idempotency-Key: {job['id'][:50]}")
        ask("extend", given | {"forMs": 5})
    return answers


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the tokens of leases and the numbers of pipes begin anew when called."""

    def begin() -> None:
        drawn = count()
        draw = "txaware.service.queue.queue_state.getrandbits"
        monkeypatch.setattr(draw, lambda _: next(drawn))
        found = count(1)
        for module in ("popping", "lease"):
            name = f"txaware.service.queue.{module}.new_token"
            monkeypatch.setattr(name, lambda: next(found))

    return begin


def test_whatever_is_asked_of_a_queue_is_answered_the_same_in_both_lanes(
    lanes: Lanes, tokens: Any, tmp_path: Path
) -> None:
    found: dict[str, list[Any]] = {}
    for name in ("direct", "general"):
        lanes.take(name)
        tokens()
        before = lanes.direct
        with on_disk(tmp_path / name) as here:
            here.messaging.create_queue("mail")
            found[name] = [answered(here, data) for data in odd_requests()]
            with here.connect() as raw:
                found[name] += life_of_jobs(raw)
            found[name] += [here.messaging.queue("mail").stats(), *counts(here)]
            assert here.is_well()
        assert (lanes.direct > before) == (name == "direct")
    for direct, general in zip(found["direct"], found["general"], strict=True):
        assert direct == general


def test_rights_on_queues_are_asked_alike_and_refusals_written_down(
    lanes: Lanes, tmp_path: Path
) -> None:
    found: dict[str, list[Any]] = {}
    for name in ("direct", "general"):
        lanes.take(name)
        directory = tmp_path / name
        directory.mkdir()
        with guarded(directory) as site:
            site.messaging.create_queue("mail")
            callers = {who: site.caller(who) for who in RULES}
            callers |= {"none": site.with_token(None)}
            callers |= {"unknown": site.with_token(new_token())}
            answers: list[Any] = []
            for who, caller in callers.items():
                for queue in ("mail", "secret", "a%20b"):
                    for verb in VERBS:
                        body = ITEM if verb == "push" else {}
                        path = f"/v1/namespaces/default/queues/{queue}/{verb}"
                        answer = caller.ask("POST", path, body)
                        headers = {**answer.headers}
                        for differs in (*DIFFERS, "content-length"):
                            headers.pop(differs, None)
                        text = b"" if answer.status == 200 else answer.body
                        answers.append((who, path, answer.status, headers, text))
            lines = [{**line, "time": "", "since": ""} for line in site.refused()]
            found[name] = [*answers, *lines]
    assert found["direct"] == found["general"]


@pytest.fixture
def held(lane: str, tmp_path: Path, stuck: Gate) -> Iterator[Served]:
    """A queue with two jobs; from then on nothing is written until `stuck` opens."""
    assert lane
    stuck.open.set()
    with on_disk(tmp_path) as here:
        here.messaging.create_queue("mail")
        here.messaging.queue("mail").push_all([b"a", b"b"])
        stuck.open.clear()
        yield here


def test_a_repeat_of_a_pop_under_way_gets_the_same_job(
    held: Served, stuck: Gate
) -> None:
    with ExitStack() as stack:
        poppers = [stack.enter_context(held.connect()) for _ in range(3)]
        for raw in poppers:
            raw.send(asked("pop", {}, "Idempotency-Key: k"))
        assert until(lambda: held.in_flight == 3)
        assert held.ask(PING).status == 200  # the event loop waits for no disk
        stuck.open.set()
        bodies = {raw.response().body for raw in poppers}
        assert len(bodies) == 1
    assert held.messaging.queue("mail").stats().in_work == 1


def test_a_repeat_pops_anew_where_the_first_popper_is_gone(
    held: Served, stuck: Gate
) -> None:
    with held.connect() as again:
        with held.connect() as raw:
            raw.send(asked("pop", {}, "Idempotency-Key: k"))
            assert until(lambda: held.in_flight == 1)
            again.send(asked("pop", {}, "Idempotency-Key: k"))
            assert until(lambda: held.in_flight == 2)
        connections = held.server._server.server_state.connections
        assert until(lambda: any(getattr(one, "is_gone", False) for one in connections))
        stuck.open.set()
        (job,) = again.response().json()
        assert job["deliveries"] == 1
    stats = held.messaging.queue("mail").stats()
    assert (stats.in_work, stats.popped) == (1, 1)
    assert held.is_well()


def test_a_half_closed_popper_is_told_so_and_leases_nothing(
    lane: str, tmp_path: Path
) -> None:
    with on_disk(tmp_path) as here:
        here.messaging.create_queue("mail")
        with here.connect() as raw:
            raw.send(asked("pop", {"waitMs": 20_000}))
            assert until(lambda: here.in_flight == 1)
            answer = raw.half_close().response()
            assert (answer.status, answer.json()["error"]) == (400, "BadRequest"), lane
            assert "half closed" in answer.json()["message"]
            assert raw.has_ended()
        here.messaging.queue("mail").push(b"a")
        assert here.messaging.queue("mail").stats().popped == 0
        assert here.is_well()
