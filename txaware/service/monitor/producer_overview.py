"""The producers that an operator sees at a glance."""

from collections.abc import Container, Mapping

import attrs

from coordinator.transaction import POINTERS_PER_MS
from txaware.model.interfaces import OrderedTable
from txaware.store.producer_table import ProducerRow, ProducerTable


@attrs.frozen(kw_only=True)
class ProducerOverview:
    """A producer: its epoch, who opened it, and when it was last used.

    `transaction` is its open one, known for a transactional id. `has_ended` is True
    after a gap in its sequences: it publishes nothing more.
    """

    producer_id: int
    transactional_id: str | None
    epoch: int
    owner: str | None
    last_ms: int
    has_ended: bool = False
    transaction: int | None = None


def producer_overviews(table: OrderedTable) -> list[ProducerOverview]:
    """Reads all producers, but for those that clients drew for a while.

    Those with a transactional id come first, and then those that were used last.
    """
    rows = ProducerTable(table)
    listed = {row.producer_id: row for row in rows.producers() if not row.by_client}
    last_ms = {producer_id: row.opened_ms for producer_id, row in listed.items()}
    if listed:
        for producer_id, _, state in rows.all_states():
            if producer_id in listed:
                last_ms[producer_id] = max(last_ms[producer_id], state.last_ms)
    found = [_overview(row, last_ms[row.producer_id]) for row in listed.values()]
    return sorted(found, key=lambda one: (one.transactional_id is None, -one.last_ms))


def _overview(row: ProducerRow, last_ms: int) -> ProducerOverview:
    return ProducerOverview(
        producer_id=row.producer_id,
        transactional_id=row.transactional_id,
        epoch=row.epoch,
        owner=row.owner,
        last_ms=last_ms,
        has_ended=row.has_ended,
    )


def with_transaction(
    producer: ProducerOverview, begun: Mapping[int, int], is_open: Container[int]
) -> ProducerOverview:
    """Returns a producer with the transaction that it began last, if that is open."""
    pointer = begun.get(producer.producer_id)
    if pointer is None:
        return producer
    return attrs.evolve(
        producer,
        last_ms=max(producer.last_ms, pointer // POINTERS_PER_MS),
        transaction=pointer if pointer in is_open else None,
    )
