"""Routes of the coordinator, passed on to `coordinator.remote`."""

import base64
import re
from contextlib import suppress
from functools import partial
from typing import Any

from coordinator import codec
from coordinator.errors import (
    BadRequest,
    TransactionPrepared,
    TransactionRefused,
    TxAwareError,
)
from coordinator.pointers import NO_POINTERS
from coordinator.remote import calls
from coordinator.remote.calls import ROOT, RemoteCall
from coordinator.remote.client import BYTES, Answer, CoordinatorRoutes
from coordinator.remote.wire import fields_of, is_number, pointers_of
from coordinator.transaction import LONGEST_TIMEOUT_S, TransactionType
from txaware.auth import Principal
from txaware.protocol.rights import (
    Allow,
    holder,
    holder_or_operator,
    monitor,
    operator,
)
from txaware.protocol.transactions import (
    ABORT,
    CAN_COMMIT,
    CHECKPOINT,
    INVALIDATE,
    PERSIST,
    PREPARE,
)
from txaware.protocol.verb import Verb
from txaware.server.exchange import JSON, Reply, Request, json_reply
from txaware.server.owners import Owners
from txaware.server.routing import Begin, Begun, Handle, Route, Told, in_a_task
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act, Caller

# The bodies in which clients of 0.1.0 ask for a transaction, and for a snapshot.
_BEGIN_OF_BEFORE = re.compile(
    rb'\{"type": "(long"|short", "timeoutS": (null|[0-9.e+-]+))\}'
)
_SNAPSHOT_OF_BEFORE = re.compile(rb"\{\}")


class TransactionRoutes:
    """Routes below `/v1/transactions` that begin one, or tell about them.

    A call that is passed on is named by its route, and only a number comes from the
    path that was sent: parsed anew, `truncate%2F` would be another call than the one
    that was allowed.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._owners = server_context.owners
        self.coordinator = CoordinatorRoutes(
            server_context.coordinator,
            clock_ms=server_context.clock_ms,
            told=server_context.owners.told,
        )

    def routes(self) -> list[Route]:
        """Returns these routes. Only operators see transactions of others."""
        rights = {
            **{calls.LIST: operator, calls.FIND_HANGING: operator},
            **{calls.STATE: monitor, calls.INVALID_SIZE: monitor},
            **{calls.STATUS: holder, calls.TRUNCATE: operator},
            **{calls.DESCRIBE: holder_or_operator, calls.OUTCOME: holder_or_operator},
            calls.DECIDE: operator,
        }
        return [
            route_of(
                calls.START,
                in_a_task(self._begin),
                holder,
                keyed=True,
                begin=self._begin,
            ),
            route_of(calls.SNAPSHOT, self._snapshot, holder),
            *(
                route_of(call, partial(self._pass_on, call=call), allow)
                for call, allow in rights.items()
            ),
        ]

    async def _pass_on(self, request: Request, *, call: RemoteCall) -> Reply:
        pointer = int(request.params.get("transaction", 0))
        if call in (calls.DESCRIBE, calls.OUTCOME):
            self._owners.check((pointer,), request.principal)
        answer = await self._server_context.in_coordinator_thread(
            self.coordinator.call,
            call,
            pointer=pointer,
            query=request.query_string.decode("latin-1"),
            body=request.body,
        )
        return self.passed_on(request, answer)

    def _begin(self, request: Request, _: Told) -> Begun:
        answer = self.begun_at_once(request, request.body)
        if answer is None:
            return self._begin_later(request)
        return self._of(answer, request)

    async def _begin_later(self, request: Request) -> Reply:
        return self._of(await self.begun(request, request.body), request)

    def _of(self, answer: Answer, request: Request) -> Reply:
        return self._transaction(request, answer, self._default_timeout_s())

    def begun_at_once(self, caller: Caller, body: bytes) -> Answer | None:
        """Begins as `begun` does; None, with nothing done, where that may wait."""
        principal, owners = caller.principal, self._owners
        if self._server_context.coordinator_may_wait() or not owners.take_place(
            principal
        ):
            return None
        try:
            _check_length(owners, principal, body)
            return self._noted(caller, self.coordinator.call(calls.START, body=body))
        finally:
            owners.give_back(principal)

    async def begun(self, caller: Caller, body: bytes) -> Answer:
        """Begins a transaction for a principal, within its limits, and notes whose."""
        principal, owners = caller.principal, self._owners
        _check_length(owners, principal, body)
        if not owners.take_place(principal):
            await self._server_context.in_coordinator_thread(owners.recount, principal)
            if not owners.take_place(principal):
                raise owners.too_many(principal)
        try:
            return self._noted(caller, await self._quickly(calls.START, body))
        finally:
            owners.give_back(principal)

    def _noted(self, caller: Caller, answer: Answer) -> Answer:
        if answer.status == 200:
            began = codec.decode(answer.body)
            self._owners.began(began.transaction_id, caller.principal, caller.peer)
        return answer

    async def _snapshot(self, request: Request) -> Reply:
        answer = await self._quickly(calls.SNAPSHOT, request.body)
        return self._transaction(request, answer, None)

    def _transaction(
        self, request: Request, answer: Answer, default_s: float | None
    ) -> Reply:
        """Answers with Tephra's bytes, or in JSON if the client accepts that."""
        if answer.status != 200 or not _takes_json(request):
            return self.passed_on(request, answer)
        return _in_json(request, answer, default_s)

    def passed_on(self, request: Request, answer: Answer) -> Reply:
        """Passes an answer on, without what the caller may not know of this machine."""
        body = answer.body
        if answer.content_type == JSON and (
            answer.status == 200 or answer.status > 499
        ):
            body = self._server_context.told(request.principal, body.decode()).encode()
        return Reply(answer.status, body, answer.content_type)

    def _default_timeout_s(self) -> float | None:
        """Returns the time-out of a transaction that names none, if known here."""
        is_here = self._server_context.coordinator_here is not None
        return self._server_context.settings.transaction_timeout_s if is_here else None

    async def _quickly(self, call: RemoteCall, body: bytes) -> Answer:
        """Answers in the event loop where nothing waits: a thread would take longer."""
        if self._server_context.coordinator_may_wait():
            return await self._server_context.in_coordinator_thread(
                self.coordinator.call, call, body=body
            )
        return self.coordinator.call(call, body=body)

    def called(self, request: Request, call: RemoteCall) -> Answer:
        """Answers the call that ends a transaction, of its holder."""
        pointer = int(request.params["transaction"])
        self._owners.used((pointer,), request.principal)
        try:
            checkpoints = pointers_of(fields_of(request.body), "checkpoints")
        except TxAwareError:
            checkpoints = NO_POINTERS  # the coordinator refuses it too, and says why
        self._owners.check(checkpoints, request.principal)
        answer = self.coordinator.call(call, pointer=pointer, body=request.body)
        if answer.status == 200:
            self._owners.ended(pointer)
        return answer


def _engine(server_context: ServerContext, caller: Caller, asked: Any) -> Any:
    """Returns what performs a call of one transaction, of its holder.

    Checkpoints end with the transaction; some coordinators do not look at them.
    """
    owners = server_context.owners
    owners.used((asked.transaction,), caller.principal)
    owners.check(asked.checkpoints, caller.principal)
    return server_context.engine(ABORT.port)


def _by_holder(verb: Verb[..., Any]) -> Act:
    """Returns the act of a verb that only the holder of a transaction may ask for."""

    def act(server_context: ServerContext, caller: Caller, asked: Any) -> Any:
        engine = _engine(server_context, caller, asked)
        return getattr(engine, verb.name)(**verb.shape.options(asked))

    return act


def _abort(server_context: ServerContext, caller: Caller, asked: Any) -> None:
    """Aborts, or invalidates for somebody who may not know all writes in it.

    An abort would show what was not undone. The other does no harm where all was.
    """
    owners, engine = server_context.owners, _engine(server_context, caller, asked)
    options = ABORT.shape.options(asked)
    pointers = (asked.transaction, *asked.checkpoints)
    if owners.may_abort(pointers, caller.principal):
        engine.abort(**options)
    else:
        # An abort of what nobody began, or what has ended, is no refusal either.
        with suppress(TransactionRefused, TransactionPrepared):
            engine.invalidate(**options)
    owners.ended(asked.transaction)


def _invalidate(server_context: ServerContext, caller: Caller, asked: Any) -> bool:
    found: bool = _by_holder(INVALIDATE)(server_context, caller, asked)
    server_context.owners.ended(asked.transaction)
    return found


def _checkpoint(server_context: ServerContext, caller: Caller, asked: Any) -> list[int]:
    made: list[int] = _by_holder(CHECKPOINT)(server_context, caller, asked)
    server_context.owners.given(made, caller.principal)
    return made


def _prepare(server_context: ServerContext, caller: Caller, asked: Any) -> None:
    engine = _engine(server_context, caller, asked)
    options = PREPARE.shape.options(asked)
    engine.prepare(**options, principal=caller.principal.name)


ACTS: dict[Verb[..., Any], Act] = {
    **{verb: _by_holder(verb) for verb in (CAN_COMMIT, PERSIST)},
    **{ABORT: _abort, INVALIDATE: _invalidate},
    **{CHECKPOINT: _checkpoint, PREPARE: _prepare},
}


def route_of(
    call: RemoteCall,
    handle: Handle,
    allow: Allow,
    *,
    keyed: bool = False,
    waits: bool = False,
    begin: Begin | None = None,
) -> Route:
    """Returns the route of a call of the coordinator."""
    path, query = (
        call.path("{transaction}"),
        call.fields if call.method == "GET" else (),
    )
    return Route(
        call.method,
        path,
        handle,
        allow,
        waits=waits,
        keyed=keyed,
        query=query,
        begin=begin,
    )


def _check_length(owners: Owners, principal: Principal, body: bytes) -> None:
    """Refuses what would take too long for the caller or for all, and only that."""
    try:
        fields = fields_of(body)
    except BadRequest:
        return
    timeout_s: float = fields.get("timeoutS") or 0
    is_valid = is_number(timeout_s) and timeout_s <= LONGEST_TIMEOUT_S
    owners.check_length(
        principal,
        is_long=fields.get("type") == "long",
        timeout_s=timeout_s if is_valid else 0,
    )


def _in_json(request: Request, answer: Answer, default_s: float | None) -> Reply:
    """Writes a transaction as JSON; a short one without a time-out has `default_s`."""
    tx, asked_s = codec.decode(answer.body), fields_of(request.body).get("timeoutS")
    is_short = tx.type is TransactionType.SHORT
    return json_reply(
        {
            "transactionId": tx.transaction_id,
            "writePointer": tx.write_pointer,
            "readPointer": tx.read_pointer,
            "type": tx.type.name.lower(),
            "timeoutS": default_s if asked_s is None and is_short else asked_s,
            "transaction": base64.b64encode(answer.body).decode("ascii"),
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
