"""Outcomes that are brought to an event loop, also to one that closes meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import PATIENCE_S, until
from tests.support.messagings import commit, payloads
from txaware.errors import Unavailable
from txaware.model.settings import Settings
from txaware.server.server_context import Outcomes


class Closing:
    """A loop that is closed between the question whether it is, and the call."""

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, _: Callable[[], object]) -> None:
        raise RuntimeError("Event loop is closed")


def settling(future: asyncio.Future[None]) -> Callable[[Unavailable | None], None]:
    """Settles a future that is not settled yet."""

    def settle(error: Unavailable | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return settle


def test_what_is_settled_in_other_threads_is_delivered_in_the_loop() -> None:
    async def settled() -> list[object]:
        loop = asyncio.get_running_loop()
        outcomes = Outcomes(loop)
        futures: list[asyncio.Future[None]] = [loop.create_future() for _ in range(3)]
        futures[1].cancel()
        error = Unavailable("the disk is full")

        def settle() -> None:
            for future, outcome in zip(futures, (None, error, error), strict=True):
                outcomes.post(settling(future), outcome)

        await asyncio.to_thread(settle)
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*futures, return_exceptions=True)

    first, second, third = asyncio.run(settled())
    assert first is None
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, Unavailable)


def test_what_is_made_of_outcomes_goes_at_their_end_without_another_turn() -> None:
    async def told() -> list[str]:
        loop, seen, failed = asyncio.get_running_loop(), list[str](), list[str]()
        outcomes, is_over = Outcomes(loop), asyncio.Event()
        loop.set_exception_handler(lambda _, what: failed.append(what["message"]))

        def first(_: Unavailable | None) -> None:
            loop.call_soon(seen.append, "the next turn")
            assert outcomes.at_end(lambda: seen.append("the end"))
            seen.append("first")

        def fails(_: Unavailable | None) -> None:
            assert outcomes.at_end(lambda: 1 / 0)
            raise ValueError

        def last(_: Unavailable | None) -> None:
            seen.append("last")
            assert outcomes.at_end(is_over.set)

        assert not outcomes.at_end(lambda: seen.append("never"))
        outcomes.post(first, None)
        outcomes.post(lambda _: seen.append("second"), None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen == ["first", "second", "the end", "the next turn"]
        for then in (fails, first, last):
            outcomes.post(then, None)
        async with asyncio.timeout(PATIENCE_S):
            await is_over.wait()
        assert not outcomes.at_end(lambda: seen.append("never"))
        assert len(failed) == 2
        return seen[4:]

    assert [said for said in asyncio.run(told()) if "turn" not in said] == [
        "first",
        "last",
        "the end",
    ]


@pytest.fixture
def closing() -> Any:
    return Closing()


def test_a_loop_that_closes_harms_nobody_who_shares_the_batch(
    tmp_path: Path, closing: Any
) -> None:
    outcomes, loop = Outcomes(closing), asyncio.new_event_loop()
    quiet = Settings(janitor_interval_s=0)
    with txaware.connect(f"leveldb:{tmp_path}/data", settings=quiet) as messaging:
        messaging.create_topic("t")
        tx = messaging.coordinator.start_short()
        served: Any = messaging._parts.served
        service: Any = served.service
        journal = service._publishing._messages._table.journal
        abandoned = loop.create_future()
        errors: list[BaseException] = []

        def noting(act: Callable[[], object]) -> threading.Thread:
            def noted() -> None:
                try:
                    act()
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=noted, daemon=True)
            thread.start()
            return thread

        def came(count: int) -> bool:
            return until(lambda: len(journal._forming._ends) == count)

        with journal._writing:  # a batch is being written; the next one forms
            service.publish_soon(
                service.place("t"),
                [b"abandoned"],
                lambda error: outcomes.post(settling(abandoned), error),
            )
            assert came(1)
            threads = [noting(lambda: messaging.publish("t", [b"beside it"]))]
            assert came(2)
            threads.append(noting(lambda: commit(messaging, tx)))
            assert came(3)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert not errors
        assert tx.transaction_id not in messaging.coordinator.snapshot().in_progress
        assert payloads(messaging.poll("t")) == [b"abandoned", b"beside it"]
    loop.close()
