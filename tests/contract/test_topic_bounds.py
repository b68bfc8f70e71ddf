"""Remembered bounds of topics: those of a fresh look, and mostly without one."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.messagings import Site, commit, publish
from txaware.model.messages import Bounds, Outgoing
from txaware.service.local import LocalService
from txaware.service.monitor import topic_bounds
from txaware.service.monitor.topic_bounds import TopicBounds

TTL_S = 60


class Looks:
    """Remembered bounds as committed and as all readers have them; counts looks."""

    def __init__(self, site: Site) -> None:
        self.count = 0
        self._coordinator = site.embedded.coordinator
        parts: Any = site.embedded._parts
        self.service: LocalService = parts.service
        read = {"committed": self._committed, "uncommitted": self._uncommitted}
        self._fresh = read
        self._known = {
            name: TopicBounds(self.service, self._counted(each), site.clock)
            for name, each in read.items()
        }

    def compare(self) -> dict[str, Bounds]:
        """Compares both with fresh looks; returns them."""
        snapshot = self._coordinator.snapshot()
        for name, known in self._known.items():
            fresh = self._fresh[name]("t", snapshot)
            found = known.of("t", snapshot)
            # The end of what is there moves with the clock, and nothing is before it.
            assert (found.first, found.last) == (fresh.first, fresh.last), name
            assert found.next <= fresh.next
            assert found.last is None or found.last < found.next
        return {name: known.of("t", snapshot) for name, known in self._known.items()}

    def _counted(
        self, read: Callable[[str, Transaction | None], Bounds]
    ) -> Callable[[str, Transaction | None], Bounds]:
        def counted(topic: str, snapshot: Transaction | None) -> Bounds:
            self.count += 1
            return read(topic, snapshot)

        return counted

    def _committed(self, topic: str, snapshot: Transaction | None) -> Bounds:
        return self.service.bounds_seen(topic, snapshot)

    def _uncommitted(self, topic: str, _: Transaction | None) -> Bounds:
        return self.service.bounds(topic)


@pytest.fixture
def looks(site: Site) -> Looks:
    site.messaging.create_topic("t", ttl_s=TTL_S)
    return Looks(site)


def test_whatever_happens_remembered_bounds_are_those_of_a_fresh_look(
    site: Site, looks: Looks
) -> None:
    messaging = site.messaging
    looks.compare()
    messaging.publish("t", [b"1", b"2"])
    looks.compare()
    committed, refused, long = (messaging.coordinator.start_short() for _ in range(3))
    for tx in (committed, refused, long):
        publish(messaging, b"3", transaction=tx)
        looks.compare()
    commit(messaging, committed)
    looks.compare()
    messaging.coordinator.abort(refused)
    looks.compare()
    site.clock.advance_s(5)
    publish(messaging, b"4", transaction=long)
    messaging.publish("t", [b"5"])
    looks.compare()
    commit(messaging, long)
    looks.compare()
    site.clock.advance_s(TTL_S - 3)
    assert looks.compare()["committed"].first is not None
    site.clock.advance_s(10)
    assert looks.compare()["committed"].first is None
    messaging.publish("t", [b"6"])
    looks.compare()
    messaging.delete_topic("t")
    messaging.create_topic("t", ttl_s=TTL_S)
    assert looks.compare()["committed"].first is None


def test_where_nothing_happens_nothing_is_read(site: Site, looks: Looks) -> None:
    site.messaging.publish("t", [b"1"])
    looks.compare()
    before = looks.count
    for _ in range(20):
        site.clock.advance_s(1)
        looks.compare()
    assert looks.count == before
    site.clock.advance_s(topic_bounds.KEPT_MS / 1000)
    looks.compare()
    assert looks.count == before + 2


def test_while_a_transaction_is_open_in_a_topic_it_is_looked_at(
    site: Site, looks: Looks
) -> None:
    tx = site.messaging.coordinator.start_short()
    publish(site.messaging, b"1", transaction=tx)
    looks.compare()
    before = looks.count
    looks.compare()
    assert looks.count > before
    commit(site.messaging, tx)
    looks.compare()
    before = looks.count
    looks.compare()
    assert looks.count == before


def test_what_a_clean_up_removed_is_seen_within_half_a_minute(
    site: Site, looks: Looks
) -> None:
    messaging = site.messaging
    messaging.create_topic("c", compact=True)
    service = looks.service
    bounds = TopicBounds(service, lambda name, _: service.bounds(name), site.clock)
    for value in (b"1", b"2"):
        messaging.publish("c", [Outgoing(value, key=b"k")])
        site.clock.advance_s(1)
    first = bounds.of("c").first
    site.embedded.clean_up()
    site.clock.advance_s(topic_bounds.KEPT_MS / 1000)
    assert bounds.of("c").first == service.bounds("c").first != first
