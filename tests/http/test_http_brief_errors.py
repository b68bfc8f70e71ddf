"""An error of a server shows the line of the program, and few frames of ours."""

import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import coordinator
import txaware
from tests.support.concurrency import in_loop
from tests.support.http_served import ServedStore, served
from txaware.client import HttpService, Link, Transport
from txaware.errors import TxAwareError, Unavailable
from txaware.messaging import Messaging

OURS = tuple(module.__path__[0] for module in (txaware, coordinator))
MOST = 3


@pytest.fixture(scope="module")
def store() -> Iterator[ServedStore]:
    with served() as opened:
        opened.messaging.create_topic("t")
        opened.messaging.create_queue("q")
        yield opened


@pytest.fixture
def client(store: ServedStore) -> Iterator[Messaging]:
    with txaware.connect(store.url) as opened:
        yield opened


def frames(error: BaseException) -> list[str]:
    return [
        frame.name
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(OURS)
    ]


def check(error: TxAwareError) -> None:
    shown: BaseException | None = error
    while shown is not None:
        assert len(frames(shown)) <= MOST, frames(shown)
        shown = shown.__cause__ or shown.__context__


def within(messaging: Messaging, call: Callable[[], object]) -> None:
    with messaging.transaction():
        call()


def ended(messaging: Messaging, call: Callable[[], object]) -> None:
    """A block whose transaction somebody else ends."""
    with messaging.transaction() as tx:
        call()
        messaging.coordinator.invalidate(tx.transaction.transaction_id)


def publish(messaging: Messaging, topic: str) -> None:
    messaging.publisher(topic, encode=txaware.to_json).publish(1)


CALLS: dict[str, Callable[[Messaging], object]] = {
    "topic": lambda m: m.topic("x"),
    "create topic": lambda m: m.create_topic("t"),
    "create queue": lambda m: m.create_queue("q"),
    "poll": lambda m: m.poll("x"),
    "publish": lambda m: m.publish("x", [b"a"]),
    "publisher": lambda m: publish(m, "x"),
    "publisher in a block": lambda m: within(m, lambda: publish(m, "x")),
    "consumer": lambda m: m.consumer("x", decode=int).poll(),
    "consumer start": lambda m: m.consumer("x", start="next"),
    "group": lambda m: m.consumer("x", group="g").poll(),
    "group in a block": lambda m: within(m, m.consumer("x", group="g").poll),
    "push": lambda m: m.queue("x").push(b"a"),
    "push in a block": lambda m: within(m, lambda: m.queue("x").push(b"a")),
    "pop": lambda m: m.queue("x").pop(),
    "pop in a block": lambda m: within(m, m.queue("x").pop),
    "producer": lambda m: m.producer().publish("x", b"a"),
    "transactional producer": lambda m: m.producer("p").publish("x", b"a"),
    "dead letters": lambda m: m.subscribe("t", print, dead_letter_topic="x"),
    "loop": lambda m: m.subscribe("x", print).run_once(),
    "commit": lambda m: ended(m, lambda: None),
    "commit of rows": lambda m: ended(m, lambda: m.table("n").put(b"a", b"b")),
    "commit of messages": lambda m: ended(m, lambda: publish(m, "t")),
    "prepared": lambda m: m.commit_prepared("x"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_error_of_a_server_is_shown_briefly(client: Messaging, call: str) -> None:
    with pytest.raises(TxAwareError) as raised:
        CALLS[call](client)
    check(raised.value)


async def within_async(
    messaging: txaware.AsyncMessaging, call: Callable[[], Awaitable[object]]
) -> None:
    async with messaging.transaction():
        await call()


async def polled(messaging: txaware.AsyncMessaging) -> object:
    return await (await messaging.consumer("x", group="g")).poll()


async def popped(messaging: txaware.AsyncMessaging) -> object:
    return await (await messaging.queue("x")).pop()


async def pushed(messaging: txaware.AsyncMessaging) -> None:
    await (await messaging.queue("x")).push(b"a")


async def produced(messaging: txaware.AsyncMessaging, *name: Any) -> None:
    async with messaging.producer(*name) as producer:
        await producer.publish("x", b"a")


AWAITED: dict[str, Callable[[txaware.AsyncMessaging], Awaitable[object]]] = {
    "topic": lambda m: m.topic("x"),
    "create queue": lambda m: m.create_queue("q"),
    "publisher": lambda m: m.publisher("x").publish(b"a"),
    "publisher in a block": lambda m: within_async(
        m, lambda: m.publisher("x").publish(b"a")
    ),
    "consumer start": lambda m: m.consumer("x", start="next"),
    "group": polled,
    "group in a block": lambda m: within_async(m, lambda: polled(m)),
    "push": pushed,
    "pop": popped,
    "pop in a block": lambda m: within_async(m, lambda: popped(m)),
    "producer": produced,
    "transactional producer": lambda m: produced(m, "p"),
}


@pytest.mark.parametrize("call", AWAITED)
@in_loop
async def test_an_awaited_error_of_a_server_is_shown_briefly(
    store: ServedStore, call: str
) -> None:
    async with txaware.connect_async(store.url) as messaging:
        with pytest.raises(TxAwareError) as raised:
            await AWAITED[call](messaging)
        check(raised.value)


def test_a_server_that_is_away_is_shown_briefly() -> None:
    settings = txaware.ClientSettings(retry_for_s=0)
    with (
        closing(Transport(Link("http://127.0.0.1:1", settings=settings))) as away,
        pytest.raises(Unavailable) as raised,
    ):
        HttpService(away).topic("t")
    check(raised.value)


def test_an_error_that_is_raised_here_keeps_its_frames(client: Messaging) -> None:
    with pytest.raises(TxAwareError) as raised:
        client.table("n").put(b"k", 5)  # type: ignore[arg-type]
    assert "checked_value" in frames(raised.value)
