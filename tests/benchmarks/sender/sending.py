"""What is sent, and how fast: the messages a second, and the processor time of each."""

import time
from collections.abc import Callable
from functools import partial

import attrs

from txaware.bench.measure import Figure, in_turns
from txaware.messaging import Messaging

MESSAGES, PARTITIONS, TOPIC = 200_000, 12, "orders"
PAYLOAD = b"x" * 100
KEYS = [b"%d" % number for number in range(1000)]


def _no_server() -> float:
    """Returns the processor time of no other process."""
    return 0.0


@attrs.frozen
class Way:
    """A call that sends so many messages, and the processor time of its server."""

    send: Callable[[int], object]
    server_cpu_s: Callable[[], float] = _no_server


@attrs.frozen
class SentByWay:
    """The messages a second of a way, and the processor time of each; a round each."""

    rates: list[float] = attrs.field(factory=list)
    costs_us: list[float] = attrs.field(factory=list)


def sent_in_turns(
    rounds: int, count: int, ways: dict[str, Way]
) -> dict[str, SentByWay]:
    """Sends so many messages by each way in turn; the first time does not count.

    A server in Java is slow at first.
    """
    found = {name: SentByWay() for name in ways}

    def measure(name: str) -> float:
        way, sent = ways[name], found[name]
        used_s = time.process_time() + way.server_cpu_s()
        rate = messages_per_second(count, way.send)
        used_s = time.process_time() + way.server_cpu_s() - used_s
        sent.costs_us.append(used_s / count * 1e6)
        sent.rates.append(rate)
        return rate

    for way in ways.values():
        way.send(count)
    in_turns(rounds, **{name: partial(measure, name) for name in ways})
    return found


def beside(
    name: str,
    ours: SentByWay,
    other: SentByWay,
    other_name: str,
    *,
    at_least: float | None,
) -> list[Figure]:
    """Returns the messages a second beside others, and the processor time of both.

    The time tells on a machine with much else to do, where the rates tell little.
    """
    return [
        Figure(
            name, "messages/s", ours.rates, other.rates, other_name, at_least=at_least
        ),
        Figure(
            f"{name}: processor of both sides",
            "us a message",
            ours.costs_us,
            other.costs_us,
            other_name,
        ),
    ]


def messages_per_second(count: int, work: Callable[[int], object]) -> float:
    """Returns how many messages go in a second, where `work` sends so many."""
    began_s = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - began_s)


def sender_to(messaging: Messaging, topic: str = TOPIC) -> Callable[[int], None]:
    """Makes a topic of 12 partitions; returns a call that sends to it, one by one.

    All messages are on disk when it returns.
    """
    messaging.create_topic(topic, partitions=PARTITIONS)

    def send(count: int) -> None:
        with messaging.sender() as sender:
            for number in range(count):
                sender.send(topic, PAYLOAD, key=KEYS[number % len(KEYS)])

    return send
