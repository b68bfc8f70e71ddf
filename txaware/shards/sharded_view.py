"""All rows of all shards as a backup takes them: those of the first shard first."""

from collections.abc import Iterator, Sequence

from txaware.model.interfaces import Row
from txaware.store.interfaces import View


class ShardedView:
    """The views of all shards, one after the other, each in the order of its keys.

    The first shard's is the oldest: what had committed in it is in the others as a
    whole, and what these have of later transactions is lost with the journal. A new
    shard begins where a key does not rise.
    """

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self._sizes = [view.size_bytes for view in views]
        self._at = 0

    def pieces(self, piece_bytes: int) -> Iterator[list[Row]]:
        """Reads all rows, about `piece_bytes` of them at a time."""
        for at, view in enumerate(self._views):
            self._at = at
            yield from view.pieces(piece_bytes)

    def part(self, key: bytes) -> float:
        """Returns about which part of all rows precedes a key of the last piece."""
        done = self._views[self._at].part(key) * self._sizes[self._at]
        return (sum(self._sizes[: self._at]) + done) / max(1, self.size_bytes)

    @property
    def size_bytes(self) -> int:
        """The size of all rows, about."""
        return sum(self._sizes)

    def close(self) -> None:
        """Ends all views; a second close does nothing."""
        for view in self._views:
            view.close()
