"""Calls that a server makes of another one of the same data, from any thread."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from txaware.client.calls.call import Call
from txaware.client.link import Link
from txaware.client.settings import ClientSettings
from txaware.client.transport import Transport
from txaware.errors import NotAuthorized, ShardAway
from txaware.protocol.frames import SERVER
from txaware.server.cluster.cluster_part import GONE, ClusterPart
from txaware.server.exchange import Reply
from txaware.server.failures import error_reply

T = TypeVar("T")

# A call waits so long for the other server.
_ANSWER_S = 10.0
# The status for a server that asks where a shard is no more.
MOVED = 421
# Where a shard is at nobody, it is looked for again after this time.
_PAUSE_S = 0.05


def until_there(act: Callable[[], T], *, wait_s: float) -> T:
    """Returns what `act` does, again and again while it finds a shard at nobody.

    It comes to the next owner in a moment, as a rule; `ShardAway` after `wait_s`.
    """
    until_s = time.monotonic() + wait_s
    while True:
        try:
            return act()
        except ShardAway:
            if time.monotonic() >= until_s:
                raise
        time.sleep(_PAUSE_S)


class SealedCalls:
    """Asks the server that has a shard, as a server of the same data."""

    def __init__(
        self,
        membership: ClusterPart,
        *,
        answer_s: float = _ANSWER_S,
        retry_for_s: float = _ANSWER_S,
    ) -> None:
        self._membership = membership
        self._answer_s, self._retry_for_s = answer_s, retry_for_s
        self._transports: dict[str, Transport] = {}
        self._lock = threading.Lock()
        membership.on_gone.append(self._lose)

    @contextmanager
    def using(self, shard: int) -> Iterator[bool]:
        """Yields whether a shard is at this server itself, where it stays meanwhile."""
        uses = self._membership.uses
        if uses is None:
            yield self._membership.has(shard)
            return
        with uses.using(shard):
            yield self._membership.has(shard)

    def perform(self, shard: int, call: Call[T]) -> T:
        """Returns the value of a call; `ShardAway` while nobody has the shard."""
        return self._transport(self._owner(shard)).perform(call)

    def stream(self, shard: int, call: Call[Any]) -> Generator[bytes, None, None]:
        """Yields the body of an answer in pieces, in one try."""
        yield from self._transport(self._owner(shard)).stream(call)

    def _owner(self, shard: int) -> str:
        owner = self._membership.other_owner(shard)
        if owner is None:
            raise ShardAway(
                f"shard {shard} is at no server just now; try again in a moment"
            )
        return owner.own

    def _transport(self, own: str) -> Transport:
        with self._lock:
            found = self._transports.get(own)
            if found is None:
                membership = self._membership
                link = Link(
                    own,
                    token=membership.token,
                    seal=membership.seal.header(membership.id),
                    settings=ClientSettings(
                        certificate=membership.certificate,
                        call_timeout_s=self._answer_s,
                        retry_for_s=self._retry_for_s,
                        allow_plain_tokens=True,
                    ),
                )
                found = Transport(link, sleep=partial(self._pause, own))
                self._transports[own] = found
            return found

    def _pause(self, own: str, pause_s: float) -> None:
        """Waits before a next try; `ShardAway` where others have its shards by then.

        There is a next try where nothing was asked, or a repeat does no harm.
        """
        time.sleep(pause_s)
        if not self._membership.map.has_shards(own):
            raise ShardAway(f"{own} does not answer, and has no shard any more")

    def _lose(self, own: str) -> None:
        """Ends calls to a server that has left the cluster, and may hang for ever."""
        with self._lock:
            lost = self._transports.pop(own, None)
        if lost is not None:
            lost.lose(GONE)

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            for transport in self._transports.values():
                transport.close()


def moved(what: str) -> Reply:
    """Answers a server that nothing was done, and that it has to look for the owner.

    It does not ask the same server again, as after 503.
    """
    return error_reply(MOVED, "ShardAway", f"{what} is not at this server")


def require_server(headers: Mapping[bytes, bytes]) -> None:
    """Refuses who is no server of the same data; a seal was checked before."""
    if SERVER not in headers:
        raise NotAuthorized("only the servers of this data ask each other this")
