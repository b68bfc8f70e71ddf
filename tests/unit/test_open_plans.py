"""Plans that are kept for others, who have their pieces done: here, and over HTTP."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import txaware
from tests.support.clean_up_data import (
    SETTINGS,
    Store,
    cleaned_here,
    retention_of,
    rows_of,
    store,
)
from tests.support.http_access import Caller
from tests.support.messagings import table_of
from tests.support.odd_values import ODD
from tests.support.workers import stable_id
from txaware.client import HttpAdministration
from txaware.errors import BadRequest, PlanForgotten, TxAwareError, Unavailable
from txaware.service.retention.clean_up_plan import Piece, PieceResult, Plan
from txaware.service.retention.open_plans import FORGOTTEN_AFTER_MS, MOST_PLANS

PATH = "/v1/admin/clean-up"


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    with store() as found:
        yield found


def test_a_plan_that_is_unknown_or_finished_or_old_is_refused(store: Store) -> None:
    administration = store.messaging.administration
    opened = administration.plan_clean_up(pieces=2)
    with pytest.raises(PlanForgotten, match="there is no open plan 'other'"):
        administration.clean_piece("other", 0)
    with pytest.raises(BadRequest, match=f"the plan has {opened.pieces} pieces"):
        administration.clean_piece(opened.id, opened.pieces)
    with pytest.raises(BadRequest, match="the plan has"):
        administration.clean_piece(opened.id, -1)
    store.clock.set_s(FORGOTTEN_AFTER_MS)  # a clock that is set lets no time pass
    store.clock.now_ms += FORGOTTEN_AFTER_MS
    administration.clean_piece(opened.id, 0)  # used again, it is kept for longer
    store.clock.now_ms += FORGOTTEN_AFTER_MS
    administration.clean_piece(opened.id, 0)
    store.clock.now_ms += FORGOTTEN_AFTER_MS + 1
    for call in (
        lambda: administration.clean_piece(opened.id, 0),
        lambda: administration.finish_clean_up(opened.id),
    ):
        with pytest.raises(PlanForgotten, match="nobody used it for an hour"):
            call()
    opened = administration.plan_clean_up()
    administration.finish_clean_up(opened.id)
    with pytest.raises(PlanForgotten):
        administration.finish_clean_up(opened.id)


def test_of_too_many_plans_the_one_that_was_used_least_recently_is_forgotten(
    store: Store,
) -> None:
    administration = store.messaging.administration
    plans = []
    for _ in range(MOST_PLANS):
        plans.append(administration.plan_clean_up().id)
        store.clock.advance_s(1)
    administration.clean_piece(plans[0], 0)
    administration.plan_clean_up()
    administration.clean_piece(plans[0], 0)
    with pytest.raises(PlanForgotten):
        administration.clean_piece(plans[1], 0)


def test_two_who_do_the_same_piece_at_once_get_the_same_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = retention_of(store.messaging)
    opened = store.messaging.administration.plan_clean_up()
    inside, go_on = threading.Event(), threading.Event()
    clean_piece, calls, rows = retention.clean_piece, [], []

    def slow(plan: Plan, piece: Piece) -> PieceResult:
        calls.append(piece)
        inside.set()
        assert go_on.wait(10)
        return clean_piece(plan, piece)

    monkeypatch.setattr(retention, "clean_piece", slow)

    def act() -> None:
        rows.append(store.messaging.administration.clean_piece(opened.id, 0))

    threads = [threading.Thread(target=act) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(set(rows)) == 1


def test_a_piece_that_failed_may_be_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, left = cleaned_here()
    administration = store.messaging.administration
    opened = administration.plan_clean_up()
    with monkeypatch.context() as patched:
        table: Any = table_of(store.messaging)
        patched.setattr(table, "scan", _unavailable)
        for number in range(opened.pieces):
            with pytest.raises(Unavailable):
                administration.clean_piece(opened.id, number)
    for number in range(opened.pieces):
        administration.clean_piece(opened.id, number)
    assert administration.finish_clean_up(opened.id) == expected
    assert rows_of(store.messaging) == left


def _unavailable(*_: object, **__: object) -> None:
    raise Unavailable("the disk is away")


def test_over_http_the_same_is_done_as_in_one_process(store: Store) -> None:
    expected, left = cleaned_here()
    with (
        store.messaging.serve() as server,
        txaware.connect(server.url, settings=SETTINGS) as client,
    ):
        administration = client.administration
        assert isinstance(administration, HttpAdministration)
        opened = administration.plan_clean_up(pieces=3)
        assert opened.topics == expected.topics
        done = [administration.clean_piece(opened.id, n) for n in range(opened.pieces)]
        assert [administration.clean_piece(opened.id, 0)] == done[:1]
        assert administration.finish_clean_up(opened.id) == expected
        with pytest.raises(PlanForgotten, match="there is no open plan"):
            administration.finish_clean_up(opened.id)
        metrics = client.metrics().retention
    assert rows_of(store.messaging) == left
    assert metrics.runs == 1
    assert metrics.removed["expired_messages"] == expected.expired_messages
    assert (metrics.topics, metrics.topics_done) == (expected.topics, expected.topics)


def test_over_http_a_piece_that_was_never_done_counts_as_failed(store: Store) -> None:
    with (
        store.messaging.serve() as server,
        txaware.connect(server.url, settings=SETTINGS) as client,
    ):
        opened = client.administration.plan_clean_up()
        for number in range(1, opened.pieces):
            client.administration.clean_piece(opened.id, number)
        done = client.administration.finish_clean_up(opened.id)
    assert (done.failed_topics, done.least_needed) == (1, None)


BODIES = [
    *(b"", b"{", b"[]", b"null", b"3", b'"a"', b"{}", b'{"plan": 3, "piece": 0}'),
    *(b'{"piece": 0}', b'{"plan": null, "piece": 0}', b'{"plan": "x", "piece": true}'),
    *(b'{"plan": "x", "piece": 1.0}', b'{"plan": ["x"], "piece": 0}', b"\xff"),
]


def test_what_comes_over_the_network_is_checked(store: Store) -> None:
    with store.messaging.serve() as server:
        caller = Caller(server.url, None)
        opened = caller.ask("POST", f"{PATH}/plan").json
        for body in BODIES:
            assert caller.ask("POST", f"{PATH}/piece", body).status == 400, body
        for bad in (0, -1, 1001, 2**70, True, None, "4", 1.5, [1]):
            answer = caller.ask("POST", f"{PATH}/plan", {"pieces": bad})
            assert answer.status == 400, bad
        for number in (-1, opened["pieces"], 2**70):
            body_of = {"plan": opened["id"], "piece": number}
            assert caller.ask("POST", f"{PATH}/piece", body_of).status == 400
        for plan in (
            "",
            "x",
            opened["id"][:-1],
            opened["id"] + "0",
            "\ud800",
            "x" * 9999,
        ):
            answer = caller.ask("POST", f"{PATH}/piece", {"plan": plan, "piece": 0})
            assert (answer.status, answer.json["error"]) == (409, "PlanForgotten")
            assert len(answer.body) < 1000
            answer = caller.ask("POST", f"{PATH}/finish", {"plan": plan})
            assert answer.status == 409
        assert caller.ask("POST", f"{PATH}/finish", {"plan": 5}).status == 400
        # A client cannot say what is to be removed, nor what was done.
        forged = {"plan": opened["id"], "results": {"0": {"rows": 1}}, "pieces": []}
        done = caller.ask("POST", f"{PATH}/finish", forged).json
        caller.close()
    assert (done["topics"], done["leastNeeded"]) == (1, None)  # `empty` has no pieces
    assert done["failedTopics"] == opened["topics"] - 1


@pytest.mark.parametrize("odd", ODD, ids=stable_id)
def test_whatever_is_passed_is_refused_alike_here_and_over_http(odd: Any) -> None:
    with (
        txaware.connect("memory:", settings=SETTINGS) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        for call in (
            lambda a: a.plan_clean_up(pieces=odd).pieces,
            lambda a: a.clean_piece(odd, 0),
            lambda a: a.clean_piece(a.plan_clean_up().id, odd),
            lambda a: a.finish_clean_up(odd),
        ):
            here = _outcome(call, messaging.administration)
            assert _outcome(call, client.administration) == here


def _outcome(call: Callable[[Any], object], administration: object) -> object:
    try:
        return call(administration)
    except TxAwareError as error:
        return type(error)
