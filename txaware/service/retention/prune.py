"""Has the coordinator forget invalid transactions that nobody can need any more."""

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import KeeperMissing
from txaware.model.reports import Pruned
from txaware.service.keepers import HOW_TO_GO_ON, Kept
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.service.store_context import StoreContext


class Forgetting:
    """Forgets invalid transactions, once every row of them is marked.

    Rows of a forgotten transaction become visible. A clean-up marks the rows of the
    store. Participants that keep rows elsewhere judge them by themselves, so nothing
    that one of them may still hold is forgotten, registered or not.
    """

    def __init__(self, store_context: StoreContext, marking: Marking) -> None:
        self._marking = marking
        self._keepers = store_context.keepers
        self._coordinator = store_context.coordinator
        self._barrier = store_context.barrier

    def prune(self, late_ms: int, *, exclusive: bool) -> Pruned:
        """Forgets on an operator's request; raises `KeeperMissing`.

        Without a barrier it forgets only pointers from before `late_ms`: nobody writes
        with them now.
        """
        # First the snapshot: keepers asked later know all that is invalid in it.
        snapshot = self._coordinator.snapshot()
        if not self._is_alone and not exclusive:
            return self._shared(snapshot)
        kept = self._keepers.ask()
        if exclusive:  # then nobody is left who never registered
            kept = kept.of_registered()
        return self._forget(snapshot, kept, late_ms, watched_from=0)

    def by_itself(self) -> Pruned:
        """Forgets by itself, if the coordinator is ours alone and all keepers answer.

        Transactions from before keepers were written down are left to `prune`, as
        nobody knows who wrote elsewhere with them.
        """
        if not self._coordinator.invalid_size():
            return Pruned(0, None)
        snapshot = self._coordinator.snapshot()
        if not self._is_alone:
            return self._shared(snapshot)
        try:
            kept = self._keepers.ask()
        except KeeperMissing as error:
            return _held(0, len(self._old(snapshot)), str(error))
        return self._forget(snapshot, kept, 0, watched_from=self._keepers.unwatched)

    @property
    def _is_alone(self) -> bool:
        return self._barrier is not None and not self._barrier.is_shared

    def _forget(
        self, snapshot: Transaction, kept: Kept, late_ms: int, *, watched_from: int
    ) -> Pruned:
        bound = kept.bound
        if kept.bounds:
            # With a pointer every outcome below it is forgotten. Keepers may write with
            # what is still open, and ask about it later.
            bound = min(bound, snapshot.first_in_progress)
        free = [
            pointer
            for pointer in self._marking.forgettable(snapshot, late_ms)
            if watched_from < pointer < bound
        ]
        before = self._coordinator.invalid_size()
        if free:
            self._coordinator.truncate_invalid_tx(free)
        count = max(0, before - self._coordinator.invalid_size())
        return self._why_not(count, snapshot, kept, watched_from)

    def _old(self, snapshot: Transaction) -> list[int]:
        """Returns the invalid pointers that no grace keeps any more, oldest first."""
        grace = int(self._coordinator.settle_grace_s * 1000) * POINTERS_PER_MS
        invalids = snapshot.invalids
        return list(invalids[: invalids.place(snapshot.transaction_id - grace)])

    def _why_not(
        self, pruned: int, snapshot: Transaction, kept: Kept, watched_from: int
    ) -> Pruned:
        """Returns how many were forgotten, and the reason why others are kept."""
        old = self._old(snapshot)
        needed = [pointer for pointer in old if pointer >= kept.bound]
        if needed:
            names = ", ".join(kept.names_below(needed[-1]))
            why = f"participants with rows of their own may still hold them: {names}"
            unasked = [n for n in kept.unregistered if kept.bounds[n] <= needed[-1]]
            if unasked:
                why += f". Nobody registered {', '.join(unasked)}: {HOW_TO_GO_ON}"
            return _held(pruned, len(needed), why)
        return _held(
            pruned,
            sum(pointer <= watched_from for pointer in old),
            "an earlier version ended them, which wrote down nobody with rows of their "
            "own. When no participant has any, or all that do are registered, txaware "
            "transactions prune forgets them",
        )

    def _shared(self, snapshot: Transaction) -> Pruned:
        return _held(
            0,
            len(self._old(snapshot)),
            "others may use this coordinator, and need them. Where nobody does, "
            "txaware transaction prune --exclusive forgets them",
        )


def _held(pruned: int, count: int, why: str) -> Pruned:
    if not count:
        return Pruned(pruned, None)
    return Pruned(pruned, None, f"{count:,} are kept: {why}", count)
