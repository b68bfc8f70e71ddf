"""What a server adds to prepared transactions: who prepared one ends it."""

from typing import Any

from coordinator.prepared_transactions import PreparedTransaction
from txaware.auth import Principal
from txaware.errors import NotAuthorized, PreparedNotFound
from txaware.protocol.transactions import (
    COMMIT_PREPARED,
    LIST_PREPARED,
    ROLLBACK_PREPARED,
)
from txaware.protocol.verb import Verb
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act, Caller


def _list(
    server_context: ServerContext, caller: Caller, _: Any
) -> list[PreparedTransaction]:
    found, principal = _all(server_context), caller.principal
    if principal.is_operator:
        return found
    return [one for one in found if one.principal == principal.name]


def _end(verb: Verb[..., Any]) -> Act:
    def act(server_context: ServerContext, caller: Caller, arguments: Any) -> None:
        principal, pointer = caller.principal, arguments.transaction_id
        if not principal.is_operator:
            pointer = _own(server_context, principal, arguments)
        engine = server_context.engine(verb.port)
        getattr(engine, verb.name)(arguments.name, transaction_id=pointer)

    return act


def _own(server_context: ServerContext, principal: Principal, arguments: Any) -> int:
    """Returns the id of what a request names; raises where the caller may not end it.

    The name may be another one's when it ends. An earlier, lost request may have ended
    it: then the id has to be the caller's.
    """
    name, pointer = arguments.name, arguments.transaction_id
    found = next((one for one in _all(server_context) if one.name == name), None)
    if found is None:
        if pointer is None:
            raise PreparedNotFound(f"no transaction is prepared as {name!r}")
        server_context.owners.check((pointer,), principal)
    elif found.principal != principal.name:
        raise NotAuthorized(
            f"{principal.name} may not end what is prepared as {name!r}: somebody else "
            f"prepared it"
        )
    elif pointer is None:
        pointer = found.transaction_id
    own: int = pointer
    return own


def _all(server_context: ServerContext) -> list[PreparedTransaction]:
    found: list[PreparedTransaction] = server_context.engine(
        LIST_PREPARED.port
    ).prepared()
    return found


ACTS: dict[Verb[..., Any], Act] = {
    LIST_PREPARED: _list,
    **{verb: _end(verb) for verb in (COMMIT_PREPARED, ROLLBACK_PREPARED)},
}
