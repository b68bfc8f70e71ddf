"""How queues stand, for operators: in the metrics and in the overview."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import txaware
from tests.support.doubles import Clock
from tests.support.http_access import guarded
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.monitor import queue_overview

SETTINGS = Settings(janitor_interval_s=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def messaging(clock: Clock) -> Iterator[Messaging]:
    with txaware.connect("memory:", settings=SETTINGS, clock_ms=clock) as opened:
        opened.create_queue("mail", lease_s=60)
        yield opened


@pytest.fixture
def url(messaging: Messaging) -> Iterator[str]:
    with messaging.serve() as server:
        yield server.url


def text_of(url: str, path: str) -> str:
    with urllib.request.urlopen(url + path) as answer:
        return str(answer.read().decode())


def overview(url: str) -> Any:
    return json.loads(text_of(url, "/v1/overview"))


def values(url: str) -> dict[str, float]:
    """The samples of the queue `mail`, by name."""
    found = text_string_to_metric_families(text_of(url, "/metrics"))
    return {
        sample.name.removeprefix("txaware_queue_"): sample.value
        for family in found
        for sample in family.samples
        if sample.labels.get("queue") == "mail"
    }


def test_metrics_say_how_a_queue_stands(
    messaging: Messaging, url: str, clock: Clock
) -> None:
    mail = messaging.queue("mail")
    mail.push_all([b"1", b"2", b"3", b"4", b"5"])
    mail.push(b"later", delay_s=3600)
    clock.advance_s(4)
    first, second, _ = mail.pop_many(3)
    clock.advance_s(2)
    first.commit()
    second.rollback()
    mail.pause()
    found = values(url)
    assert found == {
        "pushed_total": 6,
        "popped_total": 3,
        "committed_total": 1,
        "rolled_back_total": 1,
        "expired_leases_total": 0,
        "expired_total": 0,
        "dead_letters_total": 0,
        "depth": 4,
        "delayed": 1,
        "in_work": 1,
        "oldest_seconds": 6,
        "wait_seconds": 4,
        "work_seconds": 2,
        "paused": 1,
    }


def test_the_overview_names_who_has_jobs_since_when(
    messaging: Messaging, url: str, clock: Clock
) -> None:
    mail = messaging.queue("mail")
    mail.push_all([b"1", b"2"])
    since_ms = clock()
    job = mail.popper(name="worker 7").pop()
    assert job is not None
    with messaging.transaction() as tx:
        mail.popper(name="worker 8").pop()
        pointer = tx.transaction.transaction_id
        [found] = overview(url)["queues"]
    stats = found["stats"]
    assert (found["queue"], stats["inWork"], stats["depth"]) == ("mail", 2, 0)
    first, second = stats["jobs"]
    assert first["popper"] == "worker 7"
    assert first["sinceMs"] == since_ms
    assert first["untilMs"] == since_ms + 60_000
    assert (second["untilMs"], second["transaction"]) == (None, pointer)


def test_rates_and_times_are_of_the_last_minute(
    messaging: Messaging, clock: Clock
) -> None:
    mail = messaging.queue("mail")
    with messaging.transaction():
        mail.push_all([b"1"] * 30)
    with messaging.transaction():
        assert len(mail.pop_many(30)) == 30
    clock.advance_s(30)
    now = mail.stats()
    assert (now.pushed_per_s, now.popped_per_s, now.committed_per_s) == (1, 1, 1)
    clock.advance_s(45)
    now = mail.stats()
    assert (now.pushed_per_s, now.committed_per_s, now.average_wait_s) == (0, 0, 0)


def test_of_very_many_queues_those_in_use_are_looked_at(
    messaging: Messaging, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_overview, "MOST_QUEUES", 2)
    for number in range(5):
        messaging.create_queue(f"q{number}")
    messaging.queue("q3").push(b"1")
    found = overview(url)
    assert [one["queue"] for one in found["queues"]] == ["mail", "q3"]
    assert found["queueCount"] == 6


def test_of_queues_those_are_told_that_one_may_see(tmp_path: Path) -> None:
    with guarded(tmp_path) as site:
        for queue in ("mail", "hidden-work"):
            site.messaging.create_queue(queue)
        for path in ("/v1/overview", "/metrics"):
            told = site.caller("looks at mail").ask("GET", path).body
            assert b'"mail"' in told
            assert b"hidden-work" not in told
            assert b"mail" not in site.caller("watcher").ask("GET", path).body
            assert b"hidden-work" in site.caller("overseer").ask("GET", path).body
