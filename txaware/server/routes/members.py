"""Routes of groups that share topics: rights on the topics, heartbeats that wait."""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from txaware.model.groups import GroupDescription, GroupName
from txaware.model.topics import TopicName
from txaware.protocol.members import (
    CREATE_GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_GROUPS,
    MEMBER_POSITIONS,
    REWIND_GROUP,
    Heartbeat,
    Join,
    NewGroup,
    OfMember,
    Rewind,
    correlated,
)
from txaware.protocol.verb import Verb
from txaware.server.admission import ClientGone
from txaware.server.exchange import Request
from txaware.server.long_polls import SignalWait
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    Act,
    Caller,
    MayComeAgain,
    OnOutcome,
    Soon,
)
from txaware.service.groups.local_groups import Look
from txaware.service.wakeups import WouldWait

# Waits of `LONG_S` and more end together, once in every `TOGETHER_S`.
LONG_S, TOGETHER_S = 1.0, 0.1


def _seen(
    server_context: ServerContext, request: Request, arguments: Any
) -> list[GroupDescription]:
    may_use, namespace = request.principal.may_use_group, arguments.namespace
    found = server_context.groups.groups(namespace)
    return [one for one in found if may_use(namespace, one.group)]


def _require(caller: Caller, group: str, topics: Iterable[str]) -> None:
    """Raises where the caller may not consume one of the topics."""
    namespace = GroupName.parse(group).namespace
    for topic in topics:
        caller.principal.require("consume", TopicName.parse(f"{namespace}:{topic}"))


def _join(server_context: ServerContext, caller: Caller, arguments: Join) -> Any:
    _require(caller, arguments.group, arguments.topics)
    _require(caller, arguments.group, (one.topic for one in arguments.partitions))
    member, is_static = arguments.member, bool(arguments.static)
    if isinstance(arguments.static, str):
        member = arguments.static
    joined = server_context.groups.join_group(
        arguments.group,
        member,
        static=is_static,
        topics=arguments.topics,
        partitions=arguments.partitions,
        start=arguments.start,
        session_s=arguments.session_s,
        client=arguments.client,
        own_positions=arguments.own_positions,
        is_here=False,
    )
    return correlated(arguments, joined)


def _positions(
    server_context: ServerContext, caller: Caller, arguments: OfMember
) -> Any:
    _require(caller, arguments.group, (one.topic for one in arguments.partitions))
    options = MEMBER_POSITIONS.shape.options(arguments)
    return server_context.groups.member_positions(**options)


def _rewind(server_context: ServerContext, caller: Caller, arguments: Rewind) -> Any:
    _require(caller, arguments.group, [arguments.topic])
    groups = server_context.groups
    return correlated(
        arguments,
        groups.rewind_group(arguments.group, arguments.topic, to=arguments.to),
    )


def _create(server_context: ServerContext, _: Caller, arguments: NewGroup) -> Any:
    created = server_context.groups.create_group(
        arguments.group,
        session_s=arguments.session_s,
        heartbeat_s=arguments.heartbeat_s,
        ephemeral=arguments.ephemeral,
        assignment=arguments.assignment,
    )
    return correlated(arguments, created)


def beats_end_s(now_s: float, wait_s: float) -> float:
    """Returns when a wait ends, a little early and at the same moment as others.

    The loop wakes once for all of them, and sends what goes to one client in one piece.
    """
    if wait_s < LONG_S:
        return now_s + wait_s
    return (now_s + wait_s) // TOGETHER_S * TOGETHER_S


class Beating:
    """Answers a heartbeat in the event loop, as soon as there is news for its member.

    It takes a thread only where something has to be read or changed. Where nothing has
    changed when its time is up, the answer is that of the look before.
    """

    def __init__(
        self,
        server_context: ServerContext,
        caller: Caller,
        arguments: Heartbeat,
        on_outcome: OnOutcome,
    ) -> None:
        self._server_context = server_context
        self._caller = caller
        self._arguments = arguments
        self._on_outcome = on_outcome
        self._wait_s = min(arguments.wait_s, server_context.settings.long_poll_s)
        self._until_s = beats_end_s(time.monotonic(), self._wait_s)
        self._is_first = self._was_let_in = True
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> object:
        """Looks, and has the answer told once there is one."""
        try:
            look = self._look(at_once=True)
        except WouldWait:
            self._task = asyncio.create_task(self._look_in_turn())
        else:
            self._answer_or_wait(look, look.pause_s)
        return LATER

    async def _look_in_turn(self) -> None:
        context = self._server_context
        try:
            async with context.turn_in(self._arguments.group):
                look = await context.in_coordinator_thread(self._look)
            self._answer_or_wait(look, look.pause_s)
        except Exception as error:
            self._fail(error)

    def _answer_or_wait(self, look: Look, pause_s: float) -> None:
        stopping = self._server_context.stopping
        left_s = self._until_s - time.monotonic()
        if look.is_news or stopping.is_set:
            self._on_outcome(correlated(self._arguments, look.beat))
        elif min(left_s, pause_s) <= 0:
            self._answer_no_news(look)
        else:
            SignalWait(
                look.signal,
                look.seen,
                min(left_s, pause_s),
                peer=self._caller.peer,
                stopping=stopping,
                on_end=partial(self._go_on, look, is_last=left_s <= pause_s),
            )

    def _answer_no_news(self, look: Look) -> None:
        beat = correlated(self._arguments, look.beat)
        self._on_outcome(MayComeAgain(beat, partial(self._again, look)))

    def _again(self, look: Look) -> bool:
        """Waits once more, as the same heartbeat came again; see `Again`."""
        pause_s = None if self._server_context.stopping.is_set else look.again()
        if pause_s is None:
            return False
        self._until_s = beats_end_s(time.monotonic(), self._wait_s)
        self._answer_or_wait(look, pause_s)
        return True

    def _go_on(self, look: Look, has_changed: bool, *, is_last: bool) -> None:
        try:
            if has_changed or not is_last:
                self.begin()
                return
            self._require_there()
            self._answer_no_news(look)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Tells the error; of a client that is gone its group learns as well."""
        if not isinstance(error, ClientGone):
            self._on_outcome(error)
            return
        context, arguments = self._server_context, self._arguments
        lost = partial(
            context.groups.lost,
            arguments.group,
            arguments.member,
            incarnation=arguments.incarnation,
        )
        context.post_from_coordinator_thread(lost, lambda _: self._on_outcome(error))

    def _require_there(self) -> None:
        """Raises where its client is gone, or may no longer ask."""
        if self._caller.peer.is_gone:
            raise ClientGone
        if not self._was_let_in:
            self._caller.ask_again()  # it has waited since, and its token may be gone
        self._was_let_in = False

    def _look(self, *, at_once: bool = False) -> Look:
        """Looks once; its client has to be there, and may ask."""
        self._require_there()
        arguments = self._arguments
        look = self._server_context.groups.look(
            arguments.group,
            arguments.member,
            incarnation=arguments.incarnation,
            generation=arguments.generation,
            owned=arguments.owned,
            is_first=self._is_first,
            at_once=at_once,
            allow=self._allow,
        )
        self._is_first = False
        return look

    def _allow(self, topics: Iterable[TopicName]) -> None:
        for topic in topics:
            self._caller.principal.require("consume", topic)


def _heartbeat(
    server_context: ServerContext, caller: Caller, arguments: Any, on_outcome: OnOutcome
) -> object:
    return Beating(server_context, caller, arguments, on_outcome).begin()


ACTS: dict[Verb[..., Any], Act] = {
    LIST_GROUPS: _seen,
    CREATE_GROUP: _create,
    JOIN_GROUP: _join,
    MEMBER_POSITIONS: _positions,
    REWIND_GROUP: _rewind,
}
SOON: dict[Verb[..., Any], Soon] = {HEARTBEAT: _heartbeat}
