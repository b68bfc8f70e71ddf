"""The table, the coordinator and the state that all parts of the service share."""

import threading

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import AdmitsWrites
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.service.keepers import Keepers
from txaware.service.producers.producer_ids import ProducerIds
from txaware.service.producers.removal import ProducerRemoval
from txaware.service.producers.sequences import Sequences
from txaware.service.producers.transactional_holders import Holders
from txaware.service.read.scan_cache import ScanCache
from txaware.service.retention.compaction import Compaction
from txaware.service.retention.version_retention import VersionRetention
from txaware.service.visibility import ForeignPointers
from txaware.service.wakeups import Endings
from txaware.service.write.references import References
from txaware.service.write.transaction_writes import TransactionWrites
from txaware.store.payload_table import PayloadTable


def _cache(store_context: "StoreContext") -> ScanCache:
    return ScanCache(store_context.settings.cache_bytes)


def _references(store_context: "StoreContext") -> References:
    return References(store_context.table, PayloadTable(store_context.table))


def _keepers(store_context: "StoreContext") -> Keepers:
    return Keepers(
        store_context.table, store_context.coordinator, store_context.clock_ms
    )


def _versions(store_context: "StoreContext") -> VersionRetention:
    return VersionRetention(
        store_context.table,
        store_context.coordinator,
        store_context.foreign_pointers,
        store_context.rewriting,
        store_context.settings,
        store_context.barrier,
        store_context.clock_ms,
    )


def _producer_ids(store_context: "StoreContext") -> ProducerIds:
    most = store_context.settings.max_producers_per_principal
    return ProducerIds(store_context.table, store_context.clock_ms, most=most)


def _sequences(store_context: "StoreContext") -> Sequences:
    return Sequences(store_context.table)


def _producer_removal(store_context: "StoreContext") -> ProducerRemoval:
    return ProducerRemoval(
        store_context.table,
        store_context.producer_ids,
        store_context.sequences,
        store_context.transactional_holders,
        store_context.clock_ms,
        expiry_s=store_context.settings.producer_expiry_s,
        transactional_expiry_s=store_context.settings.transactional_id_expiry_s,
    )


def _writes(store_context: "StoreContext") -> TransactionWrites:
    return TransactionWrites(
        store_context.table,
        store_context.coordinator,
        store_context.barrier,
        endings=store_context.endings,
        references=store_context.references,
        admission=store_context.admission,
        accept_unknown_pointers=store_context.settings.accept_unknown_pointers,
    )


def _foreign_pointers(store_context: "StoreContext") -> ForeignPointers:
    return ForeignPointers(
        None if store_context.barrier is None else store_context.barrier.reaches
    )


@attrs.frozen
class StoreContext:
    """One table, one coordinator, and what the parts of the service share.

    `barrier` belongs to an embedded coordinator of this process, which keeps its
    journal in the same table (or in memory, like the table). Without a barrier,
    pointers are taken as they come, and nobody tells when a transaction ends. A
    clean-up holds `rewriting` while it removes rows, or marks rows that it has just
    read. `admission` lets writes in where rows do not lie beside the coordinator's
    journal. `decided_by` is `embedded`, the address of another coordinator, or None
    where that is unknown.
    """

    table: OrderedTable
    coordinator: Coordinator
    barrier: WriteBarrier | None
    settings: Settings
    clock_ms: ClockMs = system_clock_ms
    cache: ScanCache = attrs.field(default=attrs.Factory(_cache, takes_self=True))
    references: References = attrs.field(
        default=attrs.Factory(_references, takes_self=True)
    )
    foreign_pointers: ForeignPointers = attrs.field(
        default=attrs.Factory(_foreign_pointers, takes_self=True)
    )
    decided_by: str | None = "embedded"
    admission: AdmitsWrites | None = None
    keepers: Keepers = attrs.field(default=attrs.Factory(_keepers, takes_self=True))
    endings: Endings = attrs.field(factory=Endings)
    rewriting: threading.Lock = attrs.field(factory=threading.Lock, eq=False)
    writes: TransactionWrites = attrs.field(
        default=attrs.Factory(_writes, takes_self=True)
    )
    versions: VersionRetention = attrs.field(
        default=attrs.Factory(_versions, takes_self=True)
    )
    compaction: Compaction = attrs.field(factory=Compaction)
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


def carrying(store_context: StoreContext) -> Coordinator | None:
    """Returns the coordinator if its commits can carry rows of this store.

    Its journal lies in the store then. A class derived from ours may replace any call,
    so that it is not taken for one.
    """
    journal = getattr(store_context.table, "journal", None)
    is_ours = (
        store_context.barrier is not None
        and store_context.admission is None
        and type(store_context.coordinator) is EmbeddedCoordinator
    )
    return store_context.coordinator if is_ours and journal is not None else None
