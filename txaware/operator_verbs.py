"""The verbs of operators, passed on to the administration: here, or at a server."""

from typing import BinaryIO, Protocol

from coordinator import Coordinator, Transaction
from txaware.http.client import HttpAdministration
from txaware.keeper import Keeper, KeepsRows, named_pointer
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.parts import Parts
from txaware.reports import (
    CleanUp,
    OnProgress,
    Peeked,
    Progress,
    Pruned,
    Report,
    TopicReport,
)
from txaware.requests import Start
from txaware.service.administration import Administration
from txaware.service.transfer.backup import Backup, save


class OperatorVerbs:
    """Verbs of a `Messaging` that look into a store, clean it up, count and copy it."""

    def __init__(self, administration: Administration | HttpAdministration) -> None:
        self._administration = administration

    @property
    def administration(self) -> Administration | HttpAdministration:
        """The verbs of operators, with the steps of a clean-up that processes share."""
        return self._administration

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Reads rows of a topic as they are, whatever became of their transactions."""
        return self._administration.peek(topic, start=start, limit=limit)

    def namespaces(self) -> list[str]:
        """Returns all namespaces that have a topic, in order."""
        return self._administration.namespaces()

    def inspect(self, topic: str) -> TopicReport:
        """Reports counts, sizes, times and who blocks a topic; reads all rows of it."""
        return self._administration.inspect(topic)

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Returns the ids that cut a range of a topic into parts to read at once.

        The ids rise and lie strictly between `start` and `stop`. Parts of about
        `part_bytes` begin at them: [start, first), [first, second), up to [last, stop).
        There are at most 10,000 ids, and none if all of the range fits one part. The
        sizes are estimates: no large topic is read for them, and rows that are not
        committed count too.
        """
        return self._administration.splits(
            topic, start=start, stop=stop, part_bytes=part_bytes
        )

    def lag_ms(self, group: str, topic: str) -> int:
        """Returns how far a group is behind the newest message of a topic."""
        return self._administration.lag_ms(group, topic)

    def oldest_unread_ms(self, group: str, topic: str) -> int:
        """Returns the age of the oldest message a group may read; 0 if it has none."""
        return self._administration.oldest_unread_ms(group, topic)

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant of the data, which stays in use meanwhile.

        `progress` is told how many rows were read, and what part of all rows that is.
        """
        return self._administration.check(progress)

    def backup(self, file: BinaryIO, *, progress: Progress | None = None) -> Backup:
        """Copies everything that is committed now to a file, while the data is in use.

        `txaware restore` makes a data directory of the file. `progress` is told how
        many rows were copied, and about what part of all rows that is.
        """
        return save(self._administration.backup(), file, progress=progress)

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes expired rows, and marks the rows that invalid transactions wrote."""
        return self._administration.clean_up(on_progress)

    def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs.

        A coordinator that others share is asked only with `exclusive`, which says that
        nobody has rows elsewhere but registered keepers. These are asked what they
        still need; `KeeperMissing` is raised if one does not answer.
        """
        return self._administration.prune(exclusive=exclusive)

    def metrics(self) -> Metrics:
        """Returns the counts of this process, and the state at this moment."""
        return self._administration.metrics()


class HasAdministration(Protocol):
    """The part of a `Messaging` that `KeeperVerbs` use."""

    _parts: Parts

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that decides what commits."""

    @property
    def administration(self) -> Administration | HttpAdministration:
        """The administration that knows the keepers, here or at a server."""


class KeeperVerbs:
    """Verbs of a `Messaging` for participants whose rows `prune` has to respect."""

    def register_keeper(self: HasAdministration, participant: KeepsRows) -> Keeper:
        """Makes `prune` keep what a participant with rows of its own still needs.

        The registration is durable under its `transaction_aware_name`, which stands for
        its rows. Its `smallest_pointer()` returns the least pointer that its rows may
        still hold, or None. In the process that owns the data, every `prune` and
        clean-up asks it, in their threads, and it has to be registered again after each
        start. In any other process it is asked once, during this call, and the answer
        holds until it registers again. It does so now and then to raise the pointer.
        """
        if isinstance(self.administration, HttpAdministration):
            return self.administration.report_keeper(
                *named_pointer(participant, self.coordinator)
            )
        return self.administration.register_keeper(participant)

    def forget_keeper(self: HasAdministration, name: str) -> None:
        """Forgets a keeper whose rows are gone; `prune` no longer asks for it."""
        self.administration.forget_keeper(name)

    def keepers(self: HasAdministration) -> list[Keeper]:
        """Returns the participants that keep rows of their own, registered or not."""
        return self.administration.keepers()

    def persist_stored(self: HasAdministration, transaction: Transaction) -> None:
        """Persists a transaction before other processes store rows of it here.

        It does what `coordinator.persist` does, which is for rows elsewhere. Rows in
        the store that shares the coordinator's journal are marked before anything is
        forgotten.
        """
        note_writers = getattr(self.coordinator, "note_writers", None)
        if self._parts.shares_journal and note_writers is not None:
            note_writers(transaction, ())
        self.coordinator.persist(transaction)
