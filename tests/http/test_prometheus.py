"""Metrics as Prometheus reads them."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import attrs
import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from coordinator.transaction import Transaction
from tests.support.fake_leveldb import OPEN, WRITE, FakeDirectory, io_error
from tests.support.messagings import Site, publish
from txaware.errors import (
    OutOfOrderSequence,
    ProducerFenced,
    StoreCorrupted,
    Unavailable,
)
from txaware.model.messages import Outgoing
from txaware.model.metrics import HistogramCounter, TopicMetrics
from txaware.model.numbers import MOST_TOPICS, OTHER, gauge
from txaware.model.settings import Settings
from txaware.server.admission import Admission
from txaware.server.metrics import request_counts
from txaware.server.metrics.exposition import Exposition
from txaware.server.metrics.moment import Moment
from txaware.server.metrics.parts import PARTS, MetricTable, Rows
from txaware.server.metrics.request_counts import RequestCounts
from txaware.server.metrics.topic_labels import FIELDS, TopicLabels, seen_families
from txaware.service.monitor import overview_report
from txaware.service.monitor.overview import Overview, Sight
from txaware.service.store_context import StoreContext as ServiceSite
from txaware.store import leveldb
from txaware.store.keys import MESSAGE

SETTINGS = Settings(janitor_interval_s=0)


ONE_TOPIC = Sight(lambda topic: topic == "t", lambda queue: queue == "mail")


class Monitored:
    """A messaging, and its metrics; every look is a new one."""

    def __init__(self, site: Site) -> None:
        self.messaging = site.messaging
        self.clock = site.clock
        self.now_s = 0.0
        self.in_flight = Admission(SETTINGS)
        parts = cast(Any, site.messaging)._parts
        self.service, self.administration = parts.service, parts.administration
        shared = ServiceSite(
            site.table,
            site.messaging.coordinator,
            self.administration._barrier,
            SETTINGS,
            site.clock,
        )
        self.overview = Overview(
            self.service,
            self.administration._retention,
            shared,
            parts.queues,
            clock_s=lambda: self.now_s,
        )
        self.exposition = self.exposed()

    def exposed(self, parts: Mapping[str, Sequence[MetricTable]] = PARTS) -> Exposition:
        return Exposition(
            self.service,
            self.administration,
            self.overview,
            self.in_flight,
            parts=parts,
            clock_ms=self.clock,
            clock_s=lambda: self.now_s,
        )

    def look(self, exposition: Exposition | None = None) -> dict[str, Metric]:
        self.now_s += 10
        _, data = (exposition or self.exposition).text()
        found = list(text_string_to_metric_families(data.decode()))
        assert len({family.name for family in found}) == len(found)
        return {family.name: family for family in found}

    def values(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """Samples by the values of their labels, those in `labels` left out."""
        return values(self.look(), name, **labels)

    def value(self, name: str, **labels: str) -> float:
        (value,) = self.values(name, **labels).values()
        return value


def values(
    found: dict[str, Metric], name: str, **labels: str
) -> dict[tuple[str, ...], float]:
    return {
        tuple(v for label, v in sample.labels.items() if label not in labels): (
            sample.value
        )
        for family in found.values()
        for sample in family.samples
        if sample.name == f"txaware_{name}" and labels.items() <= sample.labels.items()
    }


@pytest.fixture(params=["memory", "leveldb"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """What a server serves."""
    opened = Site(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def monitored(site: Site) -> Monitored:
    site.messaging.create_topic("t")
    return Monitored(site)


def test_counts_are_there_right_after_a_publish_and_a_poll(
    monitored: Monitored,
) -> None:
    messaging = monitored.messaging
    messaging.publish("t", [b"ab", b"c"])
    messaging.poll("t", limit=1)
    tx = messaging.coordinator.start_short()
    messaging.rollback("t", publish(messaging, b"d", transaction=tx))
    messaging.store("t", [b"e"], transaction=tx)
    found = monitored.look()
    assert {
        name: values(found, name)[("t",)]
        for name in (
            *("messages_published_total", "published_bytes_total"),
            *("messages_polled_total", "polled_bytes_total"),
            *("messages_stored_total", "rollbacks_total", "topic_rows"),
        )
    } == {
        "messages_published_total": 3,
        "published_bytes_total": 4,
        "messages_polled_total": 1,
        "polled_bytes_total": 2,
        "messages_stored_total": 1,
        "rollbacks_total": 1,
        "topic_rows": 3,
    }
    assert values(found, "topics") == {(): 1}
    assert values(found, "open_transactions") == {(): 1}
    assert values(found, "prepared_transactions") == {(): 0}
    messaging.coordinator.prepare(tx, "p")  # type: ignore[attr-defined]
    assert values(monitored.look(), "prepared_transactions") == {(): 1}
    assert values(monitored.look(), "oldest_prepared_seconds")[()] < 60
    assert values(found, "metric_failures_total") == {}


def test_latencies_are_histograms_that_add_up(monitored: Monitored) -> None:
    messaging = monitored.messaging
    for _ in range(3):
        messaging.publish("t", [b"m"])
    messaging.poll("t")
    found = monitored.look()
    for name, count in (("publish_seconds", 3), ("poll_seconds", 1)):
        buckets = [value for (_, value) in sorted(_buckets(found, name).items())]
        assert buckets == sorted(buckets)
        assert buckets[-1] == count == values(found, f"{name}_count")[()]
        metrics = messaging.metrics()
        kept = {
            "publish_seconds": metrics.publish_latency_s,
            "poll_seconds": metrics.poll_latency_s,
        }[name]
        assert values(found, f"{name}_sum")[()] == pytest.approx(kept.total)
        assert kept.count == count
        assert 0 < kept.total < 1


def test_what_is_filtered_for_one_is_whole_for_the_next(monitored: Monitored) -> None:
    messaging, exposition = monitored.messaging, monitored.exposition
    messaging.create_topic("secret")
    for topic in ("t", "secret"):
        messaging.publish(topic, [b"m"])
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        _, whole = exposition.text(accept)
        _, part = exposition.text(accept, ONE_TOPIC)
        assert b'topic="secret"' not in part
        assert b'topic="t"' in part
        assert b'topic="secret"' in whole
        assert exposition.text(accept)[1] == whole


def test_the_sum_of_topics_without_a_label_is_nobodys_secret() -> None:
    family = GaugeMetricFamily("g", "help", labels=["topic"])
    for topic in ("t", "secret", OTHER):
        family.add_metric([topic], 1)
    (seen,) = seen_families([family], ONE_TOPIC)
    assert [sample.labels["topic"] for sample in seen.samples] == ["t", OTHER]


def _buckets(found: dict[str, Metric], name: str) -> dict[float, float]:
    return {
        float(le): value for (le,), value in values(found, f"{name}_bucket").items()
    }


def test_batches_are_counted_by_size_and_time(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    monitored = Monitored(lasting)
    before = monitored.look()
    lasting.messaging.publish("t", [b"m"] * 5)
    with lasting.messaging.transaction():
        lasting.messaging.publisher("t").publish(b"in a transaction")
    found = monitored.look()

    def more(name: str) -> float:
        return values(found, name)[()] - values(before, name)[()]

    syncs = more("sync_seconds_count")
    assert 2 <= syncs <= 4
    assert more("batch_rows_count") == more("batch_transactions_count") == syncs
    assert more("batch_rows_sum") == 6
    assert more("batch_transactions_sum") == 1
    assert more("sync_seconds_sum") > 0
    assert values(found, "failed_writes_total") == {(): 0}


def test_batches_are_counted_from_the_first_look(monitored: Monitored) -> None:
    """Also in memory, which has none."""
    assert monitored.value("failed_writes_total") == 0
    assert "txaware_batch_rows" in monitored.look()


def test_who_blocks_whom_and_for_how_long(monitored: Monitored) -> None:
    messaging, clock = monitored.messaging, monitored.clock
    tx = messaging.coordinator.start_short()
    clock.advance_s(2)
    publish(messaging, b"open", transaction=tx)
    clock.advance_s(3)
    found = monitored.look()
    blocker = str(tx.transaction_id)
    assert values(found, "blocked_topics") == {(): 1}
    assert values(found, "blocked_topic_seconds") == {("t", blocker): 3}
    assert values(found, "oldest_transaction_seconds") == {(): 5}
    open_row = messaging.bounds("t").last
    assert open_row is not None
    stable_s = open_row.publish_time_ms / 1000
    messaging.publish("t", [b"after"])
    found = monitored.look()
    assert values(found, "topic_last_stable_seconds") == {("t",): stable_s}
    messaging.coordinator.invalidate(tx)
    found = monitored.look()
    assert values(found, "topic_last_stable_seconds")[("t",)] >= stable_s + 3
    assert values(found, "blocked_topics") == {(): 0}
    assert values(found, "blocked_topic_seconds") == {}
    assert values(found, "invalid_transactions") == {(): 1}
    assert values(found, "oldest_transaction_seconds") == {(): 0}


def test_groups_and_ages(monitored: Monitored) -> None:
    messaging, clock = monitored.messaging, monitored.clock
    for number in range(3):
        messaging.publish("t", [b"%d" % number])
        clock.advance_s(1)
    with messaging.transaction():
        messaging.consumer("t", group="g").poll(limit=1)
    found = monitored.look()
    assert values(found, "group_lag_rows") == {("g", "t"): 2}
    assert values(found, "group_lag_seconds") == {("g", "t"): 2}
    assert values(found, "group_oldest_unread_seconds") == {("g", "t"): 2}
    assert values(found, "groups") == {(): 1}
    assert values(found, "topic_oldest_seconds") == {("t",): 3}
    messaging.create_topic("empty")
    assert monitored.values("topic_oldest_seconds")[("empty",)] == 0


def test_retention_tells_what_it_removed(monitored: Monitored) -> None:
    messaging, clock = monitored.messaging, monitored.clock
    messaging.create_topic("short", ttl_s=1)
    assert "txaware_retention_last_end_seconds" not in monitored.look()
    messaging.publish("short", [b"m"] * 4)
    clock.advance_s(5)
    messaging.clean_up()
    messaging.clean_up()
    found = monitored.look()
    assert values(found, "retention_rows_total")[("expired_messages",)] == 4
    assert values(found, "retention_rows_total")[("positions",)] == 0
    assert values(found, "retention_runs_total") == {(): 2}
    assert values(found, "retention_forgotten_total") == {(): 0}
    assert values(found, "invalid_transactions_held_back") == {(): 0}
    assert values(found, "retention_topics") == {("done",): 2, ("all",): 2}
    assert values(found, "retention_last_end_seconds") == {(): clock() / 1000}
    assert values(found, "topic_rows")[("short",)] == 0


def test_producers_are_counted_and_what_they_were_refused(monitored: Monitored) -> None:
    messaging = monitored.messaging
    assert monitored.value("live_producers") == 0
    assert monitored.value("active_transactional_ids") == 0
    old, new = messaging.producer("loader"), messaging.producer("loader")
    with pytest.raises(ProducerFenced):
        old.begin()
    plain = messaging.producer()
    plain.publish("t", [b"a"])
    plain.publish("t", [b"a"], sequence=0)
    with pytest.raises(OutOfOrderSequence):
        plain.publish("t", [b"gap"], sequence=7)
    assert monitored.value("fenced_publishes_total") == 1
    assert monitored.value("out_of_order_publishes_total") == 1
    assert monitored.value("producer_repeats_total") == 1
    assert monitored.value("live_producers") == 2
    assert monitored.value("active_transactional_ids") == 1
    messaging.producer("loader")
    messaging.producer("other")
    assert monitored.value("active_transactional_ids") == 2
    messaging.forget_producer(new.producer_id)
    assert monitored.value("live_producers") == 2
    assert monitored.value("active_transactional_ids") == 1


def test_queues_tell_how_they_stand(monitored: Monitored) -> None:
    messaging = monitored.messaging
    for name in ("mail", "other"):
        messaging.create_queue(name)
    mail = messaging.queue("mail")
    mail.push_all([b"m"] * 4)
    mail.push(b"later", delay_s=60)
    monitored.clock.advance_s(7)
    for job in mail.pop_many(2):
        job.commit()
    mail.pop()
    found = monitored.look()
    assert values(found, "queues") == {(): 2}
    assert values(found, "queue_depth") == {("mail",): 2, ("other",): 0}
    assert values(found, "queue_delayed")[("mail",)] == 1
    assert values(found, "queue_in_work")[("mail",)] == 1
    assert values(found, "queue_oldest_seconds")[("mail",)] == 7
    assert values(found, "queue_pushed_total")[("mail",)] == 5
    assert values(found, "queue_popped_total")[("mail",)] == 3
    assert values(found, "queue_committed_total")[("mail",)] == 2
    assert values(found, "queue_paused")[("mail",)] == 0
    mail.pause()
    assert monitored.values("queue_paused")[("mail",)] == 1
    _, seen = monitored.exposition.text("", ONE_TOPIC)
    assert b'queue="mail"' in seen
    assert b'queue="other"' not in seen


def test_requests_and_errors_are_counted(monitored: Monitored) -> None:
    exposition = monitored.exposition
    exposition.observe("/v1/topics/{topic}", 200, 0.003)
    exposition.observe("/v1/topics/{topic}", 404, 0.03)
    exposition.observe("/v1/topics/{topic}", 404, 30)
    exposition.count_error("TopicNotFound")
    exposition.count_error("TopicNotFound")
    monitored.in_flight.enter(waits=False)
    found = monitored.look()
    monitored.in_flight.leave(waits=False)
    assert values(found, "http_requests_total") == {
        ("/v1/topics/{topic}", "200"): 1,
        ("/v1/topics/{topic}", "404"): 2,
    }
    assert values(found, "http_request_seconds_count") == {("/v1/topics/{topic}",): 3}
    (total,) = values(found, "http_request_seconds_sum").values()
    assert total == pytest.approx(30.033)
    assert values(found, "errors_total") == {("TopicNotFound",): 2}
    assert values(found, "http_requests_in_flight") == {
        ("working",): 1,
        ("waiting",): 0,
    }


def test_routes_and_errors_are_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "MOST", 3)
    counts = RequestCounts()
    for number in range(10):
        for _ in range(2):
            counts.observe(f"/{number}", 200, 1)
            counts.count_error(f"Error{number}")
    found = counts.snapshot()
    assert found.took_s.keys() == {"/0", "/1", "/2", OTHER}
    assert found.errors == {"Error0": 2, "Error1": 2, "Error2": 2, OTHER: 14}
    assert found.answers[OTHER, 200] == 14
    assert len(found.answers) == 4


def test_the_server_and_the_process_are_described(monitored: Monitored) -> None:
    monitored.clock.advance_s(60)
    found = monitored.look()
    assert values(found, "uptime_seconds") == {(): 60}
    ((_, version),) = values(found, "build_info")
    assert version.startswith("0.")
    assert found["process_resident_memory_bytes"].samples[0].value > 1 << 20
    assert values(found, "up") == {("coordinator",): 1, ("store",): 1}


def test_one_look_serves_for_a_second(monitored: Monitored) -> None:
    monitored.look()
    monitored.messaging.publish("t", [b"m"])
    coordinator = monitored.messaging.coordinator
    snapshots, inner = [], coordinator.snapshot

    def snapshot() -> Transaction:
        snapshots.append(inner())
        return snapshots[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "snapshot", snapshot)
        _, before = monitored.exposition.text()
        assert b'txaware_messages_published_total{topic="t"} 0.0' in before
        assert not snapshots
        monitored.now_s += 1
        _, after = monitored.exposition.text()
        assert b'txaware_messages_published_total{topic="t"} 1.0' in after
        assert len(snapshots) == 1


def test_who_asks_for_openmetrics_gets_it(monitored: Monitored) -> None:
    accept = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"
    content_type, data = monitored.exposition.text(accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    parse: Any = openmetrics_families
    assert len(list(parse(data.decode()))) > 30
    content_type, data = monitored.exposition.text()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert data.endswith(b"\n")


@attrs.frozen
class Bad:
    """What tells a number that may be none."""

    bad: Annotated[Any, gauge("bad", "Bad.")]


def _table(rows: Any, *labels: str) -> MetricTable:
    return MetricTable(Bad, lambda _: rows, labels)


def _raises(_: Moment) -> Rows:
    raise RuntimeError("on purpose")


def test_a_family_that_fails_is_left_out_and_counted(
    monitored: Monitored, caplog: pytest.LogCaptureFixture
) -> None:
    parts = {
        "raises": (_table({(): Bad(1)}), MetricTable(Bad, _raises)),
        "bad_value": (_table({(): Bad("text")}),),
        "bad_label": (_table({(5,): Bad(1)}, "label"),),
    }
    exposition = monitored.exposed({**parts, **PARTS})
    with caplog.at_level(logging.ERROR):
        monitored.look(exposition)
        found = monitored.look(exposition)
    assert values(found, "metric_failures_total") == {
        ("raises",): 2,
        ("bad_value",): 2,
        ("bad_label",): 2,
    }
    assert "txaware_bad" not in found
    assert values(found, "topics") == {(): 1}
    assert "metrics of raises are left out" in caplog.text


def test_without_its_coordinator_a_server_still_counts(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise Unavailable("away")

    monitored.messaging.publish("t", [b"m"])
    monkeypatch.setattr(monitored.messaging.coordinator, "snapshot", away)
    found = monitored.look()
    assert values(found, "messages_published_total") == {("t",): 1}
    assert values(found, "up") == {("coordinator",): 0, ("store",): 1}
    assert "txaware_invalid_transactions" not in found


def test_without_an_overview_a_server_still_counts(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("on purpose")

    monitored.messaging.publish("t", [b"m"])
    monkeypatch.setattr(monitored.overview, "snapshot", broken)
    exposition = monitored.exposed()
    found = monitored.look(exposition)
    assert values(found, "messages_published_total") == {("t",): 1}
    assert values(found, "topic_rows") == {("t",): 1}
    assert values(found, "metric_failures_total") == {
        (name,): 1
        for name in (
            *("topics", "blocked", "stable_positions", "groups", "transactions"),
            "queues",
        )
    }
    assert values(found, "up") == {("coordinator",): 1, ("store",): 1}


def test_a_closed_store_fails_no_scrape(monitored: Monitored) -> None:
    monitored.messaging.close()
    found = monitored.look()
    assert values(found, "uptime_seconds") == {(): 0}
    assert values(found, "up") == {("coordinator",): 0, ("store",): 0}
    assert sum(values(found, "metric_failures_total").values()) > 0


def test_a_full_disk_leaves_out_only_what_has_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails, and LevelDB cannot be opened again: nothing can be read."""
    directory = FakeDirectory()
    monkeypatch.setattr(leveldb, "leveldb_at", lambda *_: directory.open)
    site = Site("leveldb", tmp_path)
    messaging = site.messaging
    for name in ("t", "idle"):
        messaging.create_topic(name)
    messaging.publish("t", [b"m"])
    tx = messaging.coordinator.start_short()
    publish(messaging, b"held", transaction=tx)
    monitored = Monitored(site)
    assert values(monitored.look(), "up") == {("coordinator",): 1, ("store",): 1}

    def full(_: int, step: str) -> None:
        if step in (WRITE, OPEN):
            raise io_error()

    directory.before = full
    with pytest.raises(Unavailable):
        messaging.publish("t", [b"lost"])
    for exposition in (monitored.exposition, monitored.exposed()):
        found = monitored.look(exposition)
        assert values(found, "up") == {("coordinator",): 0, ("store",): 0}
        assert values(found, "messages_published_total")[("t",)] == 2
        assert values(found, "failed_writes_total") == {(): 1}
        assert values(found, "open_transactions") == {(): 1}
        assert "txaware_blocked_topics" in found
        assert values(found, "topics") == {(): 2}  # none has changed
        assert "txaware_groups" not in found
        assert values(found, "metric_failures_total")[("groups",)] == 1
    report = monitored.overview.snapshot()
    assert "groups" in report.left_out
    assert {topic.topic for topic in report.topics} == {"t", "idle"}
    directory.before = lambda *_: None
    messaging.publish("t", [b"again"])
    found = monitored.look()
    assert values(found, "up") == {("coordinator",): 1, ("store",): 1}
    assert values(found, "topics") == {(): 2}
    site.close()


def test_a_topic_that_cannot_be_read_hides_no_other(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = monitored.messaging
    messaging.create_topic("damaged")
    tx = messaging.coordinator.start_short()
    for topic in ("t", "damaged"):
        messaging.publish(topic, [b"1", b"2"])
        publish(messaging, b"held", transaction=tx, topic=topic)
        with messaging.transaction():
            messaging.consumer(topic, group="g").poll(limit=1)
    table: Any = monitored.administration._table
    scan, prefix = table.scan, MESSAGE + monitored.service.place("damaged").topic.prefix

    def damaged(begin: bytes, **options: Any) -> Any:
        if begin.startswith(prefix):
            raise StoreCorrupted("a block is damaged")
        return scan(begin, **options)

    monkeypatch.setattr(table, "scan", damaged)
    found = monitored.look()
    assert values(found, "up") == {("coordinator",): 1, ("store",): 1}
    assert values(found, "topics") == {(): 2}
    assert values(found, "topic_rows") == {("t",): 3}
    assert values(found, "topic_oldest_seconds").keys() == {("t",)}
    assert values(found, "group_lag_rows") == {("g", "t"): 1}
    assert values(found, "groups") == {(): 2}
    blocked = values(found, "blocked_topic_seconds")
    assert blocked.keys() == {("t", str(tx.transaction_id))}
    failed = values(found, "metric_failures_total")
    assert {part for (part,) in failed} == {"topic_ages", "group_lags", "blocked"}
    assert monitored.overview.snapshot().left_out == sorted(part for (part,) in failed)
    monkeypatch.setattr(table, "scan", scan)
    found = monitored.look()
    assert values(found, "blocked_topics") == {(): 2}
    assert values(found, "group_lag_rows") == {("g", "t"): 1, ("g", "damaged"): 1}


def test_a_store_far_away_is_asked_once_a_look_while_it_is_away(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        monitored.messaging.create_topic(name)
        monitored.messaging.publish(name, [b"m"])
    table: Any = monitored.administration._table
    asked = []

    def away(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise Unavailable("it does not answer")

    monkeypatch.setattr(table, "scan", away)
    monkeypatch.setattr(table, "reads_wait", True)
    monkeypatch.setattr(monitored.service, "_reads_wait", True)
    found = monitored.look()
    assert values(found, "up") == {("coordinator",): 1, ("store",): 0}
    assert len(asked) == 2  # for the overview, and for the ages of topics


def test_topics_with_a_label_are_so_many(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = monitored.messaging
    labels: Any = monitored.exposition
    labels._sources.labels._most = 2
    for name in "abc":
        messaging.create_topic(name)
    messaging.publish("b", [b"m"] * 3)
    messaging.publish("c", [b"m"] * 2)
    messaging.publish("a", [b"m"])
    found = monitored.look()
    published = values(found, "messages_published_total")
    assert published == {("b",): 3, ("c",): 2, (OTHER,): 1}
    assert values(found, "topic_rows") == {("b",): 3, ("c",): 2}
    messaging.publish("a", [b"m"] * 10)
    assert monitored.values("messages_published_total") == {
        ("b",): 3,
        ("c",): 2,
        (OTHER,): 11,
    }
    messaging.delete_topic("c")
    assert monitored.values("messages_published_total") == {
        ("b",): 3,
        ("a",): 0,
        (OTHER,): 11,
    }
    messaging.publish("a", [b"m"])
    assert monitored.values("messages_published_total") == {
        ("b",): 3,
        ("a",): 1,
        (OTHER,): 11,
    }


def test_hundreds_of_partitions_are_no_hundreds_of_series(monitored: Monitored) -> None:
    messaging = monitored.messaging
    messaging.create_topic("orders", partitions=500)
    sent = [Outgoing(b"m", b"%d" % number) for number in range(2500)]
    messaging.publish("orders", sent)
    for group in ("a", "b"):
        consumer = messaging.consumer("orders", group=group)
        with messaging.transaction():
            consumer.poll(limit=10_000)
    tx = messaging.coordinator.start_short()
    messaging.publish("orders", sent, transaction=tx)
    found = monitored.look()
    series = Counter(
        sample.name
        for family in found.values()
        for sample in family.samples
        if sample.labels.get("topic", "").startswith("orders.")
    )
    most = max(MOST_TOPICS, overview_report.MOST_BLOCKED, overview_report.MOST_GROUPS)
    assert len(series) > 8
    assert max(series.values()) <= most
    published = values(found, "messages_published_total")
    assert published[OTHER,] > 0
    assert sum(published.values()) == 2 * len(sent)
    assert values(found, "blocked_topics")[()] > most


def test_no_sum_falls_whatever_comes_and_goes() -> None:
    existing = {"a", "b", "c", "d"}
    labels = TopicLabels(lambda name: name in existing, most=2)
    counts = dict.fromkeys("abcd", 0)
    seen: dict[str, int] = {}
    steps = "abcdaabb-acdcdaaaa-bdd+aaacd+b-cabcdabcd"
    sign = ""
    for step in steps:
        if step in "+-":
            sign = step
            continue
        if sign == "-":
            existing.discard(step)
            seen.pop(step, None)
        elif sign == "+":
            existing.add(step)
        else:
            counts[step] += 1
        sign = ""
        metrics = {name: TopicMetrics(count) for name, count in counts.items()}
        divided = {name: found[0] for name, found in labels.divide(metrics).items()}
        assert len(divided.keys() - {OTHER}) <= 2
        for name, count in divided.items():
            assert count >= seen.get(name, 0), (name, step)
        seen = divided
    assert len(FIELDS) == 6


def test_blocked_topics_are_cut(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_report, "MOST_BLOCKED", 2)
    messaging = monitored.messaging
    tx = messaging.coordinator.start_short()
    for name in "dcba":
        messaging.create_topic(name)
        publish(messaging, b"m", transaction=tx, topic=name)
        monitored.clock.advance_s(1)
    found = monitored.look()
    assert values(found, "blocked_topics") == {(): 4}
    blocked = values(found, "blocked_topic_seconds")
    assert {topic for topic, _ in blocked} == {"d", "c"}


def test_a_histogram_puts_a_value_at_its_bound_below_it() -> None:
    counter = HistogramCounter((1.0, 2.0))
    for value in (0, 1, 1.5, 2, 3):
        counter.add(value)
    found = counter.snapshot()
    assert (found.counts, found.count, found.total) == ((2, 2, 1), 5, 7.5)
