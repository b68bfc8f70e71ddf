"""Figures g to k over HTTP: our client in frames, and by HTTP/1.1 beside it."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from txaware.bench.commits import RECEIVED, polled, received_s, transaction_of_one
from txaware.bench.http_waiting import CLIENT_RESTS_S
from txaware.bench.measure import Figure, in_turns, p50_s, per_second_of_threads
from txaware.bench.reading import PAGE
from txaware.bench.server import serving
from txaware.bench.trial import PAYLOAD, Measured, Trial, payloads
from txaware.messaging import Messaging, connect

THREADS, TASKS, CALLS = 8, 16, 500
CALLED_S, PUBLISHED, POLLED, HAS_COME_S = 0.5, 1.5, 1.0, 0.7


@contextmanager
def _both(trial: Trial, name: str) -> Iterator[tuple[str, Messaging, Messaging]]:
    """Yields a server's address, and clients of it in frames and by HTTP."""
    with (
        serving(trial.directory / name, trial.settings) as server,
        connect(server.url) as frames,
        connect(server.url, frames=False) as http,
    ):
        frames.create_topic("t")
        yield server.url, frames, http


def empty_call(trial: Trial) -> list[Figure]:
    """Figure g."""
    # The command line names this figure, and begins without a client.
    from txaware.client import ClientSettings, Link, Transport
    from txaware.client.calls.call import Call, done

    count = trial.count(1000 * CALLS) // 1000
    empty = Call("POST", "/ping", done)

    def called_s(*, frames: bool) -> float:
        link = Link(server.url, settings=ClientSettings(frames=frames))
        with closing(Transport(link)) as transport:
            transport.perform(empty)
            return p50_s(lambda: transport.perform(empty), count=count)

    with serving(trial.directory / "frames-empty", trial.settings) as server:
        found = in_turns(
            trial.rounds,
            ours=lambda: called_s(frames=True),
            http=lambda: called_s(frames=False),
        )
    return [
        Figure(
            "g) one empty call under way in frames, p50",
            "s",
            found["ours"],
            found["http"],
            "by HTTP",
            at_most=CALLED_S,
            aim=0.3,
        )
    ]


def transactions(trial: Trial) -> list[Figure]:
    """Figure h."""

    def committed(messaging: Messaging) -> float:
        def work(_: int) -> Callable[[], object]:
            return lambda: _publish_in_transaction(messaging)

        return per_second_of_threads(THREADS, work, for_s=trial.for_s)

    with _both(trial, "frames-transactions") as (_, frames, http):
        found = in_turns(
            trial.rounds, ours=lambda: committed(frames), http=lambda: committed(http)
        )
    return [
        Figure(
            f"h) begin, publish one and commit in frames, {THREADS} threads",
            "transactions/s",
            found["ours"],
            found["http"],
            "by HTTP",
        )
    ]


def _publish_in_transaction(messaging: Messaging) -> None:
    with messaging.transaction():
        messaging.publisher("t").publish(PAYLOAD)


def plain_publishes(trial: Trial) -> list[Figure]:
    """Figure i."""

    def published(*, frames: bool) -> float:
        return asyncio.run(_published(url, trial.for_s, frames=frames))

    with _both(trial, "frames-publishes") as (url, _, _):
        found = in_turns(
            trial.rounds,
            ours=lambda: published(frames=True),
            http=lambda: published(frames=False),
        )
    return [
        Figure(
            f"i) publish of one in frames, {TASKS} tasks",
            "publishes/s",
            found["ours"],
            found["http"],
            "by HTTP",
            at_least=PUBLISHED,
            aim=3,
        )
    ]


async def _published(url: str, for_s: float, *, frames: bool) -> float:
    from txaware.client.aio.async_messaging import connect_async  # as above

    async with connect_async(url, frames=frames) as messaging:
        await messaging.publish("t", [PAYLOAD])
        began_s, count = time.perf_counter(), 0

        async def publish() -> None:
            nonlocal count
            while not count or time.perf_counter() < began_s + for_s:
                await messaging.publish("t", [PAYLOAD])
                count += 1

        await asyncio.gather(*(publish() for _ in range(TASKS)))
        return count / (time.perf_counter() - began_s)


def polls(trial: Trial) -> list[Figure]:
    """Figure j."""

    def polled(messaging: Messaging) -> float:
        def work(_: int) -> Callable[[], object]:
            return lambda: messaging.poll("t", limit=PAGE)

        return PAGE * per_second_of_threads(1, work, for_s=trial.for_s)

    with _both(trial, "frames-polls") as (_, frames, http):
        frames.publish("t", payloads(PAGE))
        found = in_turns(
            trial.rounds, ours=lambda: polled(frames), http=lambda: polled(http)
        )
    return [
        Figure(
            f"j) poll of {PAGE:,} in frames, one thread",
            "messages/s",
            found["ours"],
            found["http"],
            "by HTTP",
            at_least=POLLED,
            aim=1.3,
        )
    ]


def received(trial: Trial) -> list[Figure]:
    """Figure k."""
    times = trial.count(1000 * RECEIVED) // 1000

    def took_s(messaging: Messaging) -> float:
        write, read = transaction_of_one(messaging), polled(messaging)
        return statistics.median(received_s(write, read, times, rests_s=CLIENT_RESTS_S))

    with _both(trial, "frames-received") as (_, frames, http):
        found = in_turns(
            trial.rounds, ours=lambda: took_s(frames), http=lambda: took_s(http)
        )
    return [
        Figure(
            "k) begin to received by a waiting consumer in frames, p50",
            "s",
            found["ours"],
            found["http"],
            "by HTTP",
            at_most=HAS_COME_S,
            aim=0.4,
        )
    ]


FRAMES = [
    Measured(
        "g",
        "An empty call (/ping) of one thread in frames, against the same by HTTP. At "
        "most 0.5 of its time; 0.3 is aimed at.",
        empty_call,
    ),
    Measured(
        "h",
        "A transaction that publishes one message, by 8 threads of one process, in "
        "frames and by HTTP.",
        transactions,
    ),
    Measured(
        "i",
        "A publish of one message by 16 tasks of one event loop, in frames and by "
        "HTTP. Floor 1.5; 3 is aimed at.",
        plain_publishes,
    ),
    Measured(
        "j",
        "Polls of 1,000 messages of 100 bytes by one thread, in frames and by HTTP. "
        "Floor 1.0; 1.3 is aimed at.",
        polls,
    ),
    Measured(
        "k",
        "The median of the time from begin until a waiting consumer has the message, "
        "in frames and by HTTP. At most 0.7 of its time; 0.4 is aimed at.",
        received,
    ),
]
