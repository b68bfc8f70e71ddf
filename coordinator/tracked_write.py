"""Tracks a write of a participant: not written, written, or written or not."""

import enum
import logging
from collections.abc import Callable

from coordinator.errors import changed_nothing

logger = logging.getLogger(__name__)


class Fate(enum.Enum):
    """What became of a write."""

    UNWRITTEN = "not written"
    WRITTEN = "written"
    UNKNOWN = "written or not"


class TrackedWrite:
    """A write that is done once, and undone when its transaction is rolled back."""

    def __init__(self) -> None:
        self.fate = Fate.UNWRITTEN

    def do(self, write: Callable[[], object]) -> None:
        """Writes; whatever it raises, `undo` will know what may be left of it."""
        self.fate = Fate.UNKNOWN
        try:
            write()
        except BaseException as error:
            if changed_nothing(error):
                self.fate = Fate.UNWRITTEN
            raise
        self.fate = Fate.WRITTEN

    def undo(self, take_back: Callable[[], object]) -> bool:
        """True when it is known that nothing is left.

        A write whose answer was lost may still arrive, after anything that would take
        it back.
        """
        if self.fate is not Fate.WRITTEN:
            return self.fate is Fate.UNWRITTEN
        try:
            take_back()
        except Exception as error:
            logger.debug("a write could not be taken back", exc_info=error)
            return False
        self.fate = Fate.UNWRITTEN
        return True
