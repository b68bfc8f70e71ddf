"""A block that one of its participants decides, by a commit of its own."""

import logging
from collections.abc import Hashable
from typing import Any

from coordinator.errors import MisusedTransaction, TransactionOutcomeUnknown
from coordinator.interfaces import Coordinator, Participant, TransactionAware
from coordinator.participants import Participants, persist_and_flush
from coordinator.transaction import Transaction

log = logging.getLogger(__name__)


class TakesDecider:
    """A block that takes at most one participant which decides it.

    What the others of the block change would need two commits, so nobody else may
    change anything in it.
    """

    coordinator: Coordinator
    _known: dict[Hashable, TransactionAware]
    _decider: Participant | None = None
    # The status that the decider has given the block; None while it may be undone.
    _decided: str | None = None
    _is_decidable = False

    @property
    def is_decided(self) -> bool:
        """True when a participant of it decides it."""
        return self._decider is not None

    def stand_in(self, key: Hashable, participant: Any) -> None:
        """Has `joined` return this one for a key, for which nobody has asked yet."""
        if key in self._known:
            raise MisusedTransaction(
                f"{self._known[key].transaction_aware_name} was used in the block "
                f"before the participant joined that decides it; begin with that one"
            )
        self._known[key] = participant

    def standing_in(self, key: Hashable) -> Any:
        """Returns what a key stands for in the block; None where it is unknown."""
        return self._known.get(key)

    def _take_if_decides(self, participant: Participant) -> None:
        """Lets a participant that decides have the block."""
        if participant is self._decider or participant.decides is not True:
            return  # a double has another answer
        if self._decider is not None:
            raise MisusedTransaction(
                f"{self._decider.transaction_aware_name} decides this block by a "
                f"commit of its own, and {participant.transaction_aware_name} cannot "
                f"decide it as well; use a block for each"
            )
        self._decider = participant
        participant.take_block(self)

    def _require_decidable(self, tx: Transaction, participants: Participants) -> None:
        """Raises what refuses the block before its decider commits; asks that once."""
        decider = self._decider
        assert decider is not None
        if self._is_decidable:
            return
        names = participants.changing_beside(decider)
        if names:
            raise MisusedTransaction(
                f"{decider.transaction_aware_name} decides this block by a commit of "
                f"its own, so {', '.join(names)} cannot change in it; publish a "
                f"message, and change that where the message is handled"
            )
        self.coordinator.can_commit(tx, ())
        self._is_decidable = True

    def _decide(self, tx: Transaction, participants: Participants) -> None:
        """Has the decider commit; the coordinator's commit decides nothing then."""
        self._require_decidable(tx, participants)
        decider = self._decider
        assert decider is not None
        try:
            first = [
                one for one in participants.in_commit_order() if one is not decider
            ]
            persist_and_flush(self.coordinator, [*first, decider], tx)
        except TransactionOutcomeUnknown:
            self._decided = "of unknown outcome"
            raise
        self._decided = "committed"
        try:
            self.coordinator.commit(tx)
        except Exception as error:  # nothing is written with its pointers
            log.debug("a block that %r decided: %s", decider, error)
