"""One look at a topic, read in pieces of a bounded size."""

import attrs

from txaware.keys import row_key
from txaware.messages import NO_PAYLOAD_ROW, BlockedBy, MessageId
from txaware.service.read.scan_cache import ScanCache
from txaware.service.read.selection import READ_ROWS, Found, Query, Selection
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import ForeignPointers, Visibility
from txaware.store.message_table import Block, MessageTable
from txaware.store.payload_table import PayloadTable

READ_BYTES = 1 << 20
# So many rows are judged at most by a quick read, and of its fresh rows.
QUICK_ROWS, FRESH_ROWS = 4000, 100


class Polling:
    """Reads rows through the cache and makes pages of them."""

    def __init__(
        self, messages: MessageTable, payloads: PayloadTable, cache: ScanCache
    ) -> None:
        self._messages = messages
        self._payloads = payloads
        self._cache = cache

    def read(
        self,
        query: Query,
        judge: Visibility,
        found: Found,
        *,
        quick: bool = False,
        fresh: bool = False,
    ) -> Selection:
        """Adds the rows that the judge delivers, up to the limits or where it stops.

        A `quick` read pauses before it would need the disk, or take long. `fresh` says
        that rows were written just now, and that some of them are surely in memory.
        """
        rows = 0
        selection = Selection(query, judge, self._payloads, found)
        key, more = self._first_key(query), True
        while more and selection.has_room:
            is_fresh = fresh and not rows
            room = min(selection.room, FRESH_ROWS) if is_fresh else selection.room
            if quick and not is_fresh:
                kept = self._kept(query, key, room) if rows < QUICK_ROWS else None
                if kept is None:
                    selection.is_paused = True
                    return selection
                block = kept
            else:
                block, more = self._read(query, key, room)
            if not len(block):
                break
            if (
                quick and None in block.payloads
            ):  # a reference: its payloads need the disk
                selection.is_paused = True
                return selection
            rows += len(block)
            if not selection.take(block):
                return selection
            key = block.keys[-1] + b"\0"
        selection.is_at_end = selection.has_room
        return selection

    def is_cached(self, query: Query) -> bool:
        """Tells whether the next rows can be read without the disk."""
        return self._is_kept(query, self._first_key(query))

    def _kept(self, query: Query, key: bytes, room: int) -> Block | None:
        """Returns the next rows from memory; None where others dropped them, too."""
        if not self._is_kept(query, key):
            return None
        limit = min(room + 1, READ_ROWS)
        return self._cache.read(query.prefix, key, query.stop, limit)

    def _is_kept(self, query: Query, key: bytes) -> bool:
        return key >= query.cached_from and self._cache.has(query.prefix, key)

    def recount(self) -> None:
        """Counts the memory of the cache anew, since rows in it were encoded."""
        self._cache.recount()

    def is_empty(self, query: Query) -> bool:
        """Tells whether there is no row to be judged."""
        block, more = self._read(query, self._first_key(query), 1)
        if len(block) == 1 and block.keys[0] == query.start.row_key:
            message = block.message(0)
            if message is not None and not query.asks_for(message):
                return not more or not len(
                    self._read(query, block.keys[0] + b"\0", 1)[0]
                )
        return not len(block)

    def _first_key(self, query: Query) -> bytes:
        """Returns the first key to read; leaves out the start's row if it was read."""
        key = query.first_key
        if query.inclusive or query.start.payload_key != NO_PAYLOAD_ROW:
            return key
        return key + b"\0" if self._cache.has_message(query.prefix, key) else key

    def _read(self, query: Query, start: bytes, room: int) -> tuple[Block, bool]:
        """Returns the next rows from `start` on, from the cache where it has them.

        It also tells whether there may be more behind them.
        """
        prefix, stop = query.prefix, query.stop
        # One more than there is room for: the first row may have been read before.
        limit = min(room, READ_ROWS) + 1
        begins = self._cache.start_of(prefix)
        uncached_until = max(query.cached_from, begins or b"")
        if start < uncached_until:
            block = self._from_table(prefix, start, min(stop, uncached_until), limit)
            if len(block) or stop <= uncached_until:
                return block, stop > uncached_until or _may_go_on(block, limit)
            start = uncached_until
        cached = self._cache.read(prefix, start, stop, limit)
        if cached is not None:
            return cached, True
        version = self._cache.version(prefix)
        block = self._from_table(prefix, start, stop, limit)
        self._cache.add(prefix, start, block, version)
        return block, _may_go_on(block, limit)

    def _from_table(
        self, prefix: bytes, start: bytes, stop: bytes, limit: int
    ) -> Block:
        return self._messages.read(
            prefix, start=start, stop=stop, limit=limit, max_bytes=READ_BYTES
        )


def _may_go_on(block: Block, limit: int) -> bool:
    """Tells whether a limit may have ended the read, and not the rows."""
    return len(block) >= limit or block.size_bytes >= READ_BYTES


class Scan:
    """A look at a topic at one moment: later pieces are judged as the first one.

    `next` is the id where the next poll goes on. `count` and `size_bytes` add up the
    messages found so far. `seen` is the count of the topic's signal before the look. It
    is for one thread at a time.
    """

    def __init__(
        self,
        polling: Polling,
        place: TopicHandle,
        query: Query,
        judge: Visibility,
        *,
        seen: int,
        strangers: ForeignPointers,
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
        """True when the next piece most likely needs no disk."""
        return self._polling.is_cached(self._query)

    def recount(self) -> None:
        """Has the cache count its memory anew, since rows were encoded."""
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

        A `quick` read does not wait for the disk, and pauses early where it would.
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
