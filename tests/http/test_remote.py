"""The coordinator over HTTP: bodies that are wrong, and answers that are lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.context import transaction
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import (
    InvalidTransactionTimeout,
    TransactionConflict,
    TransactionNotInProgress,
    Unavailable,
)
from coordinator.remote.client import ROOT, CoordinatorRoutes, RemoteCoordinator
from tests.support.doubles import Recorder


def over_the_wire(routes: CoordinatorRoutes) -> RemoteCoordinator:
    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = routes.answer(method, path, body)
        return answer.status, answer.body

    return RemoteCoordinator(send)


@pytest.fixture
def routes() -> CoordinatorRoutes:
    return CoordinatorRoutes(EmbeddedCoordinator())


def error_of(answer: Any) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/v1/topics", b"", (404, "NotFound")),
        ("GET", "/v1/transactionsx", b"", (404, "NotFound")),
        ("POST", f"{ROOT}/5/nothing", b"", (404, "NotFound")),
        ("POST", f"{ROOT}/x/commit", b"", (404, "NotFound")),
        ("POST", f"{ROOT}/-5/commit", b"", (404, "NotFound")),
        ("GET", f"{ROOT}/5/commit", b"", (405, "MethodNotAllowed")),
        ("POST", f"{ROOT}/status", b"", (405, "MethodNotAllowed")),
        ("POST", ROOT, b"nonsense", (400, "BadRequest")),
        ("POST", ROOT, b"[" * 100_000, (400, "BadRequest")),
        ("POST", ROOT, b"\xff\xfe", (400, "BadRequest")),
        ("POST", ROOT, b"[]", (400, "BadRequest")),
        ("POST", ROOT, b'{"type": "middling"}', (400, "BadRequest")),
        ("POST", ROOT, b'{"timeoutS": "soon"}', (400, "BadRequest")),
        ("POST", ROOT, b'{"timeoutS": true}', (400, "BadRequest")),
        ("POST", ROOT, b'{"timeoutS": 0}', (400, "InvalidTransactionTimeout")),
        ("POST", ROOT, b'{"timeoutS": NaN}', (400, "InvalidTransactionTimeout")),
        ("POST", ROOT, b'{"timeoutS": Infinity}', (400, "InvalidTransactionTimeout")),
        ("POST", ROOT, b'{"type": "long", "timeoutS": 5}', (400, "BadRequest")),
        ("POST", f"{ROOT}/5/commit", b"", (409, "TransactionNotInProgress")),
        ("POST", f"{ROOT}/5/commit", b'{"type": 3}', (400, "BadRequest")),
        ("POST", f"{ROOT}/9999999999999999999/commit", b"", (400, "BadRequest")),
        ("POST", f"{ROOT}/5/abort", b'{"checkpoints": 3}', (400, "BadRequest")),
        ("POST", f"{ROOT}/5/abort", b'{"checkpoints": [1.5]}', (400, "BadRequest")),
        ("POST", f"{ROOT}/5/can-commit", b'{"changes": ["?"]}', (400, "BadRequest")),
        ("POST", f"{ROOT}/5/can-commit", b'{"changes": [7]}', (400, "BadRequest")),
        ("POST", f"{ROOT}/truncate", b'{"beforeMs": -1}', (400, "BadRequest")),
        ("POST", f"{ROOT}/7/decide", b'{"outcome": "forgotten"}', (400, "BadRequest")),
        *(
            (
                *("POST", f"{ROOT}/7/decide"),
                b'{"outcome": "committed", "life": %b}' % life,
                (400, "BadRequest"),
            )
            for life in (b"null", b"7", b'"7"')
        ),
        ("POST", f"{ROOT}/truncate", b'{"pointers": ["1"]}', (400, "BadRequest")),
    ],
)
def test_wrong_requests_get_a_status_and_a_reason(
    routes: CoordinatorRoutes,
    method: str,
    path: str,
    body: bytes,
    expected: tuple[int, str],
) -> None:
    assert error_of(routes.answer(method, path, body)) == expected


@pytest.mark.parametrize(
    ("method", "path", "fields", "message"),
    [
        (
            *("POST", "", {"timeout_s": 1}),
            "the body has a field 'timeout_s', which is none of type, timeoutS",
        ),
        (
            *("POST", "", {"typ": "long"}),
            "the body has a field 'typ', which is none of type, timeoutS",
        ),
        ("POST", "/snapshot", {"type": "long"}, "the body has a field 'type',"),
        ("POST", "/truncate", {"beforeMs": 1, "pointers": []}, "it takes beforeMs or"),
        (
            *("POST", "/truncate", {"pointer": [1]}),
            "the body has a field 'pointer', which is none of beforeMs, pointers",
        ),
        (
            *("POST", "/5/commit", {"checkpoint": []}),
            "the body has a field 'checkpoint', which is none of type, checkpoints, "
            "check, changes, repeat",
        ),
        ("POST", "/5/can-commit", {"change": []}, "the body has a field 'change',"),
        ("POST", "/5/abort", {"repeat": True}, "the body has a field 'repeat',"),
        ("POST", "/5/abort", {"x" * 500: 1}, f"the body has a field '{'x' * 80}',"),
        ("GET", "?states=open", {}, "no such field in the query: states"),
        ("GET", "/status?a=1", {}, "no such field in the query: a"),
        ("GET", "/5?a=1", {}, "no such field in the query: a"),
        (
            *("GET", "/find-hanging?older_than=0&a=1", {}),
            "no such field in the query: a, older_than",
        ),
        ("POST", "/truncate?beforeMs=5", {}, "no such field in the query: beforeMs"),
    ],
)
def test_a_field_that_is_not_known_is_refused_by_its_name(
    routes: CoordinatorRoutes,
    method: str,
    path: str,
    fields: dict[str, Any],
    message: str,
) -> None:
    answer = routes.answer(method, ROOT + path, json.dumps(fields).encode())
    assert error_of(answer) == (400, "BadRequest")
    assert json.loads(answer.body)["message"].startswith(message)


@given(
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from(
        ["", "/status", "/truncate", "/7/can-commit", "/7/abort", "/7/checkpoint"]
    ),
    st.one_of(
        st.binary(max_size=20),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "timeoutS", "changes", "checkpoints", "pointers"]
                    ),
                    inner,
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_no_request_is_ever_a_fault_of_the_server(
    method: str, path: str, body: bytes
) -> None:
    routes = CoordinatorRoutes(EmbeddedCoordinator())
    assert routes.answer(method, ROOT + path, body).status in (200, 400, 404, 405, 409)


def test_errors_arrive_as_the_class_they_left_as(routes: CoordinatorRoutes) -> None:
    remote = over_the_wire(routes)
    one, two = remote.start_short(), remote.start_short()
    remote.can_commit(one, [b"\x00\xff"])
    remote.commit(one)
    with pytest.raises(TransactionConflict, match=r"b'\\x00\\xff'"):
        remote.can_commit(two, [b"\x00\xff"])
    with pytest.raises(TransactionNotInProgress, match="has ended"):
        remote.commit(one)
    with pytest.raises(InvalidTransactionTimeout, match="time-out"):
        remote.start_short(timeout_s=0)


@pytest.mark.parametrize(
    "answer",
    [
        (502, b"<html>bad gateway</html>"),
        (409, b"conflict, says the proxy"),
        (409, b'{"error": "SomethingNew", "message": "?"}'),
        (500, b'{"error": ["TransactionConflict"]}'),
    ],
)
def test_an_answer_that_is_not_ours_is_no_refusal(answer: tuple[int, bytes]) -> None:
    remote = RemoteCoordinator(lambda method, path, body: answer)
    with pytest.raises(Unavailable, match=f"answered {answer[0]}"):
        remote.start_short()


def test_a_broken_connection_is_unavailable_with_its_cause() -> None:
    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        raise ConnectionResetError("cut")

    with pytest.raises(Unavailable, match="did not answer: cut") as caught:
        RemoteCoordinator(send).status()
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_a_commit_whose_answer_the_network_lost_is_settled(
    routes: CoordinatorRoutes,
) -> None:
    cut = {"commit"}

    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = routes.answer(method, path, body)
        call = path.rpartition("/")[2]
        if call in cut:
            raise ConnectionResetError("cut")
        return answer.status, answer.body

    log: list[str] = []
    with transaction(RemoteCoordinator(send), Recorder("table", log)) as tx:
        pass
    assert log[-1] == "post_tx_commit table"
    assert over_the_wire(routes).snapshot().is_visible(tx.transaction.transaction_id)


def test_a_commit_that_the_network_delivers_twice_is_a_commit() -> None:
    """The request that is answered may be the second one of the two."""
    routes = CoordinatorRoutes(EmbeddedCoordinator())

    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answers = [routes.answer(method, path, body) for _ in range(2)]
        return answers[-1].status, answers[-1].body

    doubled = RemoteCoordinator(send)
    tx = doubled.start_short()
    doubled.can_commit(tx, [b"k"])
    doubled.commit(tx)
    assert doubled.snapshot().is_visible(tx.write_pointer)
    with pytest.raises(TransactionNotInProgress):
        doubled.commit(tx)
    for end in ("abort", "invalidate"):
        tx = doubled.start_short()
        getattr(doubled, end)(tx)
        with pytest.raises(TransactionNotInProgress):
            doubled.commit(tx)
    tx = doubled.start_short()
    over_the_wire(routes).invalidate(tx)
    with pytest.raises(TransactionNotInProgress):
        doubled.commit(tx)
