"""The table, the coordinator and the state that all parts of the service share."""

import threading

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.service.keepers import Keepers
from txaware.service.producers.producer_ids import ProducerIds
from txaware.service.producers.removal import ProducerRemoval
from txaware.service.producers.sequences import Sequences
from txaware.service.producers.transactional_holders import Holders
from txaware.service.read.scan_cache import ScanCache
from txaware.service.retention.position_retention import PositionRetention
from txaware.service.retention.table_retention import TableRetention
from txaware.service.visibility import ForeignPointers
from txaware.service.wakeups import Endings
from txaware.service.write.references import References
from txaware.service.write.transaction_writes import TransactionWrites
from txaware.store.payload_table import PayloadTable


def _cache(site: "StoreContext") -> ScanCache:
    return ScanCache(site.settings.cache_bytes)


def _references(site: "StoreContext") -> References:
    return References(site.table, PayloadTable(site.table))


def _keepers(site: "StoreContext") -> Keepers:
    return Keepers(site.table, site.coordinator, site.clock_ms)


def _positions(site: "StoreContext") -> PositionRetention:
    return PositionRetention(
        site.table,
        site.coordinator,
        site.strangers,
        site.rewriting,
        site.settings,
        site.gate,
    )


def _tables(site: "StoreContext") -> TableRetention:
    return TableRetention(
        site.table,
        site.coordinator,
        site.strangers,
        site.rewriting,
        site.gate,
        site.positions.looks,
        site.clock_ms,
    )


def _producer_ids(site: "StoreContext") -> ProducerIds:
    most = site.settings.max_producers_per_principal
    return ProducerIds(site.table, site.clock_ms, most=most)


def _sequences(site: "StoreContext") -> Sequences:
    return Sequences(site.table)


def _producer_removal(site: "StoreContext") -> ProducerRemoval:
    return ProducerRemoval(
        site.table,
        site.producer_ids,
        site.sequences,
        site.transactional_holders,
        site.clock_ms,
        expiry_s=site.settings.producer_expiry_s,
        transactional_expiry_s=site.settings.transactional_id_expiry_s,
    )


def _writes(site: "StoreContext") -> TransactionWrites:
    return TransactionWrites(
        site.table,
        site.coordinator,
        site.gate,
        endings=site.endings,
        references=site.references,
        accept_unknown_pointers=site.settings.accept_unknown_pointers,
    )


def _strangers(site: "StoreContext") -> ForeignPointers:
    return ForeignPointers(None if site.gate is None else site.gate.reaches)


@attrs.frozen
class StoreContext:
    """One table, one coordinator, and what the parts of the service share.

    `gate` belongs to an embedded coordinator of this process, which keeps its journal
    in the same table (or in memory, like the table). Without a gate, pointers are taken
    as they come, and nobody tells when a transaction ends. A clean-up holds `rewriting`
    while it removes rows, or marks rows that it has just read. `decided_by` is
    `embedded`, the address of another coordinator, or None where that is unknown.
    """

    table: OrderedTable
    coordinator: Coordinator
    gate: WriteBarrier | None
    settings: Settings
    clock_ms: ClockMs = system_clock_ms
    cache: ScanCache = attrs.field(default=attrs.Factory(_cache, takes_self=True))
    references: References = attrs.field(
        default=attrs.Factory(_references, takes_self=True)
    )
    strangers: ForeignPointers = attrs.field(
        default=attrs.Factory(_strangers, takes_self=True)
    )
    decided_by: str | None = "embedded"
    keepers: Keepers = attrs.field(default=attrs.Factory(_keepers, takes_self=True))
    endings: Endings = attrs.field(factory=Endings)
    rewriting: threading.Lock = attrs.field(factory=threading.Lock, eq=False)
    writes: TransactionWrites = attrs.field(
        default=attrs.Factory(_writes, takes_self=True)
    )
    positions: PositionRetention = attrs.field(
        default=attrs.Factory(_positions, takes_self=True)
    )
    producer_ids: ProducerIds = attrs.field(
        default=attrs.Factory(_producer_ids, takes_self=True)
    )
    sequences: Sequences = attrs.field(
        default=attrs.Factory(_sequences, takes_self=True)
    )
    transactional_holders: Holders = attrs.field(factory=Holders)
    producer_removal: ProducerRemoval = attrs.field(
        default=attrs.Factory(_producer_removal, takes_self=True)
    )
    tables: TableRetention = attrs.field(
        default=attrs.Factory(_tables, takes_self=True)
    )


def carrier(site: StoreContext) -> Coordinator | None:
    """Returns the coordinator if its commits can carry rows of this store.

    Its journal lies in the store then. A class derived from ours may replace any call,
    so that it is not taken for one.
    """
    journal = getattr(site.table, "journal", None)
    is_ours = site.gate is not None and type(site.coordinator) is EmbeddedCoordinator
    return site.coordinator if is_ours and journal is not None else None
