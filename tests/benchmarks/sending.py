"""Figures g and i of producers: a sender beside calls of a thousand, and compressed."""

import random
import time
from collections.abc import Callable
from functools import partial

from txaware.bench.measure import Figure, in_turns
from txaware.bench.producers import both_ways
from txaware.bench.trial import Trial
from txaware.messaging import Messaging, connect
from txaware.model.compression import CompressionName
from txaware.model.messages import Outgoing

MESSAGES, A_CALL, PARTITIONS = 200_000, 1000, 12
LEAST_EMBEDDED = 250_000
PAYLOAD = b"x" * 100
KEYS = [b"%d" % number for number in range(1000)]


def sending(trial: Trial) -> list[Figure]:
    """Figure g."""
    figures: list[Figure] = []
    count = trial.count(MESSAGES)
    with both_ways(trial, "sending") as ways:
        for way, messaging in ways.items():
            messaging.create_topic("orders", partitions=PARTITIONS)
            found = in_turns(
                trial.rounds,
                sent=partial(
                    messages_per_second, count, partial(send, messaging, "orders")
                ),
                called=partial(
                    messages_per_second, count, partial(_publish, messaging)
                ),
            )
            limits = {
                "embedded": ([float(LEAST_EMBEDDED)] * len(found["sent"]), "250,000"),
                "over HTTP": (found["called"], f"publish of {A_CALL:,} a call"),
            }
            limit, named = limits[way]
            figures.append(
                Figure(
                    f"g) sender to {PARTITIONS} partitions, {way}",
                    "messages/s",
                    found["sent"],
                    limit,
                    named,
                    at_least=1,
                )
            )
    return figures


def compressed(trial: Trial) -> list[Figure]:
    """Figure i."""
    count, figures = trial.count(MESSAGES), list[Figure]()
    numbers = iter(range(1_000_000))

    def stored(compression: CompressionName | None, sizes: list[float]) -> float:
        """Returns the messages a second, and notes what the directory takes then."""
        directory = trial.directory / f"compressed-{next(numbers)}"
        with connect(f"leveldb:{directory}", settings=trial.settings) as messaging:
            messaging.create_topic("orders", partitions=PARTITIONS)
            work = partial(_send_json, messaging, compression)
            found = messages_per_second(count, work)
        # What has just been written is in a log, until it is opened the next time.
        connect(f"leveldb:{directory}", settings=trial.settings).close()
        files = [one for one in directory.rglob("*") if one.is_file()]
        sizes.append(float(sum(one.stat().st_size for one in files)))
        return found

    sizes: dict[str, list[float]] = {"plain": [], "gzip": [], "zstd": []}
    found = in_turns(
        trial.rounds,
        plain=partial(stored, None, sizes["plain"]),
        gzip=partial(stored, "gzip", sizes["gzip"]),
        zstd=partial(stored, "zstd", sizes["zstd"]),
    )
    for name in ("gzip", "zstd"):
        figures += [
            Figure(
                f"i) sender of JSON by {name}, embedded",
                "messages/s",
                found[name],
                found["plain"],
                "not compressed",
                at_least=0.7,
            ),
            Figure(
                f"i) bytes on disk by {name}",
                "bytes",
                sizes[name],
                sizes["plain"],
                "not compressed",
                at_most=0.3,
            ),
        ]
    return figures


def messages_per_second(count: int, work: Callable[[int], None]) -> float:
    """Returns how many messages go in a second, where `work` sends so many."""
    began_s = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - began_s)


def send(messaging: Messaging, topic: str, count: int) -> None:
    """Sends messages with a key, one by one, and waits until all are on disk."""
    with messaging.sender() as sender:
        for number in range(count):
            sender.send(topic, PAYLOAD, key=KEYS[number % 1000])


def _send_json(
    messaging: Messaging, compression: CompressionName | None, count: int
) -> None:
    texts = random.Random(7)
    with messaging.sender(compression=compression) as sender:
        for number in range(count):
            amount = texts.randrange(10**5)
            payload = (
                b'{"order": %d, "customer": "customer-%d", "amount": %d, "currency": '
                b'"EUR", "state": "open", "source": "web"}'
                % (number, amount % 5000, amount)
            )
            sender.send("orders", payload, key=KEYS[number % 1000])


def _publish(messaging: Messaging, count: int) -> None:
    messages = [Outgoing(PAYLOAD, key) for key in KEYS]
    for _ in range(count // A_CALL):
        messaging.publish("orders", messages)
