"""Figure h of the sender: batches that are compressed beside messages that are not."""

import random
from functools import partial

from tests.benchmarks.sender.sending import (
    KEYS,
    MESSAGES,
    PARTITIONS,
    TOPIC,
    messages_per_second,
)
from txaware.bench.measure import Figure, in_turns
from txaware.bench.trial import Trial
from txaware.messaging import Messaging, connect
from txaware.model.compression import CompressionName


def compressed(trial: Trial) -> list[Figure]:
    """Figure h."""
    count, figures = trial.count(MESSAGES), list[Figure]()
    numbers = iter(range(1_000_000))

    def stored(compression: CompressionName | None, sizes: list[float]) -> float:
        """Returns the messages a second, and notes what the directory takes then."""
        directory = trial.directory / f"compressed-{next(numbers)}"
        with connect(f"leveldb:{directory}", settings=trial.settings) as messaging:
            messaging.create_topic(TOPIC, partitions=PARTITIONS)
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
                f"h) sender of JSON by {name}, embedded",
                "messages/s",
                found[name],
                found["plain"],
                "not compressed",
                at_least=0.7,
            ),
            Figure(
                f"h) bytes on disk by {name}",
                "bytes",
                sizes[name],
                sizes["plain"],
                "not compressed",
                at_most=0.3,
            ),
        ]
    return figures


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
            sender.send(TOPIC, payload, key=KEYS[number % len(KEYS)])
