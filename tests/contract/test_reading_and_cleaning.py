"""Readers and clean-ups that meet: rows stay whole, and none is read twice."""

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.datasource import GreaterThan

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.clean_up_data import retention_of
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit
from tests.support.spark_histories import History, Query
from txaware.errors import Unavailable
from txaware.model.settings import Settings
from txaware.service.retention.cleaning import Cleaning
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.spark.filters import Narrowed
from txaware.spark.selection import QuerySelection

HOUR_S = 3600


def test_a_prune_forgets_nothing_where_its_own_marking_failed() -> None:
    clock, settings = Clock(), Settings(janitor_interval_s=0, orphan_grace_s=60)
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    with txaware.connect(
        "memory:", coordinator=coordinator, settings=settings, clock_ms=clock
    ) as messaging:
        messaging.create_topic("t")
        tx = coordinator.start_short()
        coordinator.invalidate(tx)
        retention = retention_of(messaging)
        retention._barrier = retention._marking._barrier = None  # as elsewhere
        messaging.clean_up()
        messaging.publish("t", [b"written since, perhaps by that transaction"])
        clock.advance_s(26 * HOUR_S)
        with patch.object(Marking, "mark_topic", side_effect=OSError):
            messaging.prune(exclusive=True)
        assert coordinator.invalid_size() == 1
        messaging.prune(exclusive=True)
        assert coordinator.invalid_size() == 0


def test_a_topic_that_is_not_shown_for_a_while_is_not_read_again(
    tmp_path: Path,
) -> None:
    site, names = Site("http", tmp_path), QuerySelection.names
    for topic in ("a", "b"):
        site.messaging.create_topic(topic)
        site.messaging.publish(topic, [topic.encode()])
    query = Query(History(site, "t"), topic=None, topic_pattern="*")
    query.trigger()

    def without_b(*given: Any) -> list[str]:
        return [name for name in names(*given) if name != "b"]

    with patch.object(QuerySelection, "names", without_b):
        assert not query.trigger()
    assert not query.trigger()
    assert query.read == [b"a", b"b"]
    site.close()


def test_reads_are_planned_while_all_that_clean_up_are_at_work(tmp_path: Path) -> None:
    site, clean, go = Site("http", tmp_path), Cleaning.clean, threading.Event()
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=1)
    for _ in range(20):
        messaging.publish("t", [b"x"])
        site.clock.advance_s(1)

    def waiting(*given: Any) -> Any:
        go.wait(30)
        return clean(*given)

    with patch.object(Cleaning, "clean", waiting):
        plan = messaging.administration.plan_clean_up(pieces=8)
        act = messaging.administration.clean_piece
        threads = [
            threading.Thread(target=act, args=(plan.id, number)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        bounds, done = messaging.bounds("t"), threading.Event()
        assert bounds.next

        def split() -> None:
            messaging.administration.splits(
                "t", start=bounds.next, stop=bounds.next, part_bytes=1
            )
            done.set()

        threads.append(threading.Thread(target=split))
        threads[-1].start()
        in_time = done.wait(10)
        go.set()
        for thread in threads:
            thread.join()
    assert in_time
    site.close()


@pytest.mark.parametrize("how", ["a longer time to live", "a clock that goes back"])
def test_nothing_is_read_in_part_that_lives_again(tmp_path: Path, how: str) -> None:
    site = Site("leveldb", tmp_path)
    messaging, submit = site.messaging, type(site.table).submit
    seen: list[object] = []
    messaging.create_topic("t", ttl_s=10)
    tx = messaging.coordinator.start_short()
    messaging.store("t", [b"x"] * 1500, transaction=tx)
    messaging.publish("t", [], transaction=tx)
    commit(messaging, tx)
    site.clock.advance_s(11)

    def watched(self: Any, writes: Any, *given: Any) -> Callable[[], None]:
        wait = submit(self, writes, *given)

        def waited() -> None:
            wait()
            if len(writes) == 1000 and not seen:
                seen.append(0)
                if how == "a longer time to live":
                    messaging.update_topic("t", ttl_s=1000)
                else:
                    site.clock.advance_s(-2)
                seen.append(len(messaging.poll("t", limit=10_000)))

        return waited

    with patch.object(type(site.table), "submit", watched):
        messaging.clean_up()
    assert seen == [0, 0]
    site.close()


def test_an_end_of_all_times_spares_nothing_and_is_no_error() -> None:
    for time in (datetime(1, 1, 1), datetime.max):
        Narrowed.by([GreaterThan(("publish_time",), time)])


def test_what_nobody_can_decide_is_named(tmp_path: Path) -> None:
    site = Site("http", tmp_path, accept_unknown_pointers=True)
    site.messaging.create_topic("t")
    site.messaging.publish("t", [b"x"], transaction=2**62)
    with pytest.raises(Unavailable, match="never gave out"):
        Query(History(site, "t")).trigger()
    site.close()
