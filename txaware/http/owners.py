"""Who began which transaction, so that nobody else ends it or writes in it."""

import threading
from collections import OrderedDict

from txaware.auth import Principal
from txaware.errors import NotAuthorized

REMEMBERED = 100_000


class Owners:
    """Principals by transaction; pointers are times, which anybody could guess.

    What was begun before a restart of the server has no owner here, and whoever may use
    transactions may go on with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: OrderedDict[int, str] = OrderedDict()

    def began(self, transaction_id: int, principal: Principal) -> None:
        """It began a transaction."""
        with self._lock:
            self._names[transaction_id] = principal.name
            while len(self._names) > REMEMBERED:
                self._names.popitem(last=False)

    def check(self, transaction_id: int, principal: Principal) -> None:
        """Raises where somebody else began it; operators may end any."""
        owner = self._names.get(transaction_id)
        if owner not in (None, principal.name) and not principal.is_operator:
            raise NotAuthorized(
                f"{principal.name} may not use transaction {transaction_id}: somebody "
                f"else began it"
            )
