"""The participant that keeps the pipes which a transaction pushes to."""

from typing import Any, Protocol

from coordinator.cargo import empty_cargo
from coordinator.interfaces import Cargo, Coordinator, Participant
from coordinator.transaction import Transaction
from txaware.errors import MisusedTransaction
from txaware.model.queue_service import QueueService
from txaware.model.queues import checked_delay_s, checked_priority


class LendsNames(Protocol):
    """A store of pushers' names, each used by one push at a time."""

    def take(self) -> str:
        """Returns a name that nobody has."""

    def give_back(self, name: str) -> None:
        """Lets others have a name."""


class ReservedPipes(Participant):
    """The pipes that one transaction pushes to, the same for all its pushes.

    It writes nothing: the publisher of the transaction does. At the end, others may
    push as the pushers that were lent to it.
    """

    shares_journal = True
    transaction_aware_name = "pipes that are pushed to"

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._tx: Transaction | None = None
        self._pipes: dict[tuple[object, ...], str] = {}
        self._lent: list[tuple[LendsNames, str]] = []

    def pipe_for(
        self, queue: str, pusher: str | None, free: LendsNames, options: dict[str, Any]
    ) -> str:
        """Returns the name of the pipe for a push; one without delay is remembered."""
        if self._tx is None:
            raise MisusedTransaction("this push takes part in no transaction")
        checked_delay_s(options["delay_s"])
        key = (queue, pusher or id(free), checked_priority(options["priority"]))
        if not options["delay_s"] and key in self._pipes:
            return self._pipes[key]
        name = pusher
        if name is None:
            name = free.take()
            self._lent.append((free, name))
        pipe = self._service.pipe_for(
            queue, transaction=self._tx, pusher=name, **options
        )
        if not options["delay_s"]:
            self._pipes[key] = pipe
        return pipe

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
        lent, self._lent, self._tx = self._lent, [], None
        for free, name in lent:
            free.give_back(name)
