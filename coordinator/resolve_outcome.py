"""Finds out whether a commit whose answer was lost took place."""

from collections.abc import Callable

from coordinator.errors import TransactionOutcomeUnknown
from coordinator.interfaces import Coordinator


def settle(
    coordinator: Coordinator, pointer: int, *, open_for_s: Callable[[], float]
) -> bool:
    """Returns True when it committed, False when it did not and now never will.

    A pointer that is neither open nor invalid has committed, as long as the coordinator
    cannot have forgotten that it is invalid. `open_for_s` says how long ago the
    transaction was last known to be open; it cannot have ended before that.
    Raises `TransactionOutcomeUnknown` when the outcome cannot be found out.
    """
    try:
        if coordinator.invalidate(pointer):
            return False
        now = coordinator.snapshot()
        grace_s = coordinator.settle_grace_s
    except Exception as error:
        raise _unknown(pointer, f"cannot be asked ({error})") from error
    if pointer in now.invalids:
        return False
    if open_for_s() >= grace_s:
        raise _unknown(pointer, f"remembers such things for {grace_s:g} s only")
    if not now.is_visible(pointer):
        raise _unknown(pointer, "knows no end of it")
    return True


def _unknown(pointer: int, why: str) -> TransactionOutcomeUnknown:
    return TransactionOutcomeUnknown(
        f"transaction {pointer} may or may not be committed: the coordinator {why}. "
        f"Nothing was undone; look before you repeat anything"
    )
