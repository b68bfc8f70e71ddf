"""Routes of the coordinator: what a server adds to the verbs of transactions."""

import base64
import re
from contextlib import suppress
from typing import Any

import attrs

from coordinator.errors import (
    TransactionPrepared,
    TransactionRefused,
    TxAwareError,
)
from coordinator.outcome import KnownOutcome
from coordinator.remote.calls import ROOT
from coordinator.remote.named_transactions import NamedTransactions
from coordinator.remote.wire import BYTES, is_number
from coordinator.transaction import LONGEST_TIMEOUT_S, Transaction, TransactionType
from coordinator.transaction_status import Standing, TransactionCounts
from txaware.auth import Principal
from txaware.protocol.transactions import (
    ABORT,
    BEGIN,
    CAN_COMMIT,
    CHECKPOINT,
    COORDINATOR_STATUS,
    COUNT_TRANSACTIONS,
    DESCRIBE_TRANSACTION,
    INVALIDATE,
    OUTCOME,
    PERSIST,
    PREPARE,
    SNAPSHOT,
)
from txaware.protocol.verb import Verb
from txaware.server.exchange import JSON, Reply, Request, json_reply
from txaware.server.owners import Owners
from txaware.server.routes.verb_routes import Written
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act, Caller, OnOutcome, Soon
from txaware.service.wakeups import WouldWait

# The bodies in which clients of 0.1.0 ask for a transaction, and for a snapshot.
_BEGIN_OF_BEFORE = re.compile(
    rb'\{"type": "(long"|short", "timeoutS": (null|[0-9.e+-]+))\}'
)
_SNAPSHOT_OF_BEFORE = re.compile(rb"\{\}")


class Begins:
    """Begins transactions of principals, within their limits, and notes whose."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._owners = server_context.owners
        self._engine: NamedTransactions = server_context.engine(BEGIN.port)

    def soon(
        self, _: ServerContext, caller: Caller, arguments: Any, __: OnOutcome
    ) -> Any:
        """Returns what began, in the event loop, or what to await for it."""
        begun = self.begin_at_once(caller, arguments.kind, arguments.timeout_s)
        if begun is None:
            return self.begin(caller, arguments.kind, arguments.timeout_s)
        return begun

    def begin_at_once(
        self,
        caller: Caller,
        kind: str,
        timeout_s: float | None,
        *,
        outlives_process: bool = True,
    ) -> Transaction | None:
        """Begins as `begin` does; None, with nothing done, where that may wait."""
        principal, owners = caller.principal, self._owners
        if self._server_context.coordinator_may_wait() or not owners.take_place(
            principal
        ):
            return None
        try:
            _check_length(owners, principal, kind, timeout_s)
            begun = self._begin_in_engine(kind, timeout_s, outlives_process)
            return self._noted(caller, begun)
        finally:
            owners.give_back(principal)

    async def begin(
        self, caller: Caller, kind: str, timeout_s: float | None
    ) -> Transaction:
        """Begins a transaction, in a thread."""
        in_thread = self._server_context.in_coordinator_thread
        return await in_thread(self.begin_here, caller, kind, timeout_s)

    def begin_here(
        self,
        caller: Caller,
        kind: str,
        timeout_s: float | None,
        *,
        outlives_process: bool = True,
    ) -> Transaction:
        """Begins a transaction, in this thread, which may wait."""
        principal, owners = caller.principal, self._owners
        _check_length(owners, principal, kind, timeout_s)
        if not owners.take_place(principal):
            owners.recount(principal)
            if not owners.take_place(principal):
                raise owners.too_many(principal)
        try:
            begun = self._begin_in_engine(kind, timeout_s, outlives_process)
            return self._noted(caller, begun)
        finally:
            owners.give_back(principal)

    def _begin_in_engine(
        self, kind: str, timeout_s: float | None, outlives_process: bool
    ) -> Transaction:
        """Begins one. Where that fails a repeat may begin another: it has no name."""
        try:
            if not outlives_process:  # its client does not know of it, either
                return self._server_context.coordinator.start_short(timeout_s)
            return self._engine.begin(kind, timeout_s=timeout_s)
        except TxAwareError as error:
            error.changed_nothing = True
            raise

    def _noted(self, caller: Caller, begun: Transaction) -> Transaction:
        self._owners.began(begun.transaction_id, caller.principal, caller.peer)
        return begun


def _snapshot(
    server_context: ServerContext, _: Caller, __: Any, ___: OnOutcome
) -> Transaction:
    """Looks in the event loop where nothing waits: a thread would take longer."""
    if server_context.coordinator_may_wait():
        raise WouldWait
    return server_context.coordinator.snapshot()


def _describe(
    server_context: ServerContext, caller: Caller, arguments: Any
) -> Standing:
    owners, pointer = server_context.owners, arguments.transaction
    owners.check((pointer,), caller.principal)
    found: Standing = server_context.engine(BEGIN.port).standing(pointer)
    return found


def _outcome(
    server_context: ServerContext, caller: Caller, arguments: Any
) -> KnownOutcome:
    server_context.owners.check((arguments.transaction,), caller.principal)
    options = OUTCOME.shape.options(arguments)
    found: KnownOutcome = server_context.engine(BEGIN.port).outcome(**options)
    return found


def _status(server_context: ServerContext, caller: Caller, _: Any) -> str:
    return server_context.redacted(
        caller.principal, server_context.coordinator.status()
    )


def _counts(server_context: ServerContext, caller: Caller, _: Any) -> TransactionCounts:
    found: TransactionCounts = server_context.engine(BEGIN.port).counts()
    status = server_context.redacted(caller.principal, found.status)
    return attrs.evolve(found, status=status)


def _engine(server_context: ServerContext, caller: Caller, arguments: Any) -> Any:
    """Returns what performs a call of one transaction, of its holder.

    Checkpoints end with the transaction; some coordinators do not look at them.
    """
    owners = server_context.owners
    owners.used((arguments.transaction,), caller.principal)
    owners.check(arguments.checkpoints, caller.principal)
    return server_context.engine(ABORT.port)


def _by_holder(verb: Verb[..., Any]) -> Act:
    """Returns the act of a verb that only the holder of a transaction may ask for."""

    def act(server_context: ServerContext, caller: Caller, arguments: Any) -> Any:
        engine = _engine(server_context, caller, arguments)
        return getattr(engine, verb.name)(**verb.shape.options(arguments))

    return act


def _abort(server_context: ServerContext, caller: Caller, arguments: Any) -> None:
    """Aborts, or invalidates for somebody who may not know all writes in it.

    An abort would show what was not undone. The other does no harm where all was.
    """
    owners, engine = server_context.owners, _engine(server_context, caller, arguments)
    options = ABORT.shape.options(arguments)
    pointers = (arguments.transaction, *arguments.checkpoints)
    if owners.may_abort(pointers, caller.principal):
        engine.abort(**options)
    else:
        # An abort of what nobody began, or what has ended, is no refusal either.
        with suppress(TransactionRefused, TransactionPrepared):
            engine.invalidate(**options)
    owners.ended(arguments.transaction)


def _invalidate(server_context: ServerContext, caller: Caller, arguments: Any) -> bool:
    found: bool = _by_holder(INVALIDATE)(server_context, caller, arguments)
    server_context.owners.ended(arguments.transaction)
    return found


def _checkpoint(
    server_context: ServerContext, caller: Caller, arguments: Any
) -> list[int]:
    server_context.owners.require_room(caller.principal)
    made: list[int] = _by_holder(CHECKPOINT)(server_context, caller, arguments)
    server_context.owners.given(made, caller.principal)
    return made


def _prepare(server_context: ServerContext, caller: Caller, arguments: Any) -> None:
    engine = _engine(server_context, caller, arguments)
    options = PREPARE.shape.options(arguments)
    engine.prepare(**options, principal=caller.principal.name)


ACTS: dict[Verb[..., Any], Act] = {
    **{verb: _by_holder(verb) for verb in (CAN_COMMIT, PERSIST)},
    **{ABORT: _abort, INVALIDATE: _invalidate},
    **{CHECKPOINT: _checkpoint, PREPARE: _prepare},
    **{DESCRIBE_TRANSACTION: _describe, OUTCOME: _outcome},
    **{COORDINATOR_STATUS: _status, COUNT_TRANSACTIONS: _counts},
}
SOON: dict[Verb[..., Any], Soon] = {SNAPSHOT: _snapshot}


def written(server_context: ServerContext) -> dict[Verb[..., Any], Written]:
    """Returns what answers with a transaction, in its bytes or in JSON."""
    settings = server_context.settings
    is_here = server_context.coordinator_here is not None
    # That of a transaction that names none, if it is known here.
    default_s = settings.transaction_timeout_s if is_here else None

    def begun(request: Request, arguments: Any, value: Transaction) -> Reply:
        timeout_s = arguments.timeout_s
        if timeout_s is None and value.type is TransactionType.SHORT:
            timeout_s = default_s
        return _transaction(request, BEGIN, value, timeout_s)

    def seen(request: Request, _: Any, value: Transaction) -> Reply:
        return _transaction(request, SNAPSHOT, value, None)

    return {BEGIN: begun, SNAPSHOT: seen}


def _check_length(
    owners: Owners, principal: Principal, kind: object, timeout_s: Any
) -> None:
    """Refuses what would take too long for the caller or for all, and only that."""
    is_valid = is_number(timeout_s) and (timeout_s or 0) <= LONGEST_TIMEOUT_S
    owners.check_length(
        principal,
        is_long=kind == "long",
        timeout_s=(timeout_s or 0) if is_valid else 0,
    )


def _transaction(
    request: Request,
    verb: Verb[..., Transaction],
    tx: Transaction,
    timeout_s: float | None,
) -> Reply:
    """Answers with Tephra's bytes, or in JSON if the client accepts that."""
    body = verb.written(tx)
    assert body is not None
    if not _takes_json(request):
        return Reply(200, body, verb.media_type)
    return json_reply(
        {
            "transactionId": tx.transaction_id,
            "writePointer": tx.write_pointer,
            "readPointer": tx.read_pointer,
            "type": tx.type.name.lower(),
            "timeoutS": timeout_s,
            "transaction": base64.b64encode(body).decode("ascii"),
        }
    )


def _takes_json(request: Request) -> bool:
    """Tells whether to answer a transaction in JSON."""
    accepts = request.accepts
    return JSON in accepts and BYTES not in accepts and not _is_of_before(request)


def _is_of_before(request: Request) -> bool:
    """Tells a client of txaware 0.1.0, which accepts JSON alone and takes bytes.

    No header tells it, so all must fit that it does: what it accepts, two headers that
    it does not send, and its body, byte for byte.
    """
    headers = request.headers
    body = _BEGIN_OF_BEFORE if request.path.endswith(ROOT) else _SNAPSHOT_OF_BEFORE
    return (
        headers.get(b"accept") == JSON.encode()
        and b"user-agent" not in headers
        and b"accept-encoding" not in headers
        and body.fullmatch(request.body) is not None
    )
