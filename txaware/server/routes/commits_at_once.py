"""Commits that begin their own transaction, with the messages that come with them."""

from functools import partial
from typing import Any

from coordinator.interfaces import joined
from coordinator.transaction import Transaction
from txaware.errors import TxAwareError, Unavailable
from txaware.model.commit_slots import CommitSlot
from txaware.protocol.commits import COMMIT_AT_ONCE, CommitAtOnce
from txaware.protocol.shape import LateRequest
from txaware.server.idempotency import OutcomeUnknown
from txaware.server.routes.commits import Carried, Commits, RowsOfCommit, check_rights
from txaware.server.routes.transactions import Begins
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    QUICK_BYTES,
    Caller,
    OnOutcome,
    read,
)
from txaware.service.wakeups import WouldWait
from txaware.service.write.message_cargo import RowCargo, carries_nothing


class CommitsAtOnce:
    """Begins, writes and commits in one request, which may come again in any life."""

    def __init__(
        self, server_context: ServerContext, begins: Begins, commits: Commits
    ) -> None:
        self._server_context = server_context
        self._begins = begins
        self._commits = commits
        self._slots = server_context.service.slots
        self._owners = server_context.owners

    def soon(
        self,
        _: ServerContext,
        caller: Caller,
        unread: LateRequest,
        on_outcome: OnOutcome,
    ) -> Any:
        """Commits in the event loop where it can, and else in a thread."""
        arguments = None
        if len(unread.body) <= QUICK_BYTES:
            arguments = self._read(caller, unread)
            if self._commit_soon(caller, arguments, on_outcome):
                return LATER
        commit = partial(self._commit_in_thread, caller, unread, arguments)
        self._server_context.post_from_coordinator_thread(commit, on_outcome)
        return LATER

    def _read(self, caller: Caller, unread: LateRequest) -> CommitAtOnce:
        """Reads a commit; checks the caller's right to publish what comes with it."""
        arguments: CommitAtOnce = read(
            self._server_context, COMMIT_AT_ONCE, caller, unread
        )
        check_rights(arguments.carried, caller.principal)
        self._slots.check_open(arguments.timeout_s, arguments.open_ms)
        if not self._server_context.carried_bytes:
            raise carries_nothing()
        instance = self._server_context.instance_now
        if arguments.life not in ("", instance) and arguments.repeat is not True:
            raise OutcomeUnknown(
                f"this commit was sent to the server's instance {arguments.life}, and "
                f"this is {instance}: it may be a copy of one that was refused there; "
                f'ask once more, with "repeat": true'
            )
        return arguments

    def _commit_soon(
        self, caller: Caller, arguments: CommitAtOnce, on_outcome: OnOutcome
    ) -> bool:
        """Commits in the event loop; False, with nothing done, where that may wait.

        What is refused is False as well: a thread finds out again, and says why.
        """
        server_context, slots = self._server_context, self._slots
        soon = server_context.commits_soon
        if soon is None or server_context.service.reads_wait:
            return False
        slot = CommitSlot(arguments.client, arguments.slot)
        try:
            done = slots.enter_at_once(slot, arguments.number)
        except (WouldWait, TxAwareError):
            return False
        if done is not None:
            on_outcome(done)
            return True
        begun = self._begin_at_once(caller, slot, arguments)
        if begun is None:
            return False
        tx, rows = begun
        slots.began(slot, tx)
        cargo = joined([slots.row(slot, arguments.number, tx), *rows.cargoes])

        def ended(error: Unavailable | None) -> None:
            pointer = tx.transaction_id
            self._owners.ended(pointer)
            if error is not None:
                slots.failed(slot, tx, error)
                on_outcome(error)
                return
            slots.ended(slot, pointer)
            rows.count()
            on_outcome(pointer)

        try:
            is_committing = soon.commit_soon(
                tx, cargo, partial(server_context.outcomes.post, ended)
            )
        except Exception as error:
            self._owners.ended(tx.transaction_id)
            slots.failed(slot, tx, error)
            raise
        if not is_committing:
            self._give_up(slot, tx)
        return is_committing

    def _begin_at_once(
        self, caller: Caller, slot: CommitSlot, arguments: CommitAtOnce
    ) -> tuple[Transaction, RowsOfCommit] | None:
        """Begins, and makes the rows; None, with the slot left, where a thread has to.

        That is where it may wait, and where something is refused.
        """
        tx: Transaction | None = None
        try:
            tx = self._begins.begin_at_once(
                caller, "short", arguments.timeout_s, outlives_process=False
            )
            if tx is not None:
                rows = self._commits.rows(arguments.carried, tx)
                if not rows.is_ahead:
                    return tx, rows
        except TxAwareError:
            pass  # the thread says why
        self._give_up(slot, tx)
        return None

    def _give_up(self, slot: CommitSlot, tx: Transaction | None) -> None:
        """Ends what was begun, as a thread begins anew."""
        if tx is not None:
            self._server_context.coordinator.abort(tx)
            self._owners.ended(tx.transaction_id)
        self._slots.leave(slot)

    def _commit_in_thread(
        self, caller: Caller, unread: LateRequest, arguments: CommitAtOnce | None
    ) -> int:
        if arguments is None:
            arguments = self._read(caller, unread)
        begin = partial(
            self._begins.begin_here,
            caller,
            "short",
            arguments.timeout_s,
            outlives_process=False,
        )
        pointer = self._slots.perform(
            CommitSlot(arguments.client, arguments.slot),
            arguments.number,
            begin,
            partial(self._commit, arguments.carried),
        )
        self._owners.ended(pointer)
        return pointer

    def _commit(self, carried: Carried, tx: Transaction, row: RowCargo) -> None:
        """Commits with the row of the slot, in this thread, which waits for it."""
        try:
            rows = self._commits.rows(carried, tx)
            self._commits.carry_out(rows.beside(row), tx)
        except TxAwareError:
            self._owners.ended(tx.transaction_id)
            raise
