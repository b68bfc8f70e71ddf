"""The writing side of a connection: what goes out, and when more is read."""

from collections.abc import Callable, Collection
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class Flow(FlowControl):
    """Reads nothing more while requests wait for the one before them."""

    def __init__(self, transport: Any, pipeline: Collection[object]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Reads on, if that is of use."""
        if not self._pipeline:
            super().resume_reading()


# The beginnings of answers' heads; one that only says "go on" is sent at once.
_HEADS = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")
# Larger data is not copied.
_LARGE_BYTES = 64 << 10


class Sink:
    """Takes what answers write, and drops what comes after the end.

    A head waits for the first piece of its body, so that both are one write: two of
    them would be two packets (a sixth of the time of a small request).
    """

    def __init__(
        self,
        transport: Any,
        end: Callable[[], None],
        hold: Callable[[], object],
    ) -> None:
        self.is_over = False
        self._hold = hold  # called behind a large answer: much may wait in memory
        self._end = end
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Writes, unless nobody would get it."""
        if not data or self.is_over:
            return
        head, self._head = self._head, b""
        if not head and data.startswith(_HEADS):
            self._head = data
        else:
            self.write_whole(head, data)

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Writes a whole answer."""
        if self.is_over:
            return
        if len(body) > _LARGE_BYTES:
            self._transport.writelines((head, body))
            self._hold()
        else:
            self._transport.write(head + body)

    def flush(self) -> None:
        """Writes a head that no body follows."""
        if self._head:
            head, self._head = self._head, b""
            if not self.is_over:
                self._transport.write(head)

    def close(self) -> None:
        """Ends the connection: the answer was the last one."""
        self.flush()
        self._end()

    def is_closing(self) -> bool:
        """Tells uvicorn whether the connection is over: nobody would get an answer."""
        return self.is_over
