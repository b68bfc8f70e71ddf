"""A transaction hangs when it is open for long, and nobody has it or uses it."""

from typing import Any

import attrs
import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.transaction import POINTERS_PER_MS
from coordinator.transaction_status import (
    ENDED,
    INVALID,
    NEVER,
    OPEN,
    Standing,
    standing,
)
from tests.support.doubles import Clock
from txaware.auth import Principal
from txaware.errors import NotAuthorized
from txaware.server.owners import Owners

BEGAN_MS = 1_000_000
ONE = Standing(BEGAN_MS * POINTERS_PER_MS, OPEN, (BEGAN_MS * POINTERS_PER_MS,))
ANN, BOB = (Principal(name=name, rules=()) for name in ("ann", "bob"))


class Line:
    """A connection that may be closed."""

    host_and_port = "10.0.0.1:5"
    is_closed = False

    @property
    def connection(self) -> "Line":
        return self


def test_it_is_older_than_the_limit() -> None:
    assert ONE.is_hanging(before_ms=BEGAN_MS + 1)
    assert not ONE.is_hanging(before_ms=BEGAN_MS)


@pytest.mark.parametrize(
    "told",
    [
        {"is_held": True},
        {"heard_ms": BEGAN_MS + 500},
        {"stage": "its end is being written down"},
        {"stage": "prepared"},
        {"state": INVALID},
        {"state": ENDED},
        {"state": NEVER},
    ],
    ids=str,
)
def test_what_somebody_has_uses_or_ends_does_not_hang(told: dict[str, Any]) -> None:
    assert not attrs.evolve(ONE, **told).is_hanging(before_ms=BEGAN_MS + 500)


def test_what_was_used_long_ago_hangs() -> None:
    used = attrs.evolve(ONE, heard_ms=BEGAN_MS + 500, stage="open")
    assert used.is_hanging(before_ms=BEGAN_MS + 501)


def test_the_owner_is_there_while_its_connection_is_open() -> None:
    with EmbeddedCoordinator() as coordinator:
        owners, line = Owners(coordinator), Line()
        pointer = coordinator.start_short().transaction_id
        owners.began(pointer, ANN, line)
        found = standing(coordinator, pointer)
        assert owners.enrich(pointer, found).is_held
        assert owners.enrich(pointer, found).address == line.host_and_port
        line.is_closed = True
        assert not owners.enrich(pointer, found).is_held
        owners.began(pointer, ANN, Line())  # which nobody has any more
        assert not owners.enrich(pointer, found).is_held


def test_only_its_owner_is_heard_of_by_using_it() -> None:
    clock = Clock()
    with EmbeddedCoordinator() as coordinator:
        owners = Owners(coordinator, clock_ms=clock)
        pointer = coordinator.start_short().transaction_id
        found = standing(coordinator, pointer)
        assert owners.enrich(pointer, found).heard_ms is None
        owners.began(pointer, ANN)
        began_ms = clock()
        clock.advance_s(10)
        with pytest.raises(NotAuthorized):
            owners.used((pointer,), BOB)
        owners.check((pointer,), ANN)
        assert owners.enrich(pointer, found).heard_ms == began_ms
        owners.used((pointer,), ANN)
        assert owners.enrich(pointer, found).heard_ms == clock()


def test_no_more_is_remembered_of_uses_than_of_owners() -> None:
    with EmbeddedCoordinator() as coordinator:
        owners = Owners(coordinator, remembered=10)
        for _ in range(100):
            tx = coordinator.start_short()
            owners.began(tx.transaction_id, ANN)
            coordinator.commit(tx)
        assert owners._heard_ms.keys() == owners._owners.keys()
