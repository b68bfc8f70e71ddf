"""The only writer of a topic: gives out times and sequences, writes in that order."""

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import Loading, OnWritten
from txaware.errors import Unavailable
from txaware.model.interfaces import OrderedTable, Write
from txaware.service.wakeups import Signal
from txaware.store.keys import MAX_SEQUENCE

PER_MS = MAX_SEQUENCE + 1
_ROW_KEY = struct.Struct(">QH").pack

# Makes the rows of a request from their keys.
Rows = Callable[[list[bytes]], Sequence[Write]]


class Stamper:
    """Gives out keys that rise: a time, and a sequence from 0 to 65,535 within it.

    `time_ms` is the time of the last key.
    """

    def __init__(self, first_ms: int) -> None:
        self.time_ms = first_ms
        self._sequence = 0

    def keys(self, now_ms: int, count: int, *, together: bool = False) -> list[bytes]:
        """Returns the next keys without a gap; a full ms goes on in the next.

        With `together` they are all of one ms, which has room for so many.
        """
        if now_ms > self.time_ms:
            self.time_ms, self._sequence = now_ms, 0
        if together and self._sequence + count > PER_MS:
            self.time_ms, self._sequence = self.time_ms + 1, 0
        if count == 1 and self._sequence < PER_MS:  # half the calls for one message
            self._sequence += 1
            return [_ROW_KEY(self.time_ms, self._sequence - 1)]
        keys: list[bytes] = []
        while len(keys) < count:
            if self._sequence == PER_MS:
                self.time_ms, self._sequence = self.time_ms + 1, 0
            first = self._sequence
            self._sequence = min(first + count - len(keys), PER_MS)
            time = self.time_ms.to_bytes(8, "big")
            keys += [
                time + number.to_bytes(2, "big")
                for number in range(first, self._sequence)
            ]
        return keys

    def next_key(self) -> bytes:
        """Returns the lowest key that may still be given out."""
        if self._sequence == PER_MS:
            return _ROW_KEY(self.time_ms + 1, 0)
        return _ROW_KEY(self.time_ms, self._sequence)


class TopicWriter:
    """The writer of a topic, for all its generations; lives as long as the store.

    Rows become readable in the order of their keys: nobody reads at or behind the first
    row that is still on its way to the disk (`mark`).
    """

    def __init__(self, table: OrderedTable) -> None:
        self.signal = Signal()
        self.table = table
        self._lock = threading.RLock()
        self._messages = Stamper(table.clock.first_ms)
        self._payloads = Stamper(table.clock.first_ms)
        self._in_flight: deque[bytes] = deque()
        self._interrupted = False

    def mark(self) -> bytes:
        """Returns the key before which all is settled; call it before reading."""
        with self._lock:
            if self._interrupted:
                self._settle()
            try:
                return self._in_flight[0]
            except IndexError:
                return self._messages.next_key()

    def publish(
        self,
        count: int,
        rows: Rows,
        *,
        hold_for: int | None = None,
        on_written: OnWritten | None = None,
        together: bool = False,
    ) -> tuple[bytes, bytes]:
        """Writes message rows and returns their first and last key.

        The rows are on disk then, or are held for the commit of `hold_for`.
        `on_written` is told how the batch ended that rows were submitted with. With
        `together` all keys are of one ms.
        """
        try:
            if hold_for is not None:
                self._reserve()
            with self._lock:
                keys = self._keys(self._messages, count, together=together)
                writes = rows(keys)
                held = hold_for is not None and self._hold(hold_for, writes)
                wait = None if held else self._submit(keys[0], writes, on_written)
            if wait is not None:
                wait()
        except Exception:
            raise
        except BaseException:
            self._interrupted = True
            raise
        if held:
            self.signal.notify()
        return keys[0], keys[-1]

    def loading(self, count: int, rows: Rows, unsure: Callable[[], object]) -> Loading:
        """Yields message rows that a commit carries, as `Cargo` says.

        `unsure` is called if the batch fails: the commit may still be found on disk.
        """
        try:
            with self._lock:
                keys = self._keys(self._messages, count)
                writes = rows(keys)
                self._in_flight.append(keys[0])
                is_submitted = yield writes, partial(self._carried, unsure)
                if not is_submitted:
                    self._in_flight.pop()
        except Exception:
            raise
        except BaseException:
            self._interrupted = True
            raise

    def publish_soon(
        self, count: int, rows: Rows, on_written: OnWritten, *, together: bool = False
    ) -> None:
        """Writes message rows without waiting; `on_written` gets the error, or None."""

        settled = self._settled_and(on_written)
        with self._lock:
            keys = self._keys(self._messages, count, together=together)
            writes = rows(keys)
            self._in_flight.append(keys[0])
            try:
                self.table.hand_over(writes, settled)
            except Exception:
                self._in_flight.pop()
                raise

    def store(self, count: int, rows: Rows, *, hold_for: int | None) -> Wait | None:
        """Writes payload rows; returns a wait for the disk, or None if held."""
        if hold_for is not None:
            self._reserve()
        with self._lock:
            writes = rows(self._keys(self._payloads, count))
            if hold_for is not None and self._hold(hold_for, writes):
                return None
            return self.table.submit(writes)

    def _reserve(self) -> None:
        """Saves time ahead, so that it rarely has to be done under the lock.

        An event loop takes the lock too, and must not wait for the disk.
        """
        self.table.clock.now_ms()
        self.table.reserve_time()

    def _keys(
        self, stamper: Stamper, count: int, *, together: bool = False
    ) -> list[bytes]:
        clock = self.table.clock
        now_ms = clock.now_ms()
        keys = stamper.keys(now_ms, count, together=together)
        if stamper.time_ms > now_ms:
            clock.given(stamper.time_ms)
        return keys

    def _hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Holds rows, once a crash cannot have their times given out again.

        Held rows are readable at once, so the time is saved first. Submitted rows save
        it in their own batch.
        """
        self.table.reserve_time()
        return self.table.hold(pointer, writes)

    def _submit(
        self, first_key: bytes, writes: Sequence[Write], on_written: OnWritten | None
    ) -> Wait:
        settled = self._settled if on_written is None else self._settled_and(on_written)
        self._in_flight.append(first_key)
        try:
            return self.table.submit(writes, settled)
        except Exception:
            self._in_flight.pop()
            raise

    def _carried(
        self, unsure: Callable[[], object], error: Unavailable | None
    ) -> Callable[[], object]:
        if error is not None:
            unsure()
        self._in_flight.popleft()  # as in `_settled`
        return self.signal.notify

    def _settle(self) -> None:
        """Cleans up after an interrupt, before or after rows were submitted.

        Once a later batch is written, the end of every submitted batch has been told.
        """
        self.table.submit([])()
        self._in_flight.clear()
        self._interrupted = False

    def _settled_and(self, on_written: OnWritten) -> OnWritten:
        def settled(error: Unavailable | None) -> None:
            self._settled(error)
            on_written(error)

        return settled

    def _settled(self, _: Unavailable | None) -> None:
        self._in_flight.popleft()  # without the lock: its holder may wait for us
        self.signal.notify()
