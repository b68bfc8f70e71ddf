"""The store that a server serves: a value, so that it is opened without the server."""

from collections.abc import Callable
from pathlib import Path

import attrs

from coordinator.interfaces import Coordinator
from txaware.model.clock import ClockMs
from txaware.model.settings import Settings
from txaware.server.owners import Owners
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.server.server_file import ServerFile
from txaware.server.write_entries import WriteEntries
from txaware.service.administration import Administration
from txaware.service.groups.local_groups import LocalGroups
from txaware.service.local import LocalService
from txaware.service.monitor.overview import Overview
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.table_store import TableStore


@attrs.frozen(kw_only=True)
class Served:
    """The parts of a store that is served, and its directory if it has one.

    `write_entries` are the writes of other stores, where the coordinator is here.
    `announce` is told where a store without a directory is served, or None for nowhere.
    `require_owned` raises once the store is another process's. `known` are the servers
    that run: where each is found from here, and from other hosts.
    """

    service: LocalService
    tables: TableStore
    queues: LocalQueues
    groups: LocalGroups
    administration: Administration
    coordinator: Coordinator
    settings: Settings
    clock_ms: ClockMs
    overview: Overview
    owners: Owners
    write_entries: WriteEntries | None = None
    parts_elsewhere: PartsElsewhere | None = None
    shares_journal: bool = False
    directory: Path | None = None
    announce: Callable[[str | None], None] | None = None
    require_owned: Callable[[], None] | None = None
    known: list[tuple[ServerFile, str]] = attrs.field(factory=list)
