"""Remembers which messages failed, and how often, to tell which are poison."""

from collections.abc import Sequence

from txaware.messages import MessageId

ENDED_PROCESS = "the process ended in each of its tries"


class Suspects:
    """Messages that may be why a transaction failed; each is to be tried alone.

    A message is poison once it failed `tries` times on its own; never if that is None.
    """

    def __init__(self, tries: int | None) -> None:
        self._tries = tries
        self._failures: dict[MessageId, int] = {}
        self._errors: dict[MessageId, str] = {}

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._failures

    def is_poison(self, message_id: MessageId) -> bool:
        """Whether it has failed often enough to be given up."""
        return self._tries is not None and self.failures(message_id) >= self._tries

    def failures(self, message_id: MessageId) -> int:
        """How often it failed on its own."""
        return self._failures.get(message_id, 0)

    def error(self, message_id: MessageId) -> str:
        """What it failed with at last."""
        return self._errors.get(message_id, ENDED_PROCESS)

    def count_from(self, first: MessageId) -> int:
        """How many suspects there are from that message on."""
        return sum(each >= first for each in self._failures)

    def inherit(self, message_ids: Sequence[MessageId], failures: int) -> None:
        """An earlier process ended in these, and failed so often in the first one."""
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)
        for first in message_ids[:1]:
            self._failures[first] = max(self._failures[first], failures)

    def failed(self, message_id: MessageId, error: str) -> None:
        """This one failed."""
        self._failures[message_id] = self._failures.get(message_id, 0) + 1
        self._errors[message_id] = error

    def failed_together(self, message_ids: list[MessageId], error: str) -> None:
        """One of these failed, and nobody knows which."""
        if len(message_ids) == 1:
            self.failed(message_ids[0], error)
            return
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)

    def passed(self, last: MessageId) -> None:
        """All up to this one are done, here or elsewhere."""
        for message_id in [each for each in self._failures if each <= last]:
            del self._failures[message_id]
            self._errors.pop(message_id, None)
