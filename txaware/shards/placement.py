"""Places partitions in shards, and keeps a copy of each topic's row where it lies."""

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from txaware.errors import ShardAway, TxAwareError
from txaware.model.interfaces import OrderedTable
from txaware.model.shards import HOME, checked_shards, placed, shards_text
from txaware.model.topics import SHARDS, Topic
from txaware.store.interfaces import pieces
from txaware.store.keys import TOPIC, topic_key
from txaware.store.topic_table import TopicTable, no_shard

# Has a shard keep the copy of a topic's row.
KeepCopy = Callable[[int, Topic], object]
# The same of a shard elsewhere; False where that has come to this process meanwhile.
KeepElsewhere = Callable[[int, Topic], bool]


class EvenPlacement:
    """The `Placement` of a store of several shards, which are filled evenly.

    `shards` tells which there are now. A topic that is made anew keeps its shards, so
    that its ids go on rising.
    """

    def __init__(
        self,
        home: OrderedTable,
        shards: Callable[[], tuple[int, ...]],
        keep_copy: KeepCopy,
    ) -> None:
        self._topics = TopicTable(home)
        self._shards = shards
        self._keep_copy = keep_copy
        self._loads: Counter[int] | None = None

    def placed(self, found: Topic | None, topic: Topic) -> Topic:
        """Returns the topic with the shard of each partition."""
        if topic.generation < 0:
            return topic
        known, named = self._shards(), topic.properties.get(SHARDS)
        kept: list[int] = []
        if found is not None:
            kept = [found.shard_of(number) for number in range(_most(found))]
            if named == found.properties.get(SHARDS):
                named = None
        among = known if named is None else checked_shards(named) or known
        for number in among:
            if number not in known:
                raise no_shard(number, known)
        loads = self._counted()
        shards = placed(
            topic.partitions, among, kept=kept, loads={} if named else loads
        )
        loads.update(shards[len(kept) :])
        if found is not None and SHARDS not in found.properties and not any(shards):
            return topic  # it is older than shards, and stays as it was
        properties = {**topic.properties, SHARDS: shards_text(shards)}
        return attrs.evolve(topic, properties=properties)

    def _counted(self) -> Counter[int]:
        if self._loads is None:
            loads: Counter[int] = Counter()
            for topic in self._topics.all():
                loads.update(topic.shard_of(number) for number in range(_most(topic)))
            self._loads = loads
        return self._loads

    def copy(self, topic: Topic) -> None:
        """Has each shard that serves the topic, or did, keep a copy of its row.

        That a topic is deleted holds by now: all shards are told so, and one that is at
        no server is when it comes back.
        """
        errors: list[TxAwareError] = []
        for number in sorted(topic.serving - {HOME}):
            try:
                self._keep_copy(number, topic)
            except TxAwareError as error:
                if topic.generation > 0:
                    raise
                if not isinstance(error, ShardAway):
                    errors.append(error)
        if errors:
            raise errors[0]


def _most(topic: Topic) -> int:
    return max(topic.partitions, topic.former_partitions)


def mend_copies(topics: Iterable[Topic], number: int, shard: OrderedTable) -> int:
    """Makes the copies in a shard what home's rows say; returns how many it changed.

    A change of a topic that was cut off leaves a copy of what never came, or lacks the
    copy of a deletion.
    """
    wanted = {
        topic_key(topic.topic): topic.to_bytes()
        for topic in topics
        if number in topic.serving
    }
    found = {TOPIC + key: value for rows in pieces(shard, TOPIC) for key, value in rows}
    changes = [
        (key, wanted.get(key))
        for key in sorted(wanted.keys() | found.keys())
        if wanted.get(key) != found.get(key)
    ]
    if changes:
        shard.submit(changes)()
    return len(changes)
