"""Finds out whether a commit whose answer was lost took place."""

from collections.abc import Callable

from coordinator.errors import TransactionOutcomeUnknown
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction


def settle(
    coordinator: Coordinator,
    tx: Transaction | int,
    *,
    open_for_s: Callable[[], float],
) -> bool:
    """Returns True when it committed, False when it did not and now never will.

    One that begins with its commit is settled by the coordinator. A pointer that is
    neither open nor invalid has committed, as long as the coordinator cannot have
    forgotten that it is invalid. `open_for_s` says how long ago the transaction was
    last known to be open; it cannot have ended before that.
    Raises `TransactionOutcomeUnknown` when the outcome cannot be found out.
    """
    try:
        if coordinator.invalidate(tx):
            return False
        now = coordinator.snapshot()
        grace_s = coordinator.settle_grace_s
    except TransactionOutcomeUnknown:
        raise
    except Exception as error:
        raise _unknown(_label(tx), f"cannot be asked ({error})") from error
    pointer = tx if isinstance(tx, int) else tx.transaction_id
    if pointer in now.invalids:
        return False
    if open_for_s() >= grace_s:
        raise _unknown(_label(tx), f"remembers such things for {grace_s:g} s only")
    if not now.is_visible(pointer):
        raise _unknown(_label(tx), "knows no end of it")
    return True


def _label(tx: Transaction | int) -> str:
    return f"transaction {tx}" if isinstance(tx, int) else tx.label


def _unknown(label: str, why: str) -> TransactionOutcomeUnknown:
    return TransactionOutcomeUnknown(
        f"{label} may or may not be committed: the coordinator {why}. "
        f"Nothing was undone; look before you repeat anything"
    )
