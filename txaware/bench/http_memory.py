"""Figure f over HTTP: the memory of a server after a million messages."""

import time
from functools import partial

from txaware.bench.measure import Figure
from txaware.bench.server import serving
from txaware.bench.trial import Measured, Trial, payloads
from txaware.messaging import Messaging, connect
from txaware.model.messages import MessageId

MESSAGES, BATCH, LIMIT_MIB = 1_000_000, 1000, 200.0


def resident(trial: Trial) -> list[Figure]:
    """Figure f."""
    messages = trial.count(MESSAGES)
    trial.tell(f"publishing and polling {messages:,} messages")
    with serving(trial.directory / "http-resident", trial.settings) as server:
        with connect(server.url) as messaging:
            published_s = _took_s(partial(_publish, messaging, messages))
            polled_s = _took_s(partial(_poll, messaging, messages))
        mib, most_mib = server.resident_mib(), server.resident_mib("VmHWM")
    name = f"f) {messages:,} messages"
    return [
        Figure(
            f"{name} published and polled, resident",
            "MiB",
            [mib],
            [LIMIT_MIB],
            f"{LIMIT_MIB:g} MiB",
            at_most=1,
        ),
        Figure(
            f"{name} published and polled, resident at most",
            "MiB",
            [most_mib],
            [LIMIT_MIB],
            f"{LIMIT_MIB:g} MiB",
        ),
        Figure(
            f"{name} published by the Python client, {BATCH:,} a request",
            "messages/s",
            [messages / published_s],
            [messages / polled_s],
            "polled by it",
        ),
    ]


def _publish(messaging: Messaging, messages: int) -> None:
    messaging.create_topic("t")
    some = payloads(BATCH)
    for _ in range(messages // BATCH):
        messaging.publish("t", some)


def _poll(messaging: Messaging, messages: int) -> None:
    at: MessageId | None = None
    found = 0
    while page := messaging.poll("t", start=at, inclusive=at is None, limit=BATCH):
        found, at = found + len(page), page.next
    if found != messages:
        raise RuntimeError(f"{found} messages were polled, not {messages}")


def _took_s(work: partial[None]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


MEMORY = [
    Measured(
        "f",
        "1,000,000 messages of 100 bytes published 1,000 at a time and polled once, by "
        "the Python client; what the server has resident then, LevelDB's share "
        "included. At most 200 MiB.",
        resident,
    ),
]
