"""What a program says of participants that keep rows of their own."""

from typing import Protocol

from coordinator import Coordinator, Transaction
from txaware.http.client import HttpAdministration
from txaware.parts import Parts
from txaware.service.administration import Administration
from txaware.service.keepers import Keeper, KeepsRows, named_pointer


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
