"""Copies data from one store to another: `txaware.copy`."""

from contextlib import ExitStack
from pathlib import Path

from coordinator import Coordinator
from coordinator.directory_lock import DirectoryInUse
from txaware.errors import BadRequest, Unavailable
from txaware.messaging.addresses import opened_coordinator, opened_table
from txaware.messaging.named_coordinator import named_coordinator
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import OrderedTable
from txaware.model.reports import Progress
from txaware.model.settings import Settings
from txaware.service.transfer import copying
from txaware.service.transfer.copy_state import check_whole
from txaware.service.transfer.copying import Copied, CopySource, Target
from txaware.store.hbase.ownership import StoreInUse
from txaware.store.interfaces import journaled
from txaware.store.keys import COORDINATOR
from txaware.store.leveldb import ROWS


def copy(
    source: str,
    target: str,
    *,
    coordinator: str | Coordinator | None = None,
    target_coordinator: str | Coordinator | None = None,
    settings: Settings | None = None,
    clock_ms: ClockMs = system_clock_ms,
    progress: Progress | None = None,
) -> Copied:
    """Copies all that is committed at `source` to `target`, with ids and positions.

    Both are addresses as `connect` takes them, which nobody has open. The target is
    empty, or does not exist; a copy that was interrupted goes on when it is called
    again. The target has as many shards as the setting `shards` says, over which the
    partitions are spread anew. At the end the target is read back and compared by its
    digest. The answer says what is left out: rows of transactions in progress. The
    source is not changed.

    `coordinator` decided what committed at the source, and `target_coordinator` will do
    so at the target. Each is an address as for `connect`, or a coordinator of yours. A
    target coordinator elsewhere has to see already everything that was committed: it is
    the same one, or a Tephra that has been at work since.
    """
    settings = Settings.load() if settings is None else settings
    _check_addresses(source, target)
    with ExitStack() as stack:
        from_table = _owned(stack, source, settings, clock_ms)
        _check_source(from_table, source)
        deciding = stack.enter_context(
            opened_coordinator(from_table, coordinator, settings)
        )
        to_table = _owned(stack, target, settings, clock_ms, settings.shards)
        elsewhere = _elsewhere(
            stack,
            target_coordinator,
            settings,
            source_named=coordinator,
            source_coordinator=deciding,
        )
        kept = journaled(to_table)
        journal = None if kept is None else kept.journal
        return copying.copy(
            CopySource(from_table, deciding),
            Target(target, to_table, journal, elsewhere, _address(target_coordinator)),
            progress=progress,
        )


def _check_addresses(source: str, target: str) -> None:
    if source == target:
        raise BadRequest(f"{source} cannot be copied to itself")
    for url in (source, target):
        if url == "memory:":
            raise BadRequest("data in memory ends with its process: nobody copies it")
    scheme, _, path = source.partition(":")
    if scheme == "leveldb" and path and not (Path(path) / ROWS).is_dir():
        raise BadRequest(f"there is no data at {source}")


def _check_source(table: OrderedTable, name: str) -> None:
    if table.get(COORDINATOR) is None:
        raise BadRequest(f"there is no data at {name}")
    check_whole(table, name)


def _owned(
    stack: ExitStack, url: str, settings: Settings, clock_ms: ClockMs, shards: int = 1
) -> OrderedTable:
    try:
        return stack.enter_context(opened_table(url, settings, clock_ms, shards=shards))
    except (DirectoryInUse, StoreInUse) as error:
        raise Unavailable(
            f"{error}, and during a copy that is the copy: end that process"
        ) from error


def _address(named: str | Coordinator | None) -> str | None:
    return named if isinstance(named, str) else None


def _elsewhere(
    stack: ExitStack,
    named: str | Coordinator | None,
    settings: Settings,
    *,
    source_named: str | Coordinator | None,
    source_coordinator: Coordinator,
) -> Coordinator | None:
    """Returns the target's coordinator; None for the embedded one, not open yet."""
    if named is None or named == "embedded":
        return None
    if named == source_named:
        return source_coordinator
    chosen = named_coordinator(named, settings, token=None)
    return stack.enter_context(chosen) if isinstance(named, str) else chosen
