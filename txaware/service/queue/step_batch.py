"""The writes of one step of a queue, and whether that may wait."""

import threading
from collections.abc import Callable

import attrs

from txaware.model.interfaces import Write
from txaware.service.queue.pipe import Pipe


class WouldWait(Exception):
    """An event loop would have to wait here, as for the disk: a thread does it all."""


@attrs.define
class Batch:
    """The writes of one step, and the pipes whose counts go with them.

    The `drained` pipes may be over now. A step that may not wait raises `WouldWait`
    where it had to, and has changed nothing but what ended by itself.
    """

    may_wait: bool = True

    writes: list[Write] = attrs.field(factory=list)
    pipes: dict[int, Pipe] = attrs.field(factory=dict)
    drained: list[Pipe] = attrs.field(factory=list)

    def wait_here(self) -> None:
        """Raises `WouldWait` in a step that may not wait."""
        if not self.may_wait:
            raise WouldWait

    def touch(self, pipe: Pipe) -> None:
        """Has the counts of a pipe written."""
        self.pipes[pipe.id] = pipe

    def take(self) -> list[Write]:
        """Returns all writes, with the rows of the pipes as they are now."""
        rows = [pipe.write() for pipe in self.pipes.values()]
        return self.writes + rows


class Step:
    """Holds the lock of a queue for one step, a `with` block.

    `begin` comes first and returns the time, and `end` last, whatever comes of the
    block. It is no generator, which takes thrice as long. Interrupts do not come here:
    all calls of the main thread are made in another one.
    """

    __slots__ = ("_batch", "_begin", "_end", "_lock")

    def __init__(
        self,
        lock: threading.RLock,
        begin: Callable[[Batch], int],
        end: Callable[[Batch], None],
        batch: Batch,
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._end = end
        self._batch = batch

    def __enter__(self) -> tuple[int, Batch]:
        batch = self._batch
        if not self._lock.acquire(batch.may_wait):
            raise WouldWait
        try:
            return self._begin(batch), batch
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._end(self._batch)
        finally:
            self._lock.release()
