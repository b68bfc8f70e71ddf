"""Commits that begin their own transaction, with the messages that come with them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator.interfaces import joined
from coordinator.transaction import Transaction
from txaware.errors import TransactionTooLarge, TxAwareError, Unavailable
from txaware.model.commit_slots import CommitSlot
from txaware.protocol.commits import COMMIT_AT_ONCE, CommitAtOnce
from txaware.protocol.shape import LateRequest
from txaware.server.idempotency import OutcomeUnknown
from txaware.server.routes.commits import Carried, Commits, check_rights
from txaware.server.routes.transactions import Begins
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    QUICK_BYTES,
    Caller,
    ToldValue,
    read,
)
from txaware.service.wakeups import WouldWait
from txaware.service.write.message_cargo import RowCargo


class CommitsAtOnce:
    """Begins, writes and commits in one request, which may come again in any life.

    Its transaction ends with this process: where rows of it are in other shards, the
    next life knows that nobody goes on with it.
    """

    def __init__(
        self, server_context: ServerContext, begins: Begins, commits: Commits
    ) -> None:
        self._server_context = server_context
        self._begins = begins
        self._commits = commits
        self._slots = server_context.service.slots
        self._owners = server_context.owners

    def soon(
        self, _: ServerContext, caller: Caller, late: LateRequest, told: ToldValue
    ) -> Any:
        """Commits in the event loop where it can, and else in a thread."""
        asked = None
        if len(late.body) <= QUICK_BYTES:
            asked = self._asked(caller, late)
            if self._is_begun(caller, asked, told):
                return LATER
        commit = partial(self._committed, caller, late, asked)
        self._server_context.told_by_coordinator_thread(commit, told)
        return LATER

    def _asked(self, caller: Caller, late: LateRequest) -> CommitAtOnce:
        """Reads a commit, of whoever may publish what comes with it."""
        asked: CommitAtOnce = read(self._server_context, COMMIT_AT_ONCE, caller, late)
        check_rights(asked.carried, caller.principal)
        self._slots.check_open(asked.timeout_s, asked.open_ms)
        if not self._server_context.carried_bytes:
            raise TransactionTooLarge(
                "commits carry nothing at this server: begin the transaction, and "
                "commit it then"
            )
        instance = self._server_context.instance_now
        if asked.life not in ("", instance) and asked.repeat is not True:
            raise OutcomeUnknown(
                f"this commit was sent to the server's instance {asked.life}, and this "
                f"is {instance}: it may be a copy of one that was refused there; ask "
                f'once more, with "repeat": true'
            )
        return asked

    def _is_begun(self, caller: Caller, asked: CommitAtOnce, told: ToldValue) -> bool:
        """Commits in the event loop; False, with nothing done, where that may wait.

        What is refused is False as well: a thread finds out again, and says why.
        """
        server_context, slots = self._server_context, self._slots
        soon = server_context.commits_soon
        if soon is None or server_context.service.reads_wait:
            return False
        slot = CommitSlot(asked.client, asked.slot)
        try:
            done = slots.enter_at_once(slot, asked.number)
        except (WouldWait, TxAwareError):
            return False
        if done is not None:
            told(done)
            return True
        tx: Transaction | None = None
        try:
            tx = self._begins.begun_at_once(
                caller, "short", asked.timeout_s, outlives_process=False
            )
            parts = None if tx is None else self._commits.parts(asked.carried, tx)
            if tx is None or parts is None or parts.is_ahead:
                self._give_up(slot, tx)
                return False
        except TxAwareError:
            self._give_up(slot, tx)
            return False
        pointer = tx.transaction_id
        slots.began(slot, tx)
        cargo = joined([slots.row(slot, asked.number, tx), *parts.cargoes])

        def ended(error: Unavailable | None) -> None:
            self._owners.ended(pointer)
            if error is not None:
                slots.failed(slot, tx, error)
                told(error)
                return
            slots.ended(slot, pointer)
            parts.count()
            told(pointer)

        then = partial(server_context.outcomes.tell, ended)
        try:
            is_committing = soon.commit_soon(tx, cargo, then)
        except Exception as error:
            slots.failed(slot, tx, error)
            raise
        if not is_committing:
            self._give_up(slot, tx)
        return is_committing

    def _give_up(self, slot: CommitSlot, tx: Transaction | None) -> None:
        """Ends what was begun, as a thread begins anew."""
        if tx is not None:
            self._server_context.coordinator.abort(tx)
            self._owners.ended(tx.transaction_id)
        self._slots.leave(slot)

    def _committed(
        self, caller: Caller, late: LateRequest, asked: CommitAtOnce | None
    ) -> int:
        if asked is None:
            asked = self._asked(caller, late)
        begin = partial(
            self._begins.begun_here,
            caller,
            "short",
            asked.timeout_s,
            outlives_process=False,
        )
        slot = CommitSlot(asked.client, asked.slot)
        pointer = self._slots.perform(
            slot, asked.number, begin, self._commit(asked.carried)
        )
        self._owners.ended(pointer)
        return pointer

    def _commit(self, carried: Carried) -> Callable[[Transaction, RowCargo], None]:
        def commit(tx: Transaction, row: RowCargo) -> None:
            try:
                parts = self._commits.parts(carried, tx)
                self._commits.carry_out(parts.beside(row), tx)
            except TxAwareError:
                self._owners.ended(tx.transaction_id)
                raise

        return commit
