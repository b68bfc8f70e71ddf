"""Finds the shard of a topic or a partition: in the rows here, or by asking home."""

import json

from txaware.errors import BadRequest, TxAwareError
from txaware.model.partitions import named_partition
from txaware.model.queues import pipe_of
from txaware.model.shards import HOME
from txaware.model.topics import Topic, TopicName
from txaware.protocol.frames import ANY_ROUTE, RequestHead
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.peers import NotAsked, Peers
from txaware.service.topic_handles import PartitionedTopic, TopicHandles

KNOWN_NAMES = 100_000


class ShardFinder:
    """Remembers where partitions lie: they stay there, also in a topic made anew."""

    def __init__(
        self, membership: ClusterPart, handles: TopicHandles, peers: Peers
    ) -> None:
        self._membership = membership
        self._handles = handles
        self._peers = peers
        self._known: dict[str, int] = {}

    def at_once(self, topic: str) -> int | PartitionedTopic | None:
        """Returns the shard, or a whole topic of several partitions, if known here.

        None where home has to be asked.
        """
        known = self._known.get(topic)
        if known is not None:
            return known
        place = self._handles.known(topic)
        if isinstance(place, PartitionedTopic):
            return place
        try:
            if pipe_of(topic) is not None:
                return HOME
            name, number = named_partition(topic)
            found = self._handles.topics.get(name)
            if number is None and found.partitions > 1:
                place = self._handles.find(topic)
                if isinstance(place, PartitionedTopic):
                    return place
        except TxAwareError:
            return HOME if self._membership.is_home else None
        return self._placed(topic, found, number or 0)

    async def found(self, topic: str) -> int:
        """Returns the shard, by home's word; what does not exist is home's to tell."""
        try:
            name, number = named_partition(topic)
        except BadRequest:
            return HOME
        found = await self._at_home(name)
        if found is None or (number is None and found.partitions > 1):
            return HOME
        return self._placed(topic, found, number or 0)

    def forget(self, topic: str) -> None:
        """Asks anew the next time."""
        self._known.pop(topic, None)

    def _placed(self, name: str, topic: Topic, number: int) -> int:
        if number >= topic.partitions:
            return HOME
        return self._keep(name, topic.shard_of(number))

    def _keep(self, topic: str, shard: int) -> int:
        if len(self._known) >= KNOWN_NAMES:
            self._known.clear()
        self._known[topic] = shard
        return shard

    async def _at_home(self, name: TopicName) -> Topic | None:
        """Asks home for a topic; `NotAsked` while it is away."""
        home = self._membership.map.home
        if home is None:
            raise NotAsked("nobody has shard 0, which knows the topics")
        path = f"/v1/namespaces/{name.namespace}/topics/{name.name}"
        call = await self._peers.begin(
            home,
            f"Bearer {self._membership.token}".encode(),
            RequestHead(ANY_ROUTE, 0, method="GET", path=path),
            b"",
        )
        try:
            await call.head()
            body = await call.whole()
        finally:
            call.end()
        if call.answer.status != 200:
            return None
        return Topic(name, 1, properties=json.loads(body)["properties"])
