"""Two owners of one store at once, as a planted fault: the history checker finds it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.checker import OK
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_owners import Owner, close, made
from tests.support.told import Told
from txaware.messaging import Messaging
from txaware.messaging.addresses import open_on
from txaware.model.settings import Settings
from txaware.store.hbase.table import HBaseTable

SETTINGS = Settings(janitor_interval_s=0)
ROUNDS = 3


class CarelessHBase(FakeHBase):
    """A mistake on purpose: it sets the head without a look at the one before."""

    def checkAndPut(  # noqa: N802
        self,
        table: bytes,
        key: bytes,
        column: bytes,
        expected: bytes | None,
        put: Any,
        _: object,
    ) -> bool:
        self.mutateRow(table, key, [put], {})
        return True


def opened(table: HBaseTable, clock: Clock) -> Messaging:
    return Messaging(open_on(table, None, SETTINGS, clock, None))


@pytest.fixture
def tables() -> Iterator[list[HBaseTable]]:
    found: list[HBaseTable] = []
    yield found
    for table in found:
        close(table)


@pytest.mark.parametrize("is_planted", [True, False])
def test_a_store_that_goes_on_under_two_owners_is_found(
    tables: list[HBaseTable], is_planted: bool
) -> None:
    """Without the fault the former owner is refused, and nothing is wrong."""
    clock, told = Clock(), Told()
    hbase = made(CarelessHBase(clock) if is_planted else FakeHBase(clock))
    tables.append(Owner(hbase, clock).table())
    former = opened(tables[0], clock)
    former.create_topic("t")
    told.publish(former, ["t"], "first")
    tables.append(Owner(hbase, clock).table())
    later = opened(tables[1], clock)
    for number in range(ROUNDS):
        told.publish(former, ["t"], f"former {number}")
        told.publish(later, ["t"], f"later {number}")
        told.poll(later, "t", "reader")
    tables.append(Owner(hbase, clock).table())
    with closing(opened(tables[2], clock)) as last:
        told.poll(last, "t", "after")
    refused = [one for one in told.publishes if one.outcome != OK]
    assert len(refused) == (0 if is_planted else ROUNDS)
    found = told.wrong()
    assert bool(found & {"lost", "skipped", "inconsistent id"}) == is_planted, found
