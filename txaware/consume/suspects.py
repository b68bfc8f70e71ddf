"""Remembers which messages failed, and how often, to tell which are poison."""

from txaware.messages import MessageId


class Suspects:
    """Messages that may be why a transaction failed; each is to be tried alone.

    A message is poison once it failed `tries` times on its own; never if that is None.
    """

    def __init__(self, tries: int | None) -> None:
        self._tries = tries
        self._failures: dict[MessageId, int] = {}

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._failures

    def is_poison(self, message_id: MessageId) -> bool:
        """Whether it has failed often enough to be given up."""
        failures = self._failures.get(message_id, 0)
        return self._tries is not None and failures >= self._tries

    def failed(self, message_id: MessageId) -> None:
        """This one failed."""
        self._failures[message_id] = self._failures.get(message_id, 0) + 1

    def failed_together(self, message_ids: list[MessageId]) -> None:
        """One of these failed, and nobody knows which."""
        if len(message_ids) == 1:
            self.failed(message_ids[0])
            return
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)

    def passed(self, last: MessageId) -> None:
        """All up to this one are done, here or elsewhere."""
        for message_id in [each for each in self._failures if each <= last]:
            del self._failures[message_id]
