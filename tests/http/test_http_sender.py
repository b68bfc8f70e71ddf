"""The sender by way of a server: lost and doubled requests, kills, pauses, asyncio."""

import asyncio
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.http_raw import resident_bytes
from tests.support.http_served import ServedStore, served
from tests.support.killed_server import Server
from tests.support.lossy_proxy import LossyProxy
from txaware import SentFuture, connect, connect_async, to_json
from txaware.client import ClientSettings, Link, ServerInfo
from txaware.client import server_info as server_info_module
from txaware.client.aio.remote_way import RemoteWay
from txaware.client.calls.call import reading
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    PublisherClosed,
    QueueFull,
    SequenceAhead,
    TopicNotFound,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.messages import Message
from txaware.model.partitions import partition_of
from txaware.model.producers import ProducerIdentity
from txaware.publish.sender import Sender, SenderOptions

PATIENCE_S = 60
# What a sender may take beside its queue.
MORE_BYTES = 32 << 20
KEYS = [b"ann", b"bob", b"cid", None]


def messages(messaging: Messaging, topic: str) -> list[Message]:
    found: list[Message] = []
    page = messaging.poll(topic, limit=10_000)
    while page:
        found += page
        page = messaging.poll(topic, limit=10_000, start=page.next, inclusive=False)
    return found


def payloads(messaging: Messaging, topic: str) -> list[bytes]:
    return [one.payload for one in messages(messaging, topic)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def check_sent(messaging: Messaging, sent: dict[str, list[SentFuture]]) -> None:
    """Each message is there once, under its id, in the order it was sent in."""
    for topic, futures in sent.items():
        found = messages(messaging, topic)
        assert [one.payload for one in found] == numbers(len(futures))
        assert [one.id for one in found] == [one.result(0).id for one in futures]


@pytest.mark.parametrize("frames", [True, False])
def test_what_is_lost_doubled_and_swapped_is_stored_once_and_in_order(
    store: ServedStore, frames: bool
) -> None:
    store.messaging.create_topic("u")
    sent: dict[str, list[SentFuture]] = {"t": [], "u": []}
    with (
        LossyProxy(
            store.url, seed=3, one_in=10, double_one_in=4, delay_one_in=9, swap_one_in=3
        ) as proxy,
        connect(proxy.url, frames=frames) as client,
        client.sender(linger_ms=0, batch_limit_bytes=700) as s,
    ):
        for number in range(600):
            for name, futures in sent.items():
                key = KEYS[number % len(KEYS)]
                futures.append(s.send(name, b"%d" % number, key=key))
            if number % 20 == 0:
                assert s.flush(PATIENCE_S)
        assert s.flush(PATIENCE_S)
        assert proxy.lost
        assert proxy.doubled
        assert proxy.swapped or not frames
    check_sent(store.messaging, sent)


def test_each_partition_has_its_keys_in_order(store: ServedStore) -> None:
    store.messaging.create_topic("p", partitions=5)
    keys = [b"%d" % number for number in range(20)] + [None]
    with (
        LossyProxy(store.url, seed=5, one_in=20) as proxy,
        connect(proxy.url) as client,
        client.sender(batch_limit_bytes=2000) as s,
    ):
        futures = [
            s.send("p", b"%d" % number, key=keys[number % len(keys)])
            for number in range(2000)
        ]
        named = s.send("p.4", b"2000", key=b"0")
    sent = [future.result(0) for future in futures]
    assert named.result(0).partition == 4
    found = {number: messages(store.messaging, f"p.{number}") for number in range(5)}
    every = [one.payload for page in found.values() for one in page]
    assert sorted(map(int, every)) == [*range(2001)]
    for place, one in zip(sent, range(2000), strict=True):
        key = keys[one % len(keys)]
        assert key is None or place.partition == partition_of(key, 5)
    for number, page in found.items():
        assert page
        for key in keys[:-1]:
            mine = [int(one.payload) for one in page if one.key == key]
            assert mine == sorted(mine)
        at = {one.id: int(one.payload) for one in page}
        here = [place for place in sent if place.partition == number]
        assert {at[place.id] for place in here} | {2000} == {*at.values()} | {2000}


def test_partitions_that_are_added_get_their_keys(store: ServedStore) -> None:
    with connect(store.url) as client, client.sender() as s:
        first = s.send("t", b"0", key=b"ann").result(PATIENCE_S)
        store.messaging.update_topic("t", partitions=3)
        again = [s.send("t", b"%d" % number, key=b"ann") for number in range(1, 20)]
        assert first.partition == 0
        assert {one.result(PATIENCE_S).partition for one in again} == {0}
    assert payloads(store.messaging, "t.0") == numbers(20)


def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        with connect(server.url) as client:
            client.create_topic("sent")
            draw, over = random.Random(1), threading.Event()
            futures: list[SentFuture] = []
            with client.sender(batch_limit_bytes=5000, queue_limit_bytes=100_000) as s:

                def send() -> None:
                    while not over.is_set():
                        futures.append(s.send("sent", b"%d" % len(futures)))

                sending = threading.Thread(target=send)
                sending.start()
                for _ in range(3):
                    time.sleep(draw.uniform(0.05, 0.4))
                    server.kill()
                    server.start()
                over.set()
                sending.join()
                assert s.flush(PATIENCE_S)
            check_sent(client, {"sent": futures})
    finally:
        server.kill()


def test_a_paused_server_holds_up_nobody_and_fills_no_memory(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        with connect(server.url) as client:
            client.create_topic("sent")
            with client.sender(
                queue_limit_bytes=100_000, when_full="raise", give_up_after_s=PATIENCE_S
            ) as s:
                s.send("sent", b"0").result(PATIENCE_S)
                paused = threading.Thread(target=server.stop_for, args=(0.5,))
                paused.start()
                taken = 1
                while paused.is_alive() and taken < 3000:
                    try:
                        s.send("sent", b"%d" % taken)
                        taken += 1
                    except QueueFull:
                        assert s.metrics().waiting_bytes <= 100_000
                        paused.join()
                assert s.flush(PATIENCE_S)
                assert s.metrics().given_up_messages == 0
            assert payloads(client, "sent") == numbers(taken)
    finally:
        server.kill()


def test_what_waits_for_a_paused_server_takes_little_more_than_the_queue(
    tmp_path: Path,
) -> None:
    """However many messages: their futures and batches are small beside them."""
    queue_bytes, payload = 8 << 20, b"x" * 100
    server = Server(tmp_path / "data")
    try:
        with connect(server.url) as client:
            client.create_topic("orders", partitions=12)
            with client.sender(
                queue_limit_bytes=queue_bytes, when_full="raise", give_up_after_s=600
            ) as s:
                s.send("orders", b"first", key=b"k").result(PATIENCE_S)
                before, taken = resident_bytes(), 1
                with server.paused():
                    while s.metrics().dropped_messages == 0:
                        with suppress(QueueFull):
                            s.send("orders", payload, key=b"%d" % taken)
                            taken += 1
                    grown_bytes = resident_bytes() - before
                assert taken > 10_000
                assert s.metrics().waiting_bytes <= queue_bytes
                assert grown_bytes < queue_bytes + MORE_BYTES
                assert s.flush(PATIENCE_S)
                assert s.metrics().sent_messages == taken
    finally:
        server.kill()


@pytest.mark.parametrize("frames", [True, False])
def test_a_batch_whose_answer_is_swallowed_is_sent_again(
    store: ServedStore, frames: bool
) -> None:
    settings = ClientSettings(frames=frames, answer_timeout_s=0.5)
    with LossyProxy(store.url, seed=1, one_in=0) as proxy:
        link = Link(proxy.url, settings=settings)
        options = SenderOptions(linger_ms=0)
        s = Sender[bytes](
            lambda: RemoteWay.by(link), options, message_limit_bytes=1_000
        )
        s.send("t", b"a").result(PATIENCE_S)
        proxy.silence()
        futures = [s.send("t", payload) for payload in (b"b", b"c")]
        assert all(one.result(PATIENCE_S) for one in futures)
        assert proxy.swallowed
        s.close()
    assert payloads(store.messaging, "t") == [b"a", b"b", b"c"]


def test_what_a_server_never_answers_is_unavailable_in_time() -> None:
    with served() as store:
        store.messaging.create_topic("t")
        client = connect(store.url)
        s = client.sender(give_up_after_s=0.3)
        s.send("t", b"a").result(PATIENCE_S)
        store.server.close()
        assert isinstance(s.send("t", b"b").exception(PATIENCE_S), Unavailable)
        client.close()


def test_requests_of_a_sender_wait_for_those_before_them(store: ServedStore) -> None:
    with connect(store.url) as client:
        once: Any = client._parts.producers.publish_once
        sender = ProducerIdentity(7, by_client=True, is_sender=True)
        first = once("t", [b"a", b"b"], producer=sender, sequence=0)
        with pytest.raises(SequenceAhead):
            once("t", [b"d"], producer=sender, sequence=3)
        once("t", [b"c"], producer=sender, sequence=2)
        once("t", [b"d"], producer=sender, sequence=3)
        assert once("t", [b"a", b"b"], producer=sender, sequence=0) == first
    found = store.messaging.poll("t")
    assert [one.payload for one in found] == [b"a", b"b", b"c", b"d"]
    assert first == [found[0].id]


async def send_and_wait(store: ServedStore) -> None:
    async with connect_async(store.url) as client:
        async with client.sender() as s:
            futures = [await s.send("t", b"%d" % n) for n in range(100)]
            sent = await asyncio.gather(*futures)
            assert await s.flush()
            assert s.waiting == 0
            last = await s.send_and_wait("t", b"100", key=b"ann", headers={"a": b"b"})
            assert s.metrics().sent_messages == 101
        with pytest.raises(PublisherClosed):
            await s.send("t", b"more")
    found = store.messaging.poll("t", limit=1000)
    assert [one.payload for one in found] == numbers(101)
    assert [one.id for one in found] == [*(one.id for one in sent), last.id]


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_asyncio_sends_and_waits(store: ServedStore) -> None:
    run(send_and_wait(store))


def test_a_sender_that_two_tasks_open_is_one(store: ServedStore) -> None:
    async def work() -> None:
        async with connect_async(store.url) as client:
            before, sender = asyncio.all_tasks(), client.sender()
            await asyncio.gather(sender.open(), sender.open())
            await sender.send("t", b"a")
            await sender.close()
            assert asyncio.all_tasks() == before, "a loop goes on that nobody closes"

    run(work())
    assert payloads(store.messaging, "t") == [b"a"]


def test_asyncio_waits_for_room(store: ServedStore) -> None:
    async def work() -> None:
        async with (
            connect_async(store.url) as client,
            client.sender(queue_limit_bytes=2000) as s,
        ):
            for number in range(300):
                await s.send("t", b"%d" % number)
                assert s.metrics().waiting_bytes <= 2000

    run(work())
    assert payloads(store.messaging, "t") == numbers(300)


def test_asyncio_takes_nothing_of_a_send_that_is_cancelled_while_it_waits(
    store: ServedStore,
) -> None:
    async def work() -> None:
        async with (
            connect_async(store.url) as client,
            client.sender(queue_limit_bytes=200) as s,
        ):
            held = await s.send("later", b"x" * 100)
            waits = [asyncio.create_task(s.send("t", b"y" * 100)) for _ in range(2)]
            await asyncio.sleep(0)
            machine = s._sending[0].machine
            assert len(machine._blocked) == 2
            waits[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits[0]
            assert (s.waiting, len(machine._blocked)) == (1, 1)
            await client.create_topic("later")
            assert (await held).topic == "later"
            assert (await (await waits[1])).topic == "t"
            assert not machine._blocked, "batches would never linger again"

    run(work())
    assert payloads(store.messaging, "t") == [b"y" * 100]


def test_asyncio_drops_or_raises_where_it_is_full(store: ServedStore) -> None:
    async def work() -> None:
        async with connect_async(store.url) as client:
            options: Any = {"queue_limit_bytes": 200, "linger_ms": 60_000}
            async with client.sender(when_full="raise", **options) as s:
                await s.send("t", b"x" * 100)
                with pytest.raises(QueueFull, match=r"1 messages wait, .* more to t"):
                    await s.send("t", b"x" * 100)
            async with client.sender(when_full="drop_oldest", **options) as s:
                await s.flush()
                first = await s.send("t", b"y" * 100)
                await s.send("t", b"z" * 100)
                with pytest.raises(QueueFull):
                    await first

    run(work())
    assert payloads(store.messaging, "t") == [b"x" * 100, b"z" * 100]


def test_asyncio_closes_with_its_messaging_and_loses_nothing(
    store: ServedStore,
) -> None:
    async def work() -> None:
        async with connect_async(store.url) as client:
            s = await client.sender(linger_ms=60_000).open()
            future = await s.send("t", b"0")
        assert future.done()
        with pytest.raises(PublisherClosed):
            await s.send("t", b"more")

    run(work())
    assert payloads(store.messaging, "t") == [b"0"]


def test_asyncio_tells_what_is_wrong(store: ServedStore) -> None:
    async def work() -> None:
        async with connect_async(store.url) as client:
            with pytest.raises(BadRequest):
                client.sender(in_flight=9)
            sender = client.sender(give_up_after_s=0.2)
            with pytest.raises(MisusedTransaction, match="not open"):
                await sender.send("t", b"a")
            async with sender as s:
                with pytest.raises(BadRequest):
                    await s.send("t", "text")  # type: ignore[arg-type]
                with pytest.raises(BadRequest, match="on_done = 3"):
                    await s.send("t", b"a", on_done=3)  # type: ignore[arg-type]
                future = await s.send("none", b"a")
                assert not await s.flush(0.01)
                with pytest.raises(BadRequest, match="timeout_s is"):
                    await s.flush("x")  # type: ignore[arg-type]
                with pytest.raises(MisusedTransaction, match="wait for itself"):
                    future.result()
                with pytest.raises(TopicNotFound):
                    await future

    run(work())


def test_asyncio_sends_values_and_raises_what_their_encode_raises(
    store: ServedStore,
) -> None:
    async def work() -> None:
        async with (
            connect_async(store.url) as client,
            client.sender(encode=to_json) as s,
        ):
            await s.send("t", {"order": 5})
            with pytest.raises(BadRequest, match="is no JSON"):
                await s.send("t", {"order": object()})
            assert s.waiting == 1
            await s.send_and_wait("t", [1])

    run(work())
    assert payloads(store.messaging, "t") == [b'{"order": 5}', b"[1]"]


def test_an_event_loop_that_ends_says_how_many_were_lost(
    store: ServedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        client = connect_async(store.url)
        s = await client.sender().open()
        kept.append(await s.send("none", b"a"))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.close()

    kept: list[SentFuture] = []
    run(work())
    assert "1 messages were lost" in caplog.text
    assert isinstance(kept[0].exception(0), Unavailable)


def test_a_server_of_a_version_before_is_sent_to_as_before(
    store: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse: Any = ServerInfo.parse.__func__  # type: ignore[attr-defined]

    def before(cls: type[ServerInfo], body: bytes) -> ServerInfo:
        info: ServerInfo = attrs.evolve(parse(cls, body), takes_senders=False)
        return info

    monkeypatch.setattr(ServerInfo, "parse", classmethod(before))
    monkeypatch.setattr(server_info_module, "_read", reading(ServerInfo.parse))
    with connect(store.url) as client:
        with pytest.raises(BadRequest, match="version before senders"):
            client.sender()
        with client.async_publisher("t", linger_ms=0) as publisher:
            for number in range(20):
                publisher.publish(b"%d" % number)
    assert payloads(store.messaging, "t") == numbers(20)
