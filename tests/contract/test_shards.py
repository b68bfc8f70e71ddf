"""Stores of several shards: what lies where, and what opens them."""

import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import attrs
import pytest

import txaware
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction
from coordinator.transaction_status import INVALID, OPEN, standing
from tests.support.messagings import payloads, table_of
from txaware.auth import ANYBODY
from txaware.errors import (
    BadRequest,
    NotWritten,
    ShardAway,
    ShardMissing,
    StoreCorrupted,
    TransactionConflict,
)
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.messages import Outgoing
from txaware.model.producers import ProducerIdentity
from txaware.model.settings import Settings
from txaware.model.shards import placed
from txaware.service.check.checking import check_directory
from txaware.service.producers.producing import Producing
from txaware.service.transfer.backup import restore
from txaware.shards.opening import make_shards, open_some
from txaware.shards.sharded_table import ShardedTable
from txaware.store import journaled_table
from txaware.store.journaled_table import FORMAT, FORMATS
from txaware.store.keys import (
    PRODUCER_ROW,
    SEQUENCE_ROW,
    STORE_SHARD,
    STORE_SHARDS,
    TOPIC,
)
from txaware.store.leveldb import LevelDbTable
from txaware.store.producer_table import producer_key
from txaware.store.shard_rows import StoreShards, secret_in, store_secret
from txaware.store.topic_table import TopicTable


def opened(directory: Path, shards: int = 1) -> Messaging:
    settings = Settings(shards=shards, janitor_interval_s=0)
    return txaware.connect(f"leveldb:{directory}", settings=settings)


def sharded(messaging: Messaging) -> ShardedTable:
    table = table_of(messaging)
    assert isinstance(table, ShardedTable)
    return table


def producing_of(messaging: Messaging) -> Producing:
    found = messaging._producers
    assert isinstance(found, Producing)
    return found


def test_partitions_are_spread_evenly_and_what_is_there_stays() -> None:
    assert placed(4, (0, 1), loads={}) == (0, 1, 0, 1)
    assert placed(4, (1, 2), loads={}) == (1, 2, 1, 2)
    assert placed(3, (0, 1), loads={0: 5}) == (1, 0, 1)
    assert placed(4, (0, 1, 2), kept=(1, 1), loads={}) == (1, 1, 0, 2)
    assert placed(1, (0, 1), kept=(1, 0, 1), loads={}) == (1, 0, 1)


def test_rows_of_partitions_are_in_their_shards_and_all_else_is_home(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, 2) as messaging:
        assert messaging.create_topic("orders", partitions=4).shards == (0, 1, 0, 1)
        for number in range(4):
            messaging.publisher(f"orders.{number}").publish(b"%d" % number)
        with messaging.transaction():
            messaging.publisher("orders").publish_all([b"a", b"b", b"c"])
        table = sharded(messaging)
        home, other = table.store_of(0), table.store_of(1)
        found = json.loads(home.get(STORE_SHARDS) or b"")
        assert found["shards"] == [0, 1]
        assert len(found["store"]) == 16
        assert json.loads(other.get(STORE_SHARD) or b"") == {
            "store": found["store"],
            "number": 1,
        }
        assert home.scan(TOPIC) == other.scan(TOPIC)
        for store, own in ((home, "02"), (other, "13")):
            plain = [row for row in store.scan(b"m") if row[1][-1:].isdigit()]
            assert {value[-1:].decode() for _, value in plain} == {*own}
        assert not other.scan(b"o")
        assert not other.scan(b"j")
        assert len(messaging.poll("orders", isolation="committed")) == 7
    with opened(tmp_path) as messaging:  # all that there are, without a setting
        assert len(messaging.poll("orders", isolation="committed")) == 7


def test_a_store_without_further_shards_has_the_bytes_of_before(tmp_path: Path) -> None:
    with opened(tmp_path) as messaging:
        messaging.create_topic("orders", shards=[0])
        table = table_of(messaging)
        assert not isinstance(table, ShardedTable)
        assert b"shards" not in (table.get(TOPIC + b"default:orders:") or b"")
        with pytest.raises(
            BadRequest, match=r"shard 1 is not there: .* txaware shard add"
        ):
            messaging.create_topic("more", shards=[1])
        assert (table.get(FORMAT) or b"") < b"txaware 5"
    assert not (tmp_path / "shards").exists()


def test_the_version_before_refuses_a_store_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path, 2).close()
    monkeypatch.setattr(journaled_table, "FORMATS", FORMATS[:-1])
    with pytest.raises(StoreCorrupted, match=r"has the format b'txaware 5', and"):
        opened(tmp_path)


def test_a_shard_that_is_missing_or_another_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        opened(tmp_path / name, 3).close()
    one, two = tmp_path / "one/shards", tmp_path / "two/shards"
    shutil.move(one / "2", tmp_path / "kept")
    with pytest.raises(ShardMissing, match=r"shard 2 is missing: there is no .*/2"):
        opened(tmp_path / "one")
    shutil.copytree(two / "2", one / "2")
    with pytest.raises(ShardMissing, match=r"/2 is shard 2 of another store"):
        opened(tmp_path / "one")
    shutil.rmtree(one / "2")
    shutil.copytree(one / "1", one / "2")
    with pytest.raises(ShardMissing, match=r"/2 is shard 1; put the right"):
        opened(tmp_path / "one")
    shutil.rmtree(one / "2")
    shutil.move(tmp_path / "kept", one / "2")
    opened(tmp_path / "one").close()


def test_a_shard_is_no_store_of_its_own(tmp_path: Path) -> None:
    opened(tmp_path, 2).close()
    with pytest.raises(BadRequest, match="this is shard 1 of the store"):
        opened(tmp_path / "shards" / "1")
    [problem] = problems(tmp_path / "shards" / "1")
    assert "this is shard 1 of the store" in problem


def test_a_topic_made_anew_keeps_its_shards_and_its_ids_rise(tmp_path: Path) -> None:
    with opened(tmp_path, 3) as messaging:
        messaging.create_topic("orders", partitions=2, shards=[2, 1])
        messaging.publisher("orders.0").publish(b"before")
        [before] = messaging.poll("orders.0")
        messaging.delete_topic("orders")
        assert messaging.create_topic("orders", partitions=3).shards == (2, 1, 0)
        assert payloads(messaging.poll("orders")) == []
        messaging.publisher("orders.0").publish(b"after")
        [after] = messaging.poll("orders.0")
        assert after.id > before.id
        messaging.update_topic("orders", partitions=4)
        assert messaging.topic("orders").shards[:3] == (2, 1, 0)
        with pytest.raises(BadRequest, match="lies in shards 0,1,2, and stays there"):
            messaging.update_topic("orders", properties={"shards": "1"})


def test_copies_of_a_change_that_was_cut_off_follow_the_first_shard(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, 2) as messaging:
        messaging.create_topic("orders", shards=[1])
        other = sharded(messaging).store_of(1)
        [(key, row)] = other.scan(TOPIC)
        other.submit([(TOPIC + b"default:never:", row), (TOPIC + key, b"{}")])()
    with opened(tmp_path) as messaging:
        assert sharded(messaging).store_of(1).scan(TOPIC) == [(key, row)]
        messaging.publisher("orders").publish(b"x")
        assert payloads(messaging.poll("orders")) == [b"x"]


def test_a_transaction_over_two_shards_is_seen_at_once_or_never(tmp_path: Path) -> None:
    with opened(tmp_path, 2) as messaging:
        messaging.create_topic("orders", partitions=2)
        with messaging.transaction():
            for number in range(2):
                messaging.publisher(f"orders.{number}").publish(b"yes")
        with suppress(LookupError), messaging.transaction():
            for number in range(2):
                publisher = messaging.publisher(f"orders.{number}")
                publisher.publish(b"no")
                publisher.flush()
            raise LookupError
        assert payloads(messaging.poll("orders", isolation="committed")) == [b"yes"] * 2
        assert messaging.check().is_clean


def test_a_process_may_have_some_shards_alone(tmp_path: Path) -> None:
    settings = Settings(janitor_interval_s=0)
    known = make_shards(tmp_path, settings, least=3)
    assert known.shards == (0, 1, 2)
    assert make_shards(tmp_path, settings, least=2) == known
    with opened(tmp_path) as messaging:
        messaging.create_topic("orders", partitions=3)
        messaging.publisher("orders.1").publish(b"x")
    some = open_some(tmp_path, known, [2, 1], settings)
    home = LevelDbTable.open(tmp_path, settings, clock_ms=system_clock_ms)
    try:
        topics = TopicTable(some)
        [found] = topics.all()
        assert found.shards == (0, 1, 2)
        assert some.scan(b"m" + b"default:orders.1:")
        with pytest.raises(ShardAway, match="shard 0 is not at this server"):
            some.scan(b"m" + b"default:orders:")
        some.submit([(b"oanything", b"")])()  # of this process alone
        assert some.store_of(1).get(b"oanything") == b""
        changed = attrs.evolve(found, ttl_s=7)
        for number in (1, 2):
            topics.keep(changed, some.store_of(number))
        assert topics.get(found.topic).ttl_s == 7
    finally:
        some.close()
        home.close()


def test_shards_that_an_interrupt_left_are_taken(tmp_path: Path) -> None:
    """They are made before the store names them."""
    settings = Settings(janitor_interval_s=0)
    known = make_shards(tmp_path, settings, least=2)
    home = LevelDbTable.open(tmp_path, settings, clock_ms=system_clock_ms)
    home.submit([(STORE_SHARDS, StoreShards(known.store).to_bytes())])()
    home.close()
    assert make_shards(tmp_path, settings, least=3).shards == (0, 1, 2)


def test_shards_are_added_and_listed(tmp_path: Path) -> None:
    with opened(tmp_path) as messaging:
        [home] = messaging.shards()
        assert (home.number, home.partitions, home.status) == (0, 0, "OK")
        assert messaging.add_shards(1) == [1]
        assert not isinstance(table_of(messaging), ShardedTable)
        messaging.create_topic("before")
    with opened(tmp_path) as messaging:
        assert messaging.add_shards(2) == [2, 3]  # at once, where there are some
        assert messaging.create_topic("orders", partitions=4, shards="3,2").shards == (
            *(3, 2, 3, 2),
        )
        messaging.publisher("orders.0").publish(b"x")
        assert [one.partitions for one in messaging.shards()] == [1, 0, 2, 2]
        for wrong in (0, -1, True, "1", 2**40):
            with pytest.raises(BadRequest):
                messaging.add_shards(wrong)  # type: ignore[arg-type]
    with opened(tmp_path) as messaging:
        assert payloads(messaging.poll("orders")) == [b"x"]
    with (
        txaware.connect("memory:") as messaging,
        pytest.raises(BadRequest, match="set `shards` then"),
    ):
        messaging.add_shards(1)
    with txaware.connect("memory:", settings=Settings(shards=2)) as messaging:
        assert messaging.add_shards(1) == [2]
        assert messaging.create_topic("t", shards=[2]).shards == (2,)


def test_a_server_of_several_shards_has_them_all(tmp_path: Path) -> None:
    with opened(tmp_path, 2) as owner, txaware.connect(owner.serve().url) as messaging:
        assert messaging.add_shards(1) == [2]
        made = messaging.create_topic("orders", partitions=3, shards=[0, 1, 2])
        assert made.shards == (0, 1, 2)
        with messaging.transaction():
            messaging.publisher("orders").publish_all([b"a", b"b", b"c"])
        for number in range(3):
            messaging.publisher(f"orders.{number}").publish(b"%d" % number)
            assert payloads(messaging.poll(f"orders.{number}"))[-1:] == [b"%d" % number]
        assert len(messaging.poll("orders", isolation="committed")) == 6
        assert [one.partitions for one in messaging.shards()] == [1, 1, 1]
        assert messaging.check().is_clean


def filled(directory: Path) -> Messaging:
    """A store of two shards with a topic in both, and one that is in the second."""
    messaging = opened(directory, 2)
    messaging.create_topic("orders", partitions=2)
    messaging.create_topic("bills", shards=[1])
    for number in range(3):
        with messaging.transaction():
            for name in ("orders.0", "orders.1", "bills"):
                messaging.publisher(name).publish(b"%d" % number)
    return messaging


def problems(directory: Path) -> list[str]:
    report = check_directory(directory, Settings())
    return [f"{one.kind}: {one.sentence}" for one in report.problems]


def test_a_check_reads_all_shards(tmp_path: Path) -> None:
    with filled(tmp_path) as messaging:
        counts = messaging.check().counts
        assert (counts["shards"], counts["messages"], counts["topics"]) == (2, 9, 2)
    report = check_directory(tmp_path, Settings())
    assert report.is_clean, report.problems
    assert (report.counts["shards"], report.counts["messages"]) == (2, 9)
    damaged = open_some(tmp_path, known_in(tmp_path), [1], Settings())
    store = damaged.store_of(1)
    rows = store.scan(b"mdefault:orders.1:", limit=1)
    store.submit([(b"mdefault:orders.1:" + rows[0][0], b"")])()
    damaged.close()
    assert problems(tmp_path)


def known_in(directory: Path) -> StoreShards:
    return make_shards(directory, Settings(), least=1)


def test_a_check_names_a_shard_that_is_missing_or_another(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    filled(tmp_path / "other").close()
    place = tmp_path / "data" / "shards" / "1"
    shutil.move(place, tmp_path / "kept")
    [problem] = problems(tmp_path / "data")
    assert problem.startswith("shard: shard 1 is missing: ")
    shutil.copytree(tmp_path / "other" / "shards" / "1", place)
    [problem] = problems(tmp_path / "data")
    assert problem == "shard: shard 1 of another store is in the place of shard 1"
    shutil.rmtree(place)
    shutil.move(tmp_path / "kept", place)
    assert problems(tmp_path / "data") == []


def test_a_check_finds_what_lies_in_the_wrong_shard(tmp_path: Path) -> None:
    with filled(tmp_path) as messaging:
        home, other = (sharded(messaging).store_of(number) for number in (0, 1))
        [moved] = home.scan(b"mdefault:orders:", limit=1)
        other.submit([(b"mdefault:orders:" + moved[0], moved[1])])()
        other.submit([(b"oa:default:orders:" + bytes(8), bytes(20))])()
        found = [one.sentence for one in messaging.check().problems]
        assert any(
            "shard 1 has rows of b'default:orders:', which lies in 0" in one
            for one in found
        )
        assert any(
            "shard 1 has rows that are in the first one alone" in one for one in found
        )
        other.submit([(b"oa:default:orders:" + bytes(8), None)])()
        other.submit([(b"mdefault:orders:" + moved[0], None)])()
        assert messaging.check().is_clean
        key = TOPIC + b"default:bills:"
        row = other.get(key)
        other.submit([(key, None)])()
        assert (
            "serves this topic, and has no row"
            in messaging.check().problems[0].sentence
        )
        other.submit([(key, (row or b"").replace(b"604800", b"604801"))])()
        assert "another row of topic bills" in messaging.check().problems[0].sentence


def test_a_backup_has_all_shards_and_is_restored_to_as_many(tmp_path: Path) -> None:
    backup = io.BytesIO()
    with filled(tmp_path / "data") as messaging:
        tx = messaging.coordinator.start_short()
        messaging.publish("bills", [b"open"], transaction=tx)
        messaging.backup(backup)
        messaging.coordinator.commit(tx)  # after the moment of the backup
        with messaging.transaction():
            messaging.publisher("bills").publish(b"later")
    backup.seek(0)
    restore(backup, tmp_path / "new", Settings())
    assert problems(tmp_path / "new") == []
    with opened(tmp_path / "new") as messaging:
        assert sharded(messaging).shards == (0, 1)
        for name in ("orders.0", "orders.1", "bills"):
            page = messaging.poll(name, isolation="committed")
            assert payloads(page) == [b"0", b"1", b"2"]
        with messaging.transaction():
            messaging.publisher("bills").publish(b"new")
        page = messaging.poll("bills", isolation="committed")
        assert payloads(page) == [b"0", b"1", b"2", b"new"]
        assert messaging.check().is_clean


def test_a_copy_places_anew_and_merges_into_one(tmp_path: Path) -> None:
    filled(tmp_path / "data").close()
    one, three = tmp_path / "one", tmp_path / "three"
    copied = txaware.copy(f"leveldb:{tmp_path / 'data'}", f"leveldb:{one}")
    assert not (one / "shards").exists()
    settings = Settings(shards=3)
    again = txaware.copy(
        f"leveldb:{tmp_path / 'data'}", f"leveldb:{three}", settings=settings
    )
    assert again.rows == copied.rows
    for directory, shards in ((one, 1), (three, 3)):
        assert problems(directory) == []
        with opened(directory) as messaging:
            for name in ("orders.0", "orders.1", "bills"):
                assert payloads(messaging.poll(name)) == [b"0", b"1", b"2"]
            assert len(messaging.shards()) == shards
            assert sum(one.partitions for one in messaging.shards()) == 3
    with opened(three) as messaging:
        assert {messaging.topic("orders").shard_of(n) for n in (0, 1)} < {0, 1, 2}
        assert len({one.partitions for one in messaging.shards()}) == 1


def test_what_servers_know_each_other_by_is_checked_and_is_not_copied(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "data").close()
    home = LevelDbTable.open(tmp_path / "data", Settings(), clock_ms=system_clock_ms)
    secret = store_secret(home)
    assert (len(secret), store_secret(home)) == (32, secret)
    home.close()
    assert problems(tmp_path / "data") == []
    txaware.copy(
        f"leveldb:{tmp_path / 'data'}",
        f"leveldb:{tmp_path / 'copy'}",
        settings=Settings(shards=2),
    )
    copy = LevelDbTable.open(tmp_path / "copy", Settings(), clock_ms=system_clock_ms)
    assert secret_in(copy) is None
    copy.close()


def test_a_producer_is_known_in_whatever_shard_it_was_opened(tmp_path: Path) -> None:
    """At a server that has further shards alone it is opened in one of them."""
    with opened(tmp_path, 2) as messaging:
        messaging.create_topic("orders", partitions=2)
        with messaging.producer() as producer:
            producer.publish("orders.1", b"x")
        home, other = (sharded(messaging).store_of(number) for number in (0, 1))
        rows = home.scan(b"sp")
        assert rows
        other.submit([(b"sp" + key, value) for key, value in rows])()
        home.submit([(b"sp" + key, None) for key, _ in rows])()
    with opened(tmp_path) as messaging:
        assert messaging.check().is_clean
        [found] = messaging.producers()
        messaging.forget_producer(found.producer_id)
        assert messaging.producers() == []
        assert messaging.check().is_clean
    assert problems(tmp_path) == []


def test_a_publish_is_known_again_without_the_shard_that_its_producer_began_in(
    tmp_path: Path,
) -> None:
    """That one may be at another server by the time of the repeat."""
    drawn = ProducerIdentity(7, by_client=True)
    with opened(tmp_path, 2) as messaging:
        messaging.create_topic("orders", partitions=2)
        publish = producing_of(messaging).publish_once
        publish("orders.1", [b"began here"], producer=drawn, sequence=0)
        publish("orders.0", [b"a"], producer=drawn, sequence=0)
        ids = publish("orders.0", [b"b"], producer=drawn, sequence=1)
        other = sharded(messaging).store_of(1)
        other.submit([(producer_key(7), None)])()
    with opened(tmp_path) as messaging:
        messaging.clean_up()
        publish = producing_of(messaging).publish_once
        assert publish("orders.0", [b"b"], producer=drawn, sequence=1) == ids
        publish("orders.0", [b"c"], producer=drawn, sequence=2)
        assert payloads(messaging.poll("orders.0")) == [b"a", b"b", b"c"]


def test_sequences_are_kept_whose_producer_was_opened_at_another_server(
    tmp_path: Path,
) -> None:
    """A shard that came from a third server may have no copy of its row."""
    with opened(tmp_path) as messaging:
        messaging.create_topic("orders")
        with messaging.producer() as producer:
            producer.publish("orders", b"a")
        [(key, _)] = table_of(messaging).scan(PRODUCER_ROW)
        row = producing_of(messaging).ids.find(int.from_bytes(key, "big"))
        table_of(messaging).submit([(PRODUCER_ROW + key, None)])()
    with opened(tmp_path) as messaging:
        producing_of(messaging).ids.ask_home = lambda _: row
        messaging.clean_up()
        assert table_of(messaging).scan(SEQUENCE_ROW)
        producing_of(messaging).ids.ask_home = lambda _: None
        messaging.clean_up()
        assert not table_of(messaging).scan(SEQUENCE_ROW)


def test_a_producer_of_several_shards_is_one_and_is_forgotten_in_all(
    tmp_path: Path,
) -> None:
    drawn = ProducerIdentity(7, by_client=True)
    with opened(tmp_path, 3) as messaging:
        messaging.create_topic("orders", partitions=3)
        for partition in (2, 0, 1):
            producing_of(messaging).publish_once(
                f"orders.{partition}", [b"a"], producer=drawn, sequence=0
            )
        stores = [sharded(messaging).store_of(number) for number in range(3)]
        assert all(one.get(producer_key(7)) for one in stores)
        assert len(messaging.producers()) == 1
        assert messaging.check().is_clean
        producing_of(messaging).publish_alone(
            "orders",
            [Outgoing(b"b", key=b"%d" % number) for number in range(20)],
            producer=ProducerIdentity(8, by_client=True),
            caller=ANYBODY,
        )
        assert all(one.get(producer_key(8)) for one in stores)
        for producer_id in (7, 8):
            messaging.forget_producer(producer_id)
            assert not any(one.get(producer_key(producer_id)) for one in stores)
        assert messaging.producers() == []


@pytest.mark.parametrize("frames", [True, False])
def test_a_commit_at_a_server_writes_to_other_shards_first(
    tmp_path: Path, frames: bool
) -> None:
    with (
        opened(tmp_path, 2) as owner,
        txaware.connect(owner.serve().url, frames=frames) as messaging,
    ):
        owner.create_topic("far", shards=[1])
        owner.create_topic("both", partitions=2)
        stock = messaging.table("stock")
        with messaging.transaction():
            messaging.publisher("far").publish(b"a")
            for number in range(2):
                messaging.publisher(f"both.{number}").publish(b"a")
            stock.put(b"apples", b"1")
        with messaging.producer("loader") as producer, producer.transaction():
            producer.publish("far", b"b")
        with pytest.raises(TransactionConflict):
            refused(messaging)
        assert stock.get(b"apples") == b"3"
        for name, wanted in (("far", [b"a", b"b"]), ("both", [b"a", b"a"])):
            assert payloads(messaging.poll(name, isolation="committed")) == wanted
        with messaging.transaction():
            messaging.publisher("far").publish(b"c")
        assert payloads(messaging.poll("far", isolation="committed"))[2:] == [b"c"]
        assert messaging.check().is_clean


def refused(messaging: Messaging) -> None:
    with messaging.transaction(), ThreadPoolExecutor(1) as pool:
        messaging.table("stock").put(b"apples", b"2")
        messaging.publisher("far").publish(b"refused")
        # It is in no block of that thread.
        pool.submit(committed_between, messaging).result()


def committed_between(messaging: Messaging) -> None:
    with messaging.transaction():
        messaging.table("stock").put(b"apples", b"3")


def test_a_repeated_commit_over_shards_is_never_written_twice(tmp_path: Path) -> None:
    """A server that died after it wrote to a shard leaves the transaction open."""
    with opened(tmp_path, 2) as owner:
        owner.create_topic("far", shards=[1])
        with txaware.connect(owner.serve().url) as messaging:
            pointer = messaging.coordinator.start_short().transaction_id
        owner.publish("far", [b"x"], transaction=pointer)  # and it was killed here
    with opened(tmp_path, 2) as owner:
        refused = refused_commit(owner.serve().url, pointer, "far", repeat=True)
        assert refused["error"] == "TransactionNotInProgress"
        assert "an earlier request may be written" in refused["message"]
        assert payloads(owner.poll("far", isolation="committed")) == []
        assert owner.coordinator.outcome(pointer) is Outcome.ROLLED_BACK


def test_a_refusal_before_rows_are_written_leaves_the_transaction_open(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, 2) as owner:
        owner.create_topic("far", shards=[1])
        url = owner.serve().url
        with txaware.connect(url) as messaging:
            tx = messaging.coordinator.start_short()
            refused = refused_commit(url, tx.transaction_id, "far", "nowhere")
            assert refused["error"] == "TopicNotFound"
            assert standing(owner.coordinator, tx.transaction_id).state == OPEN
            messaging.coordinator.commit(tx)
            assert payloads(messaging.poll("far")) == []


def test_a_commit_that_is_refused_behind_its_rows_ends_the_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would abort what it takes for undone, and that shows the rows."""
    with opened(tmp_path, 2) as owner:
        owner.create_topic("far", shards=[1])
        url, coordinator = owner.serve().url, owner.coordinator
        commit = coordinator.commit

        def disk_is_full(tx: Transaction) -> None:
            raise NotWritten("the disk is full")

        with txaware.connect(url) as messaging:
            tx = messaging.coordinator.start_short()
            monkeypatch.setattr(coordinator, "commit", disk_is_full)
            refused = refused_commit(url, tx.transaction_id, "far")
            assert refused["error"] == "TransactionNotInProgress"
            assert "the disk is full" in refused["message"]
            assert standing(coordinator, tx.transaction_id).state == INVALID
            monkeypatch.setattr(coordinator, "commit", commit)
            messaging.coordinator.abort(tx)
            assert payloads(owner.poll("far", isolation="committed")) == []
            assert coordinator.outcome(tx) is Outcome.ROLLED_BACK


def refused_commit(url: str, pointer: int, *topics: str, **more: Any) -> dict[str, Any]:
    publishes = [{"topic": topic, "messages": ["eA=="]} for topic in topics]
    with pytest.raises(HTTPError) as refused:
        ask(f"{url}/v1/transactions/{pointer}/commit", {"publishes": publishes, **more})
    with refused.value as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def ask(url: str, body: dict[str, Any]) -> Any:
    named = {"Content-Type": "application/json", "Accept": "application/json"}
    request = Request(url, json.dumps(body).encode(), named)
    with urlopen(request) as answer:
        return json.loads(answer.read())
