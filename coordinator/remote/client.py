"""A coordinator over HTTP, by any function that sends a request."""

import inspect
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import attrs

from coordinator import codec, errors
from coordinator.brief_errors import from_server
from coordinator.errors import (
    BadRequest,
    NotWritten,
    PreparedNotFound,
    TransactionNotInProgress,
    TxAwareError,
    Unavailable,
)
from coordinator.interfaces import Cargo, OnBatchEnd, load
from coordinator.outcome import KnownOutcome, Outcome, checked_written
from coordinator.pointers import Pointers
from coordinator.prepared_transactions import PreparedTransaction, checked_prepared_name
from coordinator.remote import calls
from coordinator.remote.calls import CallRequest, RemoteCall
from coordinator.remote.later_transaction import LaterTransaction, TransactionAtOnce
from coordinator.remote.named_transactions import checked_list, checked_state
from coordinator.remote.slot_commits import SlotCommits
from coordinator.remote.takes_writes import Ends
from coordinator.remote.wire import (
    Fields,
    answer_field,
    checked_fields,
    fields_of,
    read_answer,
)
from coordinator.transaction import (
    Transaction,
    checked_pointer,
    checked_pointers,
    checked_timeout_s,
)
from coordinator.transaction_status import Standing

T = TypeVar("T")

# So many ends that this client asked for are remembered, to refuse a commit after them.
MOST_ENDED = 1000

# Sends method, path and body, and answers status and body. What it raises as `OSError`
# leaves open whether the request arrived.
Send = Callable[[str, str, bytes], tuple[int, bytes]]


class CallSender(ABC):
    """Makes the calls of a coordinator, in whatever form they travel."""

    @abstractmethod
    def ask(self, request: CallRequest) -> Any:
        """Returns the answer as JSON has it, and a transaction as its bytes.

        Raises the error of a refused call; an `OSError` leaves open whether it arrived.
        """


class RequestSender(CallSender):
    """Makes them by a function that sends requests."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def ask(self, request: CallRequest) -> Any:
        """Sends a call as a request, and reads the answer."""
        status, body = self._send(request.call.method, request.path, request.body)
        return answered(request, status, body)


def answered(request: CallRequest, status: int, body: bytes) -> Any:
    """Reads the answer to a request; raises what it says instead."""
    if status != 200:
        raise from_server(raised(status, body))
    return read_answer(lambda: request.read(body))


def _never_began(tx: Transaction | int) -> bool:
    return isinstance(tx, LaterTransaction) and not tx.has_begun


@attrs.frozen
class _Changes:
    """The changed keys that a commit names; whether a `can_commit` has checked them.

    They are kept for whoever holds the transaction: nobody else commits it.
    """

    keys: list[bytes]
    are_checked: bool
    holder: "weakref.ref[Transaction]"


class RemoteCoordinator:
    """A coordinator at the other end of a function that sends requests, or calls.

    `takes_writers` tells whether the other end accepts the names of the participants
    that `persist` is for. An earlier version does not. `commits_at_once` tells of a
    time-out whether its transactions may begin with their commits there, and `instance`
    which server answered last.
    """

    is_at_server = True

    def __init__(
        self,
        send: Send | CallSender,
        *,
        settle_grace_s: Callable[[], float] = lambda: 86_400,
        takes_writers: Callable[[], bool] = lambda: False,
        commits_at_once: Callable[[float | None], bool] = lambda _: False,
        instance: Callable[[], str] = str,
    ) -> None:
        self._settle_grace_s = settle_grace_s
        self._sender = send if isinstance(send, CallSender) else RequestSender(send)
        self._takes_writers = takes_writers
        self._commits_at_once = commits_at_once
        self._slot_commits = SlotCommits(self._ask, instance)
        self._writers: dict[int, list[str]] = {}
        # The lives of those that were persisted, as participants ask for them next.
        self._lives: dict[int, str] = {}
        self._changes: dict[int, _Changes] = {}
        self._ended: deque[int] = deque(maxlen=MOST_ENDED)

    @property
    def settle_grace_s(self) -> float:
        """The time after its end for which an invalid pointer is surely remembered."""
        return self._settle_grace_s()

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction; every one begun from here outlives the server."""
        if timeout_s is not None:
            checked_timeout_s(timeout_s)
        return _transaction(self._ask(calls.START, type="short", timeoutS=timeout_s))

    def start_later(self, timeout_s: float | None = None) -> Transaction:
        """Returns a transaction that begins when somebody first looks at it."""
        if timeout_s is not None:
            checked_timeout_s(timeout_s)
        return LaterTransaction(partial(self.start_short, timeout_s))

    def start_with_commit(self, timeout_s: float | None = None) -> Transaction | None:
        """Returns a transaction that begins with its commit, or when it is looked at.

        Returns None where the server is an older one, or its commits carry no rows.
        """
        if timeout_s is not None:
            checked_timeout_s(timeout_s)
        if not self._commits_at_once(timeout_s):
            return None
        return TransactionAtOnce(partial(self.start_short, timeout_s), timeout_s)

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a long transaction; it outlives the server too."""
        return _transaction(self._ask(calls.START, type="long"))

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the changed keys, and remembers them for `commit`."""
        keys = _keys(changes)
        if not keys and _never_began(tx):
            return
        self._ask_for(tx, calls.CAN_COMMIT, changes=keys)
        self._note_changes(tx, keys, are_checked=True)

    def check_at_commit(self, tx: Transaction, changes: Iterable[bytes] = ()) -> None:
        """Has the commit of `tx` check its changed keys, instead of `can_commit`."""
        keys = _keys(changes)
        if not keys and _never_began(tx):
            return
        self._note_changes(tx, keys, are_checked=False)

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist."""
        writers = self._writers.pop(tx.transaction_id, None)
        fields = {} if writers is None else {"participants": writers}
        answer = self._ask_for(tx, calls.PERSIST, **fields)
        # An older server tells no life: its pointers have none.
        self._lives[tx.transaction_id] = str(answer.get("life", ""))
        while len(self._lives) > MOST_ENDED:
            self._lives.pop(next(iter(self._lives)), None)

    def note_writers(self, tx: Transaction, names: Sequence[str]) -> None:
        """Notes the participants that the next `persist` of `tx` is for, if any."""
        if self._takes_writers():
            self._writers[tx.transaction_id] = list(names)

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on.

        If the answer is lost it asks again, once, and that answer is right. It also
        asks again where `tx` is said to have ended: a request that the network delivers
        twice may have been carried out before the one that is answered.
        """
        if not _never_began(tx):
            self._commit(tx)
        elif isinstance(tx, TransactionAtOnce):
            tx.ended(None)

    def commit_with(self, tx: Transaction, cargo: Cargo) -> None:
        """Commits as `commit` does, and has the cargo written with it: both or neither.

        The rows of such a cargo are objects for the body of the request, with the name
        of its field. A repeat has them again, and they are written once. The keys are
        checked with them, whatever was checked before. Without any it is a plain
        commit, which an older server knows, too.
        """

        def submit(parts: Sequence[Any], _: OnBatchEnd) -> Callable[[], None]:
            fields: dict[str, Any] = {}
            for name, part in parts:
                fields.setdefault(name, []).append(part)
            if (
                parts
                and isinstance(tx, TransactionAtOnce)
                and not tx.has_begun
                and self._slot_commits.commit(tx, fields)
            ):
                return _waited
            self._commit(tx, **fields)
            return _waited

        load(cargo, submit)

    def _commit(self, tx: Transaction, **fields: Any) -> None:
        transaction_id = tx.transaction_id
        changes = self._changes.pop(transaction_id, None)
        if fields or (changes is not None and not changes.are_checked):
            fields["check"] = True
            if changes is not None and changes.keys:
                fields["changes"] = changes.keys
        try:
            self._ask_for(tx, calls.COMMIT, **fields)
        except NotWritten:
            raise
        except (Unavailable, TransactionNotInProgress) as error:
            if transaction_id in self._ended and not isinstance(error, Unavailable):
                raise  # an earlier call of this client has ended it
            try:
                self._ask_for(tx, calls.COMMIT, repeat=True, **fields)
            except TransactionNotInProgress as again:
                if isinstance(error, TransactionNotInProgress):
                    raise error from again  # the first one says why it ended
                raise
        self._ended.append(transaction_id)

    def _end_unbegun(self, tx: Transaction | int) -> bool:
        """Ends one that never began; False where its commit has begun it after all."""
        return not isinstance(tx, TransactionAtOnce) or self._slot_commits.end(tx)

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote."""
        if _never_began(tx):
            self._end_unbegun(tx)
            return
        self._forget(tx.transaction_id)
        self._ended.append(tx.transaction_id)
        self._ask_for(tx, calls.ABORT)

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote."""
        if _never_began(tx):
            return self._end_unbegun(tx)
        tx = tx if isinstance(tx, Transaction) else Transaction(checked_pointer(tx), 0)
        self._forget(tx.transaction_id)
        self._ended.append(tx.transaction_id)
        return answer_field(self._ask_for(tx, calls.INVALIDATE), "invalidated", bool)

    def checkpoint(self, tx: Transaction) -> Transaction:
        """Returns the same transaction with a new write pointer."""
        tx = tx.begun()
        answer = self._ask_for(tx, calls.CHECKPOINT)
        pointers = answer_field(answer, "pointers", _pointers)
        later = attrs.evolve(
            tx, write_pointer=pointers[-1], checkpoint_write_pointers=pointers
        )
        if (changes := self._changes.get(tx.transaction_id)) is not None:
            self._note_changes(later, changes.keys, are_checked=changes.are_checked)
        return later

    def prepare(
        self, tx: Transaction, name: str, *, principal: str | None = None
    ) -> None:
        """Returns when only its name can end `tx`; the other end knows the principal.

        If the answer is lost it asks again, once, and that answer is right.
        """
        fields = {"name": checked_prepared_name(name)}
        _again(lambda: self._ask_for(tx, calls.PREPARE, **fields))
        self._forget(tx.transaction_id)

    def prepared(self) -> list[PreparedTransaction]:
        """Returns all that are prepared and that this caller may end."""
        return _each(PreparedTransaction.of, self._ask(calls.PREPARED))

    def commit_prepared(self, name: str, *, transaction_id: int | None = None) -> None:
        """Commits a prepared transaction; raises `PreparedNotFound` without one."""
        self._end_prepared(calls.COMMIT_PREPARED, name, transaction_id)

    def rollback_prepared(
        self, name: str, *, transaction_id: int | None = None
    ) -> None:
        """Has nobody ever see a prepared one; raises `PreparedNotFound` without one."""
        self._end_prepared(calls.ROLLBACK_PREPARED, name, transaction_id)

    def _end_prepared(
        self, call: RemoteCall, name: str, transaction_id: int | None
    ) -> None:
        checked_prepared_name(name)
        if transaction_id is None:
            found = next((one for one in self.prepared() if one.name == name), None)
            if found is None:
                raise PreparedNotFound(f"no transaction is prepared as {name!r}")
            transaction_id = found.transaction_id
        # Its id tells whether it was ended by the same call, whose answer was lost.
        fields = {"name": name, "transactionId": transaction_id}
        _again(lambda: self._ask(call, **fields))

    def enter_write(
        self,
        transaction: int,
        *,
        writer: str,
        write: int,
        principal: str | None = None,
    ) -> str:
        """Has a write of another store enter the barrier there, as `TakesWrites`."""
        named = {} if principal is None else {"principal": principal}
        answer = self._ask(
            calls.ENTER, _known(transaction), writer=writer, write=write, **named
        )
        return answer_field(answer, "since", str)

    def greet(self, *, writer: str, shards: Sequence[int] = ()) -> None:
        """Tells that of these shards nothing that entered before is under way."""
        self._ask(calls.HELLO, writer=writer, shards=list(shards))

    def leave_writes(self, *, writer: str, writes: Sequence[int] = ()) -> None:
        """Has writes of another store leave it."""
        self._ask(calls.LEAVE, writer=writer, writes=list(writes))

    def ends(self, *, writer: str, since: str, after: int, wait_s: float) -> Ends:
        """Waits for ends of transactions that entered, as `TakesWrites`."""
        fields = self._ask(
            calls.ENDS,
            writer=writer,
            since=since,
            after=after,
            waitMs=int(wait_s * 1000),
        )
        return read_answer(lambda: Ends.of(fields))

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction, which needs no end."""
        return _transaction(self._ask(calls.SNAPSHOT))

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return answer_field(self._ask(calls.STATUS), "status", str)

    def standings(self, state: str) -> list[Standing]:
        """Returns all that are `open` or `invalid`, the oldest first."""
        return _each(Standing.of, self._ask(calls.LIST, state=checked_state(state)))

    def standing(self, pointer: int) -> Standing:
        """Returns the transaction that writes, or wrote, with that pointer."""
        fields = self._ask(calls.DESCRIBE, _known(checked_pointer(pointer)))
        return read_answer(lambda: Standing.of(fields))

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers; True if any was forgotten."""
        answer = self._ask(calls.TRUNCATE, pointers=checked_pointers(pointers))
        return answer_field(answer, "truncated", bool)

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets all invalid pointers of transactions begun before that time."""
        (before_ms,) = checked_pointers([time_ms])
        answer = self._ask(calls.TRUNCATE, beforeMs=before_ms)
        return answer_field(answer, "truncated", bool)

    def invalid_size(self) -> int:
        """Counts the invalid pointers."""
        return answer_field(self._ask(calls.INVALID_SIZE), "invalidSize", int)

    def outcome(self, tx: Transaction | int, *, life: str | None = None) -> Outcome:
        """Tells the outcome of the writes that were made with a pointer.

        With a `life` that of its own only.
        """
        # Without a name for it the question is that which older servers know.
        named = {"life": life} if life else {}
        return self._known_outcome(checked_written(tx), **named).outcome

    def life_of(self, tx: Transaction | int) -> str:
        """Returns the id of the life that gave out a pointer; empty without one."""
        pointer = checked_written(tx)
        known = self._lives.get(pointer)
        return self._known_outcome(pointer).life if known is None else known

    def _known_outcome(self, pointer: int, **life: str) -> KnownOutcome:
        answer = _object(self._ask(calls.OUTCOME, pointer, **life))
        return read_answer(lambda: KnownOutcome.of(answer))

    def decide(
        self, tx: Transaction | int, *, committed: bool, life: str | None = None
    ) -> None:
        """Writes down what counts as the outcome of a pointer that nobody knows."""
        outcome = Outcome.COMMITTED if committed else Outcome.ROLLED_BACK
        fields = {"outcome": outcome.value}
        if life is not None:
            if not isinstance(life, str):
                raise BadRequest(f"the id of a life is text, not {life!r:.50}")
            fields["life"] = life
        self._ask(calls.DECIDE, checked_written(tx), **fields)

    def close(self) -> None:
        """Does nothing: the connection belongs to the owner of `send`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _note_changes(
        self, tx: Transaction, keys: list[bytes], *, are_checked: bool
    ) -> None:
        """Notes what the commit of `tx` names, until it ends or nobody has it more."""
        known, transaction_id = self._changes, tx.transaction_id

        def forget(holder: object) -> None:
            noted = known.get(transaction_id)
            if noted is not None and noted.holder is holder:
                known.pop(transaction_id, None)

        known[transaction_id] = _Changes(keys, are_checked, weakref.ref(tx, forget))

    def _forget(self, transaction_id: int) -> None:
        self._changes.pop(transaction_id, None)

    def _ask_for(self, tx: Transaction, call: RemoteCall, **fields: Any) -> Fields:
        answer = self._ask(
            call,
            _known(checked_pointer(tx)),
            type=tx.type.name.lower(),
            checkpoints=list(tx.checkpoint_write_pointers),
            **fields,
        )
        return _object(answer)

    def _ask(
        self, call: RemoteCall, pointer: int | None = None, /, **fields: Any
    ) -> Any:
        try:
            return self._sender.ask(CallRequest(call, pointer, fields))
        except OSError as error:
            no_answer = Unavailable(f"the coordinator did not answer: {error}")
            raise from_server(no_answer) from error


def _keys(changes: Iterable[bytes]) -> list[bytes]:
    try:
        return [bytes(memoryview(change)) for change in changes]
    except TypeError as error:
        raise BadRequest(f"changes are a list of bytes: {error}") from error


def _waited() -> None:
    """Does nothing: the answer has come."""


def _again(call: Callable[[], object]) -> None:
    """Makes a call that may be repeated; a second time if the answer is lost."""
    try:
        call()
    except NotWritten:
        raise
    except Unavailable:
        call()


def _known(pointer: int) -> int:
    if not 0 <= pointer < 2**63:
        raise TransactionNotInProgress(f"transaction {pointer} was never begun")
    return pointer


def _object(answer: Any) -> Fields:
    return read_answer(lambda: checked_fields(answer))


def _each(make: Callable[[Any], T], answer: Any) -> list[T]:
    return read_answer(lambda: [*map(make, checked_list(answer, "the answer"))])


def _transaction(answer: bytes) -> Transaction:
    return read_answer(lambda: codec.decode(answer))


def _pointers(listed: Any) -> Pointers:
    pointers = Pointers(listed)
    if not len(pointers):
        raise ValueError("a checkpoint without pointers")
    return pointers


_CLASSES: dict[str, type[TxAwareError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TxAwareError)
}


def raised(status: int, body: bytes) -> TxAwareError:
    """Returns the error raised at the other end, or `Unavailable` if it is not ours."""
    try:
        fields = fields_of(body)
        kind, message = _CLASSES[fields["error"]], str(fields["message"])
    except (BadRequest, KeyError, TypeError):
        return Unavailable(f"the coordinator answered {status}: {body[:200]!r}")
    return kind(message)
