"""Stores of several shards in HBase, on its double: tables of their own for each."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from functools import partial
from threading import Thread
from typing import Any, NoReturn

import pytest

from tests.support.concurrency import in_background, until
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Request, Way
from tests.support.hbase_owners import ADDRESS, made
from tests.support.messagings import payloads, table_of
from tests.support.told import Told
from txaware.errors import (
    BadRequest,
    NotWritten,
    ShardAway,
    ShardMissing,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.messaging.addresses import open_on
from txaware.messaging.server_shards import ShardCopies, opened_home
from txaware.model.commit_slots import CommitSlot
from txaware.model.reports import Report
from txaware.model.settings import Settings
from txaware.service.check.checking import check_table
from txaware.service.write.commits_in_slots import CommitSlots
from txaware.shards.opening import require_no_shard, with_shards
from txaware.shards.shard_place import ShardsInHBase
from txaware.shards.sharded_table import ShardedTable
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import NOBODY, HeadCell, StoreHead
from txaware.store.hbase.key_check import KeyCheck
from txaware.store.hbase.ownership import Ownership, StoreInUse
from txaware.store.hbase.schema import META
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import STORE_SHARD, STORE_SHARDS
from txaware.store.shard_rows import shards_in
from txaware.store.topic_table import TopicTable

SETTINGS = Settings(janitor_interval_s=0)


class Place:
    """An HBase that remembers, how a store in it is opened, and what is called."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.hbase = made(FakeHBase(self.clock))
        self.calls = Counter[str]()

    def connections(self) -> HBaseConnections:
        def count(_: int, request: Request) -> None:
            self.calls[request.name] += 1

        way = Way(self.hbase)
        way.fault = count
        return HBaseConnections(ADDRESS, patience_s=0, connect=way.connect)

    def home(self) -> HBaseTable:
        return HBaseTable.on(self.connections(), SETTINGS, clock_ms=self.clock)

    def shards(self, *, seizes: bool = False) -> ShardsInHBase:
        return ShardsInHBase(self.connections(), SETTINGS, seizes=seizes)

    @contextmanager
    def opened(self, shards: int = 1) -> Iterator[Messaging]:
        home = self.home()
        try:
            table = with_shards(home, SETTINGS, least=shards)
        except BaseException:
            home.close()
            raise
        parts = open_on(table, None, SETTINGS, self.clock, None)
        with Messaging(parts) as messaging:
            yield messaging

    @contextmanager
    def seized(self) -> Iterator[Messaging]:
        """The store in the hands of who takes it from an owner that lives."""
        home = HBaseTable.on(
            self.connections(), SETTINGS, clock_ms=self.clock, seizes=True
        )
        with Messaging(open_on(home, None, SETTINGS, self.clock, None)) as messaging:
            yield messaging

    def report(self) -> Report:
        """What a check beside the owner says."""
        with closing(self.connections()) as home:
            place = ShardsInHBase(home, SETTINGS)
            return check_table(
                KeyCheck(home),
                beside=lambda number: KeyCheck(place.connections(number)),
            )

    def lose(self, number: int) -> None:
        """Drops the tables of a shard."""
        begin = f"{ADDRESS.shard(number).prefix}_".encode()
        for name in [name for name in self.hbase.tables if name.startswith(begin)]:
            del self.hbase.tables[name], self.hbase.versions[name]


@pytest.fixture
def place() -> Place:
    return Place()


def filled(messaging: Messaging) -> None:
    messaging.create_topic("orders", partitions=4)
    for number in range(4):
        messaging.publisher(f"orders.{number}").publish(b"%d" % number)
    with messaging.transaction():
        for number in range(4):
            messaging.publisher(f"orders.{number}").publish(b"%d" % number)


def test_each_shard_has_tables_of_its_own(place: Place) -> None:
    with place.opened(3) as messaging:
        filled(messaging)
        assert messaging.topic("orders").shards == (0, 1, 2, 0)
        table = table_of(messaging)
        assert isinstance(table, ShardedTable)
        wanted = [{b"orders", b"orders.3"}, {b"orders.1"}, {b"orders.2"}]
        for number in range(3):
            rows = table.store_of(number).scan(b"m")
            assert {key.split(b":")[1] for key, _ in rows} == wanted[number]
    assert {name for name in place.hbase.tables if b".s2_" in name} == {
        b"t.s2_messages",
        b"t.s2_payloads",
        b"t.s2_meta",
    }
    with place.opened() as messaging:  # all that there are, without a setting
        assert len(messaging.poll("orders", isolation="committed")) == 8
        assert len(messaging.shards()) == 3
        assert messaging.check().is_clean


def test_a_store_without_further_shards_has_the_tables_of_before(place: Place) -> None:
    with place.opened() as messaging:
        messaging.create_topic("orders")
        assert not isinstance(table_of(messaging), ShardedTable)
        assert table_of(messaging).get(STORE_SHARDS) is None
    assert len(place.hbase.tables) == 3


def test_shards_are_added_and_placed_at_once(place: Place) -> None:
    with place.opened() as messaging:
        assert messaging.add_shards(1) == [1]
    with place.opened() as messaging:
        assert messaging.add_shards(2) == [2, 3]
        made = messaging.create_topic("orders", partitions=2, shards=[3, 2])
        messaging.publisher("orders.0").publish(b"x")
        assert made.shards == (3, 2)
        assert [one.partitions for one in messaging.shards()] == [0, 0, 1, 1]
    with place.opened() as messaging:
        assert payloads(messaging.poll("orders")) == [b"x"]
    assert place.report().is_clean


def test_a_shard_that_is_missing_is_named(place: Place) -> None:
    with place.opened(3) as messaging:
        filled(messaging)
    assert place.report().is_clean
    assert place.report().counts["shards"] == 3
    place.lose(2)
    wanted = r"shard 2 is missing: there is no hbase://fake:9090/t.s2"
    with pytest.raises(ShardMissing, match=wanted), place.opened():
        pass
    [problem] = [one for one in place.report().problems if one.kind == "shard"]
    assert problem.sentence.startswith("shard 2 is missing: ")
    with closing(place.home()) as home:  # what was opened before it is given back
        assert home.get(STORE_SHARDS)
    with closing(place.shards().open(1, place.clock)) as shard:
        assert shard.get(STORE_SHARD)


def test_a_shard_of_another_store_and_one_by_itself_are_refused(place: Place) -> None:
    with place.opened(3):
        pass
    begin, other = (f"{ADDRESS.shard(number).prefix}_".encode() for number in (2, 1))
    tables = place.hbase.tables
    for kind in (b"messages", b"payloads", b"meta"):
        tables[begin + kind] = deepcopy(tables[other + kind])
    with (
        pytest.raises(ShardMissing, match=r"t\.s2 is shard 1; put the"),
        place.opened(),
    ):
        pass
    shard = place.shards().open(1, place.clock)
    with (
        closing(shard),
        pytest.raises(BadRequest, match="this is shard 1 of the store"),
    ):
        require_no_shard(shard)


def test_a_shard_that_another_process_has_is_in_use_and_home_is_given_back(
    place: Place,
) -> None:
    with place.opened(2):
        pass
    with closing(place.shards().open(1, place.clock)):
        with pytest.raises(StoreInUse, match=r"t\.s1 is in use"), place.opened():
            pass
        cell = HeadCell(place.connections())
        head = cell.read()
        assert head is not None
        assert head.owner == NOBODY
    with place.opened():
        pass


@contextmanager
def home_of(place: Place) -> Iterator[tuple[Messaging, ShardCopies]]:
    """Home, and the further shards, none of which is here at first."""
    home = place.home()
    known = shards_in(home)
    assert known is not None

    def away(number: int, *_: object) -> NoReturn:
        raise ShardAway(f"shard {number} is away")

    parts, copies = opened_home(
        home,
        None,
        SETTINGS,
        place.clock,
        known=known,
        keep_elsewhere=away,
        read_elsewhere=away,
    )
    with Messaging(parts) as messaging:
        yield messaging, copies


def test_a_shard_that_was_given_back_is_taken_by_few_calls(place: Place) -> None:
    """Each takes a busy HBase long, and requests for the shard wait meanwhile.

    Its last batch is there, so that nothing is written but the head and a sign of life.
    """
    with place.opened(2):
        pass
    with home_of(place) as (_, copies):
        copies.open(1)
        copies.close(1)
        place.calls.clear()
        copies.open(1)
        found = dict(place.calls)
    for beaten in ("mutateRow", "getRow"):  # by the owners' signs of life, too
        found.pop(beaten)
    of_two_scans = ("scannerOpenWithScan", "scannerGetList", "scannerClose")
    assert found == {"checkAndPut": 1, "getRowTs": 3, **dict.fromkeys(of_two_scans, 2)}


def test_what_an_owner_did_not_finish_is_finished_by_who_seizes_its_shard(
    place: Place,
) -> None:
    with place.opened(2):
        pass
    before = place.shards().open(1, place.clock)
    before.submit([(b"oone", b"1")])()
    rows = place.hbase.tables[b"t.s1_meta"]
    del rows[b"oone"]  # it is in the redo record, and was not written by a crash
    with closing(place.shards(seizes=True).open(1, place.clock)) as shard:
        assert shard.get(b"oone") == b"1"
    with suppress(Unavailable):
        before.close()


def test_topics_are_made_in_a_shard_that_was_away(place: Place) -> None:
    with place.opened(2):
        pass
    with home_of(place) as (messaging, copies):
        copies.open(1)
        messaging.create_topic("first", shards=[1])
        copies.close(1)
        copies.open(1)
        messaging.create_topic("second", shards=[1])
        assert len(list(TopicTable(copies.rows(1)).all())) == 2


def test_a_shard_is_given_back_while_a_topic_changes(place: Place) -> None:
    """A change may wait for a shard that moves, and has the lock meanwhile."""
    with place.opened(2):
        pass
    cell = HeadCell(place.shards().connections(1))

    def is_given_back() -> bool:
        head = cell.read()
        assert head is not None
        return head.owner == NOBODY

    with home_of(place) as (messaging, copies):
        copies.open(1)
        assert not is_given_back()
        served = messaging._parts.served
        assert served is not None
        topics = served.service.handles.topics
        giving: list[Thread] = []

        def given_meanwhile(_: object) -> bool:
            giving.append(in_background(partial(copies.close, 1)))
            return until(is_given_back)

        assert topics.unchanged(given_meanwhile)
        giving[0].join()


def test_rows_of_a_shard_that_comes_are_marked_for_all_that_is_invalid(
    place: Place,
) -> None:
    """A clean-up before went through the rows that were here, and through no others."""
    with place.opened(2) as messaging:
        messaging.create_topic("far", shards=[1])
        tx = messaging.coordinator.start_short()
        messaging.publish("far", [b"never"], transaction=tx)
        messaging.coordinator.invalidate(tx.transaction_id)
    with home_of(place) as (messaging, copies):
        assert messaging.clean_up().marked_rows == 0
        copies.open(1)
        assert messaging.clean_up().marked_rows == 1
        copies.close(1)
        copies.open(1)
        messaging.publisher("far").publish(b"again")
        assert payloads(messaging.poll("far", isolation="committed")) == [b"again"]
        assert messaging.check().is_clean


def test_a_shard_is_seized_from_an_owner_that_lives(place: Place) -> None:
    with place.opened(2) as messaging:
        messaging.create_topic("far", shards=[1])
        messaging.publisher("far").publish(b"x")
    before = place.shards().open(1, place.clock)
    with closing(place.shards(seizes=True).open(1, place.clock)) as shard:
        assert len(shard.scan(b"m")) == 1
        shard.submit([(b"oanything", b"1")])()
        with pytest.raises(Unavailable, match="was taken over"):
            before.submit([(b"oanything", b"2")])()
        with pytest.raises(StoreInUse, match="was taken over"):
            before.get(b"oanything")
        assert shard.get(b"oanything") == b"1"
        with suppress(Unavailable):
            before.close()


def set_whoever_has_it(ownership: Ownership, _: StoreHead, new: StoreHead) -> None:
    """A mistake on purpose: the head is set, and nobody asks whose it is."""
    cell = HeadCell(ownership._connections)
    cell.move(cell.read(), new)


@pytest.mark.parametrize("is_planted", [True, False])
def test_a_store_that_goes_on_under_two_owners_is_found(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    """A shard is such a store. Without the mistake the first owner is refused."""
    if is_planted:
        monkeypatch.setattr(Ownership, "move", set_whoever_has_it)
    told = Told()
    first = Messaging(open_on(place.home(), None, SETTINGS, place.clock, None))
    first.create_topic("t")
    told.publish(first, ["t"], "by the first")
    with place.seized() as second:
        told.publish(second, ["t"], "by the second")
        told.publish(first, ["t"], "by the first, which is it no more")
        told.publish(second, ["t"], "by the second again")
        told.poll(second, "t", "reader")
    with suppress(Unavailable):
        first.close()
    assert told.wrong() == ({"reordered"} if is_planted else set())


def test_who_takes_itself_for_home_still_says_no_to_nobody_s_commit(
    place: Place,
) -> None:
    """It refused a commit; then it hung, and the next home was asked again, and did."""
    client, slot = "0123456789abcdef" * 2, CommitSlot("0123456789abcdef" * 2, 3)

    def refused(_: object, __: object) -> NoReturn:
        raise NotWritten("the disk is full")

    first = Messaging(open_on(place.home(), None, SETTINGS, place.clock, None))
    with pytest.raises(NotWritten):
        slots_of(first).perform(slot, 1, first.coordinator.start_short, refused)
    with place.seized() as second:
        pointer = slots_of(second).commit_at_once(client, 3, 1)
        with pytest.raises(Unavailable):
            slots_of(first).settle_commit(client, 3, 1)
        assert slots_of(second).settle_commit(client, 3, 1) == pointer
    with suppress(Unavailable):
        first.close()


def slots_of(messaging: Messaging) -> CommitSlots:
    service: Any = messaging._parts.service
    slots: CommitSlots = service.slots
    return slots


def test_the_tables_of_a_shard_may_be_made_before(place: Place) -> None:
    """By `txaware hbase create-tables hbase://.../NAME.s1`, with regions."""
    with place.opened():
        pass
    made_before = place.shards()
    assert not made_before.has(1)
    made_before.open(1, place.clock).close()
    assert made_before.has(1)
    with place.opened(2) as messaging:
        messaging.create_topic("far", shards=[1])
        assert messaging.check().is_clean
    assert META in {name.rpartition(b"_")[2].decode() for name in place.hbase.tables}
