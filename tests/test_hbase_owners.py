"""Who owns a store in HBase: who is told, who takes over, and what the loser says."""

from collections.abc import Callable
from typing import Any

import happybase
import pytest

import txaware
from tests.doubles import Clock
from tests.fake_hbase import FakeHBase
from tests.hbase_faults import Way
from tests.hbase_owners import (
    ADDRESS,
    NEVER_S,
    Owner,
    close,
    database_of,
    elsewhere,
    made,
)
from tests.messagings import table_of
from txaware.config import Settings
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.spark.addresses import Address
from txaware.tables.hbase.ownership import Ownership
from txaware.tables.hbase.process import Process
from txaware.tables.hbase.table import HBaseTable

URL = str(ADDRESS)
QUIET = Settings(janitor_interval_s=0, hbase_patience_s=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hbase(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> FakeHBase:
    """HBase in memory, which `hbase://fake:9090/t` leads to."""
    found = made(FakeHBase(clock))
    monkeypatch.setattr(happybase, "Connection", Way(found).connect)
    return found


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens while somebody watches an owner, which takes no time."""
    acts: list[Callable[[], object]] = []
    make = Ownership.__init__

    def init(self: Ownership, *arguments: Any, **options: Any) -> None:
        def sleep(_: float) -> None:
            for act in acts:
                act()

        make(self, *arguments, **{"beat_s": NEVER_S, "sleep_s": sleep, **options})

    monkeypatch.setattr(Ownership, "__init__", init)
    return acts


def connected(**options: Any) -> Messaging:
    return txaware.connect(URL, settings=QUIET, **options)


def ownership_of(store: Messaging | HBaseTable) -> Ownership:
    table = table_of(store) if isinstance(store, Messaging) else store
    assert isinstance(table, HBaseTable)
    return database_of(table)._ownership


def test_whoever_is_led_to_the_owner_is_told_which_process_serves(
    hbase: FakeHBase, meanwhile: list[Callable[[], object]]
) -> None:
    with connected() as owner, owner.serve() as server:
        meanwhile.append(ownership_of(owner).beat)
        with connected() as led:
            said = f"by {Process.this()} at {server.url}: connect there"
            with pytest.raises(Unavailable, match=f"served already, {said}"):
                led.serve()


def test_an_owner_that_serves_its_own_host_alone_is_named_with_its_address(
    hbase: FakeHBase, clock: Clock, meanwhile: list[Callable[[], object]]
) -> None:
    table = Owner(hbase, clock, process=elsewhere("far")).table()
    table.announce("http://127.0.0.1:1")
    meanwhile.append(ownership_of(table).beat)
    said = "process 1 on elsewhere.* to its own host alone, at http://127.0.0.1:1; with"
    with pytest.raises(Unavailable, match=said):
        connected()
    said = "process 1 on elsewhere has it, at http://127.0.0.1:1 for its host"
    with pytest.raises(Unavailable, match=said):
        Address(URL).resolved()
    close(table)
