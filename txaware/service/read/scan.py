"""One look at a topic, read in pieces that do not grow with what it finds."""

import attrs

from txaware.keys import row_key
from txaware.messages import BlockedBy, MessageId
from txaware.service.polling import Polling
from txaware.service.read.selection import Found, Query, Selection
from txaware.service.strangers import Strangers
from txaware.service.topic_handles import Place
from txaware.service.visibility import Judge


class Scan:
    """What a reader may see at one moment: later pieces are judged as the first one.

    `next` is where the next poll goes on; `count` and `size_bytes` are what was found
    so far, `seen` what the topic's signal stood at before it. For one thread at a time.
    """

    def __init__(
        self,
        polling: Polling,
        place: Place,
        query: Query,
        judge: Judge,
        *,
        seen: int,
        strangers: Strangers,
        skipped_before: int | None = None,
        is_over: bool = False,
    ) -> None:
        self.place = place
        self.seen = seen
        self.next: MessageId = query.before
        self.skipped_before = skipped_before
        self.blocked_by: BlockedBy | None = None
        self.count = 0
        self.size_bytes = 0
        self.is_over = is_over
        self.is_paused = False
        self._polling = polling
        self._query = query
        self._judge = judge
        self._strangers = strangers

    @property
    def is_cached(self) -> bool:
        """Whether the next piece needs no disk, as far as one can tell."""
        return self._polling.is_cached(self._query)

    def recount(self) -> None:
        """Says that rows were encoded, which may be kept."""
        self._polling.recount()

    def read(
        self,
        found: Found,
        *,
        limit: int | None = None,
        limit_bytes: int | None = None,
        quick: bool = False,
        fresh: bool = False,
    ) -> None:
        """Adds the next piece, by default all that is left; nothing once it is over.

        A `quick` one does not wait for the disk, and may be paused early for that.
        """
        if self.is_over:
            return
        query, left = self._query, self._query.limit
        left_bytes = max(1, query.limit_bytes - self.size_bytes)
        selection = self._polling.read(
            attrs.evolve(
                query,
                limit=left if limit is None else min(left, limit),
                limit_bytes=min(left_bytes, limit_bytes or left_bytes),
                most_bytes=left_bytes if self.count else query.most_bytes,
            ),
            self._judge,
            found,
            quick=quick,
            fresh=fresh,
        )
        self._note(selection)

    def _note(self, selection: Selection) -> None:
        self.count += selection.count
        self.size_bytes += selection.size_bytes
        self.blocked_by = blocked_by = selection.blocked_by
        if blocked_by is not None:
            key = row_key(blocked_by.since_ms)
            self._strangers.note(blocked_by.pointer, self._query.prefix, key)
        self.next = selection.next
        left = self._query.limit - selection.count
        self.is_paused = selection.is_paused
        self.is_over = not self.is_paused and (
            selection.is_at_end
            or selection.blocked_by is not None
            or left <= 0
            or not selection.count
            or self.size_bytes >= self._query.limit_bytes
        )
        if not self.is_over and self.next != self._query.before:
            self._query = attrs.evolve(
                self._query,
                before=self.next,
                start=self.next,
                inclusive=False,
                limit=left,
            )
