"""Carries messages over from a user's database, each once and in their order."""

import logging
import threading
from typing import Generic, TypeVar

from coordinator.fork_guard import guard
from txaware.errors import TransactionConflict
from txaware.messaging import Messaging
from txaware.participants.background_work import BackgroundWork
from txaware.participants.outbox_row import Batch, OutboxRows

log = logging.getLogger(__name__)

Rows = TypeVar("Rows", bound=OutboxRows, covariant=True)

# The table in the store that says what was carried over last.
PROGRESS = "txaware:participants"
# What a batch costs is mostly syncs, of both sides.
BATCH_ROWS = 40_000


class OutboxRelay(Generic[Rows]):
    """The relay of one outbox, in a thread of its own once it has been started.

    One transaction publishes a batch, and writes in a row of the store which rows these
    were. Before the next batch they are removed from the outbox. So a crash at any
    moment neither loses a message nor doubles one, and any number of relays may work on
    one outbox: two at once conflict.
    """

    def __init__(
        self, messaging: Messaging, rows: Rows, *, batch_rows: int = BATCH_ROWS
    ) -> None:
        self.rows = rows
        self._messaging = messaging
        self._progress = messaging.table(PROGRESS)
        self._key = f"outbox:{rows.outbox_id}".encode()
        self._batch_rows = batch_rows
        self._lock = threading.Lock()
        self._is_closed = False
        self._background = BackgroundWork(self.carry_over, name=repr(self))
        guard(self)

    def carry_over(self) -> int:
        """Carries over all that waits, and returns how many messages these were."""
        count = 0
        with self._lock:
            while not self._is_closed and self.rows.has_rows():
                count += self._carry_batch()
        return count

    def start(self) -> None:
        """Works in the background from now on; a second call does nothing."""
        self._background.start()

    def wake(self) -> None:
        """Has the thread look now; without one this does nothing."""
        self._background.wake()

    def close(self) -> None:
        """Carries over what waits, if it works in the background, and ends."""
        was_running = self._background.is_running
        self._background.close()
        if was_running:
            try:
                self.carry_over()
            except Exception as error:
                log.warning("messages stay in %r: %s", self, error)
        with self._lock:
            self._is_closed = True
            self.rows.close()

    def __repr__(self) -> str:
        return f"<OutboxRelay of {self.rows!r}>"

    def _carry_batch(self) -> int:
        try:
            with self._messaging.transaction():
                carried = self._progress.get(self._key) or b""
                batch = self.rows.take(carried, limit=self._batch_rows)
                if batch.rows:
                    self._publish(batch)
        except TransactionConflict as error:
            log.debug("another relay works on %r: %s", self, error)
            return 0
        return len(batch.rows)

    def _publish(self, batch: Batch) -> None:
        for topic, messages in batch.messages.items():
            self._messaging.publisher(topic).publish_all(messages)
        self._progress.put(self._key, self.rows.marks(batch))
