"""The tests that every participant has to pass, for a test class to inherit."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionConflict, TransactionOutcomeUnknown
from coordinator.interfaces import Participant, TransactionAware
from coordinator.transaction import Status, Transaction
from txaware.messaging import Messaging, connect
from txaware.testing.failing_coordinator import FailingCoordinator

KEY, OTHER_KEY = b"key", b"other key"


class Undone(Exception):
    """Ends a block that is to be rolled back."""


class Refuses(Participant):
    """A participant beside the tested one: it refuses at the step that it is told."""

    transaction_aware_name = "one that refuses"

    def __init__(self, step: str) -> None:
        self._step = step

    def _at(self, step: str) -> bool:
        if step == self._step:
            raise Undone(step)
        return True

    def get_tx_changes(self) -> tuple[bytes, ...]:
        """Refuses, or changes nothing."""
        self._at("get_tx_changes")
        return ()

    def commit_tx(self) -> bool:
        """Refuses, or has nothing to write."""
        return self._at("commit_tx")

    def post_tx_commit(self) -> None:
        """Raises, which changes nothing any more."""
        self._at("post_tx_commit")

    def rollback_tx(self) -> bool:
        """Has nothing to undo."""
        return True


class PromisesOfParticipants:
    """The tests of a contract; `made` says how a participant is called in them."""

    names_keys = True
    sees_own_writes = True
    decides = False

    @contextmanager
    def _made(self) -> Iterator["Made"]:
        raise NotImplementedError
        yield

    def test_what_committed_is_read_by_all_that_begin_later(self) -> None:
        """Commits, overwrites, and reads in blocks of their own."""
        with self._made() as made:
            made.write(KEY, b"1")
            made.write(OTHER_KEY, b"2")
            made.write(KEY, b"3")
            assert made.values() == (b"3", b"2")

    def test_what_was_not_written_is_none(self) -> None:
        """Reads from empty data."""
        with self._made() as made:
            assert made.values() == (None, None)

    def test_a_block_sees_what_it_wrote(self) -> None:
        """Reads in the block that wrote."""
        with self._made() as made, made.block():
            made.put(KEY, b"1")
            if self.sees_own_writes:
                assert made.get(KEY) == b"1"

    def test_a_block_that_raises_leaves_nothing(self) -> None:
        """Raises behind a change, behind a checkpoint, and before anything."""
        with self._made() as made:
            made.write(KEY, b"1")
            made.write_and_fail(KEY, b"2")
            assert made.values() == (b"1", None)
            made.write_and_fail(KEY, b"2", checkpoint=True)
            assert made.values() == (b"1", None)
            made.write(KEY, b"3")
            assert made.values() == (b"3", None)

    def test_it_undoes_what_it_wrote_where_another_participant_refuses(self) -> None:
        """Has one that joined later refuse, before and after the flush."""
        with self._made() as made:
            made.write(KEY, b"1")
            for step in ("get_tx_changes", "commit_tx"):
                made.write_and_fail(KEY, b"2", Refuses(step))
                assert made.values() == (b"1", None)

    def test_an_error_after_the_commit_undoes_nothing(self) -> None:
        """Has another participant raise in `post_tx_commit`."""
        with self._made() as made:
            with suppress(BaseException), made.block(Refuses("post_tx_commit")) as tx:
                made.put(KEY, b"1")
            assert tx.status is Status.COMMITTED
            assert made.values() == (b"1", None)

    def test_a_refused_commit_leaves_nothing(self) -> None:
        """Has the coordinator refuse where it checks, and where it commits."""
        with self._made() as made:
            made.write(KEY, b"1")
            for call in ("can_commit",) if self.decides else ("can_commit", "commit"):
                made.coordinator.fail(call, TransactionConflict("the test refuses"))
                made.write_and_fail(KEY, b"2", raises=TransactionConflict)
                made.coordinator.work(call)
                assert made.values() == (b"1", None)

    def test_a_commit_whose_answer_was_lost_counts(self) -> None:
        """Loses the answer of a commit that took place."""
        with self._made() as made:
            made.coordinator.lose("commit")
            with made.block() as tx:
                made.put(KEY, b"1")
            made.coordinator.work("commit")
            assert tx.status is Status.COMMITTED
            assert made.values() == (b"1", None)

    def test_an_outcome_that_nobody_knows_is_not_undone(self) -> None:
        """Loses the answer, and keeps the coordinator from telling."""
        with self._made() as made:
            for call in ("invalidate", "snapshot"):
                made.coordinator.fail(call)
            made.coordinator.lose("commit")
            if self.decides:  # and knows
                made.write(KEY, b"1")
            else:
                made.write_and_fail(KEY, b"1", raises=TransactionOutcomeUnknown)
            for call in ("commit", "invalidate", "snapshot"):
                made.coordinator.work(call)
            assert made.values() == (b"1", None)

    def test_checkpoints_keep_what_came_before_them(self) -> None:
        """Commits behind a checkpoint, with a change before it and one after it."""
        with self._made() as made:
            with made.block() as tx:
                made.put(KEY, b"1")
                tx.checkpoint()
                made.put(OTHER_KEY, b"2")
            assert made.values() == (b"1", b"2")

    def test_it_joins_a_block_that_is_open(self) -> None:
        """Joins late."""
        with self._made() as made:
            with made.empty_block() as tx:
                tx.join(made.participant)
                made.put(KEY, b"1")
            assert made.values() == (b"1", None)

    def test_changes_name_keys_and_a_block_without_any_names_none(self) -> None:
        """Looks at the keys that reach the coordinator."""
        with self._made() as made:
            with made.block():
                made.get(KEY)
            assert made.keys_of_last_block() == []
            made.write(KEY, b"1")
            keys = made.keys_of_last_block()
            assert bool(keys) is self.names_keys, keys
            made.write(KEY, b"2")
            assert made.keys_of_last_block() == keys


class ParticipantContract(PromisesOfParticipants):
    """Tests what a participant promises: inherit it, and say how yours is used.

    `make` makes one over empty data, `write` changes a value in the open transaction,
    and `read` returns it there, or None. Keys and values are bytes. A participant that
    names no keys, since two transactions may always write beside each other, says
    `names_keys = False`; one that can be read only after the commit says
    `sees_own_writes = False`; one that decides its block by a commit of its own (see
    `coordinator.interfaces.Participant`) says `decides = True`.

    Each test has a store in memory, and a coordinator that fails as the test says.
    """

    def make(self, messaging: Messaging) -> Any:
        """Makes the participant, over empty data."""
        raise NotImplementedError("say how your participant is made")

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        """Changes a value, in a block that the participant has joined."""
        raise NotImplementedError("say how your participant is written to")

    def read(self, participant: Any, key: bytes) -> bytes | None:
        """Returns a value as a block sees it that the participant has joined."""
        raise NotImplementedError("say how your participant is read")

    @contextmanager
    def _made(self) -> Iterator["Made"]:
        with EmbeddedCoordinator() as inner:
            failing = KeysSeen(inner)
            with connect("memory:", coordinator=failing) as messaging:
                participant = self.make(messaging)
                yield Made(self, messaging, failing, participant)


class KeysSeen(FailingCoordinator):
    """A failing coordinator that remembers the changed keys it was last told."""

    keys: list[bytes] | None = None

    def can_commit(self, tx: Transaction, changes: Any) -> None:
        """Remembers the keys, and passes the call on."""
        self.keys = sorted(changes)
        self.__getattr__("can_commit")(tx, self.keys)


class Made:
    """A participant over empty data, with the calls that the tests make of it."""

    def __init__(
        self, contract: Any, messaging: Any, coordinator: KeysSeen, participant: Any
    ) -> None:
        self.messaging = messaging
        self.coordinator = coordinator
        self.participant = participant
        self._contract = contract

    def empty_block(self, *participants: TransactionAware) -> Any:
        """Makes a transaction."""
        return self.messaging.transaction(*participants)

    def put(self, key: bytes, value: bytes) -> None:
        """Writes in the open block."""
        self._contract.write(self.participant, key, value)

    def get(self, key: bytes) -> bytes | None:
        """Reads in the open block."""
        value: bytes | None = self._contract.read(self.participant, key)
        return value

    def block(self, *others: TransactionAware) -> Any:
        """Makes a transaction with the participant, and others behind it."""
        self.coordinator.keys = None
        return self.empty_block(self.participant, *others)

    def write(self, key: bytes, value: bytes) -> None:
        """Writes in a block of its own, which commits."""
        with self.block():
            self.put(key, value)

    def write_and_fail(
        self,
        key: bytes,
        value: bytes,
        *others: TransactionAware,
        checkpoint: bool = False,
        raises: type[BaseException] = Undone,
    ) -> None:
        """Writes in a block that fails: by others, or else at its end."""
        try:
            with self.block(*others) as tx:
                self.put(key, value)
                # A block that a database decides begins when somebody looks at it.
                assert tx.transaction.transaction_id
                if checkpoint:
                    tx.checkpoint()
                    self.put(key, value + value)
                if raises is Undone and not others:
                    raise Undone
        except raises:
            return
        raise AssertionError(f"a block committed that had to raise {raises.__name__}")

    def values(self) -> tuple[bytes | None, bytes | None]:
        """Returns the values of both keys, as a new block sees them."""
        with self.block():
            return self.get(KEY), self.get(OTHER_KEY)

    def keys_of_last_block(self) -> list[bytes]:
        """Returns the keys that the last block named, in order."""
        return self.coordinator.keys or []
