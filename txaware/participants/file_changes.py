"""The files that one transaction writes and removes."""

import logging
from collections.abc import Callable, Iterable, MutableMapping, Sequence

from coordinator.interfaces import Participant
from coordinator.transaction import Transaction
from txaware.participants.file_intents import FileIntents
from txaware.participants.file_places import Changes, FilePlaces

log = logging.getLogger(__name__)


class FileChanges(Participant):
    """A participant that writes files aside, and has them renamed after the commit.

    By transaction, `opened` has these objects, and `pending` their changes from just
    before those are on disk until they are done or dropped. `claim` puts them there, or
    refuses. `apply` does the changes of a transaction that has committed.
    """

    def __init__(
        self,
        intents: FileIntents,
        name: str,
        *,
        places: FilePlaces,
        opened: MutableMapping[int, "FileChanges"],
        pending: dict[int, Changes],
        claim: Callable[[int, Changes], None],
        apply: Callable[[int], None],
    ) -> None:
        self.transaction_aware_name = name
        self.changes: dict[str, str | None] = {}
        self._intents = intents
        self._places = places
        self._opened = opened
        self._pending = pending
        self._claim = claim
        self._apply = apply
        self._id = 0

    def start_tx(self, tx: Transaction) -> None:
        """Remembers the transaction; checkpoints do not change its first pointer."""
        self._id = tx.transaction_id
        self._opened[self._id] = self

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Writes a file aside."""
        self._places.require(name, writes=True)
        aside = self._intents.new_aside()
        path = self._intents.path_of(aside)
        try:
            with path.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._change(name, aside)

    def delete(self, name: str) -> None:
        """Has a file removed."""
        self._places.require(name, writes=False)
        self._change(name, None)

    def read(self, name: str) -> bytes | None:
        """Returns what the transaction wrote; None where it removed the file."""
        aside = self.changes[name]
        return None if aside is None else self._intents.path_of(aside).read_bytes()

    def get_tx_changes(self) -> Sequence[bytes]:
        """Returns a key for each file."""
        own = self.transaction_aware_name
        return [
            f"{own}:{name}".encode(errors="surrogateescape") for name in self.changes
        ]

    def commit_tx(self) -> bool:
        """Writes the intent; returns True when it and all files are on disk."""
        if self.changes:
            self._claim(self._id, dict(self.changes))
            self._intents.save(self._id, self.changes)
        return True

    def post_tx_commit(self) -> None:
        """Renames and removes the files."""
        if self.changes:
            self._apply(self._id)

    def post_tx_prepare(self) -> None:
        """Does nothing: whoever looks at the files asks for the outcome first."""

    def rollback_tx(self) -> bool:
        """Removes all that was written aside; True when nothing is left."""
        try:
            self._intents.drop(self._id, self.changes)
        except OSError as error:  # what is left is dropped when the data is opened next
            log.warning("files of transaction %s stay aside: %s", self._id, error)
            return False
        self._pending.pop(self._id, None)
        return True

    def _change(self, name: str, aside: str | None) -> None:
        before = self.changes.get(name)
        self.changes[name] = aside
        if before is not None:
            self._intents.path_of(before).unlink(missing_ok=True)
