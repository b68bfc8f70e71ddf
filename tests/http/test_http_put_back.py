"""Clients that hold a transaction while the server's directory is put back."""

import base64
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.outcome import Outcome
from coordinator.remote import calls
from tests.support.http_access import Answer, Caller
from tests.support.messagings import committed
from tests.support.ports import free_port
from txaware.errors import (
    PreparedNotFound,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
)
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.transfer.backup import restore

pytestmark = pytest.mark.usefixtures("copies_are_told")
SETTINGS = Settings(janitor_interval_s=0)


class Server:
    """A server of a directory that can be put back, at one address."""

    def __init__(self, tmp_path: Path, how: str) -> None:
        self.directory = tmp_path / "data"
        self._copy = tmp_path / "copy"
        self._how = how
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._open = ExitStack()

    def start(self) -> Messaging:
        url = f"leveldb:{self.directory}"
        owner = self._open.enter_context(txaware.connect(url, settings=SETTINGS))
        self._open.enter_context(owner.serve(port=self._port))
        return owner

    def stop(self) -> None:
        self._open.close()

    def copy(self) -> None:
        """Copies it while it runs, and what is open there is open in the copy."""
        if self._how == "backup":
            with self._copy.open("wb") as file, txaware.connect(self.url) as client:
                client.backup(file)
        else:
            shutil.copytree(self.directory, self._copy)

    def put_back(self) -> Messaging:
        """Somebody else goes on with what was put back."""
        self.stop()
        shutil.rmtree(self.directory)
        if self._how == "backup":
            with self._copy.open("rb") as file:
                restore(file, self.directory, SETTINGS)
        else:
            shutil.copytree(self._copy, self.directory)
        owner = self.start()
        with owner.transaction():
            owner.publisher("t").publish(b"new")
        return owner


@pytest.fixture(params=["copy", "backup"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, request.param)
    server.start().create_topic("t")
    yield server
    server.stop()


def ask(server: Server, method: str, path: str, body: object = None) -> Answer:
    caller = Caller(server.url, None)
    try:
        return caller.ask(method, path, body, {"Accept": "application/json"})
    finally:
        caller.close()


@pytest.fixture
def client(server: Server) -> Iterator[Messaging]:
    with txaware.connect(server.url) as client:
        yield client


def test_a_block_over_it_is_refused_and_nothing_of_it_is_there(
    server: Server, client: Messaging
) -> None:
    server.copy()

    def block() -> None:
        with client.transaction() as tx:
            entered.append(tx)
            client.table("rows").put(b"k", b"v")
            client.publisher("t").publish(b"mine")
            server.put_back()

    entered: list[Any] = []
    with pytest.raises(TransactionNotInProgress):
        block()
    assert entered[0].status.value == "invalidated"
    assert committed(client) == [b"new"]
    assert client.table("rows").get(b"k") is None
    with client.transaction():
        client.publisher("t").publish(b"again")
    assert committed(client) == [b"new", b"again"]


def test_one_that_was_open_in_the_copy_is_refused_too(
    server: Server, client: Messaging
) -> None:
    tx = client.coordinator.start_short(600)
    client.publish("t", [b"before the copy"], transaction=tx)
    server.copy()
    client.publish("t", [b"after the copy"], transaction=tx)
    server.put_back()
    with pytest.raises(TransactionNotInProgress):
        client.coordinator.commit(tx)
    assert client.coordinator.outcome(tx) is Outcome.FORGOTTEN
    assert committed(client) == [b"new"]


def test_a_client_that_knows_a_pointer_only_is_refused_each_call(
    server: Server, client: Messaging
) -> None:
    server.copy()
    began = ask(server, "POST", "/v1/transactions", {})
    pointer = began.json["transactionId"]
    server.put_back()
    one = f"/v1/transactions/{pointer}"
    publish = {"transactionWritePointer": pointer, "messages": ["x"]}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("/v1/namespaces/default/topics/t/publish", publish),
        ("/v1/namespaces/default/topics/t/store", publish),
        (f"{one}/can-commit", {"changes": [base64.b64encode(b"k").decode()]}),
        (f"{one}/commit", {}),
        (f"{one}/commit", {"repeat": True}),
        (f"{one}/prepare", {"name": "n"}),
    ]
    for path, body in calls:
        answer = ask(server, "POST", path, body)
        assert answer.status == 409, (path, answer)
    found = ask(server, "GET", f"{one}/outcome").json
    assert found == {"outcome": "forgotten", "life": ""}


def test_a_commit_whose_answer_was_lost_is_not_said_to_have_happened(
    server: Server, client: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.copy()
    tx = client.coordinator.start_short(600)
    client.publish("t", [b"mine"], transaction=tx)
    client.coordinator.commit(tx)  # and its answer was lost
    server.put_back()
    again: Any = client.coordinator
    with pytest.raises((TransactionNotInProgress, TransactionOutcomeUnknown)):
        again._ask_for(tx, calls.COMMIT, repeat=True)
    assert committed(client) == [b"new"]


def test_what_was_prepared_since_has_no_name_any_more(
    server: Server, client: Messaging
) -> None:
    server.copy()
    with client.transaction() as tx:
        client.publisher("t").publish(b"mine")
        tx.prepare("n")
    (found,) = client.prepared()
    server.put_back()
    assert client.prepared() == []
    there: Any = client.coordinator
    for end in (there.commit_prepared, there.rollback_prepared):
        with pytest.raises(PreparedNotFound):
            end("n", transaction_id=found.transaction_id)


def test_the_transaction_of_a_producer_is_refused_and_it_begins_another(
    server: Server, client: Messaging
) -> None:
    with client.producer("id") as producer:
        with producer.transaction():
            producer.publish("t", [b"one"])
        server.copy()
        producer.begin()
        producer.publish("t", [b"two"])
        server.put_back()
        with pytest.raises(TransactionNotInProgress):
            producer.commit()
    with client.producer("id") as producer:
        assert producer.commits == 1
        with producer.transaction():
            producer.publish("t", [b"three"])
    assert committed(client) == [b"one", b"new", b"three"]


def test_a_person_decides_over_the_network(server: Server, client: Messaging) -> None:
    server.copy()
    tx = client.coordinator.start_short()
    client.coordinator.persist(tx)
    there: Any = client.coordinator
    life = there.life_of(tx)
    client.coordinator.commit(tx)
    server.put_back()
    assert there.outcome(tx, life=life) is Outcome.FORGOTTEN
    there.decide(tx, committed=True, life=life)
    assert there.outcome(tx, life=life) is Outcome.COMMITTED
