"""Compact topics: the newest message of each key, and what a clean-up leaves of it."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txaware
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit, payloads
from txaware.errors import BadRequest, TopicExists
from txaware.messaging import Messaging
from txaware.model.messages import Message, MessageId, Outgoing
from txaware.model.settings import Settings

HOUR_S = 3600


def put(
    messaging: Messaging,
    key: bytes,
    value: bytes,
    *,
    expire_after_s: float | None = None,
) -> None:
    message = Outgoing(value, key=key, expire_after_s=expire_after_s)
    messaging.publish("config", [message])


def shown(found: Mapping[bytes, Message]) -> dict[bytes, bytes]:
    return {key: message.payload for key, message in found.items()}


def left(messaging: Messaging) -> list[bytes]:
    return payloads(messaging.poll("config", limit=10_000))


def compact(site: Site, *, ttl_s: int = 86_400) -> Messaging:
    site.messaging.create_topic("config", compact=True, ttl_s=ttl_s)
    return site.messaging


def test_the_latest_is_the_newest_committed_message_of_each_key(site: Site) -> None:
    messaging = compact(site)
    put(messaging, b"level", b"info")
    put(messaging, b"size", b"1")
    put(messaging, b"level", b"debug")
    messaging.publish("config", [b"without a key"])
    tx = messaging.coordinator.start_short()
    messaging.publish("config", [Outgoing(b"open", key=b"level")], transaction=tx)
    put(messaging, b"size", b"behind an open one")
    found = messaging.latest("config")
    assert shown(found) == {b"level": b"debug", b"size": b"1"}
    assert found[b"level"].id == messaging.poll("config")[2].id
    commit(messaging, tx)
    both = {b"level": b"open", b"size": b"behind an open one"}
    assert shown(messaging.latest("config")) == both
    later = messaging.poll("config", start=found.next, inclusive=False)
    assert payloads(later) == [b"open", b"behind an open one"]


def failing(publisher: txaware.Publisher) -> None:
    publisher.publish(b"never", key=b"level")
    raise RuntimeError("not now")


def test_what_was_rolled_back_is_nobodys_latest(site: Site) -> None:
    messaging = compact(site)
    put(messaging, b"level", b"info")
    with pytest.raises(RuntimeError, match="not now"), messaging.transaction():
        failing(messaging.publisher("config"))
    assert shown(messaging.latest("config")) == {b"level": b"info"}
    messaging.clean_up()
    assert shown(messaging.latest("config")) == {b"level": b"info"}


def test_a_block_sees_the_latest_of_its_snapshot(site: Site) -> None:
    messaging = compact(site)
    put(messaging, b"level", b"info")
    with messaging.transaction():
        tx = messaging.coordinator.start_short()
        messaging.publish("config", [Outgoing(b"later", key=b"level")], transaction=tx)
        commit(messaging, tx)
        assert shown(messaging.latest("config")) == {b"level": b"info"}
        assert messaging.clean_up().superseded_messages == 0
        assert shown(messaging.latest("config")) == {b"level": b"info"}
    assert shown(messaging.latest("config")) == {b"level": b"later"}
    assert messaging.clean_up().superseded_messages == 1
    assert left(messaging) == [b"later"]


@pytest.mark.in_process
def test_the_latest_miss_nothing_that_goes_while_they_are_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = compact(site)
    put(messaging, b"level", b"info")
    coordinator = messaging.coordinator

    def early() -> Transaction:
        """A snapshot whose newest message is superseded, and gone, before its use."""
        monkeypatch.undo()
        snapshot, tx = coordinator.snapshot(), coordinator.start_short()
        debug = Outgoing(b"debug", key=b"level")
        messaging.publish("config", [debug], transaction=tx)
        commit(messaging, tx)
        assert messaging.clean_up().superseded_messages == 1
        return snapshot

    monkeypatch.setattr(coordinator, "snapshot", early)
    assert shown(messaging.latest("config")) == {b"level": b"debug"}


def test_a_clean_up_leaves_the_newest_of_each_key_beyond_the_time_to_live(
    site: Site,
) -> None:
    messaging = compact(site, ttl_s=60)
    for number in range(5):
        put(messaging, b"k%d" % (number % 2), b"%d" % number)
    messaging.publish("config", [b"without a key"])
    assert messaging.clean_up().superseded_messages == 3
    assert left(messaging) == [b"3", b"4", b"without a key"]
    site.clock.advance_s(61)
    assert left(messaging) == [b"3", b"4"]
    assert messaging.clean_up().superseded_messages == 1
    assert left(messaging) == [b"3", b"4"]
    assert shown(messaging.latest("config")) == {b"k0": b"4", b"k1": b"3"}
    assert messaging.check().problems == ()


@pytest.mark.everywhere
def test_the_latest_is_there_after_a_restart(lasting: Site) -> None:
    messaging = compact(lasting, ttl_s=60)
    put(messaging, b"level", b"info")
    put(messaging, b"level", b"debug")
    lasting.clock.advance_s(1000)
    messaging = lasting.open()
    assert shown(messaging.latest("config")) == {b"level": b"debug"}
    messaging.clean_up()
    messaging = lasting.crash()
    assert shown(messaging.latest("config")) == {b"level": b"debug"}
    assert messaging.topic("config").is_compact


def test_a_newest_message_that_has_expired_takes_its_key_away(site: Site) -> None:
    messaging = compact(site)
    put(messaging, b"run", b"starting")
    put(messaging, b"run", b"alive", expire_after_s=10)
    assert shown(messaging.latest("config")) == {b"run": b"alive"}
    site.clock.advance_s(11)
    assert shown(messaging.latest("config")) == {}
    assert messaging.clean_up().superseded_messages == 1
    assert shown(messaging.latest("config")) == {}
    site.clock.advance_s(HOUR_S)
    assert messaging.clean_up().superseded_messages == 1
    assert messaging.inspect("config").messages == 0


def test_a_reader_goes_on_where_messages_went(site: Site) -> None:
    messaging = compact(site)
    for number in range(4):
        put(messaging, b"k", b"%d" % number)
    reader = messaging.consumer("config", group="g")
    with messaging.transaction():
        assert payloads(reader.poll(limit=2)) == [b"0", b"1"]
    messaging.clean_up()
    with messaging.transaction():
        assert payloads(reader.poll()) == [b"3"]


def test_pieces_are_put_together_by_key(site: Site) -> None:
    messaging = site.open(poll_limit_messages=1)
    compact(site)
    for number in range(45):
        put(messaging, b"k%d" % (number % 4), b"%d" % number)
    page = messaging.latest_page("config")
    assert not page.is_last
    assert len(page.messages) == 4
    expected = {
        b"k%d" % n: b"%d" % max(i for i in range(45) if i % 4 == n) for n in range(4)
    }
    assert shown(messaging.latest("config")) == expected


def spilled(messaging: Messaging, *messages: tuple[bytes, bytes]) -> None:
    """Publishes by a reference to what was stored ahead."""
    tx = messaging.coordinator.start_short()
    listed = [Outgoing(value, key=key) for key, value in messages]
    receipt = messaging.store("config", listed, transaction=tx)
    messaging.publish("config", [], transaction=tx, receipts=[receipt])
    commit(messaging, tx)


def test_what_no_receipt_names_is_not_the_latest_and_not_found(site: Site) -> None:
    messaging = compact(site)
    tx = messaging.coordinator.start_short()
    kept, _ = (
        messaging.store(
            "config", [Outgoing(value, key=b"a")], transaction=tx, attempt=value
        )
        for value in (b"1", b"2")
    )
    messaging.publish("config", [], transaction=tx, receipts=[kept])
    commit(messaging, tx)
    assert shown(messaging.latest("config")) == {b"a": b"1"}
    assert [row.payload for row in messaging.search("config", key=b"a").rows] == [b"1"]


def test_a_reference_stays_while_one_of_its_messages_is_the_newest(site: Site) -> None:
    messaging = compact(site, ttl_s=60)
    spilled(messaging, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    assert shown(messaging.latest("config")) == {b"a": b"2", b"b": b"1"}
    put(messaging, b"a", b"3")
    assert messaging.clean_up().superseded_messages == 0
    site.clock.advance_s(100)
    messaging.clean_up()
    assert shown(messaging.latest("config")) == {b"a": b"3", b"b": b"1"}
    assert messaging.check().problems == ()
    put(messaging, b"b", b"3")
    cleaned = messaging.clean_up()
    assert (cleaned.superseded_messages, cleaned.expired_payloads) == (1, 3)
    assert shown(messaging.latest("config")) == {b"a": b"3", b"b": b"3"}
    assert messaging.inspect("config").stored == 0


def test_a_topic_may_become_compact_and_cease_to_be(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("config", ttl_s=60)
    put(messaging, b"k", b"1")
    put(messaging, b"k", b"2")
    assert messaging.clean_up().superseded_messages == 0
    assert messaging.update_topic("config", compact=True).is_compact
    assert messaging.clean_up().superseded_messages == 1
    site.clock.advance_s(61)
    assert left(messaging) == [b"2"]
    assert not messaging.update_topic("config", compact=False).is_compact
    assert left(messaging) == []
    assert messaging.latest("config") == {}
    with pytest.raises(TopicExists, match="its property compact is 'false', not"):
        messaging.create_topic("config", compact=True, exist_ok=True)
    with pytest.raises(BadRequest, match="compact is true or false"):
        messaging.update_topic("config", properties={"compact": "yes"})
    changed = messaging.update_topic("config", properties={"compact": "true"})
    assert changed.is_compact
    assert messaging.create_topic("config", compact=True, exist_ok=True) == changed


def test_the_latest_of_partitions_is_of_all_of_them(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("config", compact=True, partitions=3, ttl_s=60)
    for number in range(20):
        put(messaging, b"k%d" % (number % 10), b"%d" % number)
    assert messaging.clean_up().superseded_messages == 10
    site.clock.advance_s(61)
    found = messaging.latest("config")
    expected = {b"k%d" % (number % 10): b"%d" % number for number in range(10, 20)}
    assert shown(found) == expected
    with messaging.transaction():
        assert shown(messaging.latest("config")) == expected
    put(messaging, b"k3", b"later")
    page = messaging.poll("config", start=found.next, inclusive=False)
    assert payloads(page) == [b"later"]
    one = messaging.latest("config.1")
    assert set(one) < set(expected)
    assert messaging.check().problems == ()
    with pytest.raises(BadRequest, match="config is compact, and with 4 partitions"):
        messaging.update_topic("config", partitions=4)


def test_a_copy_and_a_backup_have_the_latest(lasting: Site, tmp_path: object) -> None:
    messaging = compact(lasting, ttl_s=60)
    put(messaging, b"k", b"1")
    put(messaging, b"k", b"2")
    lasting.clock.advance_s(100)
    messaging.close()
    target = f"leveldb:{tmp_path}/target"
    assert lasting._url().startswith(("leveldb:", "hbase:"))
    txaware.copy(lasting._url(), target)
    with txaware.connect(target, clock_ms=lasting.clock) as copied:
        assert shown(copied.latest("config")) == {b"k": b"2"}
        copied.clean_up()
        assert left(copied) == [b"2"]


Step = tuple[str, int, int]
DOES = ("plain", "publish", "spill", "commit", "abort")
LOOKS = ("look", "end", "clean", "expire", "later")
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*DOES, *LOOKS)),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=25,
)


class History:
    """A compact topic with writers, and readers whose snapshots stay as they were."""

    def __init__(self, messaging: Messaging, clock: Clock) -> None:
        self.messaging, self.clock, self.number = messaging, clock, 0
        messaging.create_topic("config", compact=True, ttl_s=60)
        # All that was written: its pointer, key, value and the time of its expiry.
        self.rows: list[tuple[int | None, bytes, bytes, int | None]] = []
        self.open: dict[int, Transaction] = {}
        self.readers: dict[int, Transaction] = {}
        self.ended: dict[int, bool] = {}

    def step(self, what: str, who: int, which: int) -> None:
        messaging, key = self.messaging, b"k%d" % which
        self.number += 1
        value = b"%d" % self.number
        if what in ("plain", "expire"):
            lasts = 5 if what == "expire" else None
            put(messaging, key, value, expire_after_s=lasts)
            until = None if lasts is None else self.clock() + 5000
            self.rows.append((None, key, value, until))
        elif what in ("publish", "spill"):
            if who not in self.open:
                self.open[who] = messaging.coordinator.start_long()
            self._write(what, self.open[who], key, value)
        elif what in ("commit", "abort") and who in self.open:
            tx = self.open.pop(who)
            self.ended[tx.transaction_id] = what == "commit"
            if what == "commit":
                commit(messaging, tx)
            else:
                messaging.coordinator.invalidate(tx)
        elif what == "look" and who not in self.readers:
            self.readers[who] = messaging.coordinator.start_long()
        elif what == "end" and who in self.readers:
            messaging.coordinator.abort(self.readers.pop(who))
        elif what == "clean":
            messaging.clean_up()
        elif what == "later":
            self.clock.advance_s((1, 6, 70, 4000)[which])

    def _write(self, what: str, tx: Transaction, key: bytes, value: bytes) -> None:
        message = Outgoing(value, key=key)
        if what == "spill":
            attempt = b"%d" % self.number
            receipt = self.messaging.store(
                "config", [message], transaction=tx, attempt=attempt
            )
            self.messaging.publish("config", [], transaction=tx, receipts=[receipt])
        else:
            self.messaging.publish("config", [message], transaction=tx)
        self.rows.append((tx.transaction_id, key, value, None))

    def expected(
        self, reader: Transaction | None, *, are_marked: bool
    ) -> dict[bytes, bytes]:
        """What a snapshot sees, the reader's or a fresh one.

        Rows that were rolled back after it began stop it, unless a clean-up has marked
        them.
        """
        found: dict[bytes, bytes] = {}
        for pointer, key, value, until in self.rows:
            if pointer is not None:
                has_ended = self.ended.get(pointer)
                if reader is None:
                    is_seen, is_gone = has_ended, has_ended is False
                else:
                    is_seen = reader.is_visible(pointer)
                    is_gone = pointer in reader.invalids
                    is_gone = is_gone or (are_marked and has_ended is False)
                if is_gone:
                    continue
                if not is_seen:
                    break
            found[key] = value
            if until is not None and until <= self.clock():
                del found[key]
        return found

    def check(self) -> None:
        for reader in (None, *self.readers.values()):
            found = shown(self.messaging.latest("config", transaction=reader))
            assert found in [
                self.expected(reader, are_marked=marked) for marked in (False, True)
            ]


@pytest.mark.in_process
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_each_snapshot_keeps_its_latest_through_clean_ups(steps: list[Step]) -> None:
    clock = Clock()
    off = Settings(janitor_interval_s=0)
    with txaware.connect("memory:", clock_ms=clock, settings=off) as messaging:
        history = History(messaging, clock)
        for step in steps:
            history.step(*step)
            history.check()
        assert messaging.check().problems == ()


def test_a_piece_behind_an_id_that_is_none_is_refused(site: Site) -> None:
    messaging = compact(site)
    with pytest.raises(BadRequest):
        messaging.latest_page("config", start=b"short")  # type: ignore[arg-type]
    end = MessageId(b"\xff" * 20)
    assert messaging.latest_page("config", start=end).messages == []
