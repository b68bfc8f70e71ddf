"""Who began which transaction, so that nobody else ends it or writes in it."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from txaware.auth import Principal
from txaware.errors import NotAuthorized

# Of each principal: a flood of one makes nobody else's transactions anybody's.
REMEMBERED = 100_000


class Owners:
    """Principals by transaction; pointers are times, which anybody could guess.

    What was begun before a restart of the server has no owner here, and whoever may use
    transactions may go on with it.
    """

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
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
            while len(own) > self._remembered:
                oldest, _ = own.popitem(last=False)
                self._names.pop(oldest, None)

    def check(self, pointers: Iterable[int], principal: Principal) -> None:
        """Raises where somebody else began one of them; operators may end any."""
        for pointer in pointers:
            owner = self._names.get(pointer)
            if owner not in (None, principal.name) and not principal.is_operator:
                raise NotAuthorized(
                    f"{principal.name} may not use transaction {pointer}: somebody "
                    f"else began it"
                )
