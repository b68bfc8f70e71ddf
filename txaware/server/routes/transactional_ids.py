"""Routes of transactional ids: what a server adds to their verbs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coordinator.errors import changed_nothing
from coordinator.transaction import Transaction
from txaware.model.producers import Begun, Entered
from txaware.model.requests import checked_pointer
from txaware.protocol.transactional_ids import ENTER_TRANSACTION
from txaware.protocol.verb import Verb
from txaware.server.routes.transactions import Begins
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act, Caller, OnOutcome


def _enter(server_context: ServerContext, caller: Caller, arguments: Any) -> Entered:
    pointer = checked_pointer(arguments.transaction)
    server_context.owners.check((pointer,), caller.principal)
    producing = server_context.service.producing
    return producing.enter_transaction(**ENTER_TRANSACTION.shape.options(arguments))


ACTS: dict[Verb[..., Any], Act] = {ENTER_TRANSACTION: _enter}


class BeginsOfIds:
    """Begins the transactions of instances, in the event loop where nothing waits.

    A thread would take longer.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._begins = Begins(server_context)
        self._coordinator = server_context.coordinator
        self._in_thread = server_context.in_coordinator_thread
        self._producing = server_context.service.producing
        self._owners = server_context.owners

    def soon(
        self, _: ServerContext, caller: Caller, arguments: Any, __: OnOutcome
    ) -> Any:
        """Returns what began, or what to await for it."""
        tx = self._begins.begin_at_once(caller, "short", arguments.timeout_s)
        if tx is None:
            return self._begin_in_thread(caller, arguments)
        if not arguments.ahead:
            with self._ended_unless_entered(tx):
                entered = self._producing.enter_at_once(
                    arguments.transactional_id,
                    arguments.producer,
                    tx,
                    key=arguments.key,
                )
            if entered is not None:
                return Begun(tx, entered)
        return self._in_thread(self._enter, tx, arguments)

    async def _begin_in_thread(self, caller: Caller, arguments: Any) -> Begun:
        tx = await self._begins.begin(caller, "short", arguments.timeout_s)
        return await self._in_thread(self._enter, tx, arguments)

    def _enter(self, tx: Transaction, arguments: Any) -> Begun:
        with self._ended_unless_entered(tx):
            entered = self._producing.enter_transaction(
                arguments.transactional_id,
                arguments.producer,
                tx,
                key=arguments.key,
                ahead=arguments.ahead,
            )
        return Begun(tx, entered)

    @contextmanager
    def _ended_unless_entered(self, tx: Transaction) -> Iterator[None]:
        """Ends a transaction where entering it is refused, or is not known."""
        try:
            yield
        except BaseException as error:
            if changed_nothing(error):
                self._coordinator.abort(tx)
            else:
                self._coordinator.invalidate(tx)
            self._owners.ended(tx.transaction_id)
            raise
