"""How things stand at a glance: what it says, that it is cheap, and that it is true."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.doubles import Clock, Watched, failing
from tests.support.messagings import Site, commit, publish
from txaware.errors import StoreCorrupted, Unavailable
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.producers import ProducerIdentity
from txaware.service.monitor import blocked_topics as blocked
from txaware.service.monitor import group_lag as lags
from txaware.service.monitor import (
    overview,
    producer_overview,
    queue_overview,
    unread,
)
from txaware.service.monitor.overview import Overview, Sight
from txaware.service.monitor.overview_report import (
    GroupOverview,
    OverviewReport,
    TopicOverview,
)
from txaware.service.monitor.turns import Remembered
from txaware.service.monitor.unread import Readers
from txaware.service.retention.clean_up import Retention
from txaware.service.store_context import StoreContext as Parts

ONE_TOPIC = Sight(lambda topic: topic == "t", lambda queue: queue == "mail")


class Watching:
    """An overview of a messaging service, and a clock of its own."""

    def __init__(self, site: Site, coordinator: Any = None) -> None:
        self.now_s = 0.0
        self.reads = 0
        messaging: Any = site.embedded
        self.messaging = messaging
        self._table = site.table
        chosen = messaging.coordinator if coordinator is None else coordinator
        parts = Parts(
            self,
            chosen,
            messaging.coordinator.barrier,
            messaging._parts.settings,
            site.clock,
        )
        self.retention = Retention(parts)
        self.overview = Overview(
            messaging._service,
            self.retention,
            parts,
            messaging._parts.queues,
            clock_s=lambda: self.now_s,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def scan(self, *args: Any, **options: Any) -> Any:
        rows = self._table.scan(*args, **options)
        self.reads += len(rows)
        return rows

    def look(self, **options: Any) -> OverviewReport:
        """A report that is not remembered from before."""
        self.now_s += 1
        return self.overview.snapshot(**options)

    def topic(self, name: str = "t") -> TopicOverview:
        return next(topic for topic in self.look().topics if topic.topic == name)

    def group(self) -> GroupOverview:
        (group,) = self.look().groups
        return group


@pytest.fixture
def watching(site: Site) -> Watching:
    site.messaging.create_topic("t", ttl_s=3600)
    return Watching(site)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every bound small."""

    def shrink() -> None:
        monkeypatch.setattr(blocked, "LOOKS", 2)
        monkeypatch.setattr(blocked, "ROWS_EACH", 3)
        monkeypatch.setattr(lags, "LOOKS", 2)
        monkeypatch.setattr(lags, "MOST_COUNTED", 3)
        monkeypatch.setattr(overview, "MOST_LISTED", 3)

    return shrink


def read_by(messaging: Messaging, group: str, *, limit: int, topic: str = "t") -> None:
    with messaging.transaction():
        messaging.consumer(topic, group=group).poll(limit=limit)


def test_a_topic_says_what_went_in_and_out_and_how_old_it_is(
    site: Site, watching: Watching
) -> None:
    began_ms = site.clock()
    site.messaging.publish("t", [b"abc", b"d"])
    site.clock.advance_s(2)
    site.messaging.publish("t", [b"e"])
    site.messaging.poll("t", limit=2)
    assert watching.topic() == TopicOverview(
        topic="t",
        generation=1,
        ttl_s=3600,
        is_compact=False,
        messages_in=3,
        bytes_in=5,
        messages_out=2,
        bytes_out=4,
        oldest_ms=began_ms,
        newest_ms=began_ms + 2000,
        rows_behind=None,
        blocked_by=None,
        expired_unseen=0,
    )
    report = watching.look()
    assert (report.messages_in, report.bytes_out) == (3, 4)
    assert (report.now_ms, report.started_ms) == (began_ms + 2000, began_ms)
    assert (report.coordinator, report.store) == ("OK", "OK")


def test_an_empty_topic_has_no_times(watching: Watching) -> None:
    topic = watching.topic()
    assert (topic.oldest_ms, topic.newest_ms, topic.messages_in) == (None, None, 0)


def test_a_blocked_topic_names_its_transaction_until_it_ends(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"before"])
    site.clock.advance_s(1)
    publish(messaging, b"held", transaction=tx)
    since_ms = site.clock()
    site.clock.advance_s(5)
    messaging.publish("t", [b"behind it"])
    found = watching.topic().blocked_by
    assert found is not None
    assert (found.pointer, found.since_ms) == (tx.transaction_id, since_ms)
    (entry,) = watching.look().transactions
    assert (entry.id, entry.blocks, entry.blocks_since_ms) == (
        tx.transaction_id,
        ["t"],
        since_ms,
    )
    assert (entry.type, entry.stage, entry.pointers) == (
        "short",
        "open",
        (tx.transaction_id,),
    )
    assert entry.expires_ms == entry.began_ms + 30_000
    commit(messaging, tx)
    assert watching.topic().blocked_by is None
    assert watching.look().transactions == []


@pytest.mark.parametrize("end", ["abort", "invalidate", "expire"])
def test_however_a_transaction_ends_its_topic_is_free(
    site: Site, watching: Watching, end: str
) -> None:
    messaging = site.messaging
    tx = messaging.coordinator.start_short(timeout_s=10)
    response = publish(messaging, b"held", transaction=tx)
    assert watching.topic().blocked_by is not None
    if end == "abort":
        messaging.rollback("t", response)
        messaging.coordinator.abort(tx)
    elif end == "invalidate":
        messaging.coordinator.invalidate(tx)
    else:
        site.clock.advance_s(11)
    assert watching.topic().blocked_by is None
    assert watching.look().blocked_count == 0


def test_the_next_transaction_blocks_when_the_first_has_ended(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    first, second = (messaging.coordinator.start_short() for _ in range(2))
    publish(messaging, b"1", transaction=first)
    publish(messaging, b"2", transaction=second)
    for tx in (first, second):
        found = watching.topic().blocked_by
        assert found is not None
        assert found.pointer == tx.transaction_id
        commit(messaging, tx)
    assert watching.topic().blocked_by is None


def test_a_checkpointed_transaction_is_named_by_its_first_pointer(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    tx = messaging.coordinator.checkpoint(messaging.coordinator.start_short())
    publish(messaging, b"held", transaction=tx)
    (entry,) = watching.look().transactions
    assert (entry.id, list(entry.pointers)) == (tx.transaction_id, list(tx.pointers))
    assert entry.blocks == ["t"]


def test_a_topic_that_was_created_anew_is_not_blocked_by_its_old_rows(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    publish(messaging, b"held", transaction=messaging.coordinator.start_short())
    assert watching.topic().blocked_by is not None
    messaging.delete_topic("t")
    assert watching.look().topics == []
    messaging.create_topic("t")
    topic = watching.topic()
    assert (topic.generation, topic.blocked_by) == (2, None)


FOREIGN = 6  # which no coordinator of ours ever gave out


@pytest.mark.foreign_pointers
@pytest.mark.parametrize("end", ["roll back", "expire", "delete"])
def test_a_pointer_that_nobody_gave_out_blocks_until_its_row_is_gone(
    site: Site, watching: Watching, end: str
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"before"])
    response = messaging.publish("t", [b"foreign"], transaction=FOREIGN)
    assert response is not None
    tx = messaging.coordinator.start_short()
    publish(messaging, b"ours", transaction=tx)
    for _ in range(3):
        found = watching.topic().blocked_by
        assert found == messaging.poll("t", isolation="committed").blocked_by
        assert found is not None
        assert (found.pointer, found.since_ms) == (FOREIGN, site.clock())
        report = messaging.inspect("t")
        assert (report.in_progress[0], report.blocked_by) == (FOREIGN, found)
        assert [one.state for one in messaging.peek("t")] == [
            "plain",
            *["in progress"] * 2,
        ]
    if end == "roll back":
        messaging.rollback("t", response)
        found = watching.topic().blocked_by
        assert found is not None
        assert found.pointer == tx.transaction_id
        commit(messaging, tx)
        assert len(messaging.poll("t", isolation="committed")) == 2
    elif end == "expire":
        commit(messaging, tx)
        site.clock.advance_s(3601)
    else:
        messaging.delete_topic("t")
        messaging.create_topic("t")
    assert watching.topic().blocked_by is None
    assert watching.look().blocked_count == 0


@pytest.mark.foreign_pointers
def test_a_transaction_of_ours_before_such_a_row_blocks_first(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    tx = messaging.coordinator.start_short()
    publish(messaging, b"ours", transaction=tx)
    messaging.publish("t", [b"foreign"], transaction=FOREIGN)
    found = watching.topic().blocked_by
    assert found is not None
    assert found.pointer == tx.transaction_id
    commit(messaging, tx)
    found = watching.topic().blocked_by
    assert found is not None
    assert found.pointer == FOREIGN


@pytest.mark.foreign_pointers
def test_such_a_row_is_found_by_whoever_reads_it_after_a_restart(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"old"] * 10)
    messaging.publish("t", [b"foreign"], transaction=FOREIGN)
    lasting.clock.advance_s(10)
    messaging = lasting.open()
    watching = Watching(lasting)
    tx = messaging.coordinator.start_short()
    publish(messaging, b"ours", transaction=tx)
    watching.look()
    assert not messaging.poll("t", start=0, isolation="committed")[10:]
    found = watching.topic().blocked_by
    assert found is not None
    assert found.pointer == FOREIGN


@pytest.mark.foreign_pointers
def test_a_topic_with_such_a_row_is_not_read_again_and_again(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"old"] * 1000)
    messaging.publish("t", [b"foreign"], transaction=FOREIGN)
    messaging.publish("t", [b"new"] * 500)
    watching.look()
    read = watching.reads
    assert read < 520
    for _ in range(10):
        messaging.poll("t", isolation="committed", limit=2000)
        assert watching.look().blocked_count == 1
    assert watching.reads - read <= 20  # the topic and its producer, each time


def test_rows_are_judged_once(site: Site, watching: Watching) -> None:
    """However many looks there are, and none before the oldest open transaction."""
    messaging = site.messaging
    messaging.publish("t", [b"old"] * 1000)
    site.clock.advance_s(1)
    messaging.coordinator.start_short(timeout_s=900)
    messaging.publish("t", [b"m"] * 50)
    watching.look()
    read = watching.reads
    for _ in range(10):
        watching.look()
    assert read < 100
    assert watching.reads - read < 50
    messaging.publish("t", [b"m"])
    assert watching.topic().blocked_by is None


def test_many_rows_and_many_topics_take_several_looks(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    small()
    messaging = site.messaging
    tx = messaging.coordinator.start_short()
    for number in range(5):
        messaging.create_topic(f"many{number}")
        messaging.publish(f"many{number}", [b"m"] * 10)
        publish(messaging, b"held", transaction=tx, topic=f"many{number}")
    assert watching.look().unjudged_topics
    for _ in range(30):
        report = watching.look()
    assert (report.blocked_count, report.unjudged_topics) == (5, 0)
    assert (len(report.topics), report.topic_count) == (5, 6)  # all that are blocked
    (entry,) = report.transactions
    assert len(entry.blocks) == 5


def test_the_most_active_topics_are_listed_and_all_are_counted(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    small()
    messaging = site.messaging
    for number in range(5):
        messaging.create_topic(f"n:topic{number}")
    messaging.publish("n:topic1", [b"a"] * 9)
    messaging.publish("n:topic3", [b"a"])
    assert [topic.topic for topic in watching.look().topics][:2] == [
        "n:topic1",
        "n:topic3",
    ]
    messaging.publish("n:topic4", [b"a"])
    report = watching.look()
    assert report.topics[0].topic == "n:topic4"  # lately, and not over all time
    assert (len(report.topics), report.topic_count) == (3, 6)
    found = watching.look(search="TOPIC2")
    assert [topic.topic for topic in found.topics] == ["n:topic2"]
    assert found.topic_count == 1
    assert found.messages_in == 11  # sums do not depend on what is searched for


def test_a_namespace_chooses_topics_and_groups(site: Site, watching: Watching) -> None:
    messaging = site.messaging
    messaging.create_topic("shop:t")
    for topic in ("t", "shop:t"):
        messaging.publish(topic, [b"m"])
        read_by(messaging, "g", limit=1, topic=topic)
    report = watching.look()
    assert (report.namespaces, report.group_count) == (["default", "shop"], 2)
    chosen = watching.look(namespace="shop")
    assert [topic.topic for topic in chosen.topics] == ["shop:t"]
    assert [group.topic for group in chosen.groups] == ["shop:t"]
    assert watching.look(search="g").group_count == 2


def test_nothing_is_told_of_topics_that_one_may_not_see(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.create_topic("secret:s")
    tx = messaging.coordinator.start_short()
    for topic in ("t", "secret:s"):
        messaging.publish(topic, [b"m"])
        read_by(messaging, "g", limit=1, topic=topic)
        publish(messaging, b"held", transaction=tx, topic=topic)
    report = watching.look(sees=ONE_TOPIC)
    assert "secret" not in str(attrs.asdict(report))
    assert (report.topic_count, report.blocked_count, report.group_count) == (1, 1, 1)
    assert report.messages_in == 2
    assert [entry.blocks for entry in report.transactions] == [["t"]]


def test_a_group_says_how_far_it_is_behind(site: Site, watching: Watching) -> None:
    messaging = site.messaging
    began_ms = site.clock()
    for number in range(4):
        messaging.publish("t", [b"%d" % number])
        site.clock.advance_s(1)
    read_by(messaging, "g", limit=1)
    group = watching.group()
    assert (group.group, group.topic, group.rows, group.has_more) == (
        "g",
        "t",
        3,
        False,
    )
    assert (group.lag_ms, group.unread_since_ms) == (3000, began_ms + 1000)
    assert messaging.lag_ms("g", "t") == group.lag_ms
    assert watching.topic().rows_behind == 3
    read_by(messaging, "g", limit=10)
    group = watching.group()
    assert (group.rows, group.lag_ms, group.unread_since_ms) == (0, 0, None)
    messaging.delete_topic("t")
    assert watching.look().groups == []


def test_what_a_dead_reader_leaves_unread_gets_older_in_a_quiet_topic(
    site: Site, watching: Watching
) -> None:
    messaging, began_ms = site.messaging, site.clock()
    messaging.publish("t", [b"read", b"unread"])
    read_by(messaging, "g", limit=1)
    for waited_s in (10, 1000):
        site.clock.advance_s(waited_s)
        group = watching.group()
        assert (group.lag_ms, group.unread_since_ms) == (0, began_ms)
        waited_ms = site.clock() - began_ms
        assert messaging.oldest_unread_ms("g", "t") == waited_ms
        (found,) = messaging.metrics().groups
        assert (found.lag_ms, found.oldest_unread_ms) == (0, waited_ms)
    read_by(messaging, "g", limit=1)
    assert watching.group().unread_since_ms is None
    assert messaging.oldest_unread_ms("g", "t") == 0
    assert messaging.oldest_unread_ms("nobody", "t") == site.clock() - began_ms


def test_all_who_tell_where_a_group_is_leave_out_what_has_expired(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"read", b"expires", b"expires"])
    read_by(messaging, "g", limit=1)
    site.clock.advance_s(3601)  # and no clean-up comes by
    messaging.publish("t", [b"unread"])
    (found,), shown = messaging.metrics().groups, watching.group()
    assert (found.rows, shown.rows, watching.topic().rows_behind) == (1, 1, 1)
    assert found.lag_ms == shown.lag_ms == messaging.lag_ms("g", "t")
    assert found.oldest_unread_ms == messaging.oldest_unread_ms("g", "t") == 0
    assert shown.unread_since_ms == site.clock()


def test_what_nobody_will_read_is_not_unread(
    site: Site, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rolled back, of an invalid transaction, or past its own expiry."""
    monkeypatch.setattr(unread, "MOST_ROWS", 4)
    messaging = site.messaging
    messaging.publish("t", [b"read"])
    read_by(messaging, "g", limit=1)
    tx = messaging.coordinator.start_short()
    messaging.rollback("t", publish(messaging, *[b"undone"] * 5, transaction=tx))
    publish(messaging, *[b"lost"] * 5, transaction=tx)
    messaging.publish("t", [Outgoing(b"brief", expire_after_s=1)])
    assert watching.group().unread_since_ms is None  # it waits for the transaction
    assert messaging.oldest_unread_ms("g", "t") == 0
    messaging.coordinator.invalidate(tx)
    site.clock.advance_s(5)
    for _ in range(6):
        assert watching.group().unread_since_ms is None
    assert messaging.oldest_unread_ms("g", "t") == 0
    messaging.publish("t", [b"kept"])
    site.clock.advance_s(2)
    read = watching.reads
    for _ in range(3):
        assert watching.group().unread_since_ms == site.clock() - 2000
    assert watching.reads - read < 60
    assert messaging.oldest_unread_ms("g", "t") == 2000
    with messaging.transaction():
        messaging.consumer("t", group="g").seek(None)
    assert messaging.oldest_unread_ms("g", "t") == 7000
    assert watching.group().unread_since_ms == site.clock() - 7000


def test_it_is_known_when_somebody_last_read_for_a_group(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"1", b"2", b"3"])
    read_by(messaging, "g", limit=1)
    read_ms = site.clock()
    site.clock.advance_s(60)
    for look in (
        lambda: messaging.position("g", "t"),
        lambda: messaging.metrics(),
        lambda: watching.look(),
    ):
        look()
        assert watching.group().reader_seen_ms == read_ms
    read_by(messaging, "g", limit=1)
    assert watching.group().reader_seen_ms == site.clock()
    site.clock.advance_s(60)
    outside = messaging.consumer("t", group="g")
    outside.poll(1)
    outside.commit()
    assert watching.group().reader_seen_ms == site.clock()


def test_readers_that_are_too_many_to_know_count_as_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread, "MOST_READERS", 2)
    clock = Clock()
    began_ms, readers = clock(), Readers(clock)
    for group in "abc":
        clock.advance_s(10)
        readers.saw(group, "t")
    assert readers.last_ms("a", "t") == began_ms + 30_000
    assert readers.last_ms("c", "t") == began_ms + 30_000


def test_a_group_that_is_far_behind_is_counted_to_a_bound(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    small()
    messaging = site.messaging
    messaging.publish("t", [b"m"] * 4)
    read_by(messaging, "g", limit=1)
    assert (watching.group().rows, watching.group().has_more) == (3, False)
    messaging.publish("t", [b"m"])
    assert (watching.group().rows, watching.group().has_more) == (3, True)


def test_a_stuck_group_is_not_counted_again(site: Site, watching: Watching) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"m"] * 500)
    read_by(messaging, "g", limit=1)
    watching.look()
    read = watching.reads
    watching.look()
    assert watching.group().rows == 499
    assert watching.reads - read < 30


def test_a_group_waits_once_it_has_read_all_that_is_before(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"1", b"2"])
    tx = messaging.coordinator.start_short()
    publish(messaging, b"held", transaction=tx)
    read_by(messaging, "g", limit=1)
    assert watching.group().waits_for is None
    read_by(messaging, "g", limit=10)
    assert watching.group().waits_for == tx.transaction_id
    messaging.coordinator.invalidate(tx)
    assert watching.group().waits_for is None


def test_groups_take_turns(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    small()
    messaging = site.messaging
    messaging.publish("t", [b"m"] * 2)
    for number in range(5):
        read_by(messaging, f"g{number}", limit=1)
    report = watching.look()
    assert (len(report.groups), report.group_count) == (2, 5)
    watching.look()
    report = watching.look()
    assert (len(report.groups), report.group_count) == (3, 5)  # the list is cut
    for number in range(5):
        read_by(messaging, f"g{number}", limit=1)
    for _ in range(3):
        report = watching.look()
    assert {group.rows for group in report.groups} == {0}


def test_how_things_stood_is_remembered_for_two_minutes(
    site: Site, watching: Watching
) -> None:
    messaging, began_ms = site.messaging, site.clock()
    messaging.create_topic("secret:s")
    for topic in ("t", "secret:s"):
        messaging.publish(topic, [b"m"])
    messaging.poll("t")
    tx = messaging.coordinator.start_short()
    assert watching.look().history == ()
    site.clock.advance_s(1)
    watching.look()  # too soon for another sample
    site.clock.advance_s(1)
    messaging.publish("t", [b"m"])
    first, second = watching.look(history=True).history
    assert (first.ms, second.ms) == (began_ms, began_ms + 2000)
    assert (first.messages_in, second.messages_in, second.messages_out) == (2, 3, 1)
    assert (second.open, second.unread_ms) == (1, 0)
    assert dict(second.topics) == {"t": (2, 1), "secret:s": (1, 0)}
    seen = watching.look(history=True, sees=ONE_TOPIC).history[-1]
    assert (seen.messages_in, seen.unread_ms, seen.open) == (None, None, 1)
    assert dict(seen.topics) == {"t": (2, 1)}
    messaging.coordinator.abort(tx)
    for _ in range(100):
        site.clock.advance_s(2)
        watching.look()
    samples = watching.look(history=True).history
    assert samples[-1].ms - samples[0].ms == overview.KEPT_MS
    assert len(samples) == 61


def test_of_very_many_topics_the_busiest_are_remembered(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    small()
    for number in range(6):
        site.messaging.create_topic(f"n{number}")
        site.messaging.publish(f"n{number}", [b"m"] * (number + 1))
    (sample,) = watching.look(history=True).history
    assert sample.topics.keys() == {"n5", "n4", "n3"}
    assert sample.messages_in == 21


def test_all_who_ask_within_a_second_share_one_look(
    site: Site, watching: Watching
) -> None:
    site.messaging.publish("t", [b"m"])
    first = watching.look()
    site.messaging.publish("t", [b"m"])
    watching.now_s += 0.5
    assert watching.overview.snapshot() == first
    read = watching.reads
    watching.overview.snapshot(search="t")
    assert watching.reads - read <= 20  # the topic and its producer, each time
    watching.now_s += 0.5
    assert watching.overview.snapshot().messages_in == 2


def test_everything_but_transactions_is_told_while_the_coordinator_is_away(
    site: Site,
) -> None:
    site.messaging.create_topic("t")
    site.messaging.publish("t", [b"m"])
    watched = Watched(site.embedded.coordinator)
    watching = Watching(site, watched)
    watched.instead["snapshot"] = failing(Unavailable("it does not answer"))
    report = watching.look()
    assert (report.coordinator, report.store) == ("it does not answer", "OK")
    assert report.topics[0].messages_in == 1
    assert (report.transactions, report.invalid_transactions) == ([], None)


def test_transactions_of_another_coordinator_are_known_by_their_pointers(
    site: Site,
) -> None:
    site.messaging.create_topic("t")
    coordinator = site.messaging.coordinator
    watching = Watching(site, Watched(site.embedded.coordinator))
    tx = coordinator.start_short()
    publish(site.messaging, b"held", transaction=tx)
    (entry,) = watching.look().transactions
    assert (entry.id, entry.blocks, entry.type) == (tx.transaction_id, ["t"], None)


def test_a_blocked_topic_is_found_again_after_a_restart(lasting: Site) -> None:
    """Nothing was published there since: the topic's turn comes all the same."""
    messaging = lasting.messaging
    messaging.create_topic("t")
    coordinator = messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    tx = coordinator.start_short(timeout_s=1000, outlives_process=True)
    publish(messaging, b"held", transaction=tx)
    lasting.crash()
    topic = Watching(lasting).topic()
    assert topic.blocked_by is not None
    assert topic.blocked_by.pointer == tx.transaction_id


def test_invalid_transactions_and_the_cache_are_counted(
    site: Site, watching: Watching
) -> None:
    messaging = site.messaging
    messaging.publish("t", [b"m"])
    messaging.coordinator.invalidate(messaging.coordinator.start_short())
    for _ in range(2):
        messaging.poll("t")
    report = watching.look()
    assert report.invalid_transactions == 1
    assert report.cache_hits + report.cache_misses >= 1
    watching.retention.expired_unseen["t"] = 3
    assert watching.topic().expired_unseen == 3


def test_what_takes_long_to_list_is_listed_less_often() -> None:
    now_s, made = [0.0], [0]

    def make() -> int:
        now_s[0] += 0.1
        made[0] += 1
        return made[0]

    remembered = Remembered(make, clock_s=lambda: now_s[0])
    assert [remembered() for _ in range(3)] == [1, 1, 1]
    now_s[0] += 1.9
    assert remembered() == 1
    now_s[0] += 0.2
    assert remembered() == 2


SAVE_MARKER = "spark-save-monday"
STREAM_MARKER = "spark-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    "marker",
    [SAVE_MARKER, STREAM_MARKER, f"{STREAM_MARKER}-name", f"{STREAM_MARKER}..rows"],
)
def test_what_spark_remembers_is_no_group_that_is_behind(
    site: Site, watching: Watching, marker: str
) -> None:
    site.messaging.publish("t", [b"1", b"2"])
    for group in (marker, "spark-etl"):
        read_by(site.messaging, group, limit=1)
    report = watching.look()
    assert [group.group for group in report.groups] == ["spark-etl"]
    assert report.group_count == 1
    listed = site.embedded.metrics().groups
    assert [group.group for group in listed] == ["spark-etl"]


def test_producers_with_an_id_come_first_and_drawn_ones_not_at_all(
    site: Site, watching: Watching, small: Callable[[], None]
) -> None:
    messaging = site.embedded
    service: Any = messaging._producers
    drawn = ProducerIdentity(77, by_client=True)
    service.publish_once("t", [b"drawn"], producer=drawn, sequence=0)
    plain = messaging.producer()
    site.clock.advance_s(5)
    plain.publish("t", [b"m"])
    used_ms = site.clock()
    site.clock.advance_s(5)
    for name in ("b", "a", "a"):
        site.clock.advance_s(1)
        messaging.producer(name)
    found = watching.look()
    assert [(one.transactional_id, one.epoch) for one in found.producers] == [
        ("a", 1),
        ("b", 0),
        (None, 0),
    ]
    assert found.producers[2].producer_id == plain.producer_id
    assert found.producers[2].last_ms == used_ms
    small()
    messaging.producer("c")
    found = watching.look()
    assert (len(found.producers), found.producer_count) == (3, 4)


def test_producers_that_cannot_be_read_are_left_out_and_named(
    site: Site, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.embedded.producer("loader")
    assert len(watching.look().producers) == 1

    def damaged(*_: Any) -> None:
        raise StoreCorrupted("a row is damaged")

    monkeypatch.setattr(producer_overview, "_overview", damaged)
    found = watching.look()
    assert found.left_out == ["producers"]
    assert len(found.producers) == 1  # as they were before


def test_queues_are_shown_to_those_who_may_see_them(watching: Watching) -> None:
    messaging: Any = watching.messaging
    assert watching.look().queue_count == 0
    for name in ("mail", "shop:mail", "other"):
        messaging.create_queue(name, max_deliveries=1)
        messaging.queue(name).push_all([b"m"] * 3)
    job = messaging.queue("mail").popper(name="ann").pop()
    found = watching.look()
    assert [one.queue for one in found.queues] == ["mail", "other", "shop:mail"]
    assert (found.queues[0].stats.depth, found.queues[0].stats.in_work) == (2, 1)
    assert [one.popper for one in found.queues[0].stats.jobs] == ["ann"]
    job.rollback()
    letters = [one for one in watching.look().queues if one.takes_dead_letters]
    assert [one.queue for one in letters] == ["mail-dead"]
    seen = watching.look(sees=ONE_TOPIC)
    assert ([one.queue for one in seen.queues], seen.queue_count) == (["mail"], 1)
    searched = watching.look(search="MAIL", namespace="shop").queues
    assert [one.queue for one in searched] == ["shop:mail"]


def test_queues_in_use_are_shown_first_where_there_are_too_many(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging: Any = watching.messaging
    monkeypatch.setattr(queue_overview, "MOST_QUEUES", 2)
    for name in ("a", "b", "c", "d"):
        messaging.create_queue(name)
    messaging.queue("d").push(b"m")
    found = watching.look()
    assert [one.queue for one in found.queues] == ["a", "d"]
    assert found.queue_count == 4


def test_queues_that_cannot_be_read_are_left_out_and_named(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging: Any = watching.messaging
    messaging.create_queue("mail")
    assert watching.look().queue_count == 1

    def damaged(*_: Any) -> None:
        raise StoreCorrupted("a row is damaged")

    monkeypatch.setattr(queue_overview, "QueueOverview", damaged)
    found = watching.look()
    assert found.left_out == ["queues"]
    assert found.queue_count == 1  # as it was before
