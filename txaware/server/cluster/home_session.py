"""The session of a server with home: the call that says HELLO, and its answer."""

import threading
from collections.abc import Callable

import msgspec

from txaware.client.calls.call import Call, reading
from txaware.errors import BadRequest, ShardAway, TxAwareError
from txaware.model.shards import HOME
from txaware.protocol.rights import operator
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.sealed_calls import SealedCalls, require_server
from txaware.server.cluster.server_map import ServerEntry, ServerMap
from txaware.server.cluster.server_sessions import (
    BEAT_S,
    Orders,
    SentHello,
    require_same,
)
from txaware.server.exchange import Reply, Request
from txaware.server.routing import Route

SESSIONS_PATH = "/v1/cluster/sessions"
# While a server takes or gives what home has said, it says HELLO at this interval.
FOLLOWING_S = 0.05

_encode = msgspec.msgpack.Encoder().encode
_sent = msgspec.msgpack.Decoder(SentHello).decode
_orders = reading(msgspec.msgpack.Decoder(Orders).decode)


def session_route(membership: ClusterPart) -> Route:
    """Returns the route at which home hears servers, and says what they are to have.

    Where it has nothing new to say, it answers after a moment.
    """

    async def hello(request: Request) -> Reply:
        require_server(request.headers)
        sessions, sent = membership.sessions, _sent(request.body)
        if sessions is None:
            raise ShardAway("home is not at this server")
        orders = sessions.hello(sent)
        if not orders.has_news_for(sent):
            await membership.next_map(BEAT_S)
            orders = sessions.hello(sent)
        return Reply(200, _encode(orders))

    return Route("POST", SESSIONS_PATH, hello, operator, waits=True, harmless=True)


class HomeSession:
    """A server's end: a thread says HELLO, and passes on what home says.

    `holds` returns the shards that are here; `follow` is told what is to be, and waits
    for nothing. While home does not answer, `is_home_away`. Where this server cannot be
    one of home's, `refused` says why, and the session ends.
    """

    def __init__(
        self,
        entry: ServerEntry,
        membership: ClusterPart,
        calls: SealedCalls,
        *,
        holds: Callable[[], list[int]],
        follow: Callable[[Orders], object],
        take_map: Callable[[ServerMap], object],
        following_s: float = FOLLOWING_S,
    ) -> None:
        self._entry = entry
        self._following_s = following_s
        self._membership = membership
        self._calls = calls
        self._holds, self._follow, self._take_map = holds, follow, take_map
        self._news = threading.Event()
        self._is_ending = threading.Event()
        self._leaving = threading.Event()
        self.is_home_away = False
        self.refused: BadRequest | None = None
        self.has_begun = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="txaware-home-session", daemon=True
        )
        self._thread.start()

    def say_hello(self) -> None:
        """Says HELLO soon: what is here has changed."""
        self._news.set()

    def leave(self) -> None:
        """Asks home to give all that is here to others."""
        self._leaving.set()
        self.say_hello()

    def close(self) -> None:
        """Ends the session; home forgets this server after a while."""
        self._is_ending.set()
        self.say_hello()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self._news.clear()
            try:
                orders = self._said()
                require_same(orders.speaks, "home")
            except BadRequest as error:
                self.refused = error
                return
            except TxAwareError:
                self.is_home_away = True
                self._news.wait(BEAT_S)
                continue
            self.is_home_away = False
            self._take_map(orders.server_map)
            self._follow(orders)
            self.has_begun.set()
            if {*orders.has} != {*self._holds()}:  # to which home answers at once
                self._news.wait(self._following_s)

    def _said(self) -> Orders:
        sent = SentHello(
            self._entry,
            self._holds(),
            self._membership.map.epoch,
            self._leaving.is_set(),
        )
        return self._calls.perform(
            HOME,
            Call(
                "POST",
                SESSIONS_PATH,
                _orders,
                _encode(sent),
                content_type=b"application/octet-stream",
                repeat=Repeat.HARMLESS,
            ),
        )
