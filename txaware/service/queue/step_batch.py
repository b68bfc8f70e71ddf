"""The writes of one step of a queue, and whether that may wait."""

import attrs

from txaware.model.interfaces import Write
from txaware.service.queue.pipe import Pipe
from txaware.service.wakeups import WouldWait


@attrs.define
class StepBatch:
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
