"""Commits of a server: alone, or with the rows that come with them."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import attrs

from coordinator.interfaces import joined
from coordinator.optional_ports import in_process
from coordinator.remote.named_transactions import (
    NamedTransactions,
    flag_or_null,
    keys_to_check,
    named,
)
from coordinator.transaction import Transaction
from coordinator.transaction_status import OPEN, standing
from txaware.auth import Principal
from txaware.errors import (
    BadRequest,
    ProducerFenced,
    RequestTooLarge,
    TransactionNotInProgress,
    TransactionTooLarge,
    TxAwareError,
    Unavailable,
    changed_nothing,
)
from txaware.model.interfaces import CargoCounted
from txaware.model.markers import producer_change
from txaware.model.partitions import partition_name
from txaware.model.requests import checked_payloads
from txaware.model.rows import checked_changes_of_rows
from txaware.model.shards import HOME
from txaware.model.topics import DEFAULT_NAMESPACE
from txaware.protocol.commits import COMMIT, CommittedPublish, CommitTransaction
from txaware.protocol.formats import MAX_MESSAGES
from txaware.protocol.formats.requests import Listed
from txaware.protocol.rights import (
    Params,
    in_group,
    on_table,
    to_publish,
    with_transactional_id,
)
from txaware.protocol.shape import LateRequest
from txaware.server.idempotency import OutcomeUnknown
from txaware.server.parts_elsewhere import PartElsewhere
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import LATER, QUICK_BYTES, Caller, OnOutcome
from txaware.service.topic_handles import PartitionedTopic
from txaware.service.write.message_cargo import carries_nothing

# The parts that come with a commit, by the name of their field.
Carried = Mapping[str, Sequence[Any]]
# The rights that parts of a commit need.
_PUBLISHES, _IN_A_GROUP = to_publish(transactions=True), in_group(transactions=True)
_CHANGES = on_table("publish")


class RowsAhead:
    """Commits transactions with rows that no commit carries, and writes them before.

    Whatever refuses such a commit once rows may be written ends the transaction: what
    its client takes back would not be all, and an abort would show the rest. A repeat
    ends it as well, and so does a request in a life after the first one: some of the
    rows may be there. One whose outcome is not known may be open still, and the next
    request ends it. A copy of the first request that comes as that commits is answered
    as committed.

    `has_committed` ends a transaction, unless it did.
    """

    def __init__(
        self,
        coordinator: Any,
        has_committed: Callable[[Transaction], bool],
        ended: Callable[[int], object],
    ) -> None:
        self._coordinator, self._has_committed = coordinator, has_committed
        self._ended = ended
        # Open transactions whose rows are written, or on their way, by the request that
        # was the first one: of two at once in two threads as well.
        self._first: dict[int, object] = {}

    def commit(
        self, tx: Transaction, write: Callable[[], None], commit: Callable[[], None]
    ) -> None:
        """Writes, and then commits; `write` returns once all is on disk."""
        pointer = tx.transaction_id
        in_this_life = self._coordinator.barrier.is_of_this_life(pointer)
        request = object()
        is_first = self._first.setdefault(pointer, request) is request
        if not in_this_life or not is_first:
            if self._ended_by_commit(tx) and not is_first:
                return  # of the first request, which is not answered yet
            raise _without_commit(tx, "rows of an earlier request may be written")
        try:
            write()
        except Exception as error:
            if self._ended_by_commit(tx):
                raise
            raise _without_commit(
                tx, f"a part of its rows was not written, {error}"
            ) from error
        try:
            commit()
        except TxAwareError as error:
            if not changed_nothing(error) or self._ended_by_commit(tx):
                raise
            raise _without_commit(tx, str(error)) from error
        self._first.pop(pointer, None)

    def _ended_by_commit(self, tx: Transaction) -> bool:
        """Ends a transaction, unless it has ended; tells whether that was a commit.

        Where that cannot be done its outcome is unknown: an abort after a plain no
        would show the rows.
        """
        has_committed = self._has_committed(tx)
        self._ended(tx.transaction_id)
        self._first.pop(tx.transaction_id, None)
        return has_committed


def _without_commit(tx: Transaction, why: str) -> TransactionNotInProgress:
    return TransactionNotInProgress(
        f"transaction {tx.transaction_id} has ended without a commit: {why}"
    )


@attrs.frozen
class RowsOfCommit:
    """The rows of a commit: what it carries, and what is written ahead of it.

    Ahead go messages to shards that are here, and to those of other servers.
    """

    cargoes: list[CargoCounted]
    ahead: dict[str, Listed] = attrs.field(factory=dict)
    elsewhere: Sequence[PartElsewhere] = ()

    @property
    def is_ahead(self) -> bool:
        """True where rows are written before the commit."""
        return bool(self.ahead or self.elsewhere)

    def beside(self, row: CargoCounted) -> "RowsOfCommit":
        """Returns the same with a row that the commit carries as well."""
        return RowsOfCommit([row, *self.cargoes], self.ahead, self.elsewhere)

    def count(self) -> None:
        """Counts what was carried, once it is committed."""
        for cargo in self.cargoes:
            cargo.count()


class Commits:
    """Commits, and writes what comes in the same request: both or neither.

    Whoever commits so needs the same rights as for a request of each part.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._engine: NamedTransactions = server_context.engine(COMMIT.port)
        self._coordinator: Any = server_context.coordinator
        self._service = server_context.service
        self._owners = server_context.owners
        here = in_process(server_context.coordinator)
        self._barrier = None if here is None else here.barrier
        self._rows_ahead = RowsAhead(
            self._coordinator, self._engine.has_committed, self._owners.ended
        )

    def soon(
        self,
        _: ServerContext,
        caller: Caller,
        unread: LateRequest,
        on_outcome: OnOutcome,
    ) -> Any:
        """Commits in the event loop where it can, and else in a thread.

        A thread that posts the outcome takes two turns of the loop less than one that
        is awaited.
        """
        arguments = None
        if len(unread.body) <= QUICK_BYTES:
            arguments = self._read(caller, unread)
            if self._commit_soon(arguments, on_outcome):
                return LATER
        commit = partial(self._commit_in_thread, caller, unread, arguments)
        self._server_context.post_from_coordinator_thread(commit, on_outcome)
        return LATER

    def _commit_soon(self, arguments: CommitTransaction, on_outcome: OnOutcome) -> bool:
        """Commits in the event loop; False, with nothing done, where that may wait.

        What is refused is False as well, and what has ended, which may be a repeat: a
        thread finds out again, and says why.
        """
        soon = self._server_context.commits_soon
        if soon is None or self._service.reads_wait:
            return False
        pointer = arguments.transaction
        carried: Carried = arguments.carried
        if self._may_be_copy(arguments):
            return False
        try:
            tx = named(pointer, arguments.kind, arguments.checkpoints)
            changes = keys_to_check(arguments.check, arguments.changes)
            if carried:
                carried, elsewhere = self._split(carried)
                if elsewhere:
                    return False
            may_wait = self._service.producing.may_wait
            producers = carried.get("producers", ())
            if any(may_wait(each["transactionalId"]) for each in producers):
                return False
            rows = self._rows(carried, tx)
            if rows.is_ahead:
                return False
        except TxAwareError:
            return False
        cargo = joined(rows.cargoes) if rows.cargoes else None

        def ended(error: Unavailable | None) -> None:
            if error is not None:
                on_outcome(error)
                return
            rows.count()
            self._owners.ended(pointer)
            on_outcome(None)

        on_written = partial(self._server_context.outcomes.post, ended)
        try:
            return soon.commit_soon(tx, cargo, on_written, changes=changes)
        except TransactionNotInProgress:
            return False

    def _commit_in_thread(
        self, caller: Caller, unread: LateRequest, arguments: CommitTransaction | None
    ) -> None:
        if arguments is None:
            arguments = self._read(caller, unread)
        if self._may_be_copy(arguments):
            raise OutcomeUnknown(
                f"the server was started anew since transaction "
                f"{arguments.transaction} began, and does not know whether it refused "
                f"this commit before that; "
                f'ask once more, with "repeat": true'
            )
        tx = named(arguments.transaction, arguments.kind, arguments.checkpoints)
        commit = self._coordinator.commit
        if arguments.carried:
            commit = partial(self._commit_with, arguments.carried)
        keys = keys_to_check(arguments.check, arguments.changes)
        self._engine.commit_by(commit, tx, keys, repeat=arguments.repeat)
        self._owners.ended(arguments.transaction)

    def _may_be_copy(self, arguments: CommitTransaction) -> bool:
        """Tells whether this may be a copy of a commit that an earlier life refused.

        That life alone knew of the refusal. A client that asks again says so.
        """
        barrier, pointer = self._barrier, arguments.transaction
        if barrier is None or barrier.is_of_this_life(pointer):
            return False
        is_repeated = flag_or_null(arguments.repeat, what="repeat")
        return not is_repeated and barrier.is_open(pointer)

    def _read(self, caller: Caller, unread: LateRequest) -> CommitTransaction:
        """Reads a commit and what comes with it; checks the caller's right to each."""
        arguments: CommitTransaction = unread.read()
        pointer, carried = arguments.transaction, arguments.carried
        _check_pointers(carried.get("publishes", ()), pointer)
        self._owners.used((pointer,), caller.principal)
        self._owners.check(arguments.checkpoints, caller.principal)
        check_rights(carried, caller.principal)
        if producers := carried.get("producers"):
            # Of two transactions of a producer one conflicts, whoever forgets its key.
            arguments.changes = [*arguments.changes, *map(_change_key, producers)]
            arguments.check = True
        return arguments

    def rows(self, carried: Carried, tx: Transaction) -> RowsOfCommit:
        """Makes the rows of a commit; raises where they are wrong."""
        carried, elsewhere = self._split(carried)
        return self._rows(carried, tx, elsewhere)

    def carry_out(self, rows: RowsOfCommit, tx: Transaction) -> None:
        """Writes the rows of a commit, and commits; a thread waits for both."""
        commit = partial(self._commit_cargoes, rows.cargoes, tx)
        if rows.is_ahead:
            write = partial(self._write, rows.ahead, rows.elsewhere, tx)
            self._rows_ahead.commit(tx, write, commit)
        else:
            commit()
        rows.count()

    def _commit_with(self, carried: Carried, tx: Transaction) -> None:
        try:
            rows = self.rows(carried, tx)
        except TxAwareError as error:
            if self._stays_open(tx, error):
                raise
            # It may have committed before, which is for a repeat to find out.
            raise TransactionNotInProgress(str(error)) from error
        self.carry_out(rows, tx)

    def _commit_cargoes(self, cargoes: Sequence[CargoCounted], tx: Transaction) -> None:
        if cargoes:
            self._coordinator.commit_with(tx, joined(cargoes))
        else:  # publishes without messages, or all of them ahead
            self._coordinator.commit(tx)

    def _write(
        self,
        ahead: dict[str, Listed],
        elsewhere: Sequence[PartElsewhere],
        tx: Transaction,
    ) -> None:
        """Writes what no commit carries to shards that are here, and to others."""
        for topic, listed in ahead.items():
            self._service.publish(topic, listed, transaction=tx)
        if elsewhere:
            parts = self._server_context.parts_elsewhere
            assert parts is not None
            parts.write(elsewhere, tx.transaction_id)

    def _split(self, carried: Carried) -> tuple[Carried, list[PartElsewhere]]:
        """Returns what is for this server, and what is for shards that others have."""
        if self._server_context.parts_elsewhere is None:
            return carried, []
        here, elsewhere = self._placed(carried.get("publishes", ()))
        return {**carried, "publishes": here}, elsewhere

    def _placed(
        self, publishes: Sequence[CommittedPublish]
    ) -> tuple[list[CommittedPublish], list[PartElsewhere]]:
        """Returns what is published in home's shard, and the parts for others."""
        here: list[CommittedPublish] = []
        elsewhere: list[PartElsewhere] = []
        limit_bytes = self._server_context.settings.message_limit_bytes
        for topic, listed in _topics(publishes).items():
            place = self._service.found(topic)
            payloads = checked_payloads(listed, limit_bytes=limit_bytes)
            if not isinstance(place, PartitionedTopic):
                split, names = [(place, payloads)], {}
            else:
                split = place.split(payloads, partial(_turn_at_home, place))
                names = {
                    handle.number: partition_name(topic, handle.number)
                    for handle, _ in split
                }
            for handle, part in split:
                name = names.get(handle.number, topic)
                if handle.shard == HOME:
                    here.append(CommittedPublish(name, part))
                elif len(part):
                    elsewhere.append(PartElsewhere(handle.shard, name, part))
        return here, elsewhere

    def _rows(
        self,
        carried: Carried,
        tx: Transaction,
        elsewhere: Sequence[PartElsewhere] = (),
    ) -> RowsOfCommit:
        """Makes the rows of what is for this server, topics last.

        Messages to another shard than the journal's are written ahead.
        """
        if not any(carried.values()):
            return RowsOfCommit([], elsewhere=elsewhere)
        cargoes = [*self._cargoes(carried, tx)]
        topics = _topics(carried.get("publishes", ()))
        messages = sum(map(len, topics.values()))
        if messages > MAX_MESSAGES:  # empty ones take nearly nothing of a body
            raise RequestTooLarge(
                f"a commit with {messages} messages is above the limit of "
                f"{MAX_MESSAGES}; send some before the commit"
            )
        here: list[tuple[str, Listed]] = []
        ahead: dict[str, Listed] = {}
        for topic, listed in topics.items():
            if listed and self._service.is_carried(topic):
                here.append((topic, listed))
            elif listed:
                ahead[topic] = listed
        if here:
            cargoes.append(_required(self._service.cargo(self._coordinator, tx, here)))
        return RowsOfCommit(cargoes, ahead, elsewhere)

    def _stays_open(self, tx: Transaction, refusal: TxAwareError) -> bool:
        """Tells whether no request before has committed it, nor will.

        One for an instance that is fenced by now may be about to: it is ended first.
        """
        if not isinstance(refusal, ProducerFenced):
            return standing(self._coordinator, tx.transaction_id).state == OPEN
        was_open: bool = self._coordinator.invalidate(tx)
        self._owners.ended(tx.transaction_id)
        return was_open

    def _cargoes(self, carried: Carried, tx: Transaction) -> Iterator[CargoCounted]:
        """Yields what is beside messages, which takes no locks of rows."""
        coordinator, service = self._coordinator, self._service
        if not self._server_context.carried_bytes:
            raise carries_nothing()
        for each in carried.get("producers", ()):
            name, producer = each["transactionalId"], each["producer"]
            yield _required(
                service.producing.producer_cargo(
                    coordinator, name, producer, tx, key=each["key"]
                )
            )
        for each in carried.get("positions", ()):
            yield _required(service.position_cargo(coordinator, tx, **each))
        if changed := carried.get("tables"):
            limit_bytes = self._server_context.settings.message_limit_bytes
            tables = [
                (
                    each["table"],
                    checked_changes_of_rows(each["changes"], limit_bytes=limit_bytes),
                )
                for each in changed
            ]
            yield _required(
                self._server_context.tables.row_cargo(coordinator, tx, tables)
            )


def _topics(publishes: Iterable[CommittedPublish]) -> dict[str, Listed]:
    """Returns all messages of a commit for each topic."""
    parts: dict[str, list[Listed]] = {}
    for topic, listed, _ in publishes:
        parts.setdefault(_full_name(topic), []).append(listed)
    return {topic: _joined(listed) for topic, listed in parts.items()}


def _check_pointers(publishes: Iterable[CommittedPublish], pointer: int) -> None:
    """Refuses messages that name another transaction than the one that commits."""
    for publish in publishes:
        if publish.pointer not in (None, pointer):
            raise BadRequest(
                f"a publish to {publish.topic} names transaction {publish.pointer}, "
                f"and this is the commit of {pointer}; name that one, or none"
            )


def check_rights(carried: Carried, principal: Principal) -> None:
    """Checks the rights that a request of each part would need."""
    for each in carried.get("publishes", ()):
        _PUBLISHES(principal, _path_params("topic", each.topic))
    for each in carried.get("positions", ()):
        topic = _path_params("topic", each["topic"])
        _IN_A_GROUP(principal, {"group": each["group"], **topic})
    for each in carried.get("tables", ()):
        _CHANGES(principal, _path_params("table", each["table"]))
    for each in carried.get("producers", ()):
        transactional_id = each["transactionalId"]
        with_transactional_id(principal, {"transactional_id": transactional_id})


def _path_params(kind: str, name: str) -> Params:
    """Returns what the path of a request would name."""
    namespace, colon, rest = name.rpartition(":")
    return {"namespace": namespace if colon else DEFAULT_NAMESPACE, kind: rest}


def _full_name(topic: str) -> str:
    return ":".join(_path_params("topic", topic).values())


def _joined(parts: list[Listed]) -> Listed:
    """Returns the messages of parts; those of a single one as they were checked."""
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _required(cargo: CargoCounted | None) -> CargoCounted:
    if cargo is None:
        raise TransactionTooLarge(
            "that is more than a commit carries here; send it before the commit"
        )
    return cargo


def _change_key(producer: Mapping[str, Any]) -> bytes:
    return producer_change(producer["transactionalId"])


def _turn_at_home(place: PartitionedTopic) -> int:
    """Returns the partition for messages without a key, of those in home's shard."""
    here = [n for n in range(place.partitions) if place.topic.shard_of(n) == HOME]
    return secrets.choice(here or range(place.partitions))
