"""What operators ask, passed on to whoever knows: here, or at a server."""

from typing import BinaryIO, Protocol

from coordinator import Coordinator, Transaction
from txaware.http.client import HttpAdministration
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.parts import Parts
from txaware.requests import Start
from txaware.service.administration import Administration
from txaware.service.check.report import Report
from txaware.service.check.scan import Progress
from txaware.service.keepers import Keeper, KeepsRows, named_pointer
from txaware.service.monitor.inspection import Peeked, TopicReport
from txaware.service.retention.clean_up import CleanUp, OnProgress, Pruned
from txaware.service.transfer.backup import Backup, save


class OperatorVerbs:
    """Looks inside a store, cleans up, counts, and copies it."""

    def __init__(self, administration: Administration | HttpAdministration) -> None:
        self._administration = administration

    @property
    def administration(self) -> Administration | HttpAdministration:
        """What operators ask, with the steps of a clean-up that processes share."""
        return self._administration

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Rows of a topic as they stand, whatever became of their transactions."""
        return self._administration.peek(topic, start=start, limit=limit)

    def namespaces(self) -> list[str]:
        """All namespaces that have a topic, in order."""
        return self._administration.namespaces()

    def inspect(self, topic: str) -> TopicReport:
        """Counts, sizes, times and who blocks a topic; reads all of it."""
        return self._administration.inspect(topic)

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Where to cut a range of a topic, for several to read it at once.

        The ids strictly between `start` and `stop`, rising, at which parts of about
        `part_bytes` begin: [start, first), [first, second), up to [last, stop). At most
        10,000 of them, and none where all of it fits one part. It is about balance: no
        large topic is read for it, and what is not committed counts too.
        """
        return self._administration.splits(
            topic, start=start, stop=stop, part_bytes=part_bytes
        )

    def lag_ms(self, group: str, topic: str) -> int:
        """How far a group is behind the newest message of a topic."""
        return self._administration.lag_ms(group, topic)

    def oldest_unread_ms(self, group: str, topic: str) -> int:
        """The age of the oldest message that a group may read; 0 where it has none."""
        return self._administration.oldest_unread_ms(group, topic)

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant of the data, which stays in use meanwhile.

        `progress` is told how many rows were read, and which part of all that is.
        """
        return self._administration.check(progress)

    def backup(self, file: BinaryIO, *, progress: Progress | None = None) -> Backup:
        """Copies everything that is committed now to a file; nobody has to stop.

        `txaware restore` makes a data directory of it. `progress` is told how many rows
        were copied, and about which part of all that is.
        """
        return save(self._administration.backup(), file, progress=progress)

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes what has expired, and marks what invalid transactions wrote."""
        return self._administration.clean_up(on_progress)

    def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs.

        One that others share is asked only when you say that it is `exclusive`, so that
        nobody has rows elsewhere but keepers that registered. Those are asked what they
        still need: `KeeperMissing` where one does not answer.
        """
        return self._administration.prune(exclusive=exclusive)

    def metrics(self) -> Metrics:
        """What was counted in this process, and how things stand."""
        return self._administration.metrics()


class Owner(Protocol):
    """What is needed of a `Messaging` here."""

    _parts: Parts

    @property
    def coordinator(self) -> Coordinator:
        """Who decides what commits."""

    @property
    def administration(self) -> Administration | HttpAdministration:
        """Who keeps the rows of keepers, here or at a server."""


class KeeperVerbs:
    """Verbs of a `Messaging`, which `prune` and clean-ups go by."""

    def register_keeper(self: Owner, participant: KeepsRows) -> Keeper:
        """Has `prune` keep what a participant with rows of its own still needs.

        Durable by its `transaction_aware_name`, which stands for its rows. Its
        `smallest_pointer()` answers the least pointer that they may still hold, or
        None. In the process that owns the data it is asked by every `prune` and
        clean-up, in their threads, and has to be registered again after each start. In
        any other process it is asked here and now, and the answer holds until it
        registers again, which it does now and then to raise it.
        """
        if isinstance(self.administration, HttpAdministration):
            return self.administration.report_keeper(
                *named_pointer(participant, self.coordinator)
            )
        return self.administration.register_keeper(participant)

    def forget_keeper(self: Owner, name: str) -> None:
        """Has `prune` no longer ask for a keeper, as its rows are gone."""
        self.administration.forget_keeper(name)

    def keepers(self: Owner) -> list[Keeper]:
        """The participants that keep rows of their own, registered or not."""
        return self.administration.keepers()

    def persist_stored(self: Owner, transaction: Transaction) -> None:
        """Persists a transaction before other processes store rows of it here.

        As `coordinator.persist`, which is for rows elsewhere: those in the store that
        shares the coordinator's journal are marked before anything is forgotten.
        """
        note_writers = getattr(self.coordinator, "note_writers", None)
        if self._parts.shares_journal and note_writers is not None:
            note_writers(transaction, ())
        self.coordinator.persist(transaction)
