"""Who began which transaction, so that nobody else ends it or writes in it."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from coordinator.embedded import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from txaware.auth import ANYBODY, Principal
from txaware.errors import NotAuthorized

# Of each principal: a flood of one makes nobody else's transactions anybody's.
REMEMBERED = 100_000


class Owners:
    """Principals by transaction; pointers are times, which anybody could guess.

    All servers of a store share one. What the program itself began is nobody's on the
    network. The owner of what was begun before a restart, or elsewhere, is not known
    here: whoever may use transactions may go on with it.
    """

    def __init__(
        self, coordinator: Coordinator, *, remembered: int = REMEMBERED
    ) -> None:
        self._gate = (
            coordinator.gate if isinstance(coordinator, EmbeddedCoordinator) else None
        )
        self._remembered = remembered
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._by_name: dict[str, OrderedDict[int, None]] = {}

    def began(self, pointers: Iterable[int], principal: Principal) -> None:
        """It was given these pointers: those of transactions, and of checkpoints."""
        with self._lock:
            own = self._by_name.setdefault(principal.name, OrderedDict())
            for pointer in pointers:
                self._names[pointer] = principal.name
                own[pointer] = None
            for _ in range(len(own) - self._remembered):
                oldest, _ = own.popitem(last=False)
                if self._gate is not None and self._gate.is_open(oldest):
                    own[oldest] = None  # which its owner still has to end
                else:
                    self._names.pop(oldest, None)

    def check(self, pointers: Iterable[int], principal: Principal) -> None:
        """Raises where somebody else began one of them; operators may end any."""
        for pointer in pointers:
            owner = self._names.get(pointer)
            if owner == principal.name or principal.is_operator:
                continue
            if owner is not None or self._began_here(pointer):
                raise NotAuthorized(
                    f"{principal.name} may not use transaction {pointer}: somebody "
                    f"else began it"
                )

    def may_abort(self, pointers: Iterable[int], principal: Principal) -> bool:
        """Whether it surely began all of them, and so knows that all is undone.

        Without tokens that is taken for granted.
        """
        if principal is ANYBODY:
            return True
        return all(self._names.get(pointer) == principal.name for pointer in pointers)

    def _began_here(self, pointer: int) -> bool:
        return self._gate is not None and self._gate.began_here(pointer)
