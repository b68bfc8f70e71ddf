"""Transactions of a server: restarts, clients that disappear, a coordinator away."""

import json
import urllib.request
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.error import HTTPError

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import (
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    Unavailable,
)
from coordinator.remote.calls import CallRequest
from coordinator.remote.client import CallSender, RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.full_disk import FullDisk
from tests.support.http_access import Caller
from tests.support.messagings import payloads
from txaware.messaging import Messaging
from txaware.model.settings import Settings

QUIET = Settings(janitor_interval_s=0)


def opened(directory: Path, clock: Clock) -> Messaging:
    return txaware.connect(f"leveldb:{directory}/data", settings=QUIET, clock_ms=clock)


def test_a_transaction_begun_over_http_survives_a_restart_of_the_server(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as first, first.serve() as server:
        port = int(server.url.rpartition(":")[2])
        client = txaware.connect(server.url)
        client.create_topic("t")
        tx = client.coordinator.start_short(60)
        client.publish("t", [b"before"], transaction=tx)
    with (
        opened(tmp_path, clock) as second,
        second.serve(port=port),
        client,
    ):
        client.publish("t", [b"after"], transaction=tx)
        assert not client.poll("t", isolation="committed")
        client.coordinator.can_commit(tx, [])
        client.coordinator.commit(tx)
        assert payloads(client.poll("t", isolation="committed")) == [
            b"before",
            b"after",
        ]


COMMITS = {
    "check": True,
    "publishes": [{"topic": "t", "messages": [{"utf8": "refused"}]}],
}


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_copy_of_a_refused_commit_that_comes_to_the_next_life_is_not_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    """That life knows nothing of the refusal. Whoever asks again says so, and commits.

    The disk was full, and the server was killed before its client aborted.
    """
    clock, disk = Clock(), FullDisk(monkeypatch)
    with opened(tmp_path, clock) as first, first.serve() as server:
        port = int(server.url.rpartition(":")[2])
        client = txaware.connect(server.url)
        client.create_topic("t")
        tx = client.coordinator.start_short(60)
        path = f"/v1/transactions/{tx.transaction_id}/commit"
        with closing(Caller(server.url, None)) as caller, disk.full():
            refused = caller.ask("POST", path, COMMITS)
        assert (refused.status, refused.json["error"]) == (503, "NotWritten")
    with opened(tmp_path, clock) as second, second.serve(port=port), client:
        with closing(Caller(server.url, None)) as caller:
            copy = caller.ask("POST", path, COMMITS)
            assert (copy.status, copy.headers["txaware-outcome"]) == (503, "unknown")
            assert 'ask once more, with "repeat": true' in copy.json["message"]
            if is_repeated:
                again = caller.ask("POST", path, {**COMMITS, "repeat": True})
                assert again.status == 200
            else:
                client.coordinator.abort(tx)
        found = payloads(client.poll("t", isolation="committed"))
        assert found == ([b"refused"] if is_repeated else [])


@pytest.mark.parametrize("verb", ["publish", "store"])
def test_a_copy_of_a_write_that_comes_to_the_next_life_is_not_carried_out(
    tmp_path: Path, verb: str
) -> None:
    """Its key was known in its own life alone, and its transaction goes on."""
    clock = Clock()
    with opened(tmp_path, clock) as first, first.serve() as server:
        port = int(server.url.rpartition(":")[2])
        client = txaware.connect(server.url, frames=False)
        client.create_topic("t")
        tx = client.coordinator.start_short(60)
        client.publish("t", [b"once"], transaction=tx)
    path = f"/v1/namespaces/default/topics/t/{verb}"
    asked = {
        "transactionWritePointer": tx.write_pointer,
        "messages": [{"utf8": "once"}],
    }
    with opened(tmp_path, clock) as second, second.serve(port=port), client:
        with closing(Caller(server.url, None)) as caller:
            for sent_to in ("", server.instance):
                headers = {"txaware-sent-to": sent_to} if sent_to else {}
                copy = caller.ask("POST", path, asked, headers)
                assert copy.headers["txaware-outcome"] == "unknown"
                assert "it may be a copy" in copy.json["message"]
        with pytest.raises(Unavailable, match="it may be a copy"):
            client.publish("t", [b"lost"], transaction=tx)
        client.publish("t", [b"it has heard of it"], transaction=tx)
        with txaware.connect(server.url, frames=True) as other:
            other.publish("t", [b"in frames"], transaction=tx)
        client.coordinator.can_commit(tx, [])
        client.coordinator.commit(tx)
        found = payloads(client.poll("t", isolation="committed"))
        assert found == [b"once", b"it has heard of it", b"in frames"]


def test_the_transaction_of_a_client_that_disappeared_times_out(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as messaging, messaging.serve() as server:
        with txaware.connect(server.url) as gone:
            gone.create_topic("t")
            tx = gone.coordinator.start_short(5)
            gone.publish("t", [b"never committed"], transaction=tx)
        with txaware.connect(server.url) as client:
            client.publish("t", [b"behind it"])
            assert not client.poll("t", isolation="committed")
            clock.advance_s(6)
            assert payloads(client.poll("t", isolation="committed")) == [b"behind it"]
            with pytest.raises(TransactionNotInProgress):
                client.coordinator.commit(tx)


class Lossy(CallSender):
    """A sender that loses the answer to the first call of a name."""

    def __init__(self, coordinator: RemoteCoordinator, call: str) -> None:
        self._sender = coordinator._sender
        self._call = call
        coordinator._sender = self

    def ask(self, asked: CallRequest) -> Any:
        answer = self._sender.ask(asked)
        if asked.call.name == self._call:
            self._call = "nothing"
            raise OSError("the answer was lost")
        return answer


def remote(client: Messaging) -> RemoteCoordinator:
    coordinator = client.coordinator
    assert isinstance(coordinator, RemoteCoordinator)
    return coordinator


def test_a_commit_that_is_repeated_after_a_lost_answer_is_answered_truly() -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        coordinator = remote(client)
        committed = coordinator.start_short()
        Lossy(coordinator, "commit")
        coordinator.commit(committed)
        assert coordinator.snapshot().is_visible(committed.transaction_id)
        ended = coordinator.start_short()
        coordinator.invalidate(ended)
        Lossy(coordinator, "commit")
        with pytest.raises(TransactionNotInProgress):
            coordinator.commit(ended)


def test_a_repeated_commit_is_not_told_as_done_because_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    """It was invalidated, and that was forgotten a day later, by the time before."""
    clock = Clock()
    with (
        opened(tmp_path, clock) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        tx = messaging.coordinator.start_short(30, outlives_process=True)
        messaging.coordinator.invalidate(tx)
        clock.advance_s(25 * 3600)
        messaging.coordinator.start_short()
        assert messaging.coordinator.truncate_invalid_tx([tx.transaction_id])
        clock.advance_s(-2 * 3600)
        Lossy(remote(client), "commit")
        with pytest.raises(TransactionOutcomeUnknown):
            client.coordinator.commit(tx)


def test_a_block_whose_commit_lost_its_answer_is_committed_once() -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        client.create_topic("t")
        Lossy(remote(client), "commit")
        with client.transaction() as tx:
            client.publisher("t").publish(b"once")
        assert tx.status.value == "committed"
        assert payloads(client.poll("t", isolation="committed")) == [b"once"]


class Away(EmbeddedCoordinator):
    """A coordinator that cannot be reached until it is said to be back."""

    is_away = False

    def _require_here(self) -> None:
        if self.is_away:
            raise Unavailable("the coordinator is away")

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        self._require_here()
        return super().start_short(timeout_s, outlives_process=outlives_process)

    def snapshot(self) -> Transaction:
        self._require_here()
        return super().snapshot()

    def status(self) -> str:
        return "the coordinator is away" if self.is_away else super().status()

    def invalid_size(self) -> int:
        self._require_here()
        return super().invalid_size()


def health(url: str) -> tuple[int, dict[str, str]]:
    try:
        with urllib.request.urlopen(url + "/health", timeout=10) as answer:
            return answer.status, json.load(answer)["parts"]
    except HTTPError as error:
        with error:
            return error.code, json.load(error)["parts"]


def test_plain_publishes_go_on_while_the_coordinator_is_away() -> None:
    coordinator = Away()
    with (
        txaware.connect("memory:", coordinator=coordinator) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        client.create_topic("t")
        assert health(server.url) == (200, {"table": "OK", "coordinator": "OK"})
        coordinator.is_away = True
        client.publish("t", [b"plain"])
        assert payloads(client.poll("t")) == [b"plain"]
        for found in (messaging.metrics(), client.metrics()):
            assert found.topics["t"].messages_in == 1
            assert found.invalid_transactions is None
        with pytest.raises(Unavailable, match="away"):
            client.poll("t", isolation="committed")
        with pytest.raises(Unavailable, match="away"), client.transaction():
            pytest.fail("there is no transaction")
        status, parts = health(server.url)
        assert (status, parts["table"]) == (503, "OK")
        assert "away" in parts["coordinator"]
        coordinator.is_away = False
        with client.transaction():
            client.publisher("t").publish(b"back")
        assert payloads(client.poll("t", isolation="committed"))[-1] == b"back"


def test_health_tells_of_one_part_whatever_the_other_comes_up_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator = EmbeddedCoordinator()
    with (
        txaware.connect("memory:", coordinator=coordinator) as messaging,
        messaging.serve() as server,
    ):
        monkeypatch.setattr(coordinator, "status", lambda: 1 // 0)
        status, parts = health(server.url)
        assert (status, parts["table"]) == (503, "OK")
        assert "cannot be asked: " in parts["coordinator"]


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        ("POST", "/v1/transactions", {"timeout_s": 1, "typ": "long"}),
        ("POST", "/v1/transactions?type=long", {}),
        ("POST", "/v1/transactions/snapshot", {"type": "long"}),
        ("POST", "/v1/transactions/snapshot?type=long", {}),
        ("POST", "/v1/transactions/truncate", {"pointer": [1]}),
        ("POST", "/v1/transactions/truncate?pointers=1", {}),
        ("POST", "/v1/transactions/{id}/commit", {"checkpoint": [1]}),
        ("POST", "/v1/transactions/{id}/commit?check=true", {}),
        ("GET", "/v1/transactions?status=open", None),
        ("GET", "/v1/transactions/find-hanging?older_than=0", None),
        ("GET", "/v1/transactions/state?a=1", None),
        ("GET", "/v1/transactions/{id}?a=1", None),
        ("POST", "/v1/admin/prune", {"exclusve": True}),
        ("POST", "/v1/admin/prune?exclusive=true", {}),
        ("GET", "/v1/transactions/{id}/outcome?a=1", None),
        ("POST", "/v1/transactions/{id}/persist", {"participant": ["a"]}),
        ("POST", "/v1/transactions/{id}/persist", {"participants": "a"}),
        ("POST", "/v1/keepers", {"name": "n", "smallest": 1}),
        ("POST", "/v1/keepers", {"name": "n", "smallestPointer": "1"}),
        ("POST", "/v1/keepers", {"name": "n", "smallestPointer": -1}),
        ("POST", "/v1/keepers", {"name": ""}),
        ("POST", "/v1/keepers?name=n", {"name": "n"}),
        ("POST", "/v1/keepers/forget", {"names": ["n"]}),
        ("GET", "/v1/keepers?a=1", None),
    ],
)
def test_a_field_that_is_not_known_does_nothing(
    method: str, path: str, fields: dict[str, object] | None
) -> None:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        coordinator = messaging.coordinator
        assert isinstance(coordinator, EmbeddedCoordinator)
        tx = coordinator.start_short(3600)
        with closing(Caller(server.url, None)) as caller:
            answer = caller.ask(method, path.format(id=tx.transaction_id), fields)
        assert answer.status == 400
        assert answer.json["error"] == "BadRequest"
        (left,) = coordinator.open_transactions()
        assert left.transaction_id == tx.transaction_id
        assert messaging.keepers() == []


def test_a_long_poll_is_woken_by_a_publish_and_by_a_commit() -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        client.create_topic("t")
        tx = messaging.coordinator.start_short()
        messaging.publish("t", [b"later"], transaction=tx)
        assert not client.wait("t", start=None, timeout_s=0.05)

        def commit() -> None:
            messaging.coordinator.can_commit(tx, [])
            messaging.coordinator.commit(tx)

        timer = Timer(0.2, commit)
        timer.start()
        assert client.wait("t", start=None, timeout_s=20)
        timer.join()
        page = client.poll("t", isolation="committed")
        timer = Timer(0.2, lambda: messaging.publish("t", [b"next"]))
        timer.start()
        found = client.poll(
            "t", start=page.next, inclusive=False, isolation="committed", wait_s=20
        )
        timer.join()
        assert payloads(found) == [b"next"]
