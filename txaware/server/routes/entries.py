"""Writes at other stores: they enter our barrier, leave it, and hear of ends."""

import time
from functools import partial
from typing import Any, NoReturn

import attrs

from coordinator.remote.takes_writes import Ends
from txaware.errors import BadRequest
from txaware.protocol.entries import (
    ENDS,
    ENTER,
    GREET,
    LEAVE,
    AwaitEnds,
    EnterWrite,
    Greet,
    LeaveWrites,
)
from txaware.protocol.verb import Verb
from txaware.server.cluster.sealed_calls import require_server
from txaware.server.long_polls import signalled
from txaware.server.server_context import ServerContext, Threads
from txaware.server.verb_performer import Act, Caller, OnOutcome, Soon
from txaware.server.write_entries import WholeConnection, WriteEntries, WriterName


@attrs.frozen
class _Lost:
    """Ends, in a thread, what was written over a connection that is lost."""

    entries: WriteEntries
    threads: Threads
    line: WholeConnection

    def __call__(self) -> None:
        self.threads.coordinator.submit(self.entries.lost, self.line)


def _enter(
    server_context: ServerContext, caller: Caller, arguments: EnterWrite, _: OnOutcome
) -> Any:
    """Has a write enter: at once where another one of its transaction was let in."""
    entries, pointer = _entries(server_context), arguments.transaction
    server_context.owners.used((pointer,), caller.principal)
    if arguments.principal is not None:
        server_context.owners.check_named((pointer,), arguments.principal)
    line = caller.peer.connection
    is_own = caller.peer.when_lost(_Lost(entries, server_context.threads, line))
    enter = partial(
        entries.enter,
        _writer(caller, arguments),
        arguments.write,
        pointer,
        line if is_own else None,
    )
    if entries.has_entered(pointer):
        return enter()
    return server_context.in_coordinator_thread(enter)


def _leave(
    server_context: ServerContext, caller: Caller, arguments: LeaveWrites, _: OnOutcome
) -> None:
    _entries(server_context).leave(_writer(caller, arguments), arguments.writes)


def _greet(
    server_context: ServerContext, caller: Caller, arguments: Greet, _: OnOutcome
) -> None:
    if server_context.membership is not None:
        require_server(caller.headers)  # no operator can say it in place of a server
    _entries(server_context).greet(_writer(caller, arguments), arguments.shards)


async def _ends(
    server_context: ServerContext, caller: Caller, arguments: AwaitEnds, _: OnOutcome
) -> Ends:
    entries, name = _entries(server_context), _writer(caller, arguments)
    peer, stopping = caller.peer, server_context.stopping
    until_s = time.monotonic() + min(
        arguments.wait_s, server_context.settings.long_poll_s
    )
    while True:
        signal = entries.signal(name)
        seen = signal.count
        since, ended = entries.ends(name, arguments.since, arguments.after)
        left_s = until_s - time.monotonic()
        is_other = since != arguments.since
        is_over = left_s <= 0 or peer.is_gone or stopping.is_set
        if ended or is_other or is_over:
            known = 0 if is_other else arguments.after
            return Ends(since, known + len(ended), tuple(ended))
        await signalled(signal, seen, left_s, peer=peer, stopping=stopping)


def _entries(server_context: ServerContext) -> WriteEntries:
    found = server_context.write_entries
    if found is None:
        raise BadRequest(
            "the coordinator of this server is elsewhere: writes enter there"
        )
    return found


def _writer(caller: Caller, arguments: Any) -> WriterName:
    """Returns the writer that a request names; others cannot name it."""
    return caller.principal.name, arguments.writer


def _by_thread(_: ServerContext, __: Caller, arguments: Any) -> NoReturn:
    """Is never called: the event loop does all of these."""
    raise AssertionError(arguments)


SOON: dict[Verb[..., Any], Soon] = {
    **{ENTER: _enter, LEAVE: _leave, GREET: _greet, ENDS: _ends},
}
ACTS: dict[Verb[..., Any], Act] = dict.fromkeys(SOON, _by_thread)
