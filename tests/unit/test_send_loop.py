"""The turns of a sender's loop: what it does of all that is due, and in which order."""

import asyncio

import pytest

from txaware.errors import PublisherClosed, Unavailable
from txaware.model.messages import MessageId
from txaware.publish.send_batch import Sent, SentFuture
from txaware.publish.send_limits import Retries, SendLimits
from txaware.publish.send_loop import SendLoop
from txaware.publish.send_way import OnCounted, OnSent, SendRequest

GIVE_UP_AFTER_S = 60


class Way:
    """A way to a store that notes what it is asked, and answers when it is told to."""

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps
        self.sent: dict[str, OnSent] = {}
        self.counted: dict[str, OnCounted] = {}

    def send(self, request: SendRequest, told: OnSent) -> None:
        self.steps.append(f"send to {request.topic}")
        self.sent[request.topic] = told

    def count(self, topic: str, told: OnCounted) -> None:
        self.steps.append(f"count {topic}")
        self.counted[topic] = told

    async def close(self) -> None:
        pass


class Turns:
    """A loop whose time stands still, and which takes a turn when something happens."""

    def __init__(self) -> None:
        self.now_s, self.steps = 0.0, list[str]()
        self.way = Way(self.steps)
        self.breaks: Exception | None = None
        self.loop = SendLoop(
            SendLimits(batch_limit_messages=1, give_up_after_s=GIVE_UP_AFTER_S),
            Retries(jitter=lambda low, high: high),
            lambda: self.way,
            clock_s=self._clock_s,
            pause=self._pause,
        )

    async def _pause(self, event: asyncio.Event, seconds: float) -> None:
        await event.wait()

    def _clock_s(self) -> float:
        if self.breaks is not None:
            raise self.breaks
        return self.now_s

    def put(self, topic: str) -> SentFuture:
        """Takes a message, which is a whole batch."""

        def on_done(ended: Sent | BaseException) -> None:
            end = "stored in" if isinstance(ended, Sent) else "given up to"
            self.steps.append(f"{end} {topic}")

        with self.loop.lock:
            return self.loop.machine.put(
                topic, b"x", b"k", 1, self.now_s, None, on_done
            )

    async def take(self) -> list[str]:
        """Has the loop take its turns, and returns what it did."""
        for _ in range(10):
            await asyncio.sleep(0)
        steps = [*self.steps]
        self.steps.clear()
        return steps


async def begun(*topics: str) -> tuple[Turns, asyncio.Task[None]]:
    """Returns a loop that has stored a message in each of these topics."""
    turns = Turns()
    running = asyncio.create_task(turns.loop.run())
    for topic in topics:
        turns.put(topic)
    await turns.take()
    for topic in topics:
        turns.way.counted.pop(topic)(1)
    await turns.take()
    for topic in topics:
        turns.way.sent.pop(topic)(MessageId())
    await turns.take()
    return turns, running


async def ended(turns: Turns, running: asyncio.Task[None]) -> None:
    """Lets all that waits expire, and the loop end."""
    turns.now_s += 10 * GIVE_UP_AFTER_S
    turns.loop.close_soon()
    while not running.done():
        while turns.way.sent:
            turns.way.sent.popitem()[1](Unavailable("over"))
        while turns.way.counted:
            turns.way.counted.popitem()[1](Unavailable("over"))
        await asyncio.sleep(0)


def test_a_turn_tells_then_counts_then_tries_again_then_sends_what_is_new() -> None:
    async def work() -> None:
        turns, running = await begun("answered", "late", "again", "new")
        way = turns.way
        turns.put("late")
        turns.now_s = GIVE_UP_AFTER_S - 1
        for topic in ("answered", "again"):
            turns.put(topic)
        await turns.take()
        for topic in ("late", "again"):
            way.sent.pop(topic)(Unavailable("gone"))
        await turns.take()
        # All of it happens between two turns, and what is new came first.
        turns.now_s = GIVE_UP_AFTER_S + 1
        turns.put("new")
        turns.put("unknown")
        way.sent.pop("answered")(MessageId())
        assert await turns.take() == [
            "stored in answered",
            "given up to late",
            "count unknown",
            "count new",  # it was counted a minute ago
            "send to again",
            "send to new",
        ]
        await ended(turns, running)

    asyncio.run(work())


def test_a_loop_that_breaks_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        turns, running = await begun("t")
        machine = turns.loop.machine
        futures = [turns.put("t"), turns.put("t"), turns.put("unknown")]
        await turns.take()
        with turns.loop.lock:
            flush = machine.flush()
        waits = asyncio.create_task(turns.loop.changed())
        turns.breaks = ZeroDivisionError("broken")
        turns.put("t")
        with pytest.raises(ZeroDivisionError):
            await running
        await waits
        for future in futures:
            with pytest.raises(Unavailable, match="sends no more"):
                future.result(0)
        assert turns.steps == ["given up to t"] * 3 + ["given up to unknown"]
        assert machine.is_flushed(flush)
        assert (machine.waiting, machine.held_bytes) == (0, 0)
        with pytest.raises(PublisherClosed):
            machine.require_open()
        # What was under way is answered now, which changes nothing any more.
        turns.way.sent.pop("t")(MessageId())
        turns.way.counted.pop("unknown")(1)
        assert machine.counts["messages"] == 1
        turns.loop.close_soon()

    asyncio.run(work())
    assert "4 messages were lost by their sender" in caplog.text
