"""The open transactions that an operator sees at a glance."""

from collections.abc import Mapping

import attrs

from coordinator.interfaces import Coordinator
from coordinator.optional_ports import in_process
from coordinator.prepared_transactions import TwoPhases
from coordinator.transaction import POINTERS_PER_MS, Transaction
from coordinator.transaction_status import OPEN, standings
from txaware.service.monitor.blocked_topics import Blocker
from txaware.service.monitor.overview_report import OpenOverview


def open_overviews(
    coordinator: Coordinator, snapshot: Transaction, blockers: Mapping[str, Blocker]
) -> list[OpenOverview]:
    """Returns open transactions: blockers of topics first, then the oldest."""
    blocks: dict[int, list[tuple[str, int]]] = {}
    for name, blocker in blockers.items():
        blocks.setdefault(blocker.pointer, []).append((name, blocker.since_ms))
    found = []
    for one in _open_ones(coordinator, snapshot):
        waiting = sorted(w for p in one.pointers for w in blocks.get(p, ()))
        names = [name for name, _ in waiting]
        since_ms = min([since_ms for _, since_ms in waiting], default=None)
        found.append(attrs.evolve(one, blocks=names, blocks_since_ms=since_ms))
    return sorted(found, key=lambda one: (not one.blocks, one.id))


def _open_ones(coordinator: Coordinator, snapshot: Transaction) -> list[OpenOverview]:
    if in_process(coordinator) is None:  # it is not asked for more each second
        return [
            OpenOverview(pointer, pointer // POINTERS_PER_MS, pointers=(pointer,))
            for pointer in snapshot.in_progress
        ]
    names = {}
    if isinstance(coordinator, TwoPhases):
        names = {one.transaction_id: one.name for one in coordinator.prepared()}
    return [
        OpenOverview(
            one.transaction_id,
            one.began_ms,
            pointers=one.pointers,
            type=one.type,
            stage=one.stage,
            expires_ms=one.expires_ms,
            address=one.address,
            is_held=one.is_held,
            prepared=names.get(one.transaction_id),
        )
        for one in standings(coordinator, OPEN)
    ]
