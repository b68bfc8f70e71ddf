"""Whatever is passed to a call: over HTTP it ends as it does in the same process."""

from collections.abc import Iterator
from datetime import datetime

import attrs
import pytest

import txaware
from coordinator.transaction import Transaction
from tests.support.http_served import served
from tests.support.odd_values import CALLS, ODD, Call
from txaware.errors import TxAwareError
from txaware.messaging import Messaging

ODDER = [
    *ODD,
    *("\ud800", "ü", "a b", "a/b", "../x", "t?x=1", "a:b:c", "%2e", ".", "..", "ok\n"),
    *("1", -(2**70), 2**31 - 1, 1e308, [b"a"], [b"a", "b"], {b"a": b"b"}, {"ttl": 5}),
    *({"ttl": "x"}, {"a": "\ud800"}, bytearray(b"ab"), memoryview(b"ab")),
    datetime(2026, 1, 1),
]
NEVER_BEGUN = [
    *(Transaction(5, 1), Transaction(5, 2**70)),
    *(Transaction(2**70, 1), Transaction(-5, 1)),
]
# Looked at without the server, or by neither side.
_LOCAL = {"connect", "connect path", "connect coordinator"}
_LOCAL |= {"parse id", "make id", "read id"}
MORE: dict[str, Call] = {
    "start": lambda m, tx, v: m.coordinator.start_short(v),
    "create both": lambda m, tx, v: m.create_topic("c", ttl_s=5, properties=v),
    "consumer inclusive": lambda m, tx, v: m.consumer("t", start=5, inclusive=v).poll(),
    "publisher at most once": lambda m, tx, v: m.at_most_once_publisher(v).close(),
    "async publisher topic": lambda m, tx, v: m.async_publisher(v).close(),
    "wait start": lambda m, tx, v: m.wait("t", start=v, timeout_s=0),
    "lag group": lambda m, tx, v: m.lag_ms(v, "t"),
    "lag topic": lambda m, tx, v: m.lag_ms("g", v),
    "peek topic": lambda m, tx, v: m.peek(v),
    "subscribe": lambda m, tx, v: m.subscribe(v, print, group="g").close(),
    "subscribe group": lambda m, tx, v: m.subscribe("t", print, group=v).close(),
    "publisher limit used": lambda m, tx, v: m.publisher(
        "t", buffer_limit_bytes=v
    ).publish(b"x"),
}
VERBS = {name: call for name, call in CALLS.items() if name not in _LOCAL} | MORE
COORDINATOR: dict[str, Call] = {
    "can commit": lambda m, tx, v: m.coordinator.can_commit(v, []),
    "can commit key": lambda m, tx, v: m.coordinator.can_commit(v, [b"k"]),
    "persist": lambda m, tx, v: m.coordinator.persist(v),
    "commit": lambda m, tx, v: m.coordinator.commit(v),
    "abort": lambda m, tx, v: m.coordinator.abort(v),
    "invalidate": lambda m, tx, v: m.coordinator.invalidate(v),
    "checkpoint": lambda m, tx, v: m.coordinator.checkpoint(v),
}
# Known differences, which are left out:
# - numbers that have no place in 63 bits, or 31 for the count of a receipt, are refused
#   before they are sent; in the same process they are numbers like all others;
# - True is 1 in the count of a receipt that is sent;
# - what was never begun has nothing to undo or to persist in the same process, and is
#   refused where its number cannot be that of a transaction;
# - `prune(exclusive=)` is not looked at in the same process;
# - names of more than 64 KiB do not fit into a request;
# - a short transaction has a maximum over the network alone.
KNOWN = {
    "receipt count": ["True", str(2**63), str(2**80)],
    "truncate one": ["-1", str(2**63), str(2**80), str(-(2**70))],
    "truncate before": ["-1", str(2**63), str(2**80), str(-(2**70))],
    "time-out": [str(2**31 - 1)],
    "start": [str(2**31 - 1)],
    "persist": [repr(NEVER_BEGUN[2]), repr(NEVER_BEGUN[3])],
    "abort": [repr(NEVER_BEGUN[2]), repr(NEVER_BEGUN[3])],
}


@attrs.frozen
class Sides:
    """The same store twice: in this process, and behind a server."""

    near: Messaging
    far: Messaging

    def differ(self, call: Call, value: object) -> str | None:
        """How the calls ended, if not alike."""
        near, far = outcome(self.near, call, value), outcome(self.far, call, value)
        return None if near == far else f"{value!r}: {near} here, {far} over HTTP"


def outcome(messaging: Messaging, call: Call, value: object) -> str:
    """The class of our error, or `works`; any other error is the end of the test."""
    tx = messaging.coordinator.start_short()
    try:
        call(messaging, tx, value)
    except TxAwareError as error:
        return type(error).__name__
    finally:  # a principal has a thousand open at most
        messaging.coordinator.invalidate(tx)
    return "works"


@pytest.fixture(scope="module")
def opened() -> Iterator[Sides]:
    with (
        txaware.connect("memory:") as near,
        served() as store,
        txaware.connect(store.url) as far,
    ):
        yield Sides(near, far)


@pytest.fixture
def sides(opened: Sides) -> Iterator[Sides]:
    """Both have a topic `t` as new, and a message in it so that nobody waits."""
    for messaging in (opened.near, opened.far):
        messaging.create_topic("t")
        messaging.publish("t", [b"a"])
        messaging.create_queue("q")
        messaging.queue("q").push_all([b"a"] * 2 * len(ODDER))
    yield opened
    for messaging in (opened.near, opened.far):
        messaging.delete_topic("t")
        messaging.delete_queue("q")


def differences(sides: Sides, name: str, call: Call, values: list[object]) -> list[str]:
    found = (
        sides.differ(call, value)
        for value in values
        if repr(value) not in KNOWN.get(name, [])
    )
    return [difference for difference in found if difference is not None]


@pytest.mark.parametrize("name", VERBS)
def test_a_wrong_value_is_the_same_error_over_http(sides: Sides, name: str) -> None:
    assert differences(sides, name, VERBS[name], ODDER) == []


@pytest.mark.parametrize("name", COORDINATOR)
def test_a_transaction_that_was_never_begun_is_the_same_error_over_http(
    sides: Sides, name: str
) -> None:
    assert differences(sides, name, COORDINATOR[name], [*NEVER_BEGUN]) == []
