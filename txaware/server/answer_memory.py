"""Limits the memory of answers that were written and not read, all together."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

import attrs

from txaware.model.settings import Settings
from txaware.server.admission import FLOW_BYTES, STALL_S, Full

log = logging.getLogger(__name__)


class Reader(Protocol):
    """A connection, as far as its answers wait in memory."""

    @property
    def host_and_port(self) -> str | None:
        """The address of the other end, with its port."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes of answers that the other end has not taken."""

    def cut(self) -> None:
        """Ends the connection at once, and gives its memory back."""


@attrs.define
class _Unread:
    """The bytes that waited at the last look, and since when so many do."""

    size_bytes: int
    since_s: float


class AnswerMemory:
    """Counts what waits to be read; of one event loop only.

    Whoever makes a large answer asks for room first. A connection counts from the
    answer that it does not take at once, until it is read or the connection ends.
    """

    def __init__(
        self, settings: Settings, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.size_bytes = 0
        self._limit_bytes = settings.answer_memory_bytes
        self._clock_s = clock_s
        self._unread: dict[Reader, _Unread] = {}

    def hold(self, reader: Reader) -> None:
        """Counts what waits for a reader now."""
        unread, size_bytes = self._unread.get(reader), reader.unsent_bytes
        if unread is None:
            unread = self._unread[reader] = _Unread(0, self._clock_s())
        self.size_bytes += size_bytes - unread.size_bytes
        unread.size_bytes = size_bytes

    def release(self, reader: Reader) -> None:
        """Counts nothing more for a reader: it has read all, or it is gone."""
        unread = self._unread.pop(reader, None)
        if unread is not None:
            self.size_bytes -= unread.size_bytes

    def require_room(self) -> None:
        """Raises `Full` where so much waits that nothing more shall be made.

        Readers that have read nothing for seconds are cut off first, the oldest first.
        """
        if self.size_bytes < self._limit_bytes:
            return
        for reader in self._stalled():
            if self.size_bytes < self._limit_bytes:
                return
            log.info(
                "the connection of %s ends: it has read nothing of %d bytes for %g s, "
                "and others need their place; see answer_memory_bytes",
                reader.host_and_port,
                reader.unsent_bytes,
                STALL_S,
            )
            self.release(reader)
            reader.cut()
        if self.size_bytes >= self._limit_bytes:
            raise Full(
                f"answers of {self.size_bytes} bytes wait to be read, as many as there "
                f"may be; see answer_memory_bytes"
            )

    def _stalled(self) -> list[Reader]:
        """Looks how much still waits, and returns the readers that do not read."""
        now_s, stalled = self._clock_s(), list[Reader]()
        for reader, unread in list(self._unread.items()):
            size_bytes = reader.unsent_bytes
            if not size_bytes:
                self.release(reader)
            elif size_bytes + FLOW_BYTES <= unread.size_bytes:
                self.size_bytes += size_bytes - unread.size_bytes
                unread.size_bytes, unread.since_s = size_bytes, now_s
            elif now_s - unread.since_s >= STALL_S:
                stalled.append(reader)
        return stalled
