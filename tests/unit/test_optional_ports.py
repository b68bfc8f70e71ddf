"""What only some tables and coordinators can do is asked of a port, not of a class."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import EmbeddedCoordinator, TephraCoordinator, ThriftCoordinator
from coordinator.context import TransactionContext
from coordinator.embedded.journal import MemoryJournal
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import (
    InProcess,
    KnowsLives,
    NotesWriters,
    TellsOutcomes,
    in_process,
)
from coordinator.prepared_transactions import TwoPhases
from coordinator.remote.client import RemoteCoordinator
from tests.support.doubles import Clock
from txaware.errors import BadRequest, Unavailable
from txaware.model.interfaces import OrderedTable
from txaware.model.metrics import WriteCounters
from txaware.model.shards import HOME
from txaware.service.check.checking import check_table
from txaware.service.transfer.backup import backup_chunks
from txaware.shards.sharded_table import ShardedTable
from txaware.store.hbase.table import HBaseTable
from txaware.store.interfaces import (
    Announces,
    ChecksKeys,
    HasView,
    InDirectory,
    InHBase,
    KeepsJournal,
    RowStore,
    journaled,
)
from txaware.store.journaled_table import JournaledTable
from txaware.store.leveldb import LevelDbTable
from txaware.store.memory import MemoryTable
from txaware.testing import FailingCoordinator

ROOT = Path(__file__).parent.parent.parent
PORTS = (OrderedTable, RowStore, Coordinator)
# Classes that may be asked for outside of their module, each with its reason.
ALLOWED: dict[str, str] = {}


def promised(port: type) -> set[str]:
    """The calls of a port, and none of what only its objects have."""
    names = {name for name in vars(port) if not name.startswith("_")}
    return names - {"clock", "settle_grace_s", "barrier", "journal"}


def concrete() -> set[str]:
    """The names of all classes of ours that have every call of one of the ports."""
    names = set()
    for package in ("coordinator", "txaware/store"):
        for path in (ROOT / package).rglob("*.py"):
            module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            for name, found in vars(importlib.import_module(module)).items():
                if not inspect.isclass(found) or found in PORTS:
                    continue
                if any(promised(port) <= set(dir(found)) for port in PORTS):
                    names.add(name)
    return names


def asked_for(path: Path) -> Iterator[str]:
    """The names of all classes in calls of `isinstance` in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            for part in ast.walk(node.args[1]):
                if isinstance(part, ast.Name | ast.Attribute):
                    yield part.id if isinstance(part, ast.Name) else part.attr


def test_nobody_asks_for_the_class_of_a_table_or_a_coordinator() -> None:
    classes = concrete()
    assert {"MemoryTable", "LevelDbTable", "HBaseTable", "JournaledTable"} <= classes
    assert {"EmbeddedCoordinator", "RemoteCoordinator", "ThriftCoordinator"} <= classes
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in ("coordinator", "txaware")
        for path in (ROOT / package).rglob("*.py")
        for name in asked_for(path)
        if name in classes and f"class {name}" not in path.read_text()
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("table", "ports"),
    [
        (MemoryTable, {HasView}),
        (JournaledTable, {KeepsJournal}),
        (LevelDbTable, {KeepsJournal, InDirectory, HasView}),
        (HBaseTable, {KeepsJournal, InHBase, Announces, HasView, ChecksKeys}),
    ],
)
def test_a_table_offers_what_its_store_can_do(table: type, ports: set[type]) -> None:
    for port in (KeepsJournal, InDirectory, InHBase, Announces, HasView, ChecksKeys):
        assert (promised(port) <= set(dir(table))) == (port in ports), port


def test_shards_keep_a_journal_where_the_first_one_does() -> None:
    """In each version of Python: a port is there by its names, whatever they give."""
    in_memory, on_disk = MemoryTable(clock_ms=Clock()), PlainTable()
    vars(on_disk).update(
        journal=MemoryJournal(), write_metrics=WriteCounters().snapshot
    )
    assert journaled(in_memory) is None
    assert journaled(ShardedTable({}, in_memory)) is None
    assert journaled(ShardedTable({HOME: in_memory, 1: in_memory})) is None
    assert journaled(on_disk)
    sharded = ShardedTable({HOME: on_disk})  # type: ignore[dict-item]
    assert journaled(sharded)


def test_a_coordinator_that_fails_offers_what_its_inner_one_does() -> None:
    with EmbeddedCoordinator() as inner:
        failing = FailingCoordinator(inner)
        for port in (KnowsLives, NotesWriters, TwoPhases):
            assert isinstance(failing, port)
        assert in_process(failing) is None
        failing.fail("commit")
        with pytest.raises(Unavailable), TransactionContext(failing):
            pass
        assert failing.log[:1] == ["start_short"]


def test_only_the_embedded_coordinator_answers_from_memory() -> None:
    with EmbeddedCoordinator() as embedded:
        assert in_process(embedded) is embedded
        assert isinstance(embedded, TellsOutcomes)
    for elsewhere in (RemoteCoordinator, TephraCoordinator, ThriftCoordinator):
        assert not promised(InProcess) & set(dir(elsewhere))
        assert not promised(TellsOutcomes) <= set(dir(elsewhere))


class PlainTable:
    """A table with the calls of `OrderedTable`, and none besides."""

    def __init__(self) -> None:
        self._inner = MemoryTable(clock_ms=Clock())
        for name in promised(OrderedTable) | {"clock"}:
            setattr(self, name, getattr(self._inner, name))


def test_a_table_that_offers_nothing_more_is_checked_and_has_no_backup() -> None:
    table = PlainTable()
    assert check_table(table).is_clean  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="no backup"):
        backup_chunks(table)  # type: ignore[arg-type]
