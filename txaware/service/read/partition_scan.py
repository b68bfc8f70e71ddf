"""One look at all partitions of a topic, one after the other."""

from typing import Protocol

from txaware.model.messages import BlockedBy, MessageId, PageEnd
from txaware.service.read.scan import Found, Scan
from txaware.service.topic_handles import PartitionedTopic


class BeginPart(Protocol):
    """Begins the look at one partition, with the room that the page has left."""

    def __call__(self, number: int, *, messages: int, size_bytes: int) -> Scan:
        """Returns the look, judged by the snapshot of them all."""


class PartitionScan:
    """A look at a topic of several partitions at one moment, as a `Scan` is at one.

    It begins with the partition whose place is the oldest, so that it goes round them
    from page to page. All are judged by one snapshot. Each piece is of one partition,
    whose number is `partition`.
    """

    is_cached = False

    def __init__(
        self,
        place: PartitionedTopic,
        before: dict[int, MessageId],
        begin: BeginPart,
        *,
        seen: int,
        limit: int,
        limit_bytes: int,
    ) -> None:
        self.place = place
        self.seen = seen
        self.partition = 0
        self.count = 0
        self.size_bytes = 0
        self.blocked_by: BlockedBy | None = None
        self.skipped_before: int | None = None
        self.is_over = False
        self.is_paused = False
        self.runs: list[tuple[int, int]] = []
        self._next = before
        self._begin = begin
        self._limit = limit
        self._limit_bytes = limit_bytes
        # The last comes first, as they are popped.
        self._left = sorted(before, key=lambda number: (before[number], number))[::-1]
        self._scan: Scan | None = None

    @property
    def end(self) -> PageEnd:
        """The end of the look, or the place where it stands now."""
        return PageEnd(
            MessageId(bytes(20)),
            self.blocked_by,
            self.skipped_before,
            places=dict(sorted(self._next.items())),
            runs=tuple(self.runs),
        )

    def recount(self) -> None:
        """Has the cache count its memory anew, since rows were encoded."""
        if self._scan is not None:
            self._scan.recount()

    def read(
        self,
        found: Found,
        *,
        limit: int | None = None,
        limit_bytes: int | None = None,
        quick: bool = False,
        fresh: bool = False,
    ) -> None:
        """Adds the next piece, of one partition; nothing once all are read.

        Without a limit it reads all of them. It always reads in a thread: a `quick`
        read pauses at once.
        """
        self.is_paused = quick and not self.is_over
        if quick:
            return
        before, is_whole = self.count, limit is None and limit_bytes is None
        while not self.is_over and (is_whole or self.count == before):
            self._read_on(found, limit, limit_bytes)

    def _read_on(
        self, found: Found, limit: int | None, limit_bytes: int | None
    ) -> None:
        scan = self._scan
        if scan is None:
            self.partition = self._left.pop()
            scan = self._scan = self._begin(
                self.partition,
                messages=self._limit - self.count,
                size_bytes=self._limit_bytes - self.size_bytes,
            )
        count, size_bytes = scan.count, scan.size_bytes
        scan.read(found, limit=limit, limit_bytes=limit_bytes)
        self._add(scan.count - count, scan.size_bytes - size_bytes)
        self._next[self.partition] = scan.next
        self.blocked_by = self.blocked_by or scan.blocked_by
        self.skipped_before = self.skipped_before or scan.skipped_before
        if scan.is_over:
            self._scan = None
        is_full = self.count >= self._limit or self.size_bytes >= self._limit_bytes
        self.is_over = is_full or (self._scan is None and not self._left)

    def _add(self, messages: int, size_bytes: int) -> None:
        self.count += messages
        self.size_bytes += size_bytes
        if not messages:
            return
        if self.runs and self.runs[-1][0] == self.partition:
            messages += self.runs.pop()[1]
        self.runs.append((self.partition, messages))
