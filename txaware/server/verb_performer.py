"""Performs declared verbs, whichever way they came: owners, threads, the engine."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import attrs

from coordinator.transaction import Transaction
from txaware.auth import Principal
from txaware.errors import BadRequest
from txaware.model.messages import PublishResponse
from txaware.protocol.shape import LateRequest
from txaware.protocol.verb import Verb, Work
from txaware.server.exchange import Again, Peer
from txaware.server.server_context import ServerContext
from txaware.service.wakeups import WouldWait


class Caller(Protocol):
    """The one that asks: a `Request` of HTTP is one."""

    @property
    def principal(self) -> Principal:
        """The principal, whose right to the verb was checked."""

    @property
    def peer(self) -> Peer:
        """The other end, which may go while the verb is performed."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, among them the key of a request that may be repeated."""

    @property
    def ask_again(self) -> Callable[[], object]:
        """Raises where its token, or the rule that it needed, was taken away."""


# A larger body is read in a thread, so that the others do not wait for it.
QUICK_BYTES = 128 << 10
# What a server does beside the engine, in a thread: by the context, who asks, and what.
Act = Callable[[ServerContext, Any, Any], Any]
# Called in the event loop with the value of a verb, or with the error.
OnOutcome = Callable[[Any], None]
# Begins a verb in the event loop: returns its value, what to await for that, or `LATER`
# where `OnOutcome` is called with it. Where a thread is needed it raises `WouldWait`,
# with nothing done.
Soon = Callable[[ServerContext, Any, Any, OnOutcome], Any]
LATER: Final = object()


@attrs.frozen
class MayComeAgain:
    """A value of a verb whose request may be performed `again`."""

    value: Any
    again: Again


class VerbPerformer:
    """Performs one verb; `soon` begins it in the event loop, `act` does it in a thread.

    Without an `act` the engine's method of the verb's name is called. A body of several
    formats, or a late one, is not read when `soon` gets its request; a thread reads it
    where there is none.
    """

    def __init__(
        self,
        server_context: ServerContext,
        verb: Verb[..., Any],
        act: Act | None = None,
        soon: Soon | None = None,
    ) -> None:
        self.verb = verb
        self._server_context = server_context
        self._in_thread = _threads(server_context)[verb.work]
        self._perform = (
            _performing(server_context, verb)
            if act is None
            else partial(act, server_context)
        )
        self._soon = None if soon is None else partial(soon, server_context)

    @property
    def is_soon(self) -> bool:
        """True when the event loop may begin it without a task."""
        return self._soon is not None

    async def find_topic(self, topic: str) -> None:
        """Raises `TopicNotFound` where there is none."""
        await self._server_context.place(topic)

    def begin(self, caller: Caller, arguments: Any, on_outcome: OnOutcome) -> Any:
        """Returns the value, what to await for it, or `LATER`; of the event loop.

        A request in a transaction of somebody else is refused.
        """
        if isinstance(arguments, LateRequest):
            perform: Callable[..., Any] = self._read_and_perform
        else:
            perform = self._perform
            check_own(self._server_context, self.verb, caller, arguments)
        if self._soon is not None:
            try:
                return self._soon(caller, arguments, on_outcome)
            except WouldWait:
                pass
        return self._in_thread(perform, caller, arguments)

    def _read_and_perform(self, caller: Caller, unread: LateRequest) -> Any:
        return self._perform(
            caller, read(self._server_context, self.verb, caller, unread)
        )


def read(
    server_context: ServerContext,
    verb: Verb[..., Any],
    caller: Caller,
    unread: LateRequest,
) -> Any:
    """Returns a request whose body is read now, in a thread or where it is quick.

    Of a verb that finds a topic a missing one is told before a wrong body.
    """
    try:
        arguments = unread.read()
    except BadRequest:
        if verb.finds_topic:
            server_context.service.topic(unread.topic)
        raise
    if verb.check is not None:
        verb.check(arguments)
    check_own(server_context, verb, caller, arguments)
    return arguments


def check_own(
    server_context: ServerContext, verb: Verb[..., Any], caller: Caller, arguments: Any
) -> None:
    """Refuses a request in a transaction of somebody else, and a copy of before."""
    for name in verb.shape.own:
        if (named := getattr(arguments, name)) is not None:
            caller.principal.require_transactions()
            pointer = _pointer_of(named)
            server_context.owners.used((pointer,), caller.principal)
            if verb.repeat.is_keyed:
                server_context.refuse_copy(pointer, caller.headers)


def _pointer_of(named: Any) -> int:
    """Returns the pointer of a transaction, of what it published, or itself."""
    if isinstance(named, PublishResponse):
        return named.transaction_write_pointer
    pointer: int = named.transaction_id if isinstance(named, Transaction) else named
    return pointer


def performers(
    server_context: ServerContext,
    verbs: tuple[Verb[..., Any], ...],
    acts: Mapping[Verb[..., Any], Act],
    soon: Mapping[Verb[..., Any], Soon],
) -> list[VerbPerformer]:
    """Returns what performs each verb; `acts` and `soon` have what some need."""
    return [
        VerbPerformer(server_context, verb, acts.get(verb), soon.get(verb))
        for verb in verbs
    ]


def _threads(server_context: ServerContext) -> dict[Work, Callable[..., Any]]:
    def seen(perform: Callable[..., Any], caller: Caller, arguments: Any) -> Any:
        """Refuses where the rows of others still wait to be read."""
        server_context.answers.require_room()
        is_fresh = arguments.transaction is None
        work = Work.COORDINATOR if is_fresh else Work.ROWS
        return threads[work](perform, caller, arguments)

    async def in_turn(
        perform: Callable[..., Any], caller: Caller, arguments: Any
    ) -> Any:
        async with server_context.turn_in(arguments.group):
            return await threads[Work.COORDINATOR](perform, caller, arguments)

    threads: dict[Work, Callable[..., Any]] = {
        Work.ROWS: server_context.in_thread,
        Work.SEEN: seen,
        Work.COORDINATOR: server_context.in_coordinator_thread,
        Work.GROUP: in_turn,
        Work.SLOW: server_context.in_slow_thread,
        Work.PLANNING: server_context.in_planning_thread,
        Work.MONITOR: server_context.in_monitor_thread,
    }
    return threads


def _performing(
    server_context: ServerContext, verb: Verb[..., Any]
) -> Callable[[Caller, Any], Any]:
    """Returns what calls the engine with a request."""
    engine = server_context.engine(verb.port)
    shape = verb.shape
    go_on = {} if shape.go_on is None else {shape.go_on: server_context.threads.go_on}

    def perform(caller: Caller, arguments: Any) -> Any:
        method = getattr(engine, verb.name)
        with server_context.writing_for(caller.principal):
            return method(**shape.options(arguments), **verb.fixed, **go_on)

    return perform
