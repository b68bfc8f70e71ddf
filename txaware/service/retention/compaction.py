"""Removes from compact topics what is not the newest message of its key."""

import threading
from collections.abc import Iterator

import attrs

from coordinator.transaction import Transaction
from txaware.model.messages import MessageId
from txaware.model.topics import Topic
from txaware.service.read.keyed_rows import KeyedRows
from txaware.service.retention.deletion import BATCH_ROWS, Deleting
from txaware.service.visibility import Visibility
from txaware.store.keys import MESSAGE, row_key

# So many earlier snapshots are kept; with fewer a few rows more stay.
MOST_LOOKS = 16
# The newest message of a key stays so long after it has expired: who reads piece by
# piece meanwhile, and has an earlier one, learns that this has gone.
GONE_MS = 3_600_000
_END = b"\xff" * 10
_BEGIN = MessageId(bytes(20))


class SharedLooks:
    """Earlier snapshots; the newest one is found that no open transaction is before.

    Whatever that one sees, every open and every later transaction sees.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: list[Transaction] = []

    def seen_by_all(self, now: Transaction) -> Transaction | None:
        """Returns that snapshot, or None where none is old enough; remembers this."""
        with self._lock:
            open_from = now.in_progress[0] if now.in_progress else None
            looks = [*self._looks, now]
            shared = [
                one
                for one in looks
                if open_from is None or one.transaction_id < open_from
            ]
            # Open transactions only get younger: what is before the best is useless.
            later = [one for one in looks if one not in shared]
            self._looks = [*shared[-1:], *later[: MOST_LOOKS - 1]]
            return shared[-1] if shared else None


@attrs.define
class _Live:
    """The newest message of each key, and how many of these each row has.

    A reference may have many, and a batch of compressed messages.
    """

    newest: dict[bytes, tuple[MessageId, bytes]] = attrs.field(factory=dict)
    counts: dict[bytes, int] = attrs.field(factory=dict)

    def take(self, key: bytes, message_id: MessageId, row: bytes) -> bytes | None:
        """Notes a newer message; returns the row that has no newest one any more."""
        earlier = self.newest.get(key)
        self.newest[key] = message_id, row
        self.counts[row] = self.counts.get(row, 0) + 1
        return None if earlier is None else self.drop(earlier[1])

    def keep(self, row: bytes) -> None:
        """Has a row stay, whatever becomes of its messages."""
        if self.counts[row] == 1:  # nothing will ever be dropped of it
            del self.counts[row]

    def drop(self, row: bytes) -> bytes | None:
        """Counts one less in a row; returns it where none is left."""
        self.counts[row] -= 1
        if self.counts[row]:
            return None
        del self.counts[row]
        return row


class Compaction:
    """Goes through a compact topic, from its beginning to where all readers agree.

    `removals` counts the times that rows went: whoever looked with a fresh snapshot
    from before may have missed the row that another one took the place of.
    """

    def __init__(self) -> None:
        self.looks = SharedLooks()
        self.removals = 0

    def clean_up(
        self,
        rows: KeyedRows,
        topic: Topic,
        judge: Visibility,
        now_ms: int,
        deleting: Deleting,
    ) -> int:
        """Removes the rows that no reader needs; returns how many.

        `judge` goes by a snapshot that every open transaction sees all of. So whoever
        still reads finds, before the first undecided row, the newest of each key.
        """
        count = 0
        keys: list[bytes] = []
        for key in self._superseded(rows, topic, judge, now_ms):
            keys.append(MESSAGE + topic.prefix + key)
            if len(keys) == BATCH_ROWS:
                count += self._delete(keys, deleting)
        return count + self._delete(keys, deleting)

    def _delete(self, keys: list[bytes], deleting: Deleting) -> int:
        count = len(keys)
        if count:
            self.removals += 1
            deleting.delete(keys)
            keys.clear()
        return count

    def _superseded(
        self, rows: KeyedRows, topic: Topic, judge: Visibility, now_ms: int
    ) -> Iterator[bytes]:
        """Yields keys of rows; those that have expired last, behind earlier ones."""
        keyless_from = row_key(topic.keyless_from_ms(now_ms))
        live, gone = _Live(), []
        for row in rows.walk(topic.prefix, judge, start=_BEGIN, stop=_END):
            live.counts[row.key] = 1  # while its messages are counted
            is_old = row.key < keyless_from
            if not row.is_committed:
                is_kept = not is_old
            else:
                is_kept = False
                for message, expiry_ms in row.messages:
                    if message.key is None:
                        has_expired = expiry_ms is not None and expiry_ms <= now_ms
                        is_kept = is_kept or not (is_old or has_expired)
                        continue
                    over = live.take(message.key, message.id, row.key)
                    if over is not None:
                        yield over
                    if expiry_ms is not None and expiry_ms + GONE_MS <= now_ms:
                        gone.append((message.key, message.id))
            if is_kept:
                live.keep(row.key)
                continue
            over = live.drop(row.key)
            if over is not None:
                yield over
        for key, message_id in gone:
            newest, of_row = live.newest[key]
            if newest == message_id:
                over = live.drop(of_row)
                if over is not None:
                    yield over
