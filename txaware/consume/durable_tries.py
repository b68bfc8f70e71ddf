"""Tries that outlive their process: a mark of what was begun, for the next process."""

import hashlib
import logging
from collections.abc import Sequence

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator
from txaware.consume.cursors import Group, GroupPosition
from txaware.consume.poison import Suspects
from txaware.errors import NotAuthorized, TxAwareError
from txaware.messages import Message, MessageId

logger = logging.getLogger(__name__)

# Marks are positions so far ahead (in the year 6429) that they lag behind nothing.
_AHEAD_MS, _DIGEST_BITS, _MOST = 1 << 47, 46, 0xFFFF


@attrs.frozen
class Mark:
    """A batch that was begun: which message is first, how often it was tried alone.

    `pointer` is of the transaction that began it, and `suspects` how many messages from
    the first on may have ended the process.
    """

    first: int
    tries: int
    pointer: int
    suspects: int

    @classmethod
    def of(cls, first: MessageId, tries: int, pointer: int, suspects: int) -> "Mark":
        """The mark of a batch that begins with that message."""
        return cls(_digest(first), min(tries, _MOST), pointer, min(suspects, _MOST))

    @classmethod
    def read(cls, position: MessageId | None) -> "Mark | None":
        """The mark that a position is; None where there is none."""
        if position is None or position.publish_time_ms < _AHEAD_MS:
            return None
        return cls(
            position.publish_time_ms - _AHEAD_MS,
            position.sequence,
            position.write_time_ms,
            position.payload_sequence,
        )

    @property
    def position(self) -> MessageId:
        """The mark as it is kept."""
        return MessageId.of(
            _AHEAD_MS + self.first, self.tries, self.pointer, self.suspects
        )

    def is_of(self, message_id: MessageId) -> bool:
        """Whether that message is the first one of its batch."""
        return self.first == _digest(message_id)


class DurableTries:
    """Knows what an earlier process of the group began and did not come to the end of.

    Nothing is written while all goes well, but once for the first batch of a process.
    If the process ends in it, the next one takes its messages one by one, and counts
    each try of them before it begins.
    """

    def __init__(
        self, group: Group, coordinator: Coordinator, suspects: Suspects
    ) -> None:
        self._group = attrs.evolve(group, name=f"{group.name}.tries", start=None)
        self._coordinator = coordinator
        self._suspects = suspects
        self._is_fresh = True
        self._is_taken = False
        self._is_off = False
        self._mark: Mark | None = None
        self._has_counted = False

    def look(self, page: Sequence[Message]) -> None:
        """Suspects what an earlier process may have ended by, in its first batch."""
        if self._is_off or not self._is_fresh or not page:
            return
        snapshot = self._coordinator.snapshot()
        try:
            mark = Mark.read(self._group.saved(snapshot))
        except NotAuthorized as error:
            self._give_up(error)
            return
        is_same = mark is not None and mark.is_of(page[0].id)
        # Then another member is at work, or its transaction has not timed out yet.
        self._is_taken = bool(is_same and mark and mark.pointer in snapshot.in_progress)
        if is_same and mark is not None and not self._is_taken:
            ids = [message.id for message in page[: mark.suspects]]
            self._suspects.inherit(ids, mark.tries)
            self._mark = mark

    def begin(self, chosen: Sequence[MessageId], pointer: int) -> None:
        """Marks a batch before it is handled, where it is the first or a suspect."""
        if self._is_off or not chosen or self._suspects.is_poison(chosen[0]):
            return
        first = chosen[0]
        if first in self._suspects:
            tries = self._suspects.failures(first) + 1
            mark = Mark.of(first, tries, pointer, self._suspects.count_from(first))
        elif self._is_fresh and not self._is_taken:
            mark = Mark.of(first, 0, pointer, len(chosen))
        else:
            return
        try:
            self._write(mark)
            self._has_counted = mark.tries > 0
        except NotAuthorized as error:
            self._give_up(error)
        self._is_fresh = False

    def take_back(self) -> None:
        """The last try was no message's fault, and does not count."""
        if self._mark is not None and self._has_counted:
            self._try_to_write(attrs.evolve(self._mark, tries=self._mark.tries - 1))
            self._has_counted = False

    def passed(self) -> None:
        """The batch is committed: what was tried may come again one day, as new."""
        if self._mark is not None and self._mark.tries:
            self._try_to_write(Mark(0, 0, 0, 0))
        self._mark, self._has_counted = None, False

    def _write(self, mark: Mark) -> None:
        kept = GroupPosition(self._group)
        context = TransactionContext(self._coordinator, kept)
        context.start()
        kept.move(mark.position)
        context.finish()
        self._mark = mark

    def _try_to_write(self, mark: Mark) -> None:
        """Nothing is lost without it but the count of a try."""
        try:
            self._write(mark)
        except TxAwareError as error:
            logger.warning("%s: a try could not be noted: %s", self._group, error)

    def _give_up(self, error: NotAuthorized) -> None:
        self._is_off = True
        logger.warning(
            "tries do not outlive this process: %s is not allowed, %s",
            self._group,
            error,
        )


def _digest(message_id: MessageId) -> int:
    digest = hashlib.blake2b(message_id, digest_size=8).digest()
    return int.from_bytes(digest, "big") % (1 << _DIGEST_BITS)
