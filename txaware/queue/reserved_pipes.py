"""The participant that keeps the pipes which a transaction pushes to."""

from typing import Protocol

from coordinator.interfaces import Cargo, Coordinator, Participant, empty_cargo
from coordinator.transaction import Transaction
from txaware.errors import MisusedTransaction
from txaware.model.queue_service import QueueService
from txaware.model.queues import MOST_LENT, PipeShare, checked_delay_s, checked_priority


class LendsNames(Protocol):
    """A store of pushers' names, each used by one push at a time."""

    def take(self) -> str:
        """Returns a name that nobody has."""

    def give_back(self, name: str) -> None:
        """Lets others have a name."""


class ReservedPipes(Participant):
    """The pipes that one transaction pushes to, each until it is full.

    It writes nothing: the publisher of the transaction does. At the end, others may
    push as the pushers that were lent to it.
    """

    shares_journal = True
    transaction_aware_name = "pipes that are pushed to"

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._tx: Transaction | None = None
        self._left: dict[tuple[object, ...], PipeShare] = {}
        self._lent: dict[LendsNames, str] = {}

    def pipes_for(
        self,
        queue: str,
        items: int,
        *,
        pusher: str | None,
        free: LendsNames,
        delay_s: float,
        priority: int,
    ) -> list[PipeShare]:
        """Returns the pipes for a push, and how many of its items go to each.

        What there is room for beside them is kept for later pushes without a delay.
        """
        if self._tx is None:
            raise MisusedTransaction("this push takes part in no transaction")
        checked_delay_s(delay_s)
        key = (queue, pusher or free, checked_priority(priority))
        kept = None if delay_s else self._left.get(key)
        shares = [] if kept is None else [kept]
        room = 0 if kept is None else kept.items
        name = pusher or self._name_from(free)
        while room < items:
            more = self._service.pipes_for(
                queue,
                min(items - room, MOST_LENT),
                transaction=self._tx,
                pusher=name,
                delay_s=delay_s,
                priority=priority,
            )
            shares += more
            room += sum(share.items for share in more)
        last = shares[-1]
        left = PipeShare(last.pipe, room - items)
        if not delay_s:
            self._left[key] = left
        shares[-1] = PipeShare(last.pipe, last.items - left.items)
        return shares

    def _name_from(self, free: LendsNames) -> str:
        if free not in self._lent:
            self._lent[free] = free.take()
        return self._lent[free]

    def start_tx(self, tx: Transaction) -> None:
        """Begins to keep pipes for a transaction."""
        self._tx = tx

    def commit_cargo(self, coordinator: Coordinator) -> Cargo | None:
        """Returns a cargo without rows."""
        return empty_cargo(coordinator)

    def post_tx_commit(self) -> None:
        """Lets others push as these pushers."""
        self._let_go()

    def rollback_tx(self) -> bool:
        """Lets others push as these pushers; nothing was written."""
        self._let_go()
        return True

    def _let_go(self) -> None:
        lent, self._lent, self._tx = self._lent, {}, None
        for free, name in lent.items():
            free.give_back(name)
