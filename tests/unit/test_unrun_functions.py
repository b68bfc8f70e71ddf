"""A function of which nothing would run is refused: what it is for would be lost."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import txaware
from coordinator.callbacks import check_answer
from txaware import BadRequest, Messaging, connect_async, retry_on_conflict


def with_a_yield(*_: object) -> Iterator[int]:
    yield 1


async def with_a_yield_in_asyncio(*_: object) -> Any:
    yield 1


class Called:
    def __call__(self, *_: object) -> Iterator[int]:
        yield 1


GENERATORS: list[Any] = [
    with_a_yield,
    partial(with_a_yield, 1),
    Called(),
    with_a_yield_in_asyncio,
]
TAKERS: dict[str, Callable[[Messaging, Any], object]] = {
    "subscribe": lambda m, f: m.subscribe("t", f, group="g"),
    "after_commit": lambda m, f: m.subscribe("t", print, group="g", after_commit=f),
    "process": lambda m, f: m.process("t", "u", f, group="g", producer="p"),
    "worker": lambda m, f: m.queue("q").worker(f),
    "member": lambda m, f: m.member("g", topics=["t"], on_assigned=f),
    "table": lambda m, f: m.table("rows", decode=f),
    "retry_on_conflict": lambda _, f: retry_on_conflict(f),
}


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as opened:
        opened.create_topic("t")
        opened.create_topic("u")
        opened.create_queue("q")
        opened.publish("t", [b"a"])
        opened.queue("q").push(b"a")
        yield opened


@pytest.mark.parametrize("function", GENERATORS, ids=lambda f: repr(f)[:28])
@pytest.mark.parametrize("taker", TAKERS)
def test_a_generator_function_is_refused(
    messaging: Messaging, taker: str, function: Any
) -> None:
    with pytest.raises(BadRequest, match="generator function, and nothing of it runs"):
        TAKERS[taker](messaging, function)


def test_on_commit_takes_none(messaging: Messaging) -> None:
    with messaging.transaction() as tx, pytest.raises(BadRequest, match="generator"):
        tx.on_commit(with_a_yield)


async def awaits() -> None: ...


@pytest.mark.parametrize("unrun", [with_a_yield, with_a_yield_in_asyncio, awaits])
def test_what_a_handler_answers_unrun_leaves_its_message_and_its_job(
    messaging: Messaging, unrun: Any
) -> None:
    def handle(*_: object) -> object:
        return unrun()

    with pytest.raises(BadRequest, match=r"of which nothing has run|nobody awaits"):
        messaging.subscribe("t", handle, group="g").run_once()
    assert messaging.position("g", "t") is None
    queue = messaging.queue("q")
    for in_block in (False, True):
        queue.worker(handle, transaction=in_block, first_pause_s=1e-6).run_once()
    assert (queue.stats().committed, queue.stats().depth) == (0, 1)


def test_nor_is_anything_lost_in_asyncio(messaging: Messaging) -> None:
    async def handle(_: object) -> object:
        return with_a_yield()

    async def subscribe(url: str, token: str | None) -> None:
        async with connect_async(url, token=token) as client:
            for concurrency in (1, 2):
                loop = client.subscribe("t", handle, group="g", concurrency=concurrency)
                with pytest.raises(BadRequest, match="of which nothing has run"):
                    await loop.run_once()

    with messaging.serve() as server:
        asyncio.run(subscribe(server.url, messaging.reach().token))
    assert messaging.position("g", "t") is None


def test_any_other_answer_is_nothing_to_look_at() -> None:
    for answer in (None, 1, [], iter([]), object()):
        check_answer(answer)
