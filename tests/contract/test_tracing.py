"""OpenTelemetry: spans in the trace of the publisher, wherever a message comes by."""

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import txaware
from tests.support.messagings import Site
from tests.support.traces import Traces, id_of, links_of, parent_of, trace_of
from txaware import participants
from txaware.messaging import Messaging
from txaware.model.labels import MAX_HEADERS_BYTES


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    with Traces.of_a_test(monkeypatch) as made:
        yield made


def test_nothing_is_added_where_no_provider_is_set(messaging: Messaging) -> None:
    messaging.publisher("t").publish(b"a")
    assert messaging.poll("t")[0].headers == {}


def test_a_message_is_processed_in_the_trace_of_its_publisher(
    traces: Traces, messaging: Messaging
) -> None:
    messaging.create_topic("bills")

    def bill(message: txaware.Message) -> None:
        messaging.publisher("bills").publish(b"bill")

    with traces.tracer.start_as_current_span("request"), messaging.transaction():
        messaging.publisher("t").publish(b"a", key=b"k", headers={"own": b"header"})
    [message] = messaging.poll("t")
    assert message.headers["own"] == b"header"
    assert message.key == b"k"
    assert message.headers["traceparent"].startswith(b"00-")
    assert messaging.subscribe("t", bill, group="g").run_once() == 1

    request, publish, process = map(traces.one, ("request", "publish t", "process t"))
    assert trace_of(request) == trace_of(publish) == trace_of(process)
    assert parent_of(publish) == id_of(request)
    assert parent_of(process) == id_of(publish)
    assert parent_of(traces.one("publish bills")) == id_of(process)
    assert publish.kind is trace.SpanKind.PRODUCER
    assert process.kind is trace.SpanKind.CONSUMER
    assert dict(process.attributes) == {
        "messaging.system": "txaware",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "messaging.consumer.group.name": "g",
    }
    first, _ = traces.named("commit")
    assert parent_of(first) == id_of(request)
    assert links_of(traces.one("poll t")) == {id_of(publish)}


def test_a_batch_links_to_its_messages(traces: Traces, messaging: Messaging) -> None:
    messaging.publisher("t").publish_all([b"a", b"b"])
    messaging.direct_publisher("t").publish(b"c")
    messaging.publish("t", [b"d"])
    messaging.subscribe("t", len, group="g", together=True).run_once()
    sent = {id_of(span) for span in traces.named("publish t")}
    assert len(sent) == 3
    process = traces.one("process t")
    assert links_of(process) == sent
    assert process.attributes["messaging.batch.message_count"] == 4
    assert parent_of(process) is None


def test_jobs_are_processed_in_the_trace_of_their_push(
    traces: Traces, messaging: Messaging
) -> None:
    messaging.create_queue("mail")
    queue = messaging.queue("mail")
    with messaging.transaction():
        queue.push(b"a")
    queue.push(b"b")
    worker = queue.worker(lambda job: None)
    assert worker.run_once() + worker.run_once() == 2
    pushed, processed = traces.named("push mail"), traces.named("process mail")
    assert {*map(id_of, pushed)} == {*map(parent_of, processed)}
    assert {*map(trace_of, pushed)} == {*map(trace_of, processed)}
    linked = [links_of(span) for span in traces.named("pop mail")]
    assert set.union(*linked) == {*map(id_of, pushed)}


def test_what_fails_is_told(traces: Traces, messaging: Messaging) -> None:
    def fail(message: txaware.Message) -> None:
        raise ValueError("no")

    messaging.publisher("t").publish(b"a")
    with pytest.raises(ValueError, match="no"):
        messaging.subscribe("t", fail, group="g").run_once()
    process = traces.one("process t")
    assert process.status.status_code is trace.StatusCode.ERROR
    with pytest.raises(txaware.TransactionConflict):
        conflict(messaging)
    commit = [one for one in traces.named("commit") if not one.status.is_ok]
    assert commit[0].attributes is not None
    assert commit[0].attributes["error.type"] == "TransactionConflict"


def conflict(messaging: Messaging) -> None:
    """Writes a row in a block, and before its end in another thread."""
    table = messaging.table("rows")
    with messaging.transaction(), ThreadPoolExecutor(1) as pool:
        table.put(b"k", b"ours")
        pool.submit(table.put, b"k", b"theirs").result()


def test_the_context_goes_through_an_outbox(
    traces: Traces, site: Site, tmp_path: Path
) -> None:
    messaging = site.messaging
    messaging.create_topic("orders")
    messaging.create_queue("mail")
    connection = sqlite3.connect(tmp_path / "shop.db")
    shop = participants.sqlite(messaging, connection, relay=False)
    with traces.tracer.start_as_current_span("request"), messaging.transaction(shop):
        messaging.publisher("orders").publish(b"a")
        messaging.queue("mail").push(b"b")
    assert shop.relay() == 2
    messaging.subscribe("orders", len_of, group="g").run_once()
    request, relay = traces.one("request"), traces.one("relay")
    publish, push = traces.one("publish orders"), traces.one("push mail")
    assert trace_of(request) == trace_of(publish) == trace_of(push)
    assert parent_of(traces.one("process orders")) == id_of(publish)
    assert links_of(relay) == {id_of(publish), id_of(push)}
    connection.close()


def test_the_outbox_alone_carries_the_context(traces: Traces, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    outbox = txaware.outbox(connection)
    with traces.tracer.start_as_current_span("request"), connection:
        connection.execute("CREATE TABLE orders (id)")
        outbox.publish("orders", b"a")
        outbox.push("mail", b"b")
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("orders")
        messaging.create_queue("mail")
        shop = participants.sqlite(messaging, connection, relay=False)
        assert shop.relay() == 2
        messaging.subscribe("orders", len_of, group="g").run_once()
    connection.close()
    publish = traces.one("publish orders")
    assert trace_of(publish) == trace_of(traces.one("request"))
    assert parent_of(traces.one("process orders")) == id_of(publish)
    assert trace_of(traces.one("push mail")) == trace_of(publish)


def len_of(message: txaware.Message) -> None:
    """Handles a message."""


@pytest.mark.parametrize("concurrency", [1, 4])
def test_asyncio_is_in_the_same_trace_across_a_server(
    traces: Traces, concurrency: int
) -> None:
    async def program(url: str) -> None:
        async with txaware.connect_async(url) as messaging:

            async def handle(message: txaware.Message) -> None:
                await messaging.publisher("bills").publish(b"bill")

            with traces.tracer.start_as_current_span("request"):
                async with messaging.transaction():
                    await messaging.publisher("t").publish(b"a")
                await messaging.publisher("t").publish(b"b")
            loop = messaging.subscribe("t", handle, group="g", concurrency=concurrency)
            assert await loop.run_once() == 2
            await loop.close()
            queue = await messaging.queue("mail")
            await queue.push(b"c")
            job = await queue.pop()
            assert job is not None
            async with job:
                assert job.headers["traceparent"]

    with txaware.connect("memory:") as owner, owner.serve() as server:
        for topic in ("t", "bills"):
            owner.create_topic(topic)
        owner.create_queue("mail")
        asyncio.run(program(server.url))
    request = traces.one("request")
    published, processed = traces.named("publish t"), traces.named("process t")
    assert {*map(parent_of, published)} == {id_of(request)}
    first = [one for one in processed if one.parent is not None]
    assert {*map(parent_of, first)} == {*map(id_of, published)}
    billed = traces.named("publish bills")
    assert {*map(parent_of, billed)} <= {*map(id_of, processed)}
    assert {*map(trace_of, billed)} == {trace_of(request)}
    assert parent_of(traces.named("commit")[0]) == id_of(request)
    assert links_of(traces.one("pop mail")) == {id_of(traces.one("push mail"))}


def test_headers_without_room_for_a_context_stay_as_they_are(
    traces: Traces, messaging: Messaging
) -> None:
    full = {"x": b"-" * (MAX_HEADERS_BYTES - 7)}
    own = {"traceparent": b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"}
    publisher = messaging.publisher("t")
    publisher.publish(b"a", headers=full)
    publisher.publish(b"b", headers=own)
    publisher.publish(b"c", headers={"traceparent": b"\xff odd"})
    assert [one.headers for one in messaging.poll("t")][:2] == [full, own]
    assert messaging.subscribe("t", len_of, group="g").run_once() == 3
    assert trace_of(traces.named("process t")[1]) == int("a" * 32, 16)
    with pytest.raises(txaware.BadRequest, match="dict"):
        publisher.publish(b"d", headers="odd")  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_producer_publishes_in_the_trace_of_its_caller(
    traces: Traces, messaging: Messaging, partitions: int
) -> None:
    messaging.create_topic("many", partitions=partitions)
    producer = messaging.producer()
    with traces.tracer.start_as_current_span("request"):
        producer.publish("many", [b"a", b"b"])
        producer.publish("many", b"c", sequence=None, key=b"k")
    sent = {id_of(span) for span in traces.named("publish many")}
    assert {*map(parent_of, traces.named("publish many"))} == {
        id_of(traces.one("request"))
    }
    named = messaging.partitions("many")
    found = [m for p in range(named) for m in messaging.poll(f"many.{p}")]
    assert len(sent) == 2
    assert {spans_of(one) for one in found} == sent


def spans_of(message: txaware.Message) -> int:
    return int(message.headers["traceparent"].split(b"-")[2], 16)


def test_a_repeated_publish_has_the_context_of_the_first(
    traces: Traces, messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = messaging.producer()
    producer.publish("t", [b"first"])
    publish_once = producer._service.publish_once
    to_lose = [True]

    def answer(*args: Any, **options: Any) -> Any:
        ids = publish_once(*args, **options)
        if to_lose and to_lose.pop():
            raise txaware.Unavailable("the answer was lost")
        return ids

    monkeypatch.setattr(producer._service, "publish_once", answer)
    with pytest.raises(txaware.Unavailable):
        producer.publish("t", [b"a"])
    assert len(producer.publish("t", [b"a"])) == 1
    _, first, _ = traces.named("publish t")
    _, stored = messaging.poll("t")
    assert spans_of(stored) == id_of(first)


def test_a_transactional_producer_is_traced_in_its_transaction(
    traces: Traces, messaging: Messaging
) -> None:
    with messaging.producer("id") as producer:
        producer.begin()
        producer.publish("t", b"a")
        producer.commit()
    [message] = messaging.poll("t")
    assert spans_of(message) == id_of(traces.one("publish t"))


def test_a_sender_links_its_batch_to_the_messages(
    traces: Traces, messaging: Messaging
) -> None:
    with traces.tracer.start_as_current_span("request"), messaging.sender() as sender:
        for number in range(3):
            sender.send("t", b"%d" % number, key=b"k")
    published, batches = traces.named("publish t"), traces.named("send t")
    assert {*map(parent_of, published)} == {id_of(traces.one("request"))}
    assert set.union(*map(links_of, batches)) == {*map(id_of, published)}
    assert batches[0].kind is trace.SpanKind.CLIENT
    assert [*map(spans_of, messaging.poll("t"))] == [*map(id_of, published)]
    assert messaging.subscribe("t", len_of, group="g").run_once() == 3
    assert {*map(parent_of, traces.named("process t"))} == {*map(id_of, published)}


def test_a_batch_that_is_not_sent_is_told_with_its_error(
    traces: Traces, messaging: Messaging
) -> None:
    with messaging.async_publisher("t", give_up_after_s=2) as publisher:
        publisher.publish(b"a").result()
        messaging.delete_topic("t")
        lost = publisher.publish(b"b")
        with pytest.raises(txaware.TopicNotFound):
            lost.result()
    stored, failed = traces.named("send t")[:2]
    assert failed.status.status_code is trace.StatusCode.ERROR
    first, second = traces.named("publish t")
    assert links_of(stored) == {id_of(first)}
    assert links_of(failed) == {id_of(second)}


def test_publishers_in_the_background_are_traced(
    traces: Traces, messaging: Messaging
) -> None:
    with (
        messaging.async_publisher("t") as one,
        messaging.at_most_once_publisher("t") as other,
    ):
        one.publish(b"a", headers={"own": b"header"})
        other.publish(b"b")
    messages = messaging.poll("t")
    assert {*map(spans_of, messages)} == {*map(id_of, traces.named("publish t"))}
    assert b"header" in [one.headers.get("own") for one in messages]


def test_an_awaited_producer_and_sender_are_traced_across_a_server(
    traces: Traces,
) -> None:
    async def program(url: str) -> None:
        async with txaware.connect_async(url) as messaging:
            with traces.tracer.start_as_current_span("request"):
                async with messaging.producer() as producer:
                    await producer.publish("t", [b"a"])
                async with messaging.sender() as sender:
                    await sender.send_and_wait("t", b"b")

    with txaware.connect("memory:") as owner, owner.serve() as server:
        owner.create_topic("t")
        asyncio.run(program(server.url))
        messages = owner.poll("t")
    published = traces.named("publish t")
    assert {*map(parent_of, published)} == {id_of(traces.one("request"))}
    assert [*map(spans_of, messages)] == [*map(id_of, published)]
    assert links_of(traces.one("send t")) == {id_of(published[1])}


def test_metrics_have_the_names_of_the_conventions(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", provider)
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        messaging.publisher("t").publish_all([b"a", b"b"])
        messaging.subscribe("t", len_of, group="g").run_once()
    data: Any = reader.get_metrics_data()
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert [point.value for point in found["messaging.client.sent.messages"]] == [2]
    assert [point.value for point in found["messaging.client.consumed.messages"]] == [2]
    assert found["messaging.client.operation.duration"]
    assert [point.count for point in found["messaging.process.duration"]] == [2]
    for points in found.values():
        for point in points:
            assert "txaware.transaction.id" not in point.attributes
    provider.shutdown()
