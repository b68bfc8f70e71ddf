"""Copies of topics' rows in the shards that serve them: kept here, and sent by home."""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from txaware.client.calls.call import Call, done
from txaware.errors import ShardAway, TxAwareError
from txaware.model.shards import HOME
from txaware.model.topics import Topic, TopicName
from txaware.protocol.rights import operator
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.sealed_calls import (
    SealedCalls,
    moved,
    require_server,
    until_there,
)
from txaware.server.cluster.server_map import ServerMap
from txaware.server.exchange import DONE, Reply, Request
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)

COPIES_PATH = "/v1/cluster/copies"
# A shard that did not hear of all topics is told again after this time.
MEND_AGAIN_S = 0.1


class SentCopies(msgspec.Struct, array_like=True):
    """The rows of topics that a shard keeps; all that it keeps, if it `is_all`."""

    shard: int
    is_all: bool
    rows: list[tuple[str, str, bytes]]

    @classmethod
    def of(cls, shard: int, topics: Sequence[Topic], *, is_all: bool) -> bytes:
        """Returns the body of a request."""
        rows = [(one.topic.namespace, one.topic.name, one.to_bytes()) for one in topics]
        return msgspec.msgpack.encode(cls(shard, is_all, rows))

    def topics(self) -> list[Topic]:
        """Returns the topics."""
        return [
            Topic.from_bytes(TopicName(name, namespace), row)
            for namespace, name, row in self.rows
        ]


_decode = msgspec.msgpack.Decoder(SentCopies).decode


def copy_route(server_context: ServerContext, membership: ClusterPart) -> Route:
    """Returns the route by which home has a shard keep copies."""

    async def keep(request: Request) -> Reply:
        require_server(request.headers)
        sent, copies = _decode(request.body), membership.copies
        if copies is None or not membership.has(sent.shard):
            return moved(f"shard {sent.shard}")
        if sent.is_all:
            await server_context.in_thread(copies.mend, sent.shard, sent.topics())
        else:
            for topic in sent.topics():
                await server_context.in_thread(copies.keep, sent.shard, topic)
        return DONE

    return Route("PUT", COPIES_PATH, keep, operator)


class HomeCopies:
    """Home's end: sends rows to the servers of shards, and mends what they missed.

    A shard is mended each time that its server may be another one. It is asked once
    within the lock of the topics, for which a shard that comes here waits, too.
    """

    def __init__(
        self,
        membership: ClusterPart,
        calls: SealedCalls,
        *,
        wait_s: float,
        pause_s: float = MEND_AGAIN_S,
    ) -> None:
        self._membership = membership
        self._calls = calls
        self._wait_s, self._pause_s = wait_s, pause_s
        self._is_closed = threading.Event()
        self._topics: TopicTable | None = None
        self._mended: dict[int, tuple[str, str]] = {}
        self._mending = ThreadPoolExecutor(1, "txaware-copies")

    def keep(self, shard: int, topic: Topic) -> bool:
        """Has a shard elsewhere keep a copy; False where it has come here meanwhile.

        One that nobody has, as it moves, is waited for. Where it fails, the shard is
        told of all topics later.
        """
        body = SentCopies.of(shard, [topic], is_all=False)

        def send() -> bool:
            try:
                self._send(shard, body)
            except ShardAway:
                if not self._is_here(shard):
                    raise
                return False
            return True

        try:
            return until_there(send, wait_s=self._wait_s)
        except TxAwareError:
            owner_key = self._mended.get(shard)
            if owner_key is not None:  # a server has it that lacks the copy, or may
                self._mend_soon(shard, owner_key)
            raise

    def _is_here(self, shard: int) -> bool:
        copies = self._membership.copies
        try:
            return copies is not None and copies.rows(shard) is not None
        except ShardAway:
            return False

    def follow(self, topics: TopicTable) -> None:
        """Mends the shards of other servers from now on."""
        self._topics = topics
        self._membership.on_change.append(self._look)
        self._look(self._membership.map)

    def _look(self, server_map: ServerMap) -> None:
        for one in server_map.shards:
            owner = self._membership.other_owner(one.number)
            if one.number == HOME:
                continue
            if owner is None:  # nobody has it, or home itself, which needs no copies
                self._mended.pop(one.number, None)
                continue
            owner_key = (server_map.instance, owner.id)
            if self._mended.get(one.number) != owner_key:
                self._mended[one.number] = owner_key
                self._mending.submit(self._mend, one.number, owner_key)

    def _mend(self, shard: int, owner_key: tuple[str, str]) -> None:
        topics = self._topics
        assert topics is not None
        try:
            topics.unchanged(partial(self._send_all, shard))
        except TxAwareError as error:
            log.info("shard %d has not heard of all topics yet: %s", shard, error)
            self._is_closed.wait(self._pause_s)
            if self._mended.get(shard) == owner_key:
                self._mend_soon(shard, owner_key)  # after those that wait

    def _mend_soon(self, shard: int, owner_key: tuple[str, str]) -> None:
        if not self._is_closed.is_set():
            self._mending.submit(self._mend, shard, owner_key)

    def _send_all(self, shard: int, topics: list[Topic]) -> None:
        own = [one for one in topics if shard in one.serving]
        self._send(shard, SentCopies.of(shard, own, is_all=True))

    def _send(self, shard: int, body: bytes) -> None:
        call = Call(
            "PUT",
            COPIES_PATH,
            done,
            body,
            content_type=b"application/octet-stream",
            repeat=Repeat.HARMLESS,
        )
        self._calls.perform(shard, call)

    def close(self) -> None:
        """Ends what is mended."""
        self._is_closed.set()
        self._mending.shutdown(wait=False, cancel_futures=True)
