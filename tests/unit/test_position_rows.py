"""Rows of positions: what anybody may read stays, and a group costs few of them."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.model.settings import Settings
from txaware.service.retention.version_retention import unneeded
from txaware.store.keys import POSITION
from txaware.store.kinds import POSITIONS

# Beside those of the last saves: what the open one sees, and what is newest.
FEW = POSITIONS.trim_after + 4


def save(messaging: Messaging, number: int, group: str = "g") -> None:
    tx = messaging.coordinator.start_short()
    messaging.save_position(group, "t", MessageId.of(number), transaction=tx)
    commit(messaging, tx)


def rows(site: Site) -> int:
    return len(site.table.scan(POSITION, limit=100_000))


def test_a_group_costs_few_rows_however_often_it_moves(
    site: Site, messaging: Messaging
) -> None:
    most = 0
    for number in range(200):
        save(messaging, number)
        most = max(most, rows(site))
    assert most <= FEW
    assert messaging.position("g", "t") == MessageId.of(199)


def test_a_group_costs_few_rows_beside_one_that_is_open_all_day(
    site: Site, messaging: Messaging
) -> None:
    for number in range(30):
        save(messaging, number)
    open_one = messaging.coordinator.start_long()
    most = 0
    for number in range(30, 300):
        save(messaging, number)
        most = max(most, rows(site))
    assert most <= 2 * FEW
    seen = messaging.position("g", "t", transaction=open_one)
    assert seen == MessageId.of(29)
    messaging.clean_up()
    assert rows(site) <= FEW
    assert messaging.position("g", "t", transaction=open_one) == seen
    assert messaging.position("g", "t") == MessageId.of(299)


@pytest.mark.in_process
def test_a_reader_finds_the_position_that_replaced_the_one_it_saw(
    site: Site, messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often that happens between its snapshot and its look."""
    save(messaging, 0)
    service: Any = messaging._parts.service
    judge, times = service._reading.judge, iter(range(3))

    def judged(transaction: Transaction | None) -> Any:
        found = judge(transaction)
        if transaction is None and next(times, None) is not None:
            for number in range(1, 2 * POSITIONS.trim_after):
                save(messaging, number)
        return found

    monkeypatch.setattr(service._reading, "judge", judged)
    assert messaging.position("g", "t") == MessageId.of(2 * POSITIONS.trim_after - 1)


class Plain:
    """Groups whose rows are all kept, and the snapshots of all who are open."""

    def __init__(self) -> None:
        self.clock = Clock()
        config = Settings(janitor_interval_s=0)
        self.messaging = txaware.connect(
            "memory:", settings=config, clock_ms=self.clock
        )
        self.messaging.create_topic("t")
        self.coordinator = self.messaging.coordinator
        assert isinstance(self.coordinator, EmbeddedCoordinator)
        self.saved: dict[int, MessageId] = {}
        self.open: list[Transaction] = []
        self.number = 0

    def expected(self, tx: Transaction) -> MessageId | None:
        seen = [p for p in self.saved if tx.is_visible(p)]
        return self.saved[max(seen)] if seen else None

    def check(self) -> None:
        """Every open one, and whoever begins now, reads as if all rows were there."""
        for tx in [*self.open, self.coordinator.snapshot()]:
            found = self.messaging.position("g", "t", transaction=tx)
            assert found == self.expected(tx), tx


class Positions(RuleBasedStateMachine):
    """Any order of saves and ends, of looks and clean-ups, by hand or by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = Plain()

    @rule()
    def start(self) -> None:
        self.plain.open.append(self.plain.coordinator.start_short(timeout_s=3600))

    @rule(data=st.data())
    def save(self, data: st.DataObject) -> None:
        plain = self.plain
        if plain.open:
            tx = data.draw(st.sampled_from(plain.open))
            plain.number += 1
            position = MessageId.of(plain.number)
            plain.messaging.save_position("g", "t", position, transaction=tx)
            plain.saved[tx.transaction_id] = position

    @rule(data=st.data(), end=st.sampled_from(["commit", "commit", "abort", "invalid"]))
    def end(self, data: st.DataObject, end: str) -> None:
        plain = self.plain
        if not plain.open:
            return
        tx = data.draw(st.sampled_from(plain.open))
        plain.open.remove(tx)
        if end == "commit":
            commit(plain.messaging, tx)
            return
        if end == "abort":
            plain.messaging.save_position("g", "t", None, transaction=tx)
            plain.coordinator.abort(tx)
        else:
            plain.coordinator.invalidate(tx)
        plain.saved.pop(tx.transaction_id, None)

    @rule(count=st.integers(1, 2 * POSITIONS.trim_after))
    def move(self, count: int) -> None:
        """One after the other, as the members of a group do."""
        for _ in range(count):
            tx = self.plain.coordinator.start_short()
            self.plain.number += 1
            position = MessageId.of(self.plain.number)
            self.plain.messaging.save_position("g", "t", position, transaction=tx)
            self.plain.saved[tx.transaction_id] = position
            commit(self.plain.messaging, tx)

    @rule()
    def clean_up(self) -> None:
        self.plain.messaging.clean_up()

    @invariant()
    def all_read_what_they_would_read_of_all_rows(self) -> None:
        self.plain.check()

    def teardown(self) -> None:
        self.plain.messaging.close()


def test_every_snapshot_reads_as_if_all_rows_were_there() -> None:
    run_state_machine_as_test(
        Positions,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )


def test_what_is_needed_is_kept_by_looks_however_few_there_are() -> None:
    """The rule alone: of rows 10 to 60, beside readers that began at 35 and 55."""
    saved = [(b"%d" % pointer, pointer) for pointer in (10, 20, 30, 40, 50, 60)]
    now = Transaction(70, 60, invalids=(20,), in_progress=(35, 55))

    def kept(*looks: Transaction) -> list[int]:
        gone = unneeded(saved, now, looks)
        return [pointer for key, pointer in saved if key not in gone]

    assert kept() == [10, 30, 40, 50, 60]
    # At 33 all below were visible but 30: so the one at 35 may or may not see that.
    look = Transaction(33, 32, invalids=(20,), in_progress=(30,))
    assert kept(look) == [10, 30, 40, 50, 60]
    later = Transaction(52, 50, invalids=(20,), in_progress=(35,))
    assert kept(look, later) == [10, 30, 50, 60]
    earlier = Transaction(34, 30, invalids=(20,))
    assert kept(earlier, later) == [30, 50, 60]
    assert unneeded([(b"a", -10), (b"b", -35), (b"c", -80)], now, ()) == [b"a"]
