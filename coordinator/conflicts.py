"""Who changed which key, as far as it can still matter: conflicts found by key."""

from collections import deque
from collections.abc import Iterable

from coordinator.transaction import NO_POINTER


class CommittedChanges:
    """The keys of commits that a transaction still open did not see.

    A commit is reserved while its record goes to disk: whoever is open then and changed
    the same key is going to conflict with it.
    """

    def __init__(self) -> None:
        self._pointer_of: dict[bytes, int] = {}
        self._reserved: set[bytes] = set()
        self._in_order: deque[tuple[int, frozenset[bytes]]] = deque()

    def conflict(self, keys: Iterable[bytes], since: int) -> bytes | None:
        """A key of these that a commit above `since` changed, or None."""
        pointer_of, reserved = self._pointer_of, self._reserved
        for key in keys:
            if pointer_of.get(key, 0) > since or key in reserved:
                return key
        return None

    def reserve(self, keys: frozenset[bytes]) -> None:
        """From now on these conflict with everybody."""
        self._reserved |= keys

    def release(self, keys: frozenset[bytes]) -> None:
        """What was reserved for them is not going to happen, or has happened."""
        self._reserved -= keys

    def add(self, commit_pointer: int, keys: frozenset[bytes]) -> None:
        """From now on these conflict with all that began below `commit_pointer`."""
        if keys:
            self._in_order.append((commit_pointer, keys))
            self._pointer_of |= dict.fromkeys(keys, commit_pointer)

    def forget_below(self, pointer: int) -> None:
        """Forgets the commits that everybody who began at `pointer` or later saw."""
        in_order, pointer_of = self._in_order, self._pointer_of
        if pointer == NO_POINTER:
            in_order.clear()
            pointer_of.clear()
        while in_order and in_order[0][0] < pointer:
            commit_pointer, keys = in_order.popleft()
            for key in keys:
                if pointer_of.get(key) == commit_pointer:
                    del pointer_of[key]
