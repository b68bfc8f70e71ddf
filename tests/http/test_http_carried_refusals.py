"""Commits over HTTP that are refused: nothing counts of what they carry or began."""

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import JoinedCargo
from coordinator.remote.client import RemoteCoordinator
from coordinator.remote.server import CoordinatorRoutes
from tests.support.commit_site import CommitSite, commit_site
from tests.support.http_access import Answer
from tests.support.http_wire import AvroWire, JsonWire
from tests.support.messagings import payloads
from txaware.errors import NotWritten, StoreCorrupted, Unavailable
from txaware.model.producers import ProducerIdentity
from txaware.model.settings import Settings
from txaware.protocol.formats import PublishRequest, encode_publish
from txaware.service.local import LocalService
from txaware.service.producers.transactional_ids import TransactionalIds

LARGE = bytes(300_000)


def identity_of(instance: dict[str, int]) -> ProducerIdentity:
    return ProducerIdentity(instance["producerId"], instance["epoch"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[CommitSite]:
    with commit_site(tmp_path) as found:
        yield found


def test_what_a_begin_wrote_is_undone_where_the_commit_could_write_nothing(
    site: CommitSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = TransactionalIds.enter_transaction

    def full(self: TransactionalIds, *given: Any, **options: Any) -> Any:
        if options["ahead"]:
            raise NotWritten("the disk is full")
        return enter(self, *given, **options)

    with site.client.producer("p") as producer, monkeypatch.context() as patched:
        patched.setattr(TransactionalIds, "enter_transaction", full)
        with pytest.raises(NotWritten):  # its rows are too many for the commit
            producer.run_once("key", lambda: site.client.publisher("t").publish(LARGE))
        site.next_batch()
        patched.undo()
        assert producer.commits == 0
        assert producer.run_once("key", lambda: None)


def test_a_rollback_takes_back_every_key_that_a_transaction_entered_with(
    site: CommitSite,
) -> None:
    instance, tx = site.opened(), site.client.coordinator.start_short()
    service: Any = site.client._producers
    identity = identity_of(instance)
    for key, ahead in (("a", False), ("b", False), ("c", True)):
        service.enter_transaction("p", identity, tx, key=key, ahead=ahead)
    service.leave_transaction("p", tx, key="c")
    site.client.coordinator.abort(tx)
    with site.client.producer("p") as producer:
        assert [producer.run_once(key, lambda: None) for key in "abc"] == [True] * 3


def test_who_is_fenced_while_an_earlier_request_commits_stays_fenced(
    site: CommitSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = {"transactionalId": "p", "producer": site.opened()}
    fields = {"producers": [part], "publishes": [{"topic": "t", "messages": ["a"]}]}
    coordinator: Any = site.owner.coordinator
    arrived, go_on = threading.Event(), threading.Event()
    commit_with, answers = coordinator.commit_with, list[Answer]()

    def slowly(*given: Any) -> None:
        arrived.set()
        assert go_on.wait(60)
        commit_with(*given)

    monkeypatch.setattr(coordinator, "commit_with", slowly)
    monkeypatch.setattr(coordinator, "commit_soon", lambda *_, **__: False)
    # The newer instance has its epoch, and has not yet settled what is open.
    monkeypatch.setattr(TransactionalIds, "_settle", lambda *_: None)
    pointer = site.begun()
    first = threading.Thread(
        target=lambda: answers.append(site.commits(pointer, **fields))
    )
    first.start()
    assert arrived.wait(60)
    site.opened()
    second = site.commits(pointer, repeat=True, **fields)
    go_on.set()
    first.join()
    assert second.json["error"] == "ProducerFenced"
    assert answers[0].json["error"] == "TransactionNotInProgress"
    assert payloads(site.owner.poll("t", isolation="committed")) == []


NAMED: dict[str, Callable[[int], bytes]] = {
    "application/json": lambda pointer: JsonWire().publish(pointer, [b"a"]),
    "avro/binary": lambda pointer: AvroWire().publish(pointer, [b"a"]),
    "application/vnd.txaware+msgpack": (
        lambda pointer: encode_publish(PublishRequest(pointer, [b"a"]))
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_messages_that_name_another_transaction_are_refused_with_all_of_the_commit(
    site: CommitSite, kind: str
) -> None:
    def naming(named: int) -> dict[str, str]:
        body = b64encode(NAMED[kind](named)).decode()
        return {"topic": "t", "contentType": kind, "body": body}

    own, other = site.begun(), site.begun()
    of_own = naming(own)
    publishes = [{"topic": "u", "messages": ["b"]}, of_own]
    for named in (other, own + 1, 1):
        sent = [*publishes, naming(named)]
        answer = site.commits(own, check=True, publishes=sent)
        assert (answer.status, answer.json["error"]) == (400, "BadRequest")
        assert f"names transaction {named}" in answer.json["message"]
    assert site.owner.poll("t") == site.owner.poll("u") == []
    assert site.commits(own, check=True, publishes=publishes).status == 200
    assert (site.committed(), site.committed("u")) == ([b"a"], [b"b"])


def test_a_count_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(place) as owner, owner.producer("p") as producer:
        with producer.transaction():
            pass
        tx = owner.coordinator.start_short(600, outlives_process=True)
        identity = producer._instance.producer
    with txaware.connect(place) as owner:
        producing: Any = owner._service.producing._transactional_ids  # type: ignore[attr-defined]
        seen, failures = producing._seen, [Unavailable("not now")]

        def fails_once(*given: Any) -> Any:
            if failures:
                raise failures.pop()
            return seen(*given)

        monkeypatch.setattr(producing, "_seen", fails_once)
        owner.coordinator.can_commit(tx, [])
        for _ in range(2):
            try:
                cargo = producing.producer_cargo(owner.coordinator, "p", identity, tx)
            except Unavailable:
                continue
            owner.coordinator.commit_with(tx, cargo)  # type: ignore[attr-defined]
        assert producing.producer_commits("p") == 2


@pytest.mark.parametrize(
    "part",
    [
        {"producers": [{"transactionalId": "p", "key": ""}]},
        {"producers": [{"transactionalId": "p", "key": "k" * 10_001}]},
        {"tables": [{"table": "a", "changes": [{"key": "YQ" * 8_192, "value": None}]}]},
    ],
)
def test_a_part_is_checked_as_its_own_request_is(
    site: CommitSite, part: dict[str, list[dict[str, Any]]]
) -> None:
    for each in part.get("producers", []):
        each["producer"] = site.opened()
    answer = site.commits(site.begun(), **part)
    assert answer.json["error"] in ("BadRequest", "RequestTooLarge")


def test_a_commit_publishes_no_more_messages_than_a_request_may(
    site: CommitSite,
) -> None:
    body = PublishRequest(None, [b""] * 130_000)
    sent = {
        "topic": "t",
        "contentType": "application/vnd.txaware+msgpack",
        "body": b64encode(encode_publish(body)).decode(),
    }
    refused = site.commits(site.begun(), publishes=[sent, sent])
    assert (refused.status, refused.json["error"]) == (413, "RequestTooLarge")


def test_a_repeat_is_answered_by_the_outcome_although_its_topic_is_gone(
    site: CommitSite,
) -> None:
    pointer = site.begun()
    fields = {"publishes": [{"topic": "u", "messages": ["a"]}], "repeat": True}
    assert site.commits(pointer, **fields).status == 200
    site.owner.delete_topic("u")
    assert site.commits(pointer, **fields).status == 200
    assert site.commits(site.begun(), **fields).json["error"] == "TopicNotFound"


def test_what_is_wrong_is_said_as_it_is_without_a_server(
    site: CommitSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.owner.create_topic("plain", properties={"publishing": "plain"})
    publishes = [{"topic": "plain", "messages": ["a"]}]
    refused = site.commits(site.begun(), publishes=publishes).json
    assert "accepts no messages in transactions" in refused["message"]

    def publish() -> None:
        with site.client.transaction():
            site.client.publisher("t").publish(b"a")

    def damaged(*_: Any) -> None:
        raise StoreCorrupted("a block is not what was written")

    monkeypatch.setattr(LocalService, "cargo", damaged)
    with pytest.raises(StoreCorrupted):
        publish()


def test_all_parts_of_a_commit_fit_into_one_request(tmp_path: Path) -> None:
    settings = Settings(request_limit_bytes=300_000)
    with (
        txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=settings) as owner,
        owner.serve() as server,
        txaware.connect(server.url) as client,
    ):
        tables = [client.table(f"table{number}") for number in range(8)]
        with client.transaction():
            for table in tables:
                table.put(b"large", bytes(60_000))
                for number in range(100):
                    table.put(b"%d" % number, b"")
        assert [len(list(owner.table(table.name).items())) for table in tables] == (
            [101] * 8
        )


def test_a_commit_that_carries_nothing_is_one_that_a_server_of_before_knows() -> None:
    bodies: list[dict[str, Any]] = []
    with EmbeddedCoordinator() as coordinator:
        routes = CoordinatorRoutes(coordinator)

        def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
            answer = routes.answer(method, path, body)
            bodies.append(json.loads(body))
            return answer.status, answer.body

        remote = RemoteCoordinator(send)
        tx = remote.start_short()
        remote.can_commit(tx, [b"key"])
        remote.commit_with(tx, JoinedCargo())
    assert not {"check", "changes"} & bodies[-1].keys()


def test_an_event_loop_enters_only_where_nothing_is_waited_for(
    site: CommitSite,
) -> None:
    instance = identity_of(site.opened())
    ids: Any = site.owner._service.producing._transactional_ids  # type: ignore[attr-defined]
    start = site.client.coordinator.start_short
    earlier = start()
    assert ids.enter_at_once("p", instance, earlier) is not None
    assert ids.enter_at_once("p", instance, start()) is None  # it would end the earlier
    site.client.coordinator.invalidate(earlier)
    ids._reads_wait = True
    assert ids.enter_at_once("p", instance, start()) is None
    ids._reads_wait = False
    assert ids.enter_at_once("p", instance, start()) is not None
