"""What HBase forgets by itself: messages, some time after they have expired."""

import random
from collections.abc import Iterator

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_owners import ADDRESS, Owner, close, made
from txaware import Outgoing
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.store.columns import EXPIRY, encode_expiry, value_head
from txaware.store.hbase.salting import salted_key
from txaware.store.hbase.schema import MESSAGES
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import MESSAGE, row_key

SETTINGS = Settings(janitor_interval_s=0, cache_bytes=0)
DATA = b"ns:t:\0\0\0\1"
HOUR_MS = 3_600_000
LATER_S = 3 * 3600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hbase(clock: Clock) -> FakeHBase:
    """One with our tables, and with our time."""
    return made(FakeHBase(clock))


class Place:
    """Where a messaging service keeps its rows, opened as often as need be."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.clock = clock
        self.coordinator = EmbeddedCoordinator(clock_ms=clock)
        self._url = url

    def open(self) -> Messaging:
        return txaware.connect(
            self._url,
            coordinator=self.coordinator,
            settings=SETTINGS,
            clock_ms=self.clock,
        )


@pytest.fixture(params=["leveldb", "hbase"])
def place(
    request: pytest.FixtureRequest,
    hbase: FakeHBase,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """All answers are the same, whoever keeps the rows."""

    def opened(*_: object, **__: object) -> HBaseTable:
        return Owner(hbase, clock).table()

    monkeypatch.setattr(HBaseTable, "open", opened)
    url = "hbase://fake:9090/t"
    if request.param == "leveldb":
        url = f"leveldb:{request.getfixturevalue('tmp_path') / 'data'}"
    found = Place(url, clock)
    yield found
    found.coordinator.close()


def test_a_message_lives_as_long_as_it_should_when_its_batch_is_written_again(
    hbase: FakeHBase, clock: Clock
) -> None:
    """HBase counts from the timestamp, which may be a day old by then."""
    owner = Owner(hbase, clock)
    table = owner.table()
    value = expiring(clock() + 25 * HOUR_MS)
    key = MESSAGE + DATA + row_key(clock())
    table.submit([(key, value)])()
    owner.way.crashed = True
    close(table)
    clock.advance_s(24 * 3600)
    successor = Owner(hbase, clock).table()
    clock.advance_s(3500)
    assert successor.get(key) == value
    clock.advance_s(4 * 3600)
    assert successor.get(key) is None
    successor.close()


def expiring(until_ms: int, payload: bytes = b"hello") -> bytes:
    """The value of a message that expires by itself."""
    return value_head(None, more={EXPIRY: encode_expiry(until_ms)}) + payload


@pytest.mark.parametrize(
    ("most_hours", "most_calls"), [(1, 2), (15, 16), (30 * 24, 75), (10 * 8766, 130)]
)
def test_messages_of_many_lifetimes_are_few_calls_and_go_in_their_time(
    hbase: FakeHBase, clock: Clock, most_hours: int, most_calls: int
) -> None:
    owner = Owner(hbase, clock)
    table = owner.table()
    chance = random.Random(most_hours)
    lives_ms = [
        int(HOUR_MS * most_hours ** chance.random() * chance.random())
        for _ in range(1000)
    ]
    keys = [MESSAGE + DATA + row_key(clock(), number) for number in range(1000)]
    calls: list[str] = []
    owner.way.fault = lambda number, request: calls.append(request.name)
    table.submit(
        [
            (key, expiring(clock() + life_ms))
            for key, life_ms in zip(keys, lives_ms, strict=True)
        ]
    )()
    assert calls.count("mutateRowsTs") <= most_calls
    since_ms, rows = clock(), hbase.tables[ADDRESS.table(MESSAGES)]
    for key, life_ms in zip(keys, lives_ms, strict=True):
        cells = rows[salted_key(key)].cells.values()
        (until_ms,) = {cell.until_ms for times in cells for cell in times.values()}
        kept_ms = until_ms - since_ms
        assert life_ms + HOUR_MS <= kept_ms <= life_ms + 2 * HOUR_MS + life_ms / 8
    table.close()


@pytest.mark.parametrize("life_ms", [HOUR_MS // 2, 20 * HOUR_MS])
def test_no_older_version_of_a_message_outlives_the_last_one(
    hbase: FakeHBase, clock: Clock, life_ms: int
) -> None:
    table = Owner(hbase, clock).table()
    key = MESSAGE + DATA + row_key(clock())
    until_ms = clock() + life_ms
    table.submit([(key, expiring(until_ms, b"first"))])()
    clock.advance_s(life_ms / 1700)
    last = expiring(until_ms, b"last")
    table.submit([(key, last)])()
    seen = []
    for _ in range(300):
        seen.append(table.get(key))
        clock.advance_s(300)
    gone = seen.index(None)
    assert seen == [last] * gone + [None] * (300 - gone)
    table.close()


def test_stored_payloads_that_have_expired_stay_for_what_names_them(
    place: Place,
) -> None:
    with place.open() as messaging:
        messaging.create_topic("t")
        with messaging.transaction():
            publisher = messaging.publisher("t", buffer_limit_bytes=5)
            publisher.publish(b"stays ahead")
            publisher.publish(Outgoing(b"goes soon..", expire_after_s=5))
            publisher.publish(b"stays also ")
        place.clock.advance_s(LATER_S)
        left = [message.payload for message in messaging.poll("t")]
        assert left == [b"stays ahead", b"stays also "]
        assert not messaging.check().problems


def test_a_reference_is_taken_though_some_of_its_payloads_have_expired(
    place: Place,
) -> None:
    with place.open() as messaging:
        messaging.create_topic("t")
        tx = place.coordinator.start_long()
        stored = [Outgoing(b"stays"), Outgoing(b"goes", expire_after_s=5)]
        receipt = messaging.store("t", stored, transaction=tx)
    place.clock.advance_s(LATER_S)
    with place.open() as messaging:
        assert messaging.publish("t", [], transaction=tx, receipts=[receipt])
        place.coordinator.commit(tx)
        assert [message.payload for message in messaging.poll("t")] == [b"stays"]
        assert not messaging.check().problems
