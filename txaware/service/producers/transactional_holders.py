"""Who holds each transactional id in this process, with a lock for each."""

import threading
from weakref import WeakValueDictionary

import attrs

from txaware.model.topics import checked_transactional_id


@attrs.define
class Holder:
    """The instance that holds a transactional id, and its transactions.

    `producer_id` is None until the row was read. `pointer` is the last transaction that
    it began, which saw so many `commits`, `committed` the last one that is known to
    have committed, and `left` the last one that it rolled back. Up to `forgotten` all
    are of producers that had the id before. Of `pointer` are the rows `with_start`, by
    key, which a batch to come may have.
    """

    lock: threading.RLock = attrs.field(factory=threading.RLock)
    producer_id: int | None = None
    pointer: int = 0
    commits: int = 0
    committed: int = 0
    left: int = 0
    forgotten: int = 0
    with_start: dict[bytes, bytes | None] = attrs.field(factory=dict)


class Holders:
    """The holders of the transactional ids that have a producer.

    Whoever begins a transaction of an id, opens an instance or removes its producer has
    the lock of its holder. One without a producer is there as long as somebody uses it:
    anybody may ask about ids that nobody ever opened.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Holder] = {}
        self._used: WeakValueDictionary[str, Holder] = WeakValueDictionary()

    def known(self, name: str) -> Holder | None:
        """Returns the holder of an id that has a producer."""
        return self._kept.get(name) if isinstance(name, str) else None

    def of(self, name: str) -> Holder:
        """Returns the holder of an id; raises `BadRequest` for what is none."""
        found = self.known(name)
        if found is not None:
            return found
        checked_transactional_id(name)
        with self._lock:
            return self._kept.get(name) or self._used.setdefault(name, Holder())

    def keep(self, name: str, holder: Holder) -> None:
        """Keeps a holder whose id has a producer; its caller has the lock."""
        with self._lock:
            self._kept[name] = holder

    def let_go(self, name: str) -> None:
        """Keeps a holder no more whose producer was removed; who waits for it has it.

        Its caller has the lock, and all of its transactions are over.
        """
        with self._lock:
            found = self._kept.pop(name, None)
            if found is not None:
                self._used[name] = found
