"""Passes requests on to the server that has what they are about, once and as they came.

It asks nothing of how a verb is written: what came in a frame goes on in one, and a
request of HTTP as its words.
"""

import asyncio
from functools import lru_cache, partial
from typing import Protocol, TypeGuard
from urllib.parse import quote

import attrs
import msgspec

from coordinator.interfaces import Coordinator
from coordinator.remote.calls import HELLO
from txaware.errors import ShardAway
from txaware.model.settings import Settings
from txaware.model.shards import HOME
from txaware.protocol.frames import ANY_ROUTE, SERVER, RequestHead
from txaware.protocol.places import is_of_partition
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.commit_parts import PARTS_PATH
from txaware.server.cluster.home_session import SESSIONS_PATH
from txaware.server.cluster.own_word import WORD_PATH
from txaware.server.cluster.peers import AnswerLost, NotAsked, Peers
from txaware.server.cluster.producers_at_home import PRODUCER_PATH
from txaware.server.cluster.remote_rows import ROWS_PATH
from txaware.server.cluster.remote_view import READ_PATH, VIEW_PATH
from txaware.server.cluster.sealed_calls import MOVED, moved
from txaware.server.cluster.server_map import ServerEntry
from txaware.server.cluster.topic_copies import COPIES_PATH
from txaware.server.cluster.whole_metrics import together
from txaware.server.cluster.whole_topics import PUBLISH_END, WholeTopics
from txaware.server.dashboard import FILES
from txaware.server.exchange import Reply, Request, Stream
from txaware.server.idempotency import INSTANCE, KEY, SENT_TO, OutcomeUnknown
from txaware.server.request_rules import RequestRules
from txaware.server.routing import (
    Answer,
    Begun,
    Handle,
    Match,
    OnReply,
    Route,
    in_a_task,
    whole,
)
from txaware.service.topic_handles import PartitionedTopic

OWNER = b"txaware-owner"
_METRICS, _PLAIN = "/metrics", b"text/plain"
_PAUSE_S = 0.05
KNOWN_PATHS = 10_000
# What each server tells of itself alone, or what all of them tell alike.
_OWN_PATHS = frozenset(
    (
        *("/ping", "/health", "/v1/server", "/v1/servers", "/v1/schemas", "/metrics"),
        *(
            "/openapi.json",
            "/v1/frames",
            "/v1/rights",
            COPIES_PATH,
            PARTS_PATH,
            PRODUCER_PATH,
            ROWS_PATH,
            SESSIONS_PATH,
            READ_PATH,
            VIEW_PATH,
            WORD_PATH,
            # What is passed on comes as from a server, and anybody may ask for that.
            HELLO.path(),
            *FILES,
        ),
    )
)


class FindsShards(Protocol):
    """Finds the shard that a topic or a partition lies in."""

    def at_once(self, topic: str) -> int | PartitionedTopic | None:
        """Returns the shard, or all partitions of a topic; None for a question.

        What does not exist counts as home's.
        """

    async def found(self, topic: str) -> int:
        """Returns the shard; may ask home for it."""

    def forget(self, topic: str) -> None:
        """Asks anew: the owner of that shard does not have the topic."""


@attrs.frozen(eq=False)
class _Publishing:
    """A route that was made of another one, for a topic as it stands."""

    made_of: Route  # kept, as it is known by its id
    place: PartitionedTopic
    route: Route


class Forwarding:
    """Decides of each request whether it is performed here, and passes others on."""

    def __init__(
        self,
        membership: ClusterPart,
        shards: FindsShards,
        peers: Peers,
        coordinator: Coordinator,
        settings: Settings,
        rules: RequestRules,
    ) -> None:
        self._rules = rules
        self._membership = membership
        self._shards = shards
        self._wait_s = settings.forward_wait_s
        self._whole = WholeTopics(
            membership,
            coordinator,
            settings,
            perform=self.perform,
            find=rules.routes.match,
        )
        self._peers = peers
        self._passing_routes: dict[tuple[str, str, bool], Route] = {}
        # By the topic and the route of which each was made.
        self._publishing_routes: dict[tuple[str, int], _Publishing] = {}

    def placed(self, match: Match, request: Request) -> Match:
        """Returns the same match where the request is performed here.

        Else its route passes the request on, or puts together what several servers
        answer.
        """
        route, topic, shard = match.route, None, HOME
        if route.path in _OWN_PATHS:
            is_whole = route.path == _METRICS and SERVER not in request.headers
            return _with(match, partial(self._metrics, route)) if is_whole else match
        if is_of_partition(route.path):
            topic = request.topic
            place = self._shards.at_once(topic)
            if isinstance(place, PartitionedTopic):
                end = route.path.rpartition("/")[2]
                # Where shards move, each partition is counted by itself.
                is_whole = self._membership.uses is None
                if not self._whole.knows(end) or (
                    is_whole and not self._whole.is_spread(place)
                ):
                    return self._at_home(match, request)
                if end == PUBLISH_END:
                    route = self._publishing(route, topic, place)
                    return Match(route, match.path, match.params, match.arguments)
                return _with(match, partial(self._whole.handle, end, place))
            if place is None:
                return self._elsewhere(match, request, topic, None)
            shard = place
        if self._membership.has(shard):
            uses = self._membership.uses
            if uses is None or topic is None:
                return match
            counting = uses.counting(route, shard)
            return Match(counting, match.path, match.params, match.arguments)
        return self._elsewhere(match, request, topic, shard)

    def _publishing(self, route: Route, topic: str, place: PartitionedTopic) -> Route:
        """Returns the route of publishes to a topic whose partitions lie apart.

        It is made once while the topic stays as it is: each publish asks for it.
        """
        key = topic, id(route)
        known = self._publishing_routes.get(key)
        if known is None or known.place is not place:
            if len(self._publishing_routes) >= KNOWN_PATHS:
                self._publishing_routes.clear()
            begin = partial(self._begun, route, place)
            made = attrs.evolve(route, handle=in_a_task(begin), begin=begin)
            known = self._publishing_routes[key] = _Publishing(route, place, made)
        return known.route

    def _begun(
        self, route: Route, place: PartitionedTopic, request: Request, on_reply: OnReply
    ) -> Begun:
        """Begins a publish at the partition here that gets all of it, if there is one.

        Else what several servers answer is put together.
        """
        found = self._whole.of_one_partition(place, request)
        if found is None:
            return self._whole.handle(PUBLISH_END, place, request)
        shard, alone = found
        uses = self._membership.uses
        here = route if uses is None else uses.counting(route, shard)
        assert here.begin is not None
        return here.begin(alone, on_reply)

    async def _metrics(self, route: Route, request: Request) -> Answer:
        """Returns the metrics of all servers; of those that are away, none."""
        headers = {**request.headers, b"accept": _PLAIN}
        plain = msgspec.structs.replace(request, headers=headers)
        head = _head_of(route, plain)
        others = [one for one in self._membership.map.servers if not self._is_own(one)]
        calls = [self._ask(one, head, plain) for one in others]
        found = await asyncio.gather(
            route.handle(plain), *calls, return_exceptions=True
        )
        own, *parts = found
        if not isinstance(own, Reply):
            assert isinstance(own, Exception)
            raise own
        texts = [one.body.decode() for one in parts if _is_text(one)]
        whole_text = together([own.body.decode(), *texts])
        return msgspec.structs.replace(own, body=whole_text.encode())

    def _is_own(self, server: ServerEntry) -> bool:
        return server.id == self._membership.id

    def _elsewhere(
        self, match: Match, request: Request, topic: str | None, shard: int | None
    ) -> Match:
        """Returns what passes a request on, unless a server did already."""
        if SERVER in request.headers:
            return _with(match, partial(_moved, shard))
        route = self._passing(match.route, of_topic=topic is not None)
        return Match(route, match.path, match.params, match.arguments)

    def _passing(self, route: Route, *, of_topic: bool) -> Route:
        """Returns the route that passes on what another one is asked.

        It is made once, as to make it took a tenth of this server's part of a request.
        """
        key = route.method, route.path, of_topic
        known = self._passing_routes.get(key)
        if known is None:
            handle = self._passed_to_owner if of_topic else self._passed_home
            known = self._passing_routes[key] = attrs.evolve(
                route,
                handle=partial(handle, route),
                begin=None,
                keyed=False,  # the owner remembers the keys of repeats
            )
        return known

    async def _passed_home(self, route: Route, request: Request) -> Answer:
        return await self._passed_on(route, None, HOME, request)

    async def _passed_to_owner(self, route: Route, request: Request) -> Answer:
        topic = request.topic
        place = self._shards.at_once(topic)
        shard = place if isinstance(place, int) else None
        return await self._passed_on(route, topic, shard, request)

    def _at_home(self, match: Match, request: Request) -> Match:
        if self._membership.is_home:
            return match
        return self._elsewhere(match, request, None, HOME)

    async def perform(self, match: Match, request: Request) -> Answer:
        """Answers a part of a request, here or at another server."""
        placed = self.placed(match, request)
        rules = self._rules
        repeat = rules.repeat_of(placed, request)
        if repeat is None:
            return await placed.route.handle(request)
        return await rules.repeats.once(repeat, partial(whole, placed.route, request))

    def close(self) -> None:
        """Closes the connections to other servers."""
        self._peers.close()

    async def _passed_on(
        self, route: Route, topic: str | None, shard: int | None, request: Request
    ) -> Answer:
        """Returns the answer of the owner, looked for as long as it may be away."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        head, why = _head_of(route, request), ""
        while True:
            at = HOME if shard is None else shard
            try:
                if topic is not None and shard is None:
                    at = await self._shards.found(topic)
                owner = self._membership.map.owner(at)
                if owner is not None:
                    answer = await self._ask(owner, head, request)
                    if answer is not None:
                        return answer
                    why = f"{owner.own} has it no more"
                    if topic is not None:
                        self._shards.forget(topic)
                        shard = None
            except NotAsked as error:
                why = str(error)
            except AnswerLost as error:
                if not (route.harmless or route.method == "GET"):
                    raise OutcomeUnknown(
                        f"the server of shard {at} was lost within the request, "
                        f"{error}; whether it took place is not known"
                    ) from error
                why = str(error)
            left_s = until_s - loop.time()
            if left_s <= 0:
                because = f" ({why})" if why else ""
                raise ShardAway(
                    f"shard {at} is at no server just now{because}; try again in a "
                    f"moment"
                )
            await self._membership.next_map(min(left_s, _PAUSE_S))

    async def _ask(
        self, owner: ServerEntry, head: RequestHead, request: Request
    ) -> Answer | None:
        """Returns the answer of a server; None where it does not have the shard."""
        authorization = request.headers.get(b"authorization")
        call = await self._peers.begin(owner, authorization, head, request.body)
        is_passed_on = False
        try:
            await call.head(request.peer)
            answer = call.answer
            if answer.status == MOVED:
                return None
            headers = _headers_of(answer.headers, owner)
            kind = answer.headers.get(b"content-type")
            content_type = None if kind is None else kind.decode()
            if answer.is_sized:
                body = await call.whole()
                return Reply(answer.status, body, content_type, headers)
            is_passed_on = True
            return Stream(call.pieces(), content_type or "", headers)
        finally:
            if not is_passed_on:
                call.end()


# The headers that go on with a request.
_OF_VERBS = (SENT_TO,)
_OF_ANY_ROUTE = (b"accept", b"content-type", SENT_TO)


def _head_of(route: Route, request: Request) -> RequestHead:
    """Returns the head of the frame that a request goes on in."""
    key, instance = request.headers.get(KEY), request.headers.get(INSTANCE)
    head = RequestHead(
        request.verb,
        len(request.body),
        None if key is None else key.decode("latin-1"),
        None if instance is None else instance.decode("latin-1"),
    )
    is_verb = request.verb != ANY_ROUTE
    head.headers = {
        name.decode(): request.headers[name].decode("latin-1")
        for name in (_OF_VERBS if is_verb else _OF_ANY_ROUTE)
        if name in request.headers
    }
    if is_verb:
        return head
    path = _path(route.path, tuple(request.params.items()))
    if request.query_string:
        path += f"?{request.query_string.decode('latin-1')}"
    head.method, head.path = route.method, path
    return head


@lru_cache(KNOWN_PATHS)
def _path(pattern: str, names: tuple[tuple[str, str], ...]) -> str:
    return pattern.format_map({name: quote(text, safe="") for name, text in names})


def _headers_of(
    came: dict[bytes, bytes], owner: ServerEntry
) -> list[tuple[bytes, bytes]]:
    """Returns the headers of an answer that is passed on, with who gave it."""
    own = (b"content-type", b"txaware-instance")
    listed = [(name, value) for name, value in came.items() if name not in own]
    return [*listed, (OWNER, owner.own.encode())]


def _is_text(answer: object) -> TypeGuard[Reply]:
    return isinstance(answer, Reply) and answer.status == 200


def _with(match: Match, handle: Handle) -> Match:
    """Returns a match that is handled in another way, in a task."""
    return msgspec.structs.replace(
        match, route=attrs.evolve(match.route, handle=handle, begin=None)
    )


async def _moved(shard: int | None, _: Request) -> Reply:
    what = "what it asks for" if shard is None else f"shard {shard}"
    return moved(what)
