"""What the requests of a connection see of it: when it reads, and how it ends."""

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


class Sink:
    """What answers are written to: it takes them, and drops them, to the end."""

    def __init__(self, transport: Any, end: Callable[[], None]) -> None:
        self.is_over = False
        self.close = end
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Writes, unless nobody would get it."""
        if data and not self.is_over:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nobody would get it."""
        return self.is_over
