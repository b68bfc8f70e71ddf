"""Routes of writes at other stores: they enter our barrier, leave it, hear of ends."""

import time
from functools import partial

import attrs

from coordinator.remote import calls
from coordinator.remote.wire import (
    LONGEST_NAME,
    Fields,
    check_known,
    fields_of,
    list_of,
    shown,
    whole_number,
)
from txaware.errors import BadRequest
from txaware.protocol.rights import holder_or_operator, operator
from txaware.server.cluster.sealed_calls import require_server
from txaware.server.exchange import DONE_IN_JSON, Reply, Request, json_reply
from txaware.server.long_polls import signalled
from txaware.server.owners import Owners
from txaware.server.routes.transactions import route_of
from txaware.server.routing import Begun, Route, Told, in_a_task
from txaware.server.server_context import ServerContext, Threads
from txaware.server.write_entries import WholeConnection, WriteEntries, WriterName


@attrs.frozen
class _Lost:
    """Ends, in a thread, what was written over a connection that is lost."""

    entries: WriteEntries
    threads: Threads
    line: WholeConnection

    def __call__(self) -> None:
        self.threads.coordinator.submit(self.entries.lost, self.line)


class EntryRoutes:
    """Routes for stores elsewhere that write with pointers of our coordinator."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._owners = server_context.owners

    def routes(self) -> list[Route]:
        """Returns these routes. A server of a store comes as an operator."""
        anyone = holder_or_operator
        return [
            route_of(calls.ENTER, in_a_task(self._enter), anyone, begin=self._enter),
            route_of(calls.HELLO, in_a_task(self._hello), operator, begin=self._hello),
            route_of(calls.LEAVE, in_a_task(self._leave), anyone, begin=self._leave),
            route_of(calls.ENDS, self._ends, anyone, waits=True),
        ]

    def _enter(self, request: Request, _: Told) -> Begun:
        entries = self._entries
        pointer, fields = int(request.params["transaction"]), fields_of(request.body)
        check_known(fields, calls.ENTER.fields)
        self._owners.used((pointer,), request.principal)
        _check_principal(self._owners, pointer, fields)
        line = request.peer.connection
        is_own = request.peer.when_lost(
            _Lost(entries, self._server_context.threads, line)
        )
        enter = partial(
            entries.enter,
            _writer(fields, request),
            whole_number(fields.get("write"), "write"),
            pointer,
            line if is_own else None,
        )
        if not entries.has_entered(pointer):
            return self._enter_later(enter)
        return json_reply({"since": enter()})

    async def _enter_later(self, enter: "partial[str]") -> Reply:
        since = await self._server_context.in_coordinator_thread(enter)
        return json_reply({"since": since})

    def _leave(self, request: Request, _: Told) -> Begun:
        fields = fields_of(request.body)
        check_known(fields, calls.LEAVE.fields)
        writes = [whole_number(one, "writes") for one in list_of(fields, "writes")]
        self._entries.leave(_writer(fields, request), writes)
        return DONE_IN_JSON

    def _hello(self, request: Request, _: Told) -> Begun:
        if self._server_context.membership is not None:
            require_server(request)  # no operator can say it in place of a server
        fields = fields_of(request.body)
        check_known(fields, calls.HELLO.fields)
        name = _writer(fields, request)
        shards = [whole_number(one, "shards") for one in list_of(fields, "shards")]
        self._entries.greet(name, shards)
        return DONE_IN_JSON

    async def _ends(self, request: Request) -> Reply:
        context, entries = self._server_context, self._entries
        fields = fields_of(request.body)
        check_known(fields, calls.ENDS.fields)
        name, since = _writer(fields, request), fields.get("since")
        if not isinstance(since, str):
            raise BadRequest(f"since: {shown(since)} is no text")
        after = whole_number(fields.get("after"), "after")
        wait_s = whole_number(fields.get("waitMs"), "waitMs") / 1000
        until_s = time.monotonic() + min(wait_s, context.settings.long_poll_s)
        while True:
            signal = entries.signal(name)
            seen = signal.count
            now_since, ended = entries.ends(name, since, after)
            left_s = until_s - time.monotonic()
            peer, is_stopping = request.peer, context.stopping.is_set
            is_other = now_since != since
            if ended or is_other or left_s <= 0 or peer.is_gone or is_stopping:
                count = len(ended) + (0 if is_other else after)
                return json_reply({"since": now_since, "next": count, "ended": ended})
            await signalled(signal, seen, left_s, peer=peer, stopping=context.stopping)

    @property
    def _entries(self) -> WriteEntries:
        found = self._server_context.write_entries
        if found is None:
            raise BadRequest(
                "the coordinator of this server is elsewhere: writes enter there"
            )
        return found


def _check_principal(owners: Owners, pointer: int, fields: Fields) -> None:
    """Refuses what a server writes for somebody who did not begin the transaction."""
    principal = fields.get("principal")
    if principal is None:
        return
    if not isinstance(principal, str):
        raise BadRequest(f"principal: {shown(principal)} is no name")
    owners.check_named((pointer,), principal)


def _writer(fields: Fields, request: Request) -> WriterName:
    """Returns the writer that a request names; others cannot name it."""
    writer = fields.get("writer")
    if not isinstance(writer, str) or not 0 < len(writer) <= LONGEST_NAME:
        raise BadRequest(
            f"writer: {shown(writer)} is not a name of 1 to {LONGEST_NAME} characters"
        )
    return request.principal.name, writer
