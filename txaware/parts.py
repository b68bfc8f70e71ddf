"""Opens what an address names, and puts the parts of a `Messaging` together."""

from collections.abc import Callable
from pathlib import Path

import attrs

from coordinator import Coordinator, EmbeddedCoordinator
from coordinator.address import open_coordinator
from coordinator.gate import Gate
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.errors import BadRequest
from txaware.interfaces import OrderedTable
from txaware.rowkeys import COORDINATOR
from txaware.service.administration import Administration
from txaware.service.janitor import Janitor
from txaware.service.local import LocalService
from txaware.service.retention import Retention
from txaware.service.site import Site
from txaware.tables.leveldb import LevelDbTable
from txaware.tables.memory import MemoryTable


@attrs.frozen
class Parts:
    """What a `Messaging` is put together from, and has to give back."""

    service: LocalService
    coordinator: Coordinator
    administration: Administration
    settings: Settings
    clock_ms: ClockMs
    shares_journal: bool
    close: Callable[[], None]


def open_parts(
    url: str, coordinator: str | Coordinator, settings: Settings, clock_ms: ClockMs
) -> Parts:
    """Everything behind an address, open; what fails leaves nothing open."""
    table = _open_table(url, settings, clock_ms)
    try:
        chosen, gate = _coordinator(table, coordinator, settings)
    except BaseException:
        table.close()
        raise

    def close() -> None:
        try:
            if isinstance(coordinator, str):
                chosen.close()
        finally:
            table.close()

    try:
        _check_coordinator(table, b"other" if gate is None else b"embedded")
        site = Site(table, chosen, gate, settings, clock_ms)
        return _put_together(site, close)
    except BaseException:
        close()
        raise


def _open_table(url: str, settings: Settings, clock_ms: ClockMs) -> OrderedTable:
    scheme, _, path = str(url).partition(":")
    if url == "memory:":
        return MemoryTable(clock_ms=clock_ms)
    if scheme == "leveldb" and path:
        return LevelDbTable.open(Path(path), settings, clock_ms=clock_ms)
    raise BadRequest(f"{url!r} cannot be connected to; memory: and leveldb:PATH can")


def _check_coordinator(table: OrderedTable, kind: bytes) -> None:
    """The pointers of two coordinators in one table would be taken for each other's."""
    if table.compare_and_set(COORDINATOR, None, kind):
        return
    found = table.get(COORDINATOR) or b""
    if found != kind:
        raise BadRequest(
            f"this data was written with the coordinator {found.decode()!r}; another "
            f"one would confuse its transactions with those"
        )


def _put_together(site: Site, close: Callable[[], None]) -> Parts:
    service, retention = LocalService(site), Retention(site)
    if site.gate is not None:
        site.gate.on_end(service.ended)
    interval_s = site.settings.janitor_interval_s
    janitor = Janitor(retention, interval_s=interval_s) if interval_s else None

    def close_all() -> None:
        service.close()
        if janitor is not None:
            janitor.close()
        close()

    return Parts(
        service,
        site.coordinator,
        Administration(service, retention, site),
        site.settings,
        site.clock_ms,
        site.gate is not None,
        close_all,
    )


def _coordinator(
    table: OrderedTable,
    coordinator: str | Coordinator,
    settings: Settings,
) -> tuple[Coordinator, Gate | None]:
    """The coordinator, and its gate where it keeps its journal in the same table."""
    if coordinator == "embedded":
        embedded = EmbeddedCoordinator(
            table.journal if isinstance(table, LevelDbTable) else None,
            clock_ms=table.clock.now_ms,  # so that rows are never older than pointers
            timeout_s=settings.transaction_timeout_s,
        )
        return embedded, embedded.gate
    if isinstance(coordinator, str):
        return open_coordinator(coordinator), None
    if not hasattr(coordinator, "start_short"):
        raise BadRequest(f"{coordinator!r} is no coordinator and no address of one")
    if isinstance(coordinator, EmbeddedCoordinator):
        coordinator.gate.is_shared = True
    return coordinator, None
