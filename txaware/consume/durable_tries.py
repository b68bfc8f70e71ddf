"""Tries that outlive their process: a mark tells the next one which batch was begun."""

import hashlib
import logging
from collections.abc import Sequence
from typing import Protocol

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator
from txaware.consume.cursors import Group, GroupPosition
from txaware.consume.inbox import KeepsPositions
from txaware.consume.poison import Suspects
from txaware.errors import NotAuthorized, TxAwareError
from txaware.model.markers import TRIES_MS, counts_tries
from txaware.model.messages import Message, MessageId
from txaware.model.start_places import of_one

logger = logging.getLogger(__name__)

_DIGEST_BITS, _MOST = 46, 0xFFFF


@attrs.frozen
class TriesMark:
    """A batch that was begun: a digest of its first message, and its tries alone.

    `pointer` is that of the transaction that began the batch. `suspects` is the number
    of messages, from the first on, that may have ended the process.
    """

    first: int
    tries: int
    pointer: int
    suspects: int

    @classmethod
    def of(
        cls, first: MessageId, tries: int, pointer: int, suspects: int
    ) -> "TriesMark":
        """Makes the mark of a batch that begins with a message."""
        return cls(_digest(first), min(tries, _MOST), pointer, min(suspects, _MOST))

    @classmethod
    def read(cls, position: MessageId | None) -> "TriesMark | None":
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


class KeepsMark(Protocol):
    """The place where the mark of a group is kept."""

    def read(self) -> tuple[TriesMark | None, bool]:
        """Returns the mark, and whether its transaction is still open."""

    def write(self, mark: TriesMark) -> None:
        """Writes the mark; on disk when it returns."""


class GroupMarks:
    """The mark of a group in the store, as the position of a group of its own."""

    def __init__(self, group: Group, coordinator: Coordinator) -> None:
        self._group = attrs.evolve(group, name=tries_of(group.name), start=None)
        self._coordinator = coordinator

    def read(self) -> tuple[TriesMark | None, bool]:
        """Returns the mark.

        An open transaction means that another member is at work on the batch, or that
        its transaction has not timed out yet.
        """
        snapshot = self._coordinator.snapshot()
        mark = TriesMark.read(of_one(self._group.saved(snapshot), self._group.topic))
        return mark, mark is not None and mark.pointer in snapshot.in_progress

    def write(self, mark: TriesMark) -> None:
        """Writes the mark in a transaction of its own."""
        kept = GroupPosition(self._group)
        context = TransactionContext(self._coordinator, kept)
        context.start()
        kept.move(mark.position)
        context.finish()

    def __repr__(self) -> str:
        return f"<GroupMarks of {self._group}>"


class InboxMarks:
    """The mark of a group in the database that has its position.

    A block of another member that is open has locked the position, or the file.
    """

    def __init__(self, positions: KeepsPositions, group: str, topic: str) -> None:
        self._positions = positions
        self._place = tries_of(group), topic

    def read(self) -> tuple[TriesMark | None, bool]:
        """Returns the mark; no block is known to be open."""
        return TriesMark.read(self._positions.committed_position(*self._place)), False

    def write(self, mark: TriesMark) -> None:
        """Writes the mark, outside of the block."""
        self._positions.save_apart(*self._place, mark.position)

    def __repr__(self) -> str:
        return f"<InboxMarks in {self._positions.transaction_aware_name}>"


def tries_of(group: str) -> str:
    """Names the place for the mark of a group."""
    return f"{group}.tries"


class DurableTries:
    """The tries of a group's messages, counted across the end of its processes.

    While all goes well, only the first batch of a process is marked. If the process
    ends in that batch, the next process takes its messages one by one, and counts each
    try before it begins.
    """

    def __init__(self, marks: KeepsMark, suspects: Suspects) -> None:
        self._marks = marks
        self._suspects = suspects
        self._is_fresh = True
        self._is_taken = False
        self._is_off = False
        self._mark: TriesMark | None = None
        self._has_counted = False

    @property
    def has_to_look(self) -> bool:
        """True while the next batch may have to be marked."""
        return not self._is_off and (self._is_fresh or bool(self._suspects))

    def look(self, page: Sequence[Message]) -> None:
        """Suspects the messages in which an earlier process may have ended.

        Only the first batch of this process is compared with the mark.
        """
        if self._is_off or not self._is_fresh or not page:
            return
        try:
            mark, is_open = self._marks.read()
        except NotAuthorized as error:
            self._give_up(error)
            return
        is_same = mark is not None and mark.is_of(page[0].id)
        self._is_taken = is_same and is_open
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
            mark = TriesMark.of(first, tries, pointer, self._suspects.count_from(first))
        elif self._is_fresh and not self._is_taken:
            mark = TriesMark.of(first, 0, pointer, len(chosen))
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
            self._try_to_write(TriesMark(0, 0, 0, 0))
        self._mark, self._has_counted = None, False

    def _write(self, mark: TriesMark) -> None:
        self._marks.write(mark)
        self._mark = mark

    def _try_to_write(self, mark: TriesMark) -> None:
        """Writes a mark if it can; a failure loses no more than the count of a try."""
        try:
            self._write(mark)
        except TxAwareError as error:
            logger.warning("%r: a try could not be noted: %s", self._marks, error)

    def _give_up(self, error: NotAuthorized) -> None:
        self._is_off = True
        logger.warning(
            "tries do not outlive this process: %r is not allowed, %s",
            self._marks,
            error,
        )


def _digest(message_id: MessageId) -> int:
    digest = hashlib.blake2b(message_id, digest_size=8).digest()
    return int.from_bytes(digest, "big") % (1 << _DIGEST_BITS)
