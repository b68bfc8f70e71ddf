"""Data with something of everything that a clean-up removes, marks, or leaves."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import attrs

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.transaction import POINTERS_PER_MS
from tests.support.doubles import Clock
from tests.support.messagings import commit, publish, table_of
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.interfaces import Row
from txaware.model.reports import CleanUp
from txaware.model.settings import Settings
from txaware.service.retention.clean_up import Retention
from txaware.service.retention.clean_up_plan import PieceResult, Plan
from txaware.store.keys import MARK, MESSAGE, PAYLOAD, POSITION, TOPIC

SETTINGS = Settings(
    janitor_interval_s=0, orphan_grace_s=5, accept_unknown_pointers=True
)
# What is checked goes by the time of the system.
BEGAN_MS = system_clock_ms() - 130_000
TABLES = (TOPIC, MESSAGE, PAYLOAD, POSITION, MARK)


def filled(clock: Clock, url: str = "memory:") -> Messaging:
    """The same rows every time, as long as the clock is the same."""
    messaging = txaware.connect(url, settings=SETTINGS, clock_ms=clock)
    for name in ("a", "b", "old", "gone", "empty", "quiet"):
        messaging.create_topic(name, ttl_s=100)
    messaging.store("a", [b"by hand"] * 2, transaction=7)
    for seconds_ago in range(6):  # of another coordinator, so they leave marks
        elsewhere = (clock() - 1000 * seconds_ago - 1) * POINTERS_PER_MS
        messaging.store("b", [b"elsewhere"], transaction=elsewhere)
        messaging.publish("b", [], transaction=elsewhere)
    for _ in range(6):
        for name in ("a", "b", "old", "gone"):
            _some_of_everything(messaging, name)
        clock.advance_s(10)
    messaging.store("a", [b"by hand, and newer"], transaction=8)
    messaging.publish("quiet", [b"lives on"])
    for name in ("old", "gone"):
        messaging.delete_topic(name)
    messaging.create_topic("old", ttl_s=100)
    messaging.publish("old", [b"of the second generation"])
    clock.advance_s(70)
    for name in ("a", "b"):
        _some_of_everything(messaging, name)
    return messaging


def _some_of_everything(messaging: Messaging, topic: str) -> None:
    coordinator = messaging.coordinator
    messaging.publish(topic, [b"plain"] * 3)
    for end in ("commit", "invalidate", "forget the reference"):
        tx = coordinator.start_short()
        messaging.store(topic, [b"stored"] * 2, transaction=tx)
        if end != "forget the reference":
            messaging.publish(topic, [], transaction=tx)
            publish(messaging, b"direct", transaction=tx, topic=topic)
        messaging.save_position(
            "g", topic, messaging.bounds(topic).next, transaction=tx
        )
        if end == "invalidate":
            coordinator.invalidate(tx)
        else:
            commit(messaging, tx)


def rows_of(messaging: Messaging) -> dict[bytes, list[Row]]:
    """All rows but those of the journal."""
    table = table_of(messaging)
    return {prefix: table.scan(prefix, limit=100_000) for prefix in TABLES}


def retention_of(messaging: Messaging) -> Retention:
    """What cleans up in this process."""
    administration: Any = messaging.administration
    retention: Retention = administration._retention
    return retention


def truncated(messaging: Messaging) -> int:
    """How many invalid transactions the coordinator remembers after a prune."""
    assert isinstance(messaging.coordinator, EmbeddedCoordinator)
    messaging.prune()
    return messaging.coordinator.invalid_size()


@attrs.frozen
class Store:
    """Data to clean up, and its clock."""

    clock: Clock
    messaging: Messaging

    def numbers_of(self, plan: Plan, *kinds: str) -> list[int]:
        """The pieces that do one of these."""
        return [n for n, piece in enumerate(plan.pieces) if piece.what in kinds]

    def do(self, plan: Plan, numbers: list[int]) -> dict[int, PieceResult]:
        """Does pieces one after the other; of one that is repeated the first counts."""
        results: dict[int, PieceResult] = {}
        for number in numbers:
            result = retention_of(self.messaging).clean_piece(plan, plan.pieces[number])
            results.setdefault(number, result)
        return results


@contextmanager
def store() -> Iterator[Store]:
    """Data in memory, before any clean-up."""
    clock = Clock(BEGAN_MS)
    with filled(clock) as messaging:
        yield Store(clock, messaging)


@cache
def cleaned_here() -> tuple[CleanUp, dict[bytes, list[Row]]]:
    """What a clean-up of one process answers, and what it leaves."""
    with filled(Clock(BEGAN_MS)) as messaging:
        return messaging.clean_up(), rows_of(messaging)
