"""What needs somebody: each alarm comes when it should, says what to do, and goes."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from txaware.model.metrics import (
    Histogram,
    ProducerMetrics,
    RetentionMetrics,
    WriteMetrics,
)
from txaware.model.queues import QueueStats
from txaware.model.reports import OutboxReport
from txaware.service.monitor.attention import (
    BACKLOG_MS,
    BEHIND_MS,
    LATELY_MS,
    MINUTE_MS,
    NO_CLEAN_UP_MS,
    NO_RELAY_MS,
    OVERDUE_MS,
    RULES,
    AlarmState,
    Attention,
    RecentCounts,
    Rise,
)
from txaware.service.monitor.overview_report import Alarm, GroupOverview, OpenOverview
from txaware.service.monitor.queue_overview import QueueOverview

START_MS = 1_000_000_000
# These are in the report itself, and the page finds them there.
IN_THE_REPORT = {
    "txaware_up",
    "txaware_blocked_topic_seconds",
    "txaware_topic_last_stable_seconds",
}
NO_STATS = QueueStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, is_paused=False)


class Looking:
    """Looks at one state after the other, as time passes."""

    def __init__(self) -> None:
        self.attention = Attention(START_MS)
        self.now_ms = START_MS

    def __call__(self, *, after_ms: int = 1000, **seen: Any) -> list[Alarm]:
        """The alarms of a state that comes so long after the one before."""
        self.now_ms += after_ms
        given = {"retention": RetentionMetrics(last_ended_ms=self.now_ms)} | seen
        return self.attention.look(AlarmState(now_ms=self.now_ms, **given))

    def alarm(self, **seen: Any) -> Alarm:
        """The only alarm there is."""
        [found] = self(**seen)
        return found


@pytest.fixture
def look() -> Looking:
    return Looking()


def queue(**stats: Any) -> QueueOverview:
    return QueueOverview("mail", attrs.evolve(NO_STATS, **stats))


def writes(*, failed: int = 0, quick: int = 0, slow: int = 0) -> WriteMetrics:
    nothing = Histogram()
    return WriteMetrics(
        nothing, nothing, Histogram((0.5, 1.0), (quick, 0, slow)), failed
    )


def test_all_that_the_operations_page_alarms_on_is_known() -> None:
    """Each of its metrics has a rule, and each rule stands there."""
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    table = page.read_text().split("Worth an alarm:")[1].split("\n\n")[1]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`(txaware_\w+)`", row)}
    assert named == RULES.keys() | IN_THE_REPORT


def test_while_all_is_well_nothing_needs_anybody(look: Looking) -> None:
    for _ in range(100):
        assert look(queues=[queue(in_work=5)], writes=writes(quick=100)) == []


def test_a_transaction_that_is_overdue_is_told(look: Looking) -> None:
    short = OpenOverview(5, START_MS, (5,))
    assert look(transactions=[short]) == []
    later = START_MS + OVERDUE_MS + 60_000
    for fine in (
        attrs.evolve(short, type="long"),
        attrs.evolve(short, expires_ms=later),
    ):
        assert look(after_ms=0, transactions=[fine]) == []
    alarm = look.alarm(after_ms=OVERDUE_MS, transactions=[short])
    assert alarm.what == "Transaction 5 has been open for 15 min"
    assert "txaware transaction abort 5" in alarm.to_do
    prepared = attrs.evolve(short, prepared="order-7")
    alarm = look.alarm(transactions=[prepared])
    assert alarm.what == "order-7 is prepared, and was begun 15 min ago"


def test_a_group_that_is_read_for_and_late_is_told(look: Looking) -> None:
    group = GroupOverview("billing", "orders", None, 0, 5, False, START_MS, None)

    def read(ago_ms: int) -> list[GroupOverview]:
        return [attrs.evolve(group, reader_seen_ms=look.now_ms - ago_ms)]

    assert look(groups=read(0)) == []
    alarm = look.alarm(after_ms=BEHIND_MS, groups=read(-BEHIND_MS))
    assert "Group billing is 1 h behind in orders" in alarm.what
    assert (alarm.kind, alarm.name, alarm.topic) == ("group", "billing", "orders")
    assert look(groups=read(BEHIND_MS)) == []  # nobody reads: the page says that


def test_queues_are_told_of_when_they_are_late_or_lose_leases(look: Looking) -> None:
    old_s = BEHIND_MS / 1000
    assert look(queues=[queue(oldest_age_s=old_s)]) == []  # nobody works: the page
    alarm = look.alarm(queues=[queue(oldest_age_s=old_s, in_work=1)])
    assert alarm.what == "The oldest item of queue mail has waited for 1 h"
    assert look(queues=[queue(expired_leases=7)])[0].what == (
        "7 leases of queue mail ran out in the last 1 s"
    )
    assert look(after_ms=LATELY_MS, queues=[queue(expired_leases=7)]) == []
    alarm = look.alarm(queues=[queue(expired_leases=8)])
    assert alarm.what.startswith("1 lease of queue mail ran out")
    assert (alarm.kind, alarm.name, alarm.state) == ("queue", "mail", "in_work")


def test_dead_letters_are_told_of_while_they_wait(look: Looking) -> None:
    with_letters = attrs.evolve(queue(dead_letters=5), dead_letters=2)
    for _ in range(3):
        alarm = look.alarm(after_ms=LATELY_MS, queues=[with_letters])
        assert alarm.what == "2 dead letters of queue mail wait"
        assert (alarm.name, alarm.state) == ("mail", "dead")
    assert look(queues=[queue(dead_letters=5)]) == []  # they went back


def test_outboxes_are_told_of_when_they_stand_still(look: Looking) -> None:
    def outbox(waiting: int = 0, set_aside: int = 0, ago_ms: int = 0) -> dict[str, Any]:
        looked_ms = look.now_ms - ago_ms
        return {"outboxes": [OutboxReport("o", "shop", waiting, set_aside, looked_ms)]}

    assert look(**outbox(waiting=5)) == []
    assert look(**outbox(waiting=0)) == []
    assert look(**outbox(waiting=5)) == []
    for _ in range(4):
        assert look(after_ms=MINUTE_MS, **outbox(waiting=5, ago_ms=-MINUTE_MS)) == []
    found = look(after_ms=BACKLOG_MS, **outbox(waiting=5, ago_ms=-BACKLOG_MS))
    assert "5 messages wait in the outbox in shop" in found[0].what
    alarm = look.alarm(**outbox(set_aside=1))
    assert alarm.what == "1 message of the outbox in shop cannot be carried over"
    assert (alarm.is_grave, "txaware outbox list" in alarm.to_do) == (True, True)
    alarm = look.alarm(**outbox(ago_ms=NO_RELAY_MS))
    assert alarm.what == "No relay has looked at the outbox in shop for 5 min"


def test_clean_ups_that_do_not_come_are_told(look: Looking) -> None:
    never = RetentionMetrics()
    assert look(retention=never) == []
    alarm = look.alarm(after_ms=NO_CLEAN_UP_MS, retention=never)
    assert alarm.what == "Nothing has been cleaned up since the start, for 3 h"
    ended = RetentionMetrics(last_ended_ms=look.now_ms)
    assert look(retention=ended) == []
    alarm = look.alarm(after_ms=2 * NO_CLEAN_UP_MS, retention=ended)
    assert alarm.what == "Nothing has been cleaned up for 6 h"
    held = RetentionMetrics(
        last_ended_ms=look.now_ms, held_back="notes keeps them", held_back_count=2
    )
    alarm = look.alarm(retention=held)
    assert "2 invalid transactions" in alarm.what
    assert alarm.to_do.startswith("notes keeps them")


def test_what_fails_or_is_slow_to_be_written_is_told(look: Looking) -> None:
    assert look(writes=writes(quick=500)) == []
    assert look(writes=writes(quick=900, slow=1)) == []  # less than one in a hundred
    alarm = look.alarm(writes=writes(quick=1000, slow=100))
    assert "took longer than 1 s" in alarm.what
    alarm = Looking().alarm(writes=writes(failed=2))
    assert alarm.what == "2 writes failed in the last 1 s"
    assert alarm.is_grave
    assert look(after_ms=2 * LATELY_MS, writes=None) == []


def test_what_producers_lose_and_messages_that_expire_are_told(look: Looking) -> None:
    found = look(
        producers=ProducerMetrics(fenced=1, out_of_order=2, live=5),
        expired_unseen={"orders": 3},
        left_out=["topic_ages"],
    )
    assert [alarm.what for alarm in found] == [
        "3 messages of orders expired unseen in the last 1 s",  # the gravest
        "1 call of fenced producers was refused in the last 1 s",
        "2 publishes out of order in the last 1 s",
        "Cannot be looked at: topic ages",
    ]
    assert all(alarm.metric in RULES for alarm in found)
    look = Looking()
    assert look(producers=ProducerMetrics(live=20_000)) == []
    [alarm] = look(producers=ProducerMetrics(live=20_050))
    assert alarm.what == "There are 20,050 producers, 50 more in the last 1 s"


def test_a_count_that_nobody_looked_at_rose_since_that_look() -> None:
    counts = RecentCounts(0)
    hour_ms = 60 * MINUTE_MS
    assert counts.rise("a", 5, 0) is None
    assert counts.rise("a", 5, 1000) is None
    assert counts.rise("a", 7, hour_ms) == Rise(2, hour_ms - 1000)
    assert Rise(2, hour_ms).lately == "in the last 1 h"
    assert counts.rise("a", 7, hour_ms + LATELY_MS - 1) == Rise(
        2, hour_ms + LATELY_MS - 1001
    )
    assert counts.rise("a", 7, hour_ms + LATELY_MS) is None
    assert counts.rise("a", 3, hour_ms + LATELY_MS + 1) is None  # it began anew
    assert counts.rise("a", 4, hour_ms) is None  # the clock was set back
    assert counts.rise("b", 4, 1000, from_start=True) == Rise(4, 1000)
