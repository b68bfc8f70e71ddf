"""Opens what an address names, and puts the parts of a `Messaging` together."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from coordinator import Coordinator, EmbeddedCoordinator
from coordinator.directory_lock import NAME as LOCK
from coordinator.directory_lock import DirectoryInUse, DirectoryLock
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.optional_ports import AdmitsElsewhere, in_process
from txaware.errors import BadRequest, Unavailable
from txaware.messaging.named_coordinator import named_coordinator
from txaware.messaging.parts import ANOTHER_STORE, Limits, Parts, Reach, is_http
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.publish.send_way import SendsBatches
from txaware.server.owners import Owners
from txaware.server.served import Served
from txaware.server.server_file import forget_server, read_server_file
from txaware.server.write_entries import WriteEntries
from txaware.service.administration import Administration
from txaware.service.coordinator_kind import EMBEDDED, OTHER, claim, coordinator_of
from txaware.service.groups.local_groups import LocalGroups
from txaware.service.local import LocalService
from txaware.service.monitor.overview import Overview
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.retention.clean_up import Janitor, Retention
from txaware.service.store_context import StoreContext
from txaware.service.table_store import TableStore
from txaware.service.transfer.copy_state import check_whole
from txaware.shards.opening import place_topics, require_no_shard, with_shards
from txaware.shards.placement import KeepElsewhere
from txaware.shards.shard_directory import ShardDirectory
from txaware.shards.sharded_table import ShardedTable
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.ownership import Pause, StoreInUse
from txaware.store.hbase.table import HBaseTable
from txaware.store.interfaces import (
    Announces,
    InDirectory,
    journaled,
    stores_of,
)
from txaware.store.leveldb import LevelDbTable
from txaware.store.memory import MemoryTable

SERVED = (
    "To use it from several programs, start `txaware serve` on it first (or "
    "messaging.serve() in the one that has it): all others are then led there"
)
SHARED = "Any number of threads share one Messaging: hand it on, or close it first"

# A path may have a comma, but hardly a server behind one.
_WITH_A_SERVER = re.compile(r",\s*(?:https?|hbase)://", re.IGNORECASE)


def open_parts(
    url: str,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    token: str | None = None,
    *,
    pause: Pause | None = None,
    frames: bool = True,
) -> Parts:
    """Opens everything behind an address; if this fails, nothing stays open.

    Data that another process owns is reached through that owner, if it serves the data.
    With `pause` the data is opened as its owner or not at all: an owner in HBase is
    watched until it gives a sign of life or is gone, and `pause` is called between two
    looks.
    """
    if is_http(url):
        owner = Reach(url, token)
    else:
        try:
            table = open_whole(url, settings, clock_ms, pause)
        except DirectoryInUse as error:
            owner = _server_of_directory(url, error)
        except StoreInUse as error:
            owner = _server_of_store(error, token)
        else:
            return open_on(table, coordinator, settings, clock_ms, token)
        if pause is not None:
            raise served_already(owner)
        if coordinator == "embedded":  # that of the process that owns the data
            coordinator = None
    from txaware.messaging.remote_parts import open_remote  # a client is not light

    parts = open_remote(
        owner,
        coordinator,
        settings,
        clock_ms,
        coordinator_token=token,
        frames=frames,
    )
    if not is_http(url):
        _ask_now(parts)
    return parts


def _ask_now(parts: Parts) -> None:
    """Asks the owner that a caller was led to, who may not know that there is one."""
    try:
        parts.ask_limits()
    except BaseException:
        parts.close()
        raise


def _server_of_directory(url: str, error: DirectoryInUse) -> Reach:
    """Returns the address and the token by which the owner of a directory serves it."""
    owner = read_server_file(Path(url.partition(":")[2]))
    if owner is None or str(owner.pid) != error.holder:
        raise Unavailable(f"{error}. {SHARED if error.is_here else SERVED}") from error
    return Reach(
        owner.url, owner.token, owner.certificate, owner=f"process {owner.pid}"
    )


def _server_of_store(error: StoreInUse, token: str | None) -> Reach:
    """Returns the address at which the owner of a store in HBase serves this host."""
    if error.served_apart is not None:
        raise StoreInUse(
            f"{error}. That one serves it to its own host alone, at "
            f"{error.served_apart}; with --host HOST others are led there"
        ) from error
    if error.served_at is None:
        raise StoreInUse(f"{error}. {SERVED}") from error
    return Reach(error.served_at, token, owner=error.owner)


def require_unserved(url: str) -> None:
    """Raises if another process has the directory open; makes and changes nothing."""
    scheme, _, path = url.partition(":")
    if scheme != "leveldb" or not (Path(path) / LOCK).exists():
        return
    try:
        DirectoryLock(Path(path)).release()
    except DirectoryInUse as error:
        raise served_already(_server_of_directory(url, error)) from error


def served_already(reach: Reach) -> Unavailable:
    """Returns the error for a process that wants to serve what another one serves."""
    if reach.owner is None:
        return Unavailable(
            f"this data is served already, at {reach.url}: others connect there"
        )
    return Unavailable(
        f"this data is served already, by {reach.owner} at {reach.url}: connect there "
        f"(--url {reach.url}), or end that process first; txaware serve --standby "
        f"waits for that"
    )


def open_whole(
    url: str,
    settings: Settings,
    clock_ms: ClockMs,
    pause: Pause | None = None,
    *,
    shards: int | None = None,
) -> OrderedTable:
    """Opens the rows that an address names, of all shards, and makes those missing.

    There are at least so many then, by default as the settings say.
    """
    table = open_table(url, settings, clock_ms, pause)
    try:
        require_no_shard(table)
        least = settings.shards if shards is None else shards
        return with_shards(table, settings, least=least)
    except BaseException:
        table.close()
        raise


def open_on(
    table: OrderedTable,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    token: str | None,
    *,
    is_home: bool = True,
    keep_elsewhere: KeepElsewhere | None = None,
) -> Parts:
    """Puts the parts together on an opened table, which is closed if it fails.

    The first shard is among its shards if it `is_home`; `keep_elsewhere` has a shard
    keep the copy of a topic's row that is at another server.
    """
    try:
        chosen, barrier = _coordinator(table, coordinator, settings, token)
    except BaseException:
        table.close()
        raise

    def close() -> None:
        try:
            if coordinator is None or isinstance(coordinator, str):
                chosen.close()
        except Exception:
            table.close()
            raise
        table.close()  # not when interrupted: the next close finishes both

    try:
        check_whole(table, "this data")
        if is_home:
            claim(table, OTHER if barrier is None else EMBEDDED, coordinator)
        decided_by = coordinator_of(table)
        store_context = StoreContext(
            table,
            chosen,
            barrier,
            settings,
            clock_ms,
            decided_by=decided_by,
            admission=chosen.admission if isinstance(chosen, AdmitsElsewhere) else None,
        )
        return _put_together(
            store_context, close, is_home=is_home, keep_elsewhere=keep_elsewhere
        )
    except BaseException:
        close()
        raise


def open_table(
    url: str, settings: Settings, clock_ms: ClockMs, pause: Pause | None = None
) -> OrderedTable:
    """Opens the rows that an address names, of its first shard."""
    scheme, _, path = str(url).partition(":")
    if _WITH_A_SERVER.search(path):
        raise BadRequest(
            f"{url!r} names data and a server; several addresses are those of servers "
            f"that take over from each other, each http://HOST:PORT"
        )
    if url == "memory:":
        return MemoryTable(clock_ms=clock_ms)
    if scheme == "leveldb" and path:
        table = LevelDbTable.open(Path(path), settings, clock_ms=clock_ms)
        forget_server(Path(path))
        return table
    if scheme == "hbase":
        address = HBaseAddress.parse(url)
        return HBaseTable.open(address, settings, clock_ms=clock_ms, pause=pause)
    raise BadRequest(
        f"{url!r} cannot be connected to; memory:, leveldb:PATH, "
        f"hbase://HOST:PORT/PREFIX and http://HOST:PORT can"
    )


def _put_together(
    store_context: StoreContext,
    close: Callable[[], None],
    *,
    is_home: bool,
    keep_elsewhere: KeepElsewhere | None,
) -> Parts:
    service, retention = LocalService(store_context), Retention(store_context)
    if is_home:
        place_topics(store_context.table, service.handles.topics, keep_elsewhere)
    tables = TableStore(store_context)
    if store_context.barrier is not None:
        store_context.barrier.on_end(service.ended)
        store_context.barrier.on_write_elsewhere(store_context.keepers.took_part)
    elif store_context.admission is not None:
        store_context.admission.on_end(service.ended)
    queues = LocalQueues(store_context, service)
    retention.clean_with(queues)
    groups = LocalGroups(store_context, service)
    interval_s = store_context.settings.janitor_interval_s
    janitor = Janitor(retention, interval_s=interval_s) if interval_s else None

    def close_all() -> None:
        service.close()
        queues.close()
        if janitor is not None:
            janitor.close()
        close()

    def way() -> SendsBatches:
        # Most programs have no sender, and its loop takes long to import.
        from txaware.messaging.local_way import LocalWay

        return LocalWay(service)

    table = store_context.table
    first = next(iter(stores_of(table)), None)

    def require_owned() -> None:
        for one in stores_of(table):
            if isinstance(one, Announces):
                one.require_owned()

    shards = ShardDirectory(table, store_context.settings)
    administration = Administration(service, retention, store_context, shards)
    if is_home and isinstance(table, ShardedTable):
        administration.keep_for_shards(here=table.shards, elsewhere=())
    limits = Limits(store_context.settings, store_context.barrier is not None)
    return Parts(
        service=service,
        tables=tables,
        queues=queues,
        groups=groups,
        producers=service.producing,
        coordinator=store_context.coordinator,
        administration=administration,
        ask_limits=lambda: limits,
        clock_ms=store_context.clock_ms,
        close=close_all,
        way=way,
        served=Served(
            service=service,
            tables=tables,
            queues=queues,
            groups=groups,
            administration=administration,
            coordinator=store_context.coordinator,
            settings=store_context.settings,
            clock_ms=store_context.clock_ms,
            overview=Overview(service, retention, store_context, queues),
            owners=Owners(
                store_context.coordinator,
                store_context.settings,
                clock_ms=store_context.clock_ms,
            ),
            write_entries=_write_entries(store_context.coordinator),
            shares_journal=store_context.barrier is not None,
            directory=first.directory if isinstance(first, InDirectory) else None,
            announce=first.announce if isinstance(first, Announces) else None,
            require_owned=require_owned if isinstance(first, Announces) else None,
        ),
    )


def _write_entries(coordinator: Coordinator) -> WriteEntries | None:
    """Returns what lets writes of other stores in, where the coordinator is here."""
    if in_process(coordinator) is None:
        return None
    return WriteEntries(cast(EmbeddedCoordinator, coordinator))


def _coordinator(
    table: OrderedTable,
    coordinator: str | Coordinator | None,
    settings: Settings,
    token: str | None,
) -> tuple[Coordinator, WriteBarrier | None]:
    """Returns the coordinator, and its barrier if its journal is in the same table."""
    if coordinator in (None, "embedded"):
        kept = journaled(table)
        embedded = EmbeddedCoordinator(
            None if kept is None else kept.journal,
            clock_ms=table.clock.now_ms,  # so that rows are never older than pointers
            elapsed_ms=table.clock.elapsed_ms,
            timeout_s=settings.transaction_timeout_s,
            called="this Messaging",
        )
        return embedded, embedded.barrier
    chosen = named_coordinator(coordinator, settings, token=token)
    here = in_process(chosen)
    if here is not None:
        here.barrier.is_shared = True
        # This is never taken back: the rows of the other store are still there when
        # this one is opened again.
        pointer = chosen.snapshot().transaction_id
        here.barrier.write_elsewhere(pointer, [ANOTHER_STORE])
    return chosen, None


@contextmanager
def opened_table(
    url: str, settings: Settings, clock_ms: ClockMs, *, shards: int = 1
) -> Iterator[OrderedTable]:
    """Opens the rows alone, without a service; nobody else can open them meanwhile.

    So many shards are made where there are fewer.
    """
    if is_http(url):
        raise BadRequest(
            f"{url} is a server, and whole data is read by its owner alone: stop the "
            f"server, and name what it serves"
        )
    table = open_whole(url, settings, clock_ms, shards=shards)
    try:
        yield table
    finally:
        table.close()


@contextmanager
def opened_coordinator(
    table: OrderedTable, coordinator: str | Coordinator | None, settings: Settings
) -> Iterator[Coordinator]:
    """Opens the coordinator of these rows; one that the caller passes in stays open."""
    chosen, barrier = _coordinator(table, coordinator, settings, None)
    try:
        claim(table, OTHER if barrier is None else EMBEDDED, coordinator)
        yield chosen
    finally:
        if coordinator is None or isinstance(coordinator, str):
            chosen.close()
