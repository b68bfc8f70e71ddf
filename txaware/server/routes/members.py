"""Routes of groups that share topics: rights on the topics, heartbeats that wait."""

import time
from collections.abc import Coroutine, Iterable
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
from txaware.server.long_polls import signalled
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act, Caller, Soon, ToldValue
from txaware.service.groups.local_groups import Look
from txaware.service.wakeups import WouldWait


def _seen(
    server_context: ServerContext, request: Request, asked: Any
) -> list[GroupDescription]:
    may_use, namespace = request.principal.may_use_group, asked.namespace
    found = server_context.groups.groups(namespace)
    return [one for one in found if may_use(namespace, one.group)]


def _require(caller: Caller, group: str, topics: Iterable[str]) -> None:
    """Raises where the caller may not consume one of the topics."""
    namespace = GroupName.parse(group).namespace
    for topic in topics:
        caller.principal.require("consume", TopicName.parse(f"{namespace}:{topic}"))


def _join(server_context: ServerContext, caller: Caller, asked: Join) -> Any:
    _require(caller, asked.group, asked.topics)
    _require(caller, asked.group, (one.topic for one in asked.partitions))
    member, is_static = asked.member, bool(asked.static)
    if isinstance(asked.static, str):
        member = asked.static
    joined = server_context.groups.join_group(
        asked.group,
        member,
        static=is_static,
        topics=asked.topics,
        partitions=asked.partitions,
        start=asked.start,
        session_s=asked.session_s,
        client=asked.client,
        own_positions=asked.own_positions,
        is_here=False,
    )
    return correlated(asked, joined)


def _positions(server_context: ServerContext, caller: Caller, asked: OfMember) -> Any:
    _require(caller, asked.group, (one.topic for one in asked.partitions))
    options = MEMBER_POSITIONS.shape.options(asked)
    return server_context.groups.member_positions(**options)


def _rewind(server_context: ServerContext, caller: Caller, asked: Rewind) -> Any:
    _require(caller, asked.group, [asked.topic])
    groups = server_context.groups
    return correlated(asked, groups.rewind_group(asked.group, asked.topic, to=asked.to))


def _create(server_context: ServerContext, _: Caller, asked: NewGroup) -> Any:
    created = server_context.groups.create_group(
        asked.group,
        session_s=asked.session_s,
        heartbeat_s=asked.heartbeat_s,
        ephemeral=asked.ephemeral,
        assignment=asked.assignment,
    )
    return correlated(asked, created)


class Beating:
    """Answers a heartbeat in the event loop, as soon as there is news for its member.

    It takes a thread only where something has to be read or changed.
    """

    def __init__(
        self, server_context: ServerContext, caller: Caller, asked: Heartbeat
    ) -> None:
        self._server_context = server_context
        self._caller = caller
        self._asked = asked
        self._is_first = True

    def begin(self) -> Any:
        """Returns the answer, or what to await for it."""
        wait_s = min(self._asked.wait_s, self._server_context.settings.long_poll_s)
        until_s = time.monotonic() + wait_s
        look = self._look_here()
        if look is not None and (look.is_news or wait_s <= 0):
            return correlated(self._asked, look.beat)
        return self._wait_or_lose(look, until_s)

    async def _wait_or_lose(self, look: Look | None, until_s: float) -> Any:
        try:
            return await self._wait(look, until_s)
        except ClientGone:
            context, asked = self._server_context, self._asked
            lost = partial(context.groups.lost, incarnation=asked.incarnation)
            await context.in_coordinator_thread(lost, asked.group, asked.member)
            raise

    async def _wait(self, look: Look | None, until_s: float) -> Any:
        context = self._server_context
        while True:
            if look is None:
                async with context.turn_in(self._asked.group):
                    look = await context.in_coordinator_thread(self._look)
            left_s = min(until_s - time.monotonic(), look.pause_s)
            if look.is_news or left_s <= 0 or context.stopping.is_set:
                return correlated(self._asked, look.beat)
            await signalled(
                look.signal,
                look.seen,
                left_s,
                peer=self._caller.peer,
                stopping=context.stopping,
            )
            look = self._look_here()

    def _look_here(self) -> Look | None:
        try:
            return self._look(at_once=True)
        except WouldWait:
            return None

    def _look(self, *, at_once: bool = False) -> Look:
        """Looks once; its client has to be there, and may ask."""
        caller, asked = self._caller, self._asked
        if caller.peer.is_gone:
            raise ClientGone
        caller.ask_again()  # it may have waited since, and its token be gone
        groups = self._server_context.groups
        for topic in groups.topics_of(asked.group, asked.member, at_once=at_once):
            caller.principal.require("consume", topic)
        look = groups.look(
            asked.group,
            asked.member,
            incarnation=asked.incarnation,
            generation=asked.generation,
            owned=asked.owned,
            is_first=self._is_first,
            at_once=at_once,
        )
        self._is_first = False
        return look


def _heartbeat(
    server_context: ServerContext, caller: Caller, asked: Any, _: ToldValue
) -> Coroutine[Any, Any, Any] | Any:
    return Beating(server_context, caller, asked).begin()


ACTS: dict[Verb[..., Any], Act] = {
    LIST_GROUPS: _seen,
    CREATE_GROUP: _create,
    JOIN_GROUP: _join,
    MEMBER_POSITIONS: _positions,
    REWIND_GROUP: _rewind,
}
SOON: dict[Verb[..., Any], Soon] = {HEARTBEAT: _heartbeat}
