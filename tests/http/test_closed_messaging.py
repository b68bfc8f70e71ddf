"""Every call of a closed `Messaging`, and of what it made, says the same."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from txaware import Messaging, connect, connect_async

SAID = r"^this Messaging is closed; make another with connect\(\)$"
# A closed one may be closed again, and its coordinator may be the caller's own.
STILL_THERE = {"close", "coordinator"}


@pytest.fixture(params=["memory", "leveldb", "http", "frames"])
def messaging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messaging]:
    if request.param == "memory":
        yield connect("memory:")
    elif request.param == "leveldb":
        yield connect(f"leveldb:{tmp_path / 'data'}")
    else:
        with connect("memory:") as owner, owner.serve() as server:
            token = owner.reach().token
            yield connect(server.url, token=token, frames=request.param == "frames")


def raises_closed() -> Any:
    return pytest.raises(txaware.Unavailable, match=SAID)


def public_names(kind: type) -> list[str]:
    return [
        name
        for name, _ in inspect.getmembers(kind)
        if not name.startswith("_") and name not in STILL_THERE
    ]


def test_each_call_of_a_closed_one_says_so(messaging: Messaging) -> None:
    messaging.create_topic("t")
    messaging.close()
    messaging.close()
    names = public_names(Messaging)
    assert {"transaction", "queue", "status", "topics", "serve"} <= {*names}
    for name in names:
        with raises_closed():
            getattr(messaging, name)()
    with raises_closed():
        messaging.__enter__()
    assert repr(messaging) == "<Messaging, closed>"


def test_what_it_made_says_so_too(messaging: Messaging) -> None:
    messaging.create_topic("t")
    messaging.create_queue("q")
    table, queue = messaging.table("rows"), messaging.queue("q")
    consumer = messaging.consumer("t", group="g")
    block = messaging.transaction()
    calls: list[Callable[[], object]] = [
        partial(messaging.publisher("t").publish, b"m"),
        partial(messaging.direct_publisher("t").publish, b"m"),
        partial(table.get, b"k"),
        partial(table.put, b"k", b"v"),
        partial(queue.push, b"i"),
        queue.pop,
        consumer.poll,
        block.__enter__,
        partial(messaging.coordinator.start_short),
    ]
    messaging.close()
    for call in calls:
        with raises_closed():
            call()


@pytest.mark.parametrize("frames", [True, False])
def test_one_of_asyncio_says_so(frames: bool) -> None:
    async def use_closed(url: str, token: str | None) -> None:
        messaging = connect_async(url, token=token, frames=frames)
        await messaging.create_topic("t")
        table, publisher = await messaging.table("rows"), messaging.publisher("t")
        await messaging.close()
        await messaging.close()
        for name in public_names(type(messaging)):
            with raises_closed():
                await getattr(messaging, name)()
        for call in (partial(table.get, b"k"), partial(publisher.publish, b"m")):
            with raises_closed():
                await call()

    with connect("memory:") as owner, owner.serve() as server:
        asyncio.run(use_closed(server.url, owner.reach().token))


def test_a_coordinator_of_the_callers_goes_on() -> None:
    mine = EmbeddedCoordinator()
    messaging = connect("memory:", coordinator=mine)
    messaging.close()
    with raises_closed():
        messaging.transaction()
    mine.abort(mine.start_short())
