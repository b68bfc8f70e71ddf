"""The coordinator over HTTP: bodies that are wrong, and answers that are lost."""

import gc
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
from coordinator.remote.calls import ROOT
from coordinator.remote.client import RemoteCoordinator
from coordinator.remote.server import CoordinatorRoutes
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


@given(
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from(
        [
            *("", "/status", "/truncate", "/7/can-commit", "/7/abort"),
            *("/7/checkpoint", "/7/persist", "/7/prepare", "/commit-prepared"),
        ]
    ),
    st.one_of(
        st.binary(max_size=20),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "type",
                            "timeoutS",
                            "changes",
                            "checkpoints",
                            "pointers",
                            "name",
                        ]
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


def test_changes_are_kept_no_longer_than_their_transaction() -> None:
    remote = over_the_wire(CoordinatorRoutes(EmbeddedCoordinator()))
    for note in (remote.can_commit, remote.check_at_commit):
        for number in range(10):
            note(remote.start_short(), [b"%d" % number])
    gc.collect()
    assert not remote._changes


@pytest.mark.parametrize("call", ["can_commit", "check_at_commit"])
def test_changes_outlive_a_checkpoint_whose_answer_is_all_that_is_left(
    call: str,
) -> None:
    remote = over_the_wire(CoordinatorRoutes(EmbeddedCoordinator()))
    tx, other = remote.start_short(), remote.start_short()
    getattr(remote, call)(tx, [b"k"])
    tx = remote.checkpoint(tx)
    gc.collect()
    assert [one.keys for one in remote._changes.values()] == [[b"k"]]
    remote.commit(tx)
    with pytest.raises(TransactionConflict):
        remote.can_commit(other, [b"k"])
    remote.abort(other)
    assert not remote._changes


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
