"""The price of a type: a typed publish beside a raw one of the same message."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest

import txaware
from tests.benchmarks.measure import Figure
from txaware import Messaging

pytestmark = pytest.mark.benchmark

EVENTS, ROUNDS = 100, 25
MOST = 1.3


@attrs.frozen
class WithAttrs:
    order: int
    who: str
    count: int


class Struct(msgspec.Struct):
    order: int
    who: str
    count: int


class Model(pydantic.BaseModel):
    order: int
    who: str
    count: int


class Dict(TypedDict):
    order: int
    who: str
    count: int


@contextmanager
def both(kind: type[Any]) -> Iterator[tuple[Messaging, Any, Any, Any, Any]]:
    """Opens a raw and a typed topic, and yields an event and its message beside."""
    with txaware.connect("memory:") as messaging:
        for name in ("raw", "typed"):
            messaging.create_topic(name)
        event = kind(order=1, who="ann", count=5)
        typed, raw = messaging.topic("typed", type=kind), messaging.publisher("raw")
        typed.publish(event)
        [message] = messaging.poll("typed")
        yield messaging, raw, typed, event, message


@pytest.mark.parametrize("kind", [WithAttrs, Struct, Model, Dict])
def test_a_type_costs_at_most_three_tenths_of_a_publish(kind: type[Any]) -> None:
    with both(kind) as (messaging, raw, typed, event, message):
        payload, headers = message.payload, dict(message.headers)

        def publish_raw() -> None:
            with messaging.transaction():
                for _ in range(EVENTS):
                    raw.publish(payload, headers=headers)

        def publish_typed() -> None:
            with messaging.transaction():
                for _ in range(EVENTS):
                    typed.publish(event)

        name = f"typed {kind.__name__}, {EVENTS} in a transaction"
        assert figure(name, publish_raw, publish_typed).report(at_most=MOST)


@pytest.mark.parametrize("kind", [WithAttrs, Struct, Model, Dict])
def test_a_type_costs_at_most_three_tenths_of_a_transaction_of_bytes(
    kind: type[Any],
) -> None:
    """Beside the same bytes without headers, which say what they are to nobody."""
    with both(kind) as (messaging, raw, typed, event, message):
        payload = message.payload

        def publish_raw() -> None:
            for _ in range(EVENTS):
                with messaging.transaction():
                    raw.publish(payload)

        def publish_typed() -> None:
            for _ in range(EVENTS):
                with messaging.transaction():
                    typed.publish(event)

        name = f"typed {kind.__name__}, one in a transaction"
        assert figure(name, publish_raw, publish_typed).report(at_most=MOST)


def figure(name: str, raw: Callable[[], None], typed: Callable[[], None]) -> Figure:
    """The processor that each takes of a publish; in turns, which are drawn."""
    took: list[list[float]] = [[], []]
    drawn = random.Random(1)
    for _ in range(ROUNDS):
        for call, each in drawn.sample([(raw, took[0]), (typed, took[1])], 2):
            began_s = time.process_time()
            call()
            each.append((time.process_time() - began_s) / EVENTS * 1e6)
    one, other = took
    return Figure(name, "us of processor", other, one, "raw")
