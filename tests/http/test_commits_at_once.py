"""Blocks that only publish: one call, whose outcome is known whatever is lost."""

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from coordinator.interfaces import Participant
from coordinator.remote.calls import COMMIT_AT_ONCE, SETTLE, CallRequest
from coordinator.remote.client import CallSender, RemoteCoordinator
from coordinator.remote.later_transaction import TransactionAtOnce
from coordinator.transaction import Status, Transaction
from tests.support.commit_site import CommitSite, commit_site
from tests.support.http_access import Caller
from tests.support.lossy_proxy import LossyProxy
from tests.support.messagings import payloads
from txaware.client.server_info import ServerInfo
from txaware.errors import (
    MisusedTransaction,
    NotAuthorized,
    NotWritten,
    TopicNotFound,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TxAwareError,
    Unavailable,
)

CLIENT = "0123456789abcdef" * 2
PATH = "/v1/transactions/commit"
PUBLISHES = [{"topic": "t", "messages": [{"utf8": "a"}]}]


class Sends(CallSender):
    """Notes the calls of a coordinator, and does to some what a network does."""

    def __init__(self, inner: CallSender) -> None:
        self._inner = inner
        self.asked: list[CallRequest] = []
        self.before: Callable[[CallRequest], object] = _nothing
        self.after: Callable[[CallRequest], object] = _nothing

    @property
    def names(self) -> list[str]:
        """The calls since the last look."""
        found = [one.call.name or "begin" for one in self.asked]
        del self.asked[:]
        return found

    def ask(self, asked: CallRequest) -> Any:
        self.asked.append(asked)
        self.before(asked)
        answer = self._inner.ask(asked)
        self.after(asked)
        return answer


def _nothing(_: CallRequest) -> None:
    pass


def lost(*calls: Any, times: int = 1_000) -> Callable[[CallRequest], None]:
    """A network that loses these calls, so many of them."""
    left = [times]

    def lose(asked: CallRequest) -> None:
        if asked.call in calls and left[0]:
            left[0] -= 1
            raise OSError("the network went away")

    return lose


@pytest.fixture(params=[True, False], ids=["frames", "http"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CommitSite]:
    with (
        commit_site(tmp_path) as found,
        txaware.connect(found.url, frames=request.param) as client,
    ):
        client.publisher("t")
        yield attrs.evolve(found, client=client)


@pytest.fixture
def sends(site: CommitSite) -> Sends:
    coordinator: Any = site.client.coordinator
    assert isinstance(coordinator, RemoteCoordinator)
    found = coordinator._sender = Sends(coordinator._sender)
    return found


def publish(site: CommitSite, payload: bytes = b"a") -> Transaction:
    with site.client.transaction() as tx:
        site.client.publisher("t").publish(payload)
    return tx.transaction


def test_a_block_that_only_publishes_is_one_call(
    site: CommitSite, sends: Sends
) -> None:
    with site.client.transaction() as tx:
        site.client.publisher("t").publish(b"a")
        site.client.publisher("u").publish_all([b"b", b"c"])
        assert str(tx) == "a transaction that has not begun"
    assert sends.names == ["commit"]
    pointer = tx.transaction.transaction_id
    assert site.owner.coordinator.outcome(pointer).value == "committed"
    assert (site.committed(), site.committed("u")) == ([b"a"], [b"b", b"c"])
    assert tx.status is Status.COMMITTED
    assert sends.names == []
    assert site.owner.check().is_clean


def test_a_block_that_does_nothing_or_raises_asks_nobody(
    site: CommitSite, sends: Sends
) -> None:
    with site.client.transaction() as tx:
        pass
    with pytest.raises(MisusedTransaction, match="never began"):
        tx.transaction.transaction_id  # noqa: B018

    def fail() -> None:
        with site.client.transaction():
            site.client.publisher("t").publish(b"a")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with site.client.transaction() as tx:
        site.client.publisher("t").publish(b"a")
        tx.abort()
    assert sends.names == []
    assert site.committed() == []


def _look(site: CommitSite, tx: Any) -> None:
    assert tx.transaction.transaction_id > 0


def _poll(site: CommitSite, _: Any) -> None:
    assert not payloads(site.client.poll("u"))


def _consume(site: CommitSite, _: Any) -> None:
    assert not list(site.client.consumer("u", group="g").poll())


def _put(site: CommitSite, _: Any) -> None:
    site.client.table("rows").put(b"k", b"v")


def _push(site: CommitSite, _: Any) -> None:
    site.client.queue("q").push(b"item")


def _flush(site: CommitSite, tx: Any) -> None:
    tx.flush()


def _checkpoint(_: CommitSite, tx: Any) -> None:
    tx.checkpoint()


def _join(_: CommitSite, tx: Any) -> None:
    seen: list[int] = []

    class Own(Participant):
        transaction_aware_name = "own"

        def start_tx(self, tx: Transaction) -> None:
            assert tx.has_begun
            seen.append(tx.transaction_id)

    tx.join(Own())
    assert seen == [tx.transaction.transaction_id]


def _spill(site: CommitSite, _: Any) -> None:
    small = site.client.publisher("t", buffer_limit_bytes=100)
    small.publish_all([bytes(80), bytes(80)])


@pytest.mark.parametrize(
    "use", [_look, _poll, _consume, _put, _push, _flush, _checkpoint, _join, _spill]
)
def test_whatever_needs_the_transaction_begins_it(
    site: CommitSite, sends: Sends, use: Callable[[CommitSite, Any], None]
) -> None:
    site.owner.create_queue("q")
    with site.client.transaction() as tx:
        site.client.publisher("t").publish(b"first")
        assert sends.names == []
        use(site, tx)
        assert sends.names[0] == "begin"
        site.client.publisher("t").publish(b"last")
    assert sends.names[-1] == "commit"
    committed = site.committed()
    assert (committed[0], committed[-1]) == (b"first", b"last")
    pointer = tx.transaction.transaction_id
    assert site.owner.coordinator.outcome(pointer).value == "committed"
    assert site.owner.check().is_clean


def test_a_block_that_is_prepared_begins(site: CommitSite, sends: Sends) -> None:
    with site.client.transaction() as tx:
        site.client.publisher("t").publish(b"a")
        tx.prepare("later")
    assert sends.names[0] == "begin"
    assert site.client.poll("t", isolation="committed").blocked_by is not None
    site.client.commit_prepared("later")
    assert site.committed() == [b"a"]


def test_an_error_as_it_is_submitted_leaves_its_slot_to_the_next(
    site: CommitSite, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> bool:
        raise ValueError("nobody expects this")

    with monkeypatch.context() as patched:
        patched.setattr(site.owner.coordinator, "commit_soon", fails)
        with pytest.raises(TransactionNotInProgress, match="stays so"):
            publish(site)
    assert site.committed() == []
    publish(site)
    assert site.committed() == [b"a"]
    assert not site.owner.coordinator.snapshot().in_progress


def test_participants_that_a_block_names_see_its_beginning(
    site: CommitSite, sends: Sends
) -> None:
    class Own(Participant):
        transaction_aware_name = "own"

    with site.client.transaction(Own()):
        assert sends.names == ["begin"]


def test_a_copy_of_the_transaction_is_the_one_that_began(site: CommitSite) -> None:
    with site.client.transaction() as tx:
        sent = pickle.loads(pickle.dumps(tx.transaction))
        assert sent == copy.copy(tx.transaction) == tx.transaction.begun()
        assert type(sent) is Transaction


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_answer_is_asked_for_again(
    site: CommitSite, sends: Sends, *, arrives: bool, times: int
) -> None:
    lose = lost(COMMIT_AT_ONCE, times=times)
    if arrives:
        sends.after = lose
    else:
        sends.before = lose
    if arrives or times == 1:
        tx = publish(site)
        assert site.owner.coordinator.outcome(tx.transaction_id).value == "committed"
        assert site.committed() == [b"a"]
    else:  # nobody has heard of it, and now nobody will
        with pytest.raises(Unavailable):
            publish(site)
        assert site.committed() == []
    settles = ["settle", *["snapshot"] * arrives] if times == 2 else []
    assert sends.names == ["commit", "commit", *settles]
    publish(site, b"next")
    assert site.committed()[-1] == b"next"


def test_what_nobody_can_find_out_is_unknown(site: CommitSite, sends: Sends) -> None:
    sends.after = lost(COMMIT_AT_ONCE, SETTLE)
    tx = site.client.transaction()

    def publish_unknown() -> None:
        with tx:
            site.client.publisher("t").publish(b"a")

    said = r"commit of number 1 in slot 0 of client [0-9a-f]{32} may or may not be"
    with pytest.raises(TransactionOutcomeUnknown, match=said):
        publish_unknown()
    with pytest.raises(MisusedTransaction, match="has no pointer"):
        tx.transaction.transaction_id  # noqa: B018
    sends.after = _nothing
    assert site.committed() == [b"a"]
    publish(site, b"next")  # in another slot
    assert {one.fields["slot"] for one in sends.asked} == {0, 1}
    assert site.committed() == [b"a", b"next"]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_repeat_that_is_refused_says_nothing_of_the_first(
    site: CommitSite, sends: Sends, *, arrives: bool
) -> None:
    """The topic is deleted between the two."""

    def lose(asked: CallRequest) -> None:
        if asked.call is COMMIT_AT_ONCE and len(sends.asked) == 1:
            site.owner.delete_topic("t")
            raise OSError("the network went away")

    if arrives:
        sends.after = lose
        tx = publish(site)
        assert site.owner.coordinator.outcome(tx.transaction_id).value == "committed"
        assert sends.names == ["commit", "commit"]
    else:
        sends.before = lose
        with pytest.raises(TopicNotFound):
            publish(site)
        assert sends.names == ["commit", "commit", "settle"]


def test_a_refused_settling_leaves_it_unknown(
    site: CommitSite, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(asked: CallRequest) -> None:
        if asked.call is SETTLE:
            raise NotAuthorized("the token was withdrawn")

    sends.after = lost(COMMIT_AT_ONCE)
    sends.before = refuse
    with pytest.raises(TransactionOutcomeUnknown, match="token was withdrawn"):
        publish(site)
    assert site.committed() == [b"a"]


def test_what_is_refused_is_rolled_back(site: CommitSite, sends: Sends) -> None:
    site.owner.create_topic("gone")
    with site.client.transaction():
        site.client.publisher("gone").publish(b"known")

    def into_nothing() -> None:
        with site.client.transaction() as tx:
            site.client.publisher("gone").publish(b"x")
            site.client.publisher("t").publish(b"x")
            tx.on_rollback(lambda: told.append("rolled back"))

    told: list[str] = []
    site.owner.delete_topic("gone")
    sends.asked.clear()
    with pytest.raises(TopicNotFound, match="gone"):
        into_nothing()
    assert told == ["rolled back"]
    assert sends.names == ["commit"]
    assert site.committed() == []
    assert not site.owner.coordinator.snapshot().in_progress
    publish(site)
    assert site.committed() == [b"a"]


def test_a_full_disk_refuses_it_and_its_copies(
    site: CommitSite, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator: Any = site.owner.coordinator

    def full(*_: Any, **__: Any) -> Any:
        raise NotWritten("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(coordinator, "commit_soon", lambda *_, **__: False)
        patched.setattr(coordinator, "commit_with", full)
        with pytest.raises(NotWritten):
            publish(site)
    asked = sends.asked[0]
    with pytest.raises(TransactionNotInProgress, match="stays so"):
        sends.ask(asked)
    assert site.committed() == []
    publish(site, b"next")
    assert site.committed() == [b"next"]


def test_a_block_that_was_open_for_too_long_is_refused(
    site: CommitSite, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionAtOnce, "open_ms", 61_000)

    def publish_late(timeout_s: float | None) -> None:
        with site.client.transaction(timeout_s=timeout_s):
            site.client.publisher("t").publish(b"late")

    with pytest.raises(TransactionNotInProgress, match=r"61 s.* has 30 s"):
        publish_late(None)
    with pytest.raises(TransactionNotInProgress, match=r"61 s.* has 60 s"):
        publish_late(60)
    publish_late(90)
    assert site.committed() == [b"late"]
    assert sends.names == ["commit"] * 3


def test_a_time_out_above_the_maximum_is_told_as_the_block_begins(
    site: CommitSite,
) -> None:
    with pytest.raises(txaware.BadRequest, match="max_transaction_timeout_s"):
        site.client.transaction(timeout_s=3600).__enter__()


def test_a_server_of_before_begins_and_commits(
    site: CommitSite, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_before = ServerInfo.parse(b'{"limits": {}, "takesCommits": true}')
    assert not of_before.may_begin_with_commit(None)
    coordinator: Any = site.client.coordinator
    monkeypatch.setattr(coordinator, "_commits_at_once", lambda _: False)
    publish(site)
    assert sends.names == ["begin", "commit"]
    assert site.committed() == [b"a"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("frames", [True, False])
def test_what_a_bad_network_does_to_such_blocks_is_known(
    tmp_path: Path, seed: int, *, frames: bool
) -> None:
    done, undone = set[bytes](), set[bytes]()
    unknown: set[bytes] = set()
    with commit_site(tmp_path) as site:
        with LossyProxy(site.url, seed=seed, one_in=8) as proxy:
            with txaware.connect(proxy.url, frames=frames) as client:
                for number in range(80):
                    payload = b"%d" % number
                    context = client.transaction()
                    try:
                        with context:
                            client.publisher("t").publish(payload)
                            client.publisher("u").publish(payload)
                        done.add(payload)
                    except TransactionOutcomeUnknown:
                        unknown.add(payload)
                    except TxAwareError:
                        undone.add(payload)
            assert proxy.lost > 5
        found = site.committed()
        assert sorted(found) == sorted(site.committed("u"))
        assert len({*found}) == len(found)
        assert done <= {*found} <= done | unknown
        assert len(done) > 40
        assert site.owner.check().is_clean


def fields(site: CommitSite, **more: Any) -> dict[str, Any]:
    life = site.asks(PATH).headers["txaware-instance"]  # of a refusal, too
    named = {"client": CLIENT, "slot": 0, "number": 1}
    return named | {"life": life, "publishes": PUBLISHES} | more


def test_a_client_in_json_commits_once_however_often_it_asks(site: CommitSite) -> None:
    asked = fields(site)
    first, again = site.asks(PATH, **asked), site.asks(PATH, **asked)
    assert (first.status, again.json) == (200, first.json)
    settled = site.asks("/v1/transactions/settle", client=CLIENT, slot=0, number=1)
    assert settled.json == first.json
    assert site.committed() == [b"a"]
    later = site.asks(PATH, **fields(site, number=2))
    assert later.json["transaction"] > first.json["transaction"]
    old = site.asks(PATH, **asked)
    assert (old.status, old.json["error"]) == (409, "TransactionNotInProgress")


def test_a_copy_of_an_earlier_life_is_asked_about(site: CommitSite) -> None:
    asked = fields(site, life="an earlier one")
    answer = site.asks(PATH, **asked)
    assert answer.status == 503
    assert answer.headers["txaware-outcome"] == "unknown"
    assert site.committed() == []
    repeated = site.asks(PATH, **asked, repeat=True)
    assert repeated.status == 200
    assert site.committed() == [b"a"]


def test_the_next_life_knows_what_was_committed(tmp_path: Path) -> None:
    with commit_site(tmp_path) as site:
        site.client.publisher("t")  # hears of the server
        asked = fields(site)
        first = site.asks(PATH, **asked)
    with (
        txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner,
        owner.serve() as server,
    ):
        caller = Caller(server.url, None)
        late = caller.ask("POST", PATH, asked)
        assert late.status == 503
        again = caller.ask("POST", PATH, asked | {"repeat": True})
        assert again.json == first.json
        caller.close()
        assert payloads(owner.poll("t", isolation="committed")) == [b"a"]


def test_asyncio_commits_in_one_call(site: CommitSite) -> None:
    async def publish_all() -> list[int]:
        async with txaware.connect_async(site.url) as messaging:

            async def one(number: int) -> int:
                publisher = messaging.publisher("t")
                async with messaging.transaction() as tx:
                    await publisher.publish(b"%d" % number)
                return tx.transaction.transaction_id

            return await asyncio.gather(*map(one, range(20)))

    pointers = asyncio.run(publish_all())
    assert len({*pointers}) == 20
    assert sorted(site.committed()) == sorted(b"%d" % n for n in range(20))


def test_a_block_over_shards_is_one_call(tmp_path: Path) -> None:
    settings = txaware.Settings(shards=2)
    with (
        txaware.connect(f"leveldb:{tmp_path}", settings=settings) as owner,
        owner.serve() as server,
        txaware.connect(server.url) as client,
    ):
        for shard, topic in enumerate(("home", "other")):
            owner.create_topic(topic, shards=[shard])
        coordinator: Any = client.coordinator
        sends = coordinator._sender = Sends(coordinator._sender)

        def publish_to(*topics: str) -> list[str]:
            with client.transaction():
                for topic in topics:
                    client.publisher(topic).publish(b"a")
            return sends.names

        assert publish_to("home", "other") == ["commit"]
        assert publish_to("other") == ["commit"]
        assert publish_to("home") == ["commit"]
        counts = {"home": 2, "other": 2}
        for topic, count in counts.items():
            found = payloads(owner.poll(topic, isolation="committed"))
            assert found == [b"a"] * count
        assert not owner.coordinator.snapshot().in_progress
        assert owner.check().is_clean


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("memory:", txaware.Settings()),
        ("leveldb:{}/data", txaware.Settings(max_transaction_lifetime_s=60)),
    ],
    ids=["memory", "nothing may be old"],
)
def test_where_no_commit_carries_rows_everything_goes_before(
    tmp_path: Path, url: str, settings: txaware.Settings
) -> None:
    with (
        txaware.connect(url.format(tmp_path), settings=settings) as owner,
        owner.serve() as server,
        txaware.connect(server.url) as client,
    ):
        owner.create_topic("t")
        coordinator: Any = client.coordinator
        sends = coordinator._sender = Sends(coordinator._sender)
        with client.transaction():
            client.publisher("t").publish(b"a")
        assert sends.names[0] == "begin"
        assert payloads(owner.poll("t", isolation="committed")) == [b"a"]
