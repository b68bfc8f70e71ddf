"""Prepared transactions over HTTP: whose they are, lost answers, and asyncio."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import codec
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import PreparedNotFound, TransactionPrepared, Unavailable
from coordinator.outcome import Outcome
from coordinator.remote.calls import COMMIT_PREPARED
from coordinator.remote.client import RemoteCoordinator
from coordinator.remote.server import CoordinatorRoutes
from tests.support.http_access import TRANSACTIONS, Caller, Guarded, guarded
from tests.support.http_raw import Served
from txaware.auth import Principal, Rule
from txaware.errors import NotAuthorized
from txaware.protocol.rights import to_prepare

COMMIT, ROLL_BACK = (
    TRANSACTIONS + "/commit-prepared",
    TRANSACTIONS + "/rollback-prepared",
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as found:
        yield found


def prepared(caller: Caller, name: str) -> int:
    answer = caller.ask("POST", TRANSACTIONS, {"type": "short", "timeoutS": 30})
    pointer = codec.decode(answer.body).transaction_id
    path = f"{TRANSACTIONS}/{pointer}/prepare"
    for _ in range(2):  # a repeat is answered the same
        assert caller.ask("POST", path, {"name": name}).status == 200
    return pointer


def names(caller: Caller) -> list[str]:
    found = caller.ask("GET", TRANSACTIONS + "/prepared").json
    return [f"{one['principal']} {one['name']}" for one in found]


def test_each_sees_and_ends_their_own_and_operators_all(site: Guarded) -> None:
    writer, rival = site.caller("writer"), site.caller("rival")
    pointer = prepared(writer, "one")
    prepared(writer, "two")
    prepared(rival, "three")
    with site.messaging.transaction() as tx:
        tx.prepare("of the program")
    assert names(writer) == ["writer one", "writer two"]
    assert names(rival) == ["rival three"]
    everything = ["writer one", "writer two", "rival three", "None of the program"]
    assert names(site.caller("operator")) == everything
    for name in ("one", "of the program"):
        for path in (COMMIT, ROLL_BACK):
            answer = rival.ask("POST", path, {"name": name})
            assert answer.status == 403, answer.json
            assert "somebody else prepared it" in answer.json["message"]
    repeated = {"name": "gone", "transactionId": pointer}
    assert rival.ask("POST", COMMIT, repeated).status == 403
    assert writer.ask("POST", COMMIT, {"name": "one"}).status == 200
    assert site.caller("operator").ask("POST", ROLL_BACK, {"name": "two"}).status == 200
    assert names(writer) == []
    assert site.messaging.coordinator.outcome(pointer) is Outcome.COMMITTED


def test_rights_outlast_the_server(tmp_path: Path) -> None:
    with guarded(tmp_path, f"leveldb:{tmp_path / 'data'}") as site:
        prepared(site.caller("writer"), "one")
        file = site.tokens_file
        tokens = site.tokens
    url = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(url) as messaging, messaging.serve(tokens=file) as server:
        writer, rival = (Caller(server.url, tokens[n]) for n in ("writer", "rival"))
        assert names(writer) == ["writer one"]
        assert rival.ask("POST", COMMIT, {"name": "one"}).status == 403
        assert writer.ask("POST", COMMIT, {"name": "one"}).status == 200
        writer.close()
        rival.close()


def test_errors_have_their_statuses(site: Guarded) -> None:
    writer = site.caller("writer")
    pointer = prepared(writer, "one")
    answer = writer.ask("POST", COMMIT, {"name": "none"})
    assert (answer.status, answer.json["error"]) == (404, "PreparedNotFound")
    answer = writer.ask("POST", f"{TRANSACTIONS}/{pointer}/commit", {})
    assert (answer.status, answer.json["error"]) == (409, "TransactionPrepared")
    begun = writer.ask("POST", TRANSACTIONS, {"type": "short", "timeoutS": 30})
    other = codec.decode(begun.body).transaction_id
    answer = writer.ask("POST", f"{TRANSACTIONS}/{other}/prepare", {"name": "one"})
    assert (answer.status, answer.json["error"]) == (409, "PreparedExists")
    for body in ({}, {"name": 5}, {"name": "one", "principal": "rival"}):
        answer = writer.ask("POST", COMMIT, body)
        assert (answer.status, answer.json["error"]) == (400, "BadRequest")


@pytest.mark.parametrize(("rule", "may"), [(True, True), (False, False)])
def test_a_principal_without_long_transactions_prepares_none(
    rule: bool, may: bool
) -> None:
    rules = (Rule(transactions=True, long=rule),)
    principal = Principal(name="ann", rules=rules)
    if may:
        to_prepare(principal, {})
        return
    with pytest.raises(NotAuthorized, match="ann may not prepare a transaction"):
        to_prepare(principal, {})


class Lossy:
    """Requests to a coordinator, some of whose answers are lost."""

    def __init__(self, coordinator: EmbeddedCoordinator) -> None:
        self._routes = CoordinatorRoutes(coordinator)
        self.lose: list[str] = []

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = self._routes.answer(method, path, body)
        call = path.rpartition("/")[2]
        if call in self.lose:
            self.lose.remove(call)
            raise OSError("the answer was lost")
        return answer.status, answer.body


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_lost_answer_is_asked_for_again(end: str) -> None:
    with EmbeddedCoordinator() as inner:
        send = Lossy(inner)
        remote = RemoteCoordinator(send)
        tx = remote.start_short()
        send.lose = ["prepare", f"{end}-prepared"]
        remote.prepare(tx, "p")
        assert [one.name for one in remote.prepared()] == ["p"]
        getattr(remote, f"{end}_prepared")("p")
        assert not send.lose
        expected = Outcome.COMMITTED if end == "commit" else Outcome.ROLLED_BACK
        assert remote.outcome(tx) is expected
        with pytest.raises(PreparedNotFound):
            getattr(remote, f"{end}_prepared")("p")


def test_a_later_transaction_of_the_name_is_left_alone() -> None:
    """Whoever repeats a call after a lost answer names what it was about."""
    with EmbeddedCoordinator() as inner:
        remote = RemoteCoordinator(Lossy(inner))
        first, second = remote.start_short(), remote.start_short()
        remote.prepare(first, "p")
        remote.rollback_prepared("p")
        remote.prepare(second, "p")
        body = {"name": "p", "transactionId": first.transaction_id}
        with pytest.raises(PreparedNotFound, match="no longer prepared as 'p'"):
            remote._ask(COMMIT_PREPARED, **body)
        with pytest.raises(TransactionPrepared):
            remote.invalidate(second)


@pytest.mark.parametrize("end", ["commit_prepared", "rollback_prepared"])
def test_a_name_that_is_given_on_meanwhile_is_left_alone(
    site: Guarded, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Between the check of a request and its end, the name becomes somebody else's."""
    coordinator = site.messaging.coordinator
    ends = getattr(coordinator, end)
    prepared(site.caller("writer"), "one")

    def late(name: str, **options: Any) -> None:
        ends(name)
        prepared(site.caller("rival"), name)
        ends(name, **options)

    monkeypatch.setattr(coordinator, end, late)
    path = COMMIT if end == "commit_prepared" else ROLL_BACK
    # It is ended, if not by this call.
    assert site.caller("writer").ask("POST", path, {"name": "one"}).status == 200
    assert names(site.caller("rival")) == ["rival one"]


def test_an_answer_that_is_lost_twice_is_unavailable() -> None:
    with EmbeddedCoordinator() as inner:
        send = Lossy(inner)
        remote = RemoteCoordinator(send)
        tx = remote.start_short()
        send.lose = ["prepare", "prepare"]
        with pytest.raises(Unavailable):
            remote.prepare(tx, "p")
        with pytest.raises(TransactionPrepared):
            remote.invalidate(tx)


def test_asyncio_prepares_lists_and_ends(served: Served) -> None:
    async def run() -> None:
        async with txaware.connect_async(served.url) as messaging:
            await messaging.create_topic("a")
            table = await messaging.table("accounts")
            for name in ("yes", "no"):
                async with messaging.transaction() as tx:
                    await table.put(name.encode(), b"1")
                    await tx.prepare(name)
            assert [one.name for one in await messaging.prepared()] == ["yes", "no"]
            await messaging.commit_prepared("yes")
            await messaging.rollback_prepared("no")
            assert [row async for row in table.items()] == [(b"yes", b"1")]
            with pytest.raises(PreparedNotFound):
                await messaging.commit_prepared("yes")

    asyncio.run(run())
