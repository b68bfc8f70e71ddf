"""Tries that outlive their process: a mark tells the next one which batch was begun."""

import hashlib
import logging
from collections.abc import Sequence

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator
from txaware.consume.cursors import Group, GroupPosition
from txaware.consume.poison import Suspects
from txaware.errors import NotAuthorized, TxAwareError
from txaware.markers import TRIES_MS, counts_tries
from txaware.messages import Message, MessageId

logger = logging.getLogger(__name__)

_DIGEST_BITS, _MOST = 46, 0xFFFF


@attrs.frozen
class Mark:
    """A batch that was begun: a digest of its first message, and its tries alone.

    `pointer` is that of the transaction that began the batch. `suspects` is the number
    of messages, from the first on, that may have ended the process.
    """

    first: int
    tries: int
    pointer: int
    suspects: int

    @classmethod
    def of(cls, first: MessageId, tries: int, pointer: int, suspects: int) -> "Mark":
        """Makes the mark of a batch that begins with a message."""
        return cls(_digest(first), min(tries, _MOST), pointer, min(suspects, _MOST))

    @classmethod
    def read(cls, position: MessageId | None) -> "Mark | None":
        """Reads the mark that a position stands for; None where it stands for none."""
        if position is None or not counts_tries(position):
            return None
        return cls(
            position.publish_time_ms - TRIES_MS,
            position.sequence,
            position.write_time_ms,
            position.payload_sequence,
        )

    @property
    def position(self) -> MessageId:
        """The position that stands for the mark, as it is kept."""
        return MessageId.of(
            TRIES_MS + self.first, self.tries, self.pointer, self.suspects
        )

    def is_of(self, message_id: MessageId) -> bool:
        """Tells whether a message is the first one of the marked batch."""
        return self.first == _digest(message_id)


class DurableTries:
    """The tries of a group's messages, counted across the end of its processes.

    While all goes well, only the first batch of a process is marked. If the process
    ends in that batch, the next process takes its messages one by one, and counts each
    try before it begins.
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
        """Suspects the messages in which an earlier process may have ended.

        Only the first batch of this process is compared with the mark.
        """
        if self._is_off or not self._is_fresh or not page:
            return
        snapshot = self._coordinator.snapshot()
        try:
            mark = Mark.read(self._group.saved(snapshot))
        except NotAuthorized as error:
            self._give_up(error)
            return
        is_same = mark is not None and mark.is_of(page[0].id)
        # An open transaction means that another member is at work on the batch, or that
        # its transaction has not timed out yet.
        self._is_taken = bool(is_same and mark and mark.pointer in snapshot.in_progress)
        if is_same and mark is not None and not self._is_taken:
            ids = [message.id for message in page[: mark.suspects]]
            self._suspects.inherit(ids, mark.tries)
            self._mark = mark

    def begin(self, chosen: Sequence[MessageId], pointer: int) -> None:
        """Marks a batch before it is handled: the first one, or one with a suspect."""
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
        """Takes back the count of the last try, which failed by no message's fault."""
        if self._mark is not None and self._has_counted:
            self._try_to_write(attrs.evolve(self._mark, tries=self._mark.tries - 1))
            self._has_counted = False

    def passed(self) -> None:
        """Clears the mark after the commit of its batch: old tries count no more."""
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
        """Writes a mark if it can; a failure loses no more than the count of a try."""
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
