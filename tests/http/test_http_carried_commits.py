"""Commits over HTTP that carry what they write: all of it in one request, or none."""

import base64
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import pytest

import txaware
from coordinator.remote.calls import COMMIT, CallRequest
from coordinator.remote.client import CallSender
from coordinator.transaction import Transaction
from tests.support.commit_site import Asked, CommitSite, commit_site
from tests.support.http_access import Caller, guarded
from tests.support.http_served import served
from tests.support.lossy_proxy import LossyProxy
from tests.support.messagings import payloads
from txaware.client import Transport
from txaware.errors import (
    NotAuthorized,
    NotWritten,
    ProducerFenced,
    TopicNotFound,
    TransactionConflict,
    TransactionOutcomeUnknown,
    TxAwareError,
)
from txaware.model.settings import Settings
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.server.server import Access, HttpServer
from txaware.service.write.transaction_writes import TransactionWrites

PUBLISHES = {"publishes": [{"topic": "t", "messages": [{"utf8": "a"}]}]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """All requests of clients in this process."""
    found: list[Asked] = []
    perform = Transport.perform

    def noted(self: Transport, call: Any) -> Any:
        found.append((call.method, call.path, call.body or b""))
        return perform(self, call)

    monkeypatch.setattr(Transport, "perform", noted)
    return found


@pytest.fixture
def site(tmp_path: Path, asked: list[Asked]) -> Iterator[CommitSite]:
    with commit_site(tmp_path) as found:
        yield attrs.evolve(found, asked=asked)


def calls(asked: list[Asked]) -> list[str]:
    return [path.rpartition("/")[2] for _, path, _ in asked]


def test_a_commit_carries_what_its_block_has_written(site: CommitSite) -> None:
    client = site.client
    client.publish("t", [b"in"])
    client.create_queue("mail")
    accounts, consumer = client.table("accounts"), client.consumer("t", group="g")
    with client.producer("p") as producer, producer.transaction():
        client.publisher("t").publish(b"known")  # topics are looked up once
        client.publisher("u").publish(b"known")
    with client.producer("p") as producer:
        with producer.transaction():
            accounts.put(b"ann", b"5")
            client.publisher("t").publish(txaware.Outgoing(b"a", b"key", {"h": b"1"}))
            client.publisher("u").publish_all([b"b", b"c"])
            assert payloads(consumer.poll())[:1] == [b"in"]
            client.queue("mail").push(b"letter")
            del site.asked[:]
            assert "a" not in str(site.committed())
        assert calls(site.asked) == ["commit"]
        del site.asked[:]
        with producer.transaction():
            client.publisher("t").publish(b"d")
        assert calls(site.asked) == ["begin", "commit"]
        assert producer.commits == 3
    del site.asked[:]
    with client.transaction():
        client.publisher("t").publish(b"e")
    assert calls(site.asked) == ["commit"]
    assert site.committed() == [b"in", b"known", b"a", b"d", b"e"]
    assert site.committed("u") == [b"known", b"b", b"c"]
    labelled = site.owner.poll("t")[2]
    assert (labelled.key, labelled.headers) == (b"key", {"h": b"1"})
    assert site.owner.table("accounts").get(b"ann") == b"5"
    assert site.owner.consumer("t", group="g").position is not None
    job = site.owner.queue("mail").pop()
    assert job is not None
    assert job.payload == b"letter"
    assert site.owner.check().is_clean


def test_a_commit_that_comes_twice_writes_once(site: CommitSite) -> None:
    with site.client.producer("p") as producer:
        with producer.transaction() as tx:
            site.client.publisher("t").publish(b"once")
        pointer = tx.transaction.transaction_id
        (_, path, body) = site.asked[-1]
        caller = Caller(site.url, None)
        again = caller.ask("POST", path, body)
        assert (again.status, again.json["error"]) == (409, "TransactionNotInProgress")
        repeated = body.replace(b"{", b'{"repeat": true, ', 1)
        assert caller.ask("POST", path, repeated).status == 200
        with site.client.producer("p"):  # who has fenced the one that committed
            assert caller.ask("POST", path, repeated).status == 200
            again = caller.ask("POST", path, body)
        assert again.json["error"] == "TransactionNotInProgress"
        caller.close()
    assert site.committed() == [b"once"]
    assert site.owner.coordinator.outcome(pointer).value == "committed"


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_asked_for_again(
    site: CommitSite, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    coordinator: Any = site.client.coordinator
    sender, lost = coordinator._sender, list[CallRequest]()

    class LosesOne(CallSender):
        def ask(self, asked: CallRequest) -> Any:
            if asked.call is COMMIT and not lost:
                lost.append(asked)
                if arrives:
                    sender.ask(asked)
                raise OSError("the network went away")
            return sender.ask(asked)

    monkeypatch.setattr(coordinator, "_sender", LosesOne())
    with site.client.producer("p") as producer:
        with producer.transaction():
            site.client.publisher("t").publish(b"once")
        assert producer.commits == 1
    assert lost
    assert site.committed() == [b"once"]


@pytest.mark.parametrize("seed", range(2))
def test_what_a_bad_network_does_to_commits_is_known(
    site: CommitSite, seed: int
) -> None:
    table = site.owner.table("numbers")
    committed: list[bytes] = []
    unknown: list[bytes] = []
    with LossyProxy(site.url, seed=seed, one_in=8) as proxy:
        with txaware.connect(proxy.url) as client, client.producer("p") as producer:
            rows = client.table("numbers")
            for number in range(60):
                name = b"%d" % number
                try:
                    with producer.transaction():
                        client.publisher("t").publish(name)
                        rows.put(name, name)
                    committed.append(name)
                except TransactionOutcomeUnknown:
                    unknown.append(name)
                    producer.abort()
                except TxAwareError:
                    continue
        assert proxy.lost > 10
    for left in site.owner.coordinator.snapshot().in_progress:
        site.owner.coordinator.invalidate(left)
    found = site.committed()
    assert len({*found}) == len(found)
    assert {*committed} <= {*found} <= {*committed, *unknown}
    assert sorted(found) == sorted(key for key, _ in table.items())
    with site.owner.producer("p") as newer:
        assert newer.commits == len(found)
    assert len(committed) > 30


def test_a_conflict_writes_nothing(site: CommitSite) -> None:
    table = site.client.table("accounts")

    def lose() -> None:
        with site.client.transaction():
            table.put(b"ann", b"late")
            site.client.publisher("t").publish(b"late")
            with site.owner.transaction():
                site.owner.table("accounts").put(b"ann", b"first")

    with pytest.raises(TransactionConflict):
        lose()
    assert site.committed() == []
    assert table.get(b"ann") == b"first"
    assert not site.owner.coordinator.snapshot().in_progress


def test_two_transactions_of_a_producer_conflict_also_where_no_key_is_named(
    site: CommitSite,
) -> None:
    opened = site.client._producers.open_producer("p")
    instance = {"producerId": opened.producer_id, "epoch": opened.epoch}
    part = {"transactionalId": "p", "producer": instance}
    txs = [site.client.coordinator.start_short() for _ in range(2)]
    answers = [site.commits(tx.transaction_id, producers=[part]) for tx in txs]
    assert [answer.status for answer in answers] == [200, 409]
    assert answers[1].json["error"] == "TransactionConflict"
    assert site.client._producers.producer_commits("p") == 1


def test_a_count_is_that_which_a_transaction_sees(site: CommitSite) -> None:
    service: Any = site.client._producers
    coordinator = site.client.coordinator
    opened = service.open_producer("p")
    part = {
        "transactionalId": "p",
        "producer": {"producerId": opened.producer_id, "epoch": opened.epoch},
    }

    def entered(tx: Transaction) -> int:
        found = service.enter_transaction("p", opened.identity, tx, ahead=False)
        return int(found.commits)

    def commits(tx: Transaction) -> int:
        return site.commits(tx.transaction_id, producers=[part]).status

    first = coordinator.start_short()
    assert entered(first) == 0
    beside = coordinator.start_short()
    assert commits(first) == 200
    assert entered(beside) == 0  # which began before that commit
    assert commits(beside) == 409
    service.leave_transaction("p", beside)
    coordinator.abort(beside)
    for number in (1, 2, 3):
        tx = coordinator.start_short()
        assert entered(tx) == number
        assert commits(tx) == 200
    undone = coordinator.start_short()
    assert entered(undone) == 4
    service.leave_transaction("p", undone)
    coordinator.abort(undone)
    assert entered(coordinator.start_short()) == 4
    assert service.producer_commits("p") == 4


@pytest.mark.parametrize("ahead", [True, False])
def test_what_ended_otherwise_does_not_count(
    site: CommitSite, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    """Its pointer may look committed: nobody remembers that it was invalid, or what."""
    service: Any = site.client._producers
    identity = service.open_producer("p").identity
    owner: Any = site.owner._producers
    coordinator = site.owner.coordinator
    lost = coordinator.start_short()
    write = "write" if ahead else "write_with_start"
    with monkeypatch.context() as patched:
        full = NotWritten("the disk is full")
        patched.setattr(TransactionWrites, write, Mock(side_effect=full))
        with pytest.raises(NotWritten):
            owner.enter_transaction("p", identity, lost, ahead=ahead)
    coordinator.abort(lost)
    later = coordinator.start_short()
    entered = owner.enter_transaction("p", identity, later, ahead=ahead)
    assert entered.commits == 0


def test_a_topic_that_is_gone_by_then_is_the_reason(site: CommitSite) -> None:
    def lose() -> None:
        with site.client.transaction():
            site.client.publisher("t").publish(b"a")
            site.client.publisher("u").publish(b"b")
            site.owner.delete_topic("u")

    with pytest.raises(TopicNotFound):
        lose()
    assert site.committed() == []
    assert not site.owner.coordinator.snapshot().in_progress


def test_a_fenced_instance_writes_nothing(site: CommitSite) -> None:
    with txaware.connect(site.url) as other:
        older, newer = site.client.producer("p"), None
        older.begin()
        older.publish("t", [b"older"])
        newer = other.producer("p")
        with pytest.raises(ProducerFenced):
            older.commit()
        with pytest.raises(ProducerFenced):
            older.begin()
        newer.begin()
        newer.publish("t", [b"newer"])
        newer.commit()
        assert newer.commits == 1
    assert site.committed() == [b"newer"]


def test_what_is_rolled_back_does_not_count(site: CommitSite) -> None:
    with site.client.producer("p") as producer:
        for number in range(3):
            producer.begin()
            producer.publish("t", [b"undone"])
            producer.abort()
            site.owner.publish("u", [b"the batch with its start"])
            producer.begin()
            producer.publish("t", [b"%d" % number])
            producer.commit()
        assert producer.commits == 3
    assert site.committed() == [b"0", b"1", b"2"]
    assert site.owner.check().is_clean


def test_after_a_crash_a_newer_instance_settles_what_was_begun(
    site: CommitSite, tmp_path: Path
) -> None:
    older = site.client.producer("p")
    older.begin(timeout_s=600)
    older.publish("t", [b"older"])
    site.owner.publish("u", [b"the batch with its start"])
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    with txaware.connect(f"leveldb:{tmp_path / 'crashed'}") as owner:
        assert len(owner.coordinator.snapshot().in_progress) == 1
        with owner.producer("p") as newer:
            assert newer.commits == 0
            assert not owner.coordinator.snapshot().in_progress
    older.abort()


def test_more_than_a_commit_carries_goes_before_it(site: CommitSite) -> None:
    table = site.client.table("accounts")
    with site.client.producer("p") as producer:
        with producer.transaction():
            site.client.publisher("t").publish(b"known")
        del site.asked[:]
        with producer.transaction():
            site.client.publisher("t").publish_all([bytes(1000)] * 300)
            table.put(b"large", bytes(300_000))
        made = calls(site.asked)
        assert {"can-commit", "save", "enter", "publish"} <= {*made}
        assert made[-1] == "commit"
        assert producer.commits == 2
    assert len(site.owner.poll("t", limit=400, isolation="committed")) == 301


def test_a_server_that_carries_nothing_gets_everything_before(
    asked: list[Asked],
) -> None:
    with served() as store:
        store.messaging.create_topic("t")
        with (
            txaware.connect(store.url) as client,
            client.producer("p") as producer,
            producer.transaction(),
        ):
            client.publisher("t").publish(b"a")
        assert calls(asked)[-2:] == ["publish", "commit"]
        assert store.committed() == [b"a"]
        tx = store.messaging.coordinator.start_short()
        caller = Caller(store.url, None)
        path = f"/v1/transactions/{tx.transaction_id}/commit"
        answer = caller.ask("POST", path, PUBLISHES)
        assert (answer.status, answer.json["error"]) == (409, "TransactionTooLarge")
        assert caller.ask("POST", path, {"publishes": []}).status == 200
        caller.close()


def raw(body: bytes = b"", kind: str = "application/vnd.txaware+msgpack") -> Any:
    text = base64.b64encode(body).decode()
    return [{"topic": "t", "contentType": kind, "body": text}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"publishes": {}}, "publishes is an array"),
        ({"publishes": [{"topic": "t"}]}, "has no messages"),
        ({"publishes": [{"topic": "?", "messages": ["a"]}]}, "no topic name"),
        ({"publishes": [{"topic": "t", "messages": [5]}]}, "no string"),
        ({"publishes": raw(b"\xff")}, "PublishRequest"),
        ({"publishes": raw(kind="text/plain")}, "Content-Type"),
        ({"positions": [{"group": "g", "topic": "t", "position": "5"}]}, "5"),
        ({"positions": [{"group": "g", "topic": "t"}]}, "has no position"),
        ({"tables": [{"table": "a", "changes": [{"key": "?"}]}]}, "base64"),
        ({"producers": [{"transactionalId": "p"}]}, "has no producer"),
        ({**PUBLISHES, "changes": ["?"], "check": True}, "base64"),
        ({**PUBLISHES, "changes": ["YQ=="]}, "check is true"),
        ({**PUBLISHES, "check": "yes"}, "check is true or false, not"),
        ({"check": 1}, "check is true or false, not 1"),
        ({"repeat": "yes"}, "repeat is true or false, not"),
        ({**PUBLISHES, "what": 1}, "has a field 'what'"),
        ({"changes": ["YQ=="]}, "check is true"),
        (
            {"publish": []},
            "none of type, checkpoints, check, changes, repeat, publishes,",
        ),
    ],
)
def test_a_wrong_body_is_one_sentence_and_writes_nothing(
    site: CommitSite, fields: dict[str, Any], words: str
) -> None:
    tx = site.client.coordinator.start_short()
    answer = site.commits(tx.transaction_id, **fields)
    assert (answer.status, answer.json["error"]) == (400, "BadRequest")
    assert words in answer.json["message"]
    whole = site.commits(tx.transaction_id, **PUBLISHES)
    assert (whole.status, whole.json) == (200, {})  # as a commit that carries nothing
    assert site.committed() == [b"a"]


@pytest.mark.parametrize(
    ("who", "part"),
    [
        ("holder", PUBLISHES | {"publishes": [{"topic": "orders", "messages": ["a"]}]}),
        ("writer", {"positions": [{"group": "billing", "topic": "orders"}]}),
        ("writer", {"tables": [{"table": "accounts", "changes": []}]}),
        ("writer", {"producers": [{"transactionalId": "loader-7"}]}),
    ],
)
def test_each_part_needs_its_own_right(
    tmp_path: Path, who: str, part: dict[str, list[dict[str, Any]]]
) -> None:
    for each in part.get("positions", []):
        each["position"] = "00" * 20
    for each in part.get("producers", []):
        each["producer"] = {"producerId": 5, "epoch": 0}
    with guarded(tmp_path) as site:
        caller = site.caller(who)
        began = caller.ask(
            *("POST", "/v1/transactions", {}), {"Accept": "application/json"}
        )
        path = f"/v1/transactions/{began.json['transactionId']}/commit"
        refused = caller.ask("POST", path, part)
        assert (refused.status, refused.json["error"]) == (403, NotAuthorized.__name__)
        assert caller.ask("POST", path, {"check": True}).status == 200


def test_a_stranger_commits_nothing(tmp_path: Path) -> None:
    with guarded(tmp_path) as site:
        holder = site.caller("holder")
        began = holder.ask(
            *("POST", "/v1/transactions", {}), {"Accept": "application/json"}
        )
        path = f"/v1/transactions/{began.json['transactionId']}/commit"
        body = {"publishes": [{"topic": "orders", "messages": ["a"]}]}
        assert site.caller("writer").ask("POST", path, body).status in (403, 409)
        assert holder.ask("POST", path, {"check": True}).status == 200
        assert payloads(site.messaging.poll("orders")) == []


OF_PARTITION_1 = b"g"  # of three


def test_rows_of_one_shard_of_a_spread_topic_are_committed_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages without a key go to a partition at home, and so with the commit."""
    sent: list[tuple[int, str]] = []

    def publish(shard: int, name: str, payloads: Any, pointer: int) -> None:
        sent.append((shard, name))
        owner.publish(name, payloads.payloads, transaction=pointer)

    settings = Settings(shards=2, janitor_interval_s=0)
    with txaware.connect(f"leveldb:{tmp_path}", settings=settings) as owner:
        coordinator: Any = owner.coordinator
        elsewhere = PartsElsewhere(publish, lambda _: None)
        alone = owner._parts.served
        assert alone is not None
        served = attrs.evolve(alone, parts_elsewhere=elsewhere)
        with (
            closing(elsewhere),
            HttpServer(served, Access(host="127.0.0.1", port=0)) as server,
            txaware.connect(server.url) as client,
        ):
            client.create_topic("t", partitions=3, shards=[0, 1])
            client.publish("t.0", [b"looked up"])
            with monkeypatch.context() as patched:
                # What a thread commits a request with.
                patched.setattr(coordinator, "commit_with", None)
                with client.transaction():
                    client.publisher("t").publish(b"at home")
            assert not sent
            with client.transaction():
                client.publisher("t").publish(txaware.Outgoing(b"away", OF_PARTITION_1))
            assert sent == [(1, "default:t.1")]
            found = payloads(owner.poll("t", isolation="committed"))
            assert sorted(found) == [b"at home", b"away", b"looked up"]
