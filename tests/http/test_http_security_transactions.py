"""Transactions belong to whoever began them; and what was decided is taken back."""

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import txaware
from coordinator import codec
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.coordinators import remote
from tests.support.http_access import (
    POSITION,
    RULES,
    TOPIC,
    TRANSACTIONS,
    Caller,
    Guarded,
    guarded,
)
from txaware.auth import EVERYTHING, Principal
from txaware.errors import NotAuthorized
from txaware.server.owners import Owners

CALLS = ("can-commit", "persist", "commit", "abort", "checkpoint", "invalidate")
ID = "00" * 20
STATUS = rb"HTTP/1.1 ([0-9]+)"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, long_poll_s=5) as found:
        yield found


def begun(caller: Caller) -> int:
    answer = caller.ask("POST", TRANSACTIONS, {"type": "short", "timeoutS": 30})
    return codec.decode(answer.body).transaction_id


def standing(site: Guarded, pointer: int) -> str:
    found = site.caller("operator").ask("GET", f"{TRANSACTIONS}/{pointer}")
    return str(found.json["state"])


def writes(pointer: int) -> dict[str, tuple[str, str, object]]:
    """Every request that names a transaction in its body."""
    return {
        "publish": (
            *("POST", TOPIC + "/publish"),
            {"transactionWritePointer": pointer, "messages": ["a"]},
        ),
        "reference": (
            *("POST", TOPIC + "/publish"),
            {"transactionWritePointer": {"long": pointer}, "messages": []},
        ),
        "store": (
            *("POST", TOPIC + "/store"),
            {"transactionWritePointer": pointer, "messages": ["a"]},
        ),
        "rollback": (
            *("POST", TOPIC + "/rollback"),
            {
                "transactionWritePointer": pointer,
                **{"startTimestamp": 0, "startSequenceId": 0},
                **{"endTimestamp": 2**62, "endSequenceId": 0},
            },
        ),
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_transaction_of_somebody_else_cannot_be_ended(
    site: Guarded, call: str
) -> None:
    pointer = begun(site.caller("writer"))
    for spelled in (f"{pointer}", f"0{pointer}"[-19:]):
        path = f"{TRANSACTIONS}/{spelled}/{call}"
        answer = site.caller("rival").ask("POST", path, {"type": "short"})
        assert answer.status == 403
        assert "somebody else began it" in answer.json["message"]
    assert standing(site, pointer) == "open"
    assert site.caller("writer").ask("POST", path, {"type": "short"}).status == 200


@pytest.mark.parametrize("act", writes(1))
def test_nobody_writes_in_a_transaction_of_somebody_else(
    site: Guarded, act: str
) -> None:
    pointer = begun(site.caller("writer"))
    site.caller("writer").ask(*writes(pointer)["publish"])
    answer = site.caller("rival").ask(*writes(pointer)[act])
    assert answer.status == 403
    assert standing(site, pointer) == "open"
    assert len(site.messaging.peek("orders")) == 1
    assert site.messaging.peek("orders")[0].state == "in progress"
    assert site.caller("writer").ask(*writes(pointer)[act]).status == 200


def test_nobody_moves_a_group_in_a_transaction_of_somebody_else(site: Guarded) -> None:
    pointer = begun(site.caller("writer"))
    body = {"position": ID, "transaction": pointer}
    assert site.caller("saver").ask("PUT", POSITION, body).status == 403
    assert (
        site.caller("saver").ask("PUT", POSITION, {**body, "position": None}).status
        == 403
    )
    own = {**body, "transaction": begun(site.caller("saver"))}
    assert site.caller("saver").ask("PUT", POSITION, own).status == 200


@pytest.mark.parametrize(
    "call", [f"%2F{call}" for call in CALLS] + ["%3Fa", "%2Fcommit%3F"]
)
def test_a_slash_that_is_encoded_leads_to_no_call(site: Guarded, call: str) -> None:
    pointer = begun(site.caller("writer"))
    for name in ("rival", "writer"):
        answer = site.caller(name).ask("POST", f"{TRANSACTIONS}/{pointer}{call}", {})
        assert answer.status == 404
    assert standing(site, pointer) == "open"


def test_a_transaction_begun_by_another_spelling_is_nobodys(site: Guarded) -> None:
    for path in ("/", "%2F", "%3F", "?", "//"):
        answer = site.caller("writer").ask("POST", TRANSACTIONS + path, {})
        if answer.status == 200:
            pointer = codec.decode(answer.body).transaction_id
            commit = f"{TRANSACTIONS}/{pointer}/commit"
            assert site.caller("rival").ask("POST", commit, {}).status == 403
        else:
            assert answer.status == 404


def test_a_further_pointer_belongs_to_whom_its_transaction_belongs(
    site: Guarded,
) -> None:
    writer, rival = site.caller("writer"), site.caller("rival")
    pointer, own = begun(writer), begun(rival)
    (checkpoint,) = writer.ask("POST", f"{TRANSACTIONS}/{pointer}/checkpoint", {}).json[
        "pointers"
    ]
    assert rival.ask(*writes(checkpoint)["publish"]).status == 403
    for call in CALLS:
        for stolen in (pointer, checkpoint):
            body = f'{{"checkp\\u006fints": [{stolen}]}}'.encode()
            answer = rival.ask("POST", f"{TRANSACTIONS}/{own}/{call}", body)
            assert answer.status == 403, call
    assert standing(site, pointer) == standing(site, own) == "open"


def test_an_operator_releases_who_waits_and_does_not_commit(site: Guarded) -> None:
    pointer, operator = begun(site.caller("writer")), site.caller("operator")
    for call in ("commit", "abort"):
        assert (
            operator.ask("POST", f"{TRANSACTIONS}/{pointer}/{call}", {}).status == 403
        )
    answer = operator.ask("POST", f"{TRANSACTIONS}/{pointer}/invalidate", {})
    assert answer.json == {"invalidated": True}
    assert standing(site, pointer) == "invalid"


def test_a_guess_tells_nothing_of_a_transaction_of_somebody_else(site: Guarded) -> None:
    pointer = begun(site.caller("writer"))
    answer = site.caller("rival").ask("GET", f"{TRANSACTIONS}/{pointer}")
    assert answer.status == 403
    assert b"writer" not in answer.body


def test_operators_and_who_monitors_are_told_whose_it_is_and_nobody_else(
    site: Guarded,
) -> None:
    pointer = begun(site.caller("writer"))
    (listed,) = site.caller("operator").ask("GET", TRANSACTIONS).json
    shown = site.caller("operator").ask("GET", f"{TRANSACTIONS}/{pointer}").json
    (seen,) = site.caller("monitor").ask("GET", "/v1/overview").json["transactions"]
    for found in (listed, shown, seen):
        assert found["principal"] == "writer"
        assert found["address"].startswith("127.0.0.1:")
        assert found["isHeld"]
    for path in ("", "/find-hanging?olderThanS=0", f"/{pointer}"):
        answer = site.caller("rival").ask("GET", TRANSACTIONS + path)
        assert answer.status == 403
        assert b"writer" not in answer.body
    own = site.caller("writer").ask("GET", f"{TRANSACTIONS}/{pointer}")
    assert own.json["principal"] == "writer"


@pytest.mark.parametrize("call", CALLS)
def test_what_the_program_itself_began_is_nobodys_on_the_network(
    site: Guarded, call: str
) -> None:
    coordinator = site.messaging.coordinator
    for tx in (
        coordinator.start_short(outlives_process=True),
        coordinator.start_long(),
        coordinator.checkpoint(coordinator.start_short()),
    ):
        for pointer in tx.pointers:
            path = f"{TRANSACTIONS}/{pointer}/{call}"
            assert site.caller("rival").ask("POST", path, {}).status == 403
            assert standing(site, pointer) == "open"
        coordinator.commit(tx)
        assert site.caller("rival").ask("POST", path, {}).status == 403


@pytest.mark.parametrize("act", writes(1))
def test_nobody_writes_in_a_transaction_of_the_program(site: Guarded, act: str) -> None:
    with site.messaging.transaction() as tx:
        site.messaging.publish("orders", [b"a"], transaction=tx.transaction)
        pointer = tx.transaction.transaction_id
        assert site.caller("rival").ask(*writes(pointer)[act]).status == 403
    assert site.caller("rival").ask(*writes(pointer)[act]).status == 403
    assert [one.payload for one in site.messaging.poll("orders")] == [b"a"]


def test_operators_release_who_waits_for_the_program(site: Guarded) -> None:
    pointer = site.messaging.coordinator.start_short().transaction_id
    path = f"{TRANSACTIONS}/{pointer}"
    assert site.caller("operator").ask("POST", f"{path}/commit", {}).status == 403
    answer = site.caller("operator").ask("POST", f"{path}/invalidate", {})
    assert answer.json == {"invalidated": True}


@pytest.mark.parametrize("call", CALLS)
def test_all_servers_of_a_store_know_who_began_what(site: Guarded, call: str) -> None:
    pointer = begun(site.caller("writer"))
    path = f"{TRANSACTIONS}/{pointer}/{call}"
    with (
        site.messaging.serve(tokens=site.tokens_file) as server,
        closing(Caller(server.url, site.tokens["rival"])) as rival,
        closing(Caller(server.url, site.tokens["writer"])) as writer,
    ):
        assert rival.ask("POST", path, {}).status == 403
        assert standing(site, pointer) == "open"
        assert writer.ask("POST", path, {}).status == 200


def half_done(caller: Caller) -> int:
    """A transaction with a row that nobody has undone."""
    pointer = begun(caller)
    assert caller.ask(*writes(pointer)["publish"]).status == 200
    return pointer


@pytest.mark.parametrize(
    ("call", "seen"), [("abort", []), ("invalidate", []), ("commit", [b"a"])]
)
def test_after_a_restart_a_client_goes_on_and_an_abort_shows_nothing(
    tmp_path: Path, call: str, seen: list[bytes]
) -> None:
    url = f"leveldb:{tmp_path / 'data'}"
    with guarded(tmp_path, url) as site:
        pointer = half_done(site.caller("writer"))
    with (
        txaware.connect(url) as messaging,
        messaging.serve(tokens=site.tokens_file) as server,
        closing(Caller(server.url, site.tokens["writer"])) as caller,
    ):
        path = f"{TRANSACTIONS}/{pointer}/{call}"
        body = {"check": True, "repeat": True} if call == "commit" else {}
        for _ in range(2):
            assert caller.ask("POST", path, body).status == 200
        found = messaging.poll("orders", isolation="committed")
        assert [one.payload for one in found] == seen


def test_an_abort_of_one_that_may_have_been_begun_elsewhere_shows_nothing(
    tmp_path: Path,
) -> None:
    with (
        EmbeddedCoordinator() as elsewhere,
        guarded(tmp_path, coordinator=remote(elsewhere)) as site,
    ):
        rival, theirs = site.caller("rival"), elsewhere.start_short().transaction_id
        assert rival.ask(*writes(theirs)["publish"]).status == 200
        own = half_done(site.caller("writer"))
        assert rival.ask("POST", f"{TRANSACTIONS}/{own}/abort", {}).status == 403
        named = {"checkpoints": [theirs]}
        for pointer, body in ((begun(rival), named), (theirs, {}), (theirs, {})):
            path = f"{TRANSACTIONS}/{pointer}/abort"
            assert rival.ask("POST", path, body).status == 200
            assert standing(site, pointer) == "invalid"
        assert site.messaging.poll("orders", isolation="committed") == []


def test_whoever_brings_a_coordinator_keeps_its_transactions_from_the_network(
    tmp_path: Path,
) -> None:
    with (
        EmbeddedCoordinator() as coordinator,
        guarded(tmp_path, coordinator=coordinator) as site,
    ):
        own = coordinator.checkpoint(coordinator.start_short())
        for pointer in own.pointers:
            path = f"{TRANSACTIONS}/{pointer}/commit"
            assert site.caller("rival").ask("POST", path, {}).status == 403
        served_elsewhere = coordinator.start_short(outlives_process=True)
        path = f"{TRANSACTIONS}/{served_elsewhere.transaction_id}/commit"
        assert site.caller("rival").ask("POST", path, {}).status == 200


def test_an_abort_by_an_owner_who_did_not_begin_it_shows_nothing(
    site: Guarded,
) -> None:
    pointer = half_done(site.caller("writer"))
    path = f"{TRANSACTIONS}/{pointer}/abort"
    file = site.server.for_others
    assert file is not None
    assert site.with_token(file.token).ask("POST", path, {}).status == 200
    assert standing(site, pointer) == "invalid"
    assert site.messaging.poll("orders", isolation="committed") == []


def test_without_tokens_whoever_undid_everything_aborts() -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve() as server,
        closing(Caller(server.url, None)) as caller,
    ):
        pointer = messaging.coordinator.start_short().transaction_id
        path = f"{TRANSACTIONS}/{pointer}/abort"
        assert caller.ask("POST", path, {}).status == 200
        assert messaging.coordinator.invalid_size() == 0


def test_what_is_open_is_not_forgotten_for_what_ended() -> None:
    with EmbeddedCoordinator() as coordinator:
        owners = Owners(coordinator, remembered=10)
        writer, rival = (Principal(name=name, rules=()) for name in ("a", "b"))
        first = coordinator.start_short().transaction_id
        owners.began(first, writer)
        for _ in range(1000):
            tx = coordinator.start_short()
            owners.began(tx.transaction_id, writer)
            coordinator.commit(tx)
        owners.check([first], writer)
        with pytest.raises(NotAuthorized):
            owners.check([first], rival)
        assert len(owners._owners) <= 11


def test_a_flood_of_one_principal_makes_nobody_elses_transaction_anybodys() -> None:
    owners = Owners(remote(EmbeddedCoordinator()), remembered=10)
    writer = Principal(name="writer", rules=())
    rival = Principal(name="rival", rules=())
    owners.began(1, writer)
    for pointer in range(2, 1000):
        owners.began(pointer, rival)
    with pytest.raises(NotAuthorized):
        owners.check([1], rival)
    owners.check([1], writer)
    owners.check([1], Principal(name="root", rules=(EVERYTHING,)))
    assert len(owners._owners) == 11


def test_an_answer_is_repeated_only_to_whom_it_was_given(site: Guarded) -> None:
    key = {"Idempotency-Key": "k"}
    body = {"messages": ["a"]}
    for name in ("writer", "writer", "rival", "publisher"):
        answer = site.caller(name).ask("POST", TOPIC + "/publish", body, key)
        assert answer.status == 200
    assert len(site.messaging.peek("orders")) == 3
    assert (
        site.caller("consumer").ask("POST", TOPIC + "/publish", body, key).status == 403
    )


def test_a_refusal_is_not_remembered(site: Guarded) -> None:
    pointer = begun(site.caller("writer"))
    method, path, body = writes(pointer)["publish"]
    for _ in range(2):
        answer = site.caller("rival").ask(method, path, body, {"Idempotency-Key": "k"})
        assert answer.status == 403


def test_a_token_that_is_taken_away_is_refused_at_once_on_an_open_connection(
    site: Guarded,
) -> None:
    caller = site.caller("writer")
    assert caller.ask("GET", TRANSACTIONS + "/status").status == 200
    site.without("writer")
    assert caller.ask("GET", TRANSACTIONS + "/status").status == 401
    assert site.caller("rival").ask("GET", TRANSACTIONS + "/status").status == 200


def test_a_long_poll_whose_token_is_taken_away_gets_nothing_any_more(
    site: Guarded,
) -> None:
    answers = []
    caller = site.caller("consumer")

    def wait() -> None:
        answers.append(caller.ask("POST", TOPIC + "/poll", {"waitMs": 5000}))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)  # it waits by then, else it is refused just the same
    site.without("consumer")
    site.messaging.publish("orders", [b"secret"])
    thread.join()
    assert answers[0].status == 401
    assert b"secret" not in answers[0].body


def raw(site: Guarded, *lines: str, body: bytes = b"", count: int = 1) -> list[int]:
    """The statuses of so many answers, and of what comes half a second after them."""
    host, port = site.server.url.partition("://")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        received = b""
        with suppress(TimeoutError):
            while piece := connection.recv(65536):
                received += piece
                if len(re.findall(STATUS, received)) >= count:
                    connection.settimeout(0.5)
    return [int(status) for status in re.findall(STATUS, received)]


def test_a_token_is_asked_for_before_the_body_is_sent(site: Guarded) -> None:
    line, length = f"POST {TOPIC}/publish HTTP/1.1", "Content-Length: 1000000"
    assert raw(site, line, "Host: localhost", length) == [401]
    token = f"Authorization: Bearer {site.tokens['consumer']}"
    assert raw(site, line, "Host: localhost", length, token) == [403]
    announced = "Content-Length: 99999999999"
    assert raw(site, line, "Host: localhost", announced) == [401]


@pytest.mark.parametrize("name", ["Authorization", "Host", "Origin", "Idempotency-Key"])
def test_a_header_that_decides_is_not_there_twice(site: Guarded, name: str) -> None:
    token = f"Bearer {site.tokens['operator']}"
    values = {
        "Authorization": (token, "Bearer x"),
        "Host": ("localhost", "elsewhere"),
        "Origin": ("http://localhost", "http://elsewhere"),
        "Idempotency-Key": ("a", "b"),
    }[name]
    others = {"Host": "Host: localhost", "Authorization": f"Authorization: {token}"}
    others.pop(name, None)
    for first, second in (values, values[::-1]):
        found = raw(
            site,
            f"GET {TRANSACTIONS} HTTP/1.1",
            *others.values(),
            f"{name}: {first}",
            f"{name.lower()}: {second}",
        )
        assert found == [400]


def test_each_request_of_a_pipeline_shows_its_own_token(site: Guarded) -> None:
    token = f"Authorization: Bearer {site.tokens['operator']}"
    line = f"GET {TRANSACTIONS} HTTP/1.1"
    request = [line, "Host: localhost"]
    pipeline = [*request, token, "", *request, "", *request, token]
    assert raw(site, *pipeline, count=3) == [200, 401, 200]


def test_an_open_route_takes_no_memory_for_a_body(site: Guarded) -> None:
    """Or whoever has no token could fill it, and nobody else would publish."""
    length = "Content-Length: 10000000"
    assert raw(site, "GET /ping HTTP/1.1", "Host: localhost", length) == [200]


def test_a_very_long_token_is_refused_and_not_kept(site: Guarded) -> None:
    caller = site.with_token("a" * 100_000)
    with suppress(ConnectionError, http.client.HTTPException):  # it was still sending
        assert caller.ask("GET", TRANSACTIONS).status == 431


def test_a_transactional_id_is_for_those_that_may_use_it(site: Guarded) -> None:
    def opens(name: str, transactional_id: str) -> int:
        body = {"transactionalId": transactional_id}
        return site.caller(name).ask("POST", "/v1/producers", body).status

    assert opens("loader", "loader-7") == 200
    for name in RULES:
        if name != "loader":
            assert opens(name, "loader-7") == 403
    assert opens("loader", "billing-7") == 403
    assert opens("loader", "a b") == 400
