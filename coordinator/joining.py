"""A thing of many transactions, whose changes join each of them by themselves."""

from coordinator.errors import MisusedTransaction
from coordinator.interfaces import Coordinator, Participant


def require_own(
    name: str,
    own: Coordinator,
    coordinator: Coordinator,
    *,
    block: str = "with messaging.transaction(...)",
) -> None:
    """Refuses a block of another coordinator than a participant's own.

    It would ask its own whether the block has committed, and write outside of it.
    """
    if own is not coordinator:
        raise MisusedTransaction(
            f"{name} takes part in blocks of the messaging that it was opened with "
            f"({block}: ...), and this block is of another one"
        )


class JoinsByItself(Participant):
    """Takes part in a transaction without doing anything in it.

    So `with messaging.transaction(table):` works for a table whose changes are a
    participant of their own, which joins the block at the first of them.
    """

    shares_journal = True
    transaction_aware_name: str
    _coordinator: Coordinator

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block of another coordinator, which no change would join."""
        require_own(self.transaction_aware_name, self._coordinator, coordinator)

    def post_tx_prepare(self) -> None:
        """Does nothing, as `start_tx`."""
