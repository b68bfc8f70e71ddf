"""Opens what an address names, and puts the parts of a `Messaging` together."""

from collections.abc import Callable
from pathlib import Path

from coordinator import Coordinator, EmbeddedCoordinator
from coordinator.directory_lock import DirectoryInUse
from coordinator.gate import Gate
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.elsewhere import is_http, named_coordinator, open_remote
from txaware.errors import BadRequest, Unavailable
from txaware.http.server import Served
from txaware.http.server_file import forget_server, read_server_file
from txaware.interfaces import OrderedTable
from txaware.parts import Parts
from txaware.rowkeys import COORDINATOR
from txaware.service.administration import Administration
from txaware.service.janitor import Janitor
from txaware.service.local import LocalService
from txaware.service.overview import Overview
from txaware.service.retention import Retention
from txaware.service.site import Site
from txaware.tables.leveldb import LevelDbTable
from txaware.tables.memory import MemoryTable


def open_parts(
    url: str,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    token: str | None = None,
) -> Parts:
    """Everything behind an address, open; what fails leaves nothing open.

    A directory in use is used by way of its owner, if that serves it.
    """
    if is_http(url):
        return open_remote(
            url, coordinator, settings, clock_ms, token, coordinator_token=token
        )
    try:
        table = _open_table(url, settings, clock_ms)
    except DirectoryInUse as error:
        owner = read_server_file(Path(url.partition(":")[2]))
        if owner is None or str(owner.pid) != error.holder:
            raise Unavailable(
                f"{error}. While that one serves it (messaging.serve(), or txaware "
                f"serve --data), others are led there"
            ) from error
        if coordinator in (None, "embedded"):
            coordinator = None
        return open_remote(
            owner.url,
            coordinator,
            settings,
            clock_ms,
            owner.token,
            coordinator_token=token,
        )
    return _open_local(table, coordinator, settings, clock_ms, token)


def _open_local(
    table: OrderedTable,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    token: str | None,
) -> Parts:
    try:
        chosen, gate = _coordinator(table, coordinator, settings, token)
    except BaseException:
        table.close()
        raise

    def close() -> None:
        try:
            if coordinator is None or isinstance(coordinator, str):
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
        table = LevelDbTable.open(Path(path), settings, clock_ms=clock_ms)
        forget_server(Path(path))
        return table
    raise BadRequest(
        f"{url!r} cannot be connected to; memory:, leveldb:PATH and http://HOST:PORT "
        f"can"
    )


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

    administration = Administration(service, retention, site)
    table = site.table
    return Parts(
        service,
        site.coordinator,
        administration,
        site.settings,
        site.clock_ms,
        site.gate is not None,
        close_all,
        Served(
            service=service,
            administration=administration,
            coordinator=site.coordinator,
            settings=site.settings,
            clock_ms=site.clock_ms,
            overview=Overview(service, retention, site),
            shares_journal=site.gate is not None,
            directory=Path(table.name) if isinstance(table, LevelDbTable) else None,
        ),
    )


def _coordinator(
    table: OrderedTable,
    coordinator: str | Coordinator | None,
    settings: Settings,
    token: str | None,
) -> tuple[Coordinator, Gate | None]:
    """The coordinator, and its gate where it keeps its journal in the same table."""
    if coordinator in (None, "embedded"):
        embedded = EmbeddedCoordinator(
            table.journal if isinstance(table, LevelDbTable) else None,
            clock_ms=table.clock.now_ms,  # so that rows are never older than pointers
            timeout_s=settings.transaction_timeout_s,
        )
        return embedded, embedded.gate
    chosen = named_coordinator(coordinator, token)
    if isinstance(chosen, EmbeddedCoordinator):
        chosen.gate.is_shared = True
    return chosen, None
