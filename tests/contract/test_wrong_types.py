"""Whatever is passed to a call: it works, or it is one of our errors."""

from contextlib import suppress

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.odd_values import CALLS, ODD
from txaware.errors import TxAwareError
from txaware.messaging import Messaging


@pytest.fixture
def messaging() -> Messaging:
    opened = txaware.connect("memory:", coordinator=EmbeddedCoordinator())
    opened.create_topic("t")
    opened.publish("t", [b"so that nobody waits"])
    opened.create_queue("q")
    opened.queue("q").push_all([b"so that nobody waits"] * 2 * len(ODD))
    return opened


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_an_error_of_ours(messaging: Messaging, name: str) -> None:
    for value in ODD:
        tx = messaging.coordinator.start_short()
        with suppress(TxAwareError):
            CALLS[name](messaging, tx, value)


@pytest.mark.parametrize("name", ["save", "receipts", "publish messages", "consumer"])
def test_most_odd_values_are_refused(messaging: Messaging, name: str) -> None:
    refused = 0
    for value in ODD:
        tx = messaging.coordinator.start_short()
        try:
            CALLS[name](messaging, tx, value)
        except TxAwareError:
            refused += 1
    assert refused >= len(ODD) - 5
