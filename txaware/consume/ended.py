"""How a transaction ended that moved a consumer, also where its answer was lost."""

from collections.abc import Callable

import attrs

from coordinator.context import Status, TransactionContext
from coordinator.resolve_outcome import settle


@attrs.frozen
class Attempt:
    """A transaction that moves a consumer, and since when (by `clock_s`) it is open."""

    context: TransactionContext
    clock_s: Callable[[], float]
    began_s: float

    @classmethod
    def begin(
        cls, context: TransactionContext, clock_s: Callable[[], float]
    ) -> "Attempt":
        """The attempt of a transaction that begins now, or did so before."""
        return cls(context, clock_s, clock_s())

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.context.status in (Status.ACTIVE, Status.ENDING)

    def committed(self) -> bool:
        """Whether it did, once it has ended; `TransactionOutcomeUnknown` if it must.

        Where the answer to its commit was lost, the coordinator is asked again.
        """
        if self.context.status is not Status.UNKNOWN:
            return self.context.status is Status.COMMITTED
        return settle(
            self.context.coordinator,
            self.context.transaction.transaction_id,
            open_for_s=lambda: self.clock_s() - self.began_s,
        )
