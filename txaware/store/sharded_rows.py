"""The shard of each row, found in its key, and rows of several shards read as one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from txaware.model.interfaces import Row
from txaware.model.shards import HOME
from txaware.model.topics import Topic, TopicName
from txaware.store.batch_writer import TIME
from txaware.store.interfaces import CheckedRows
from txaware.store.keys import (
    MARK,
    MESSAGE,
    PAYLOAD,
    PRODUCER_ROW,
    SEQUENCE_ROW,
    TOPIC,
)
from txaware.store.producer_table import sequence_prefix

# The rows of partitions begin with these bytes, and then name the topic.
OF_PARTITIONS = frozenset(MESSAGE + PAYLOAD + MARK)
_BEFORE_TOPIC = len(sequence_prefix(0))
KNOWN_PLACES = 100_000


class ShardPlaces:
    """The shard of each row. A partition never leaves its own, so it is remembered.

    `get` reads the row of a topic.
    """

    def __init__(self, get: Callable[[bytes], bytes | None]) -> None:
        self._get = get
        self._known: dict[bytes, int] = {}

    def of(self, key: bytes) -> int | None:
        """Returns the shard of a row; None for what begins rows of several shards."""
        if key[0] in OF_PARTITIONS:
            return self._in(key, 1)
        if key.startswith(SEQUENCE_ROW):
            return self._in(key, _BEFORE_TOPIC)
        # A producer is where it was opened: at the server of a shard in that one.
        if key.startswith(PRODUCER_ROW):
            return None
        return None if SEQUENCE_ROW.startswith(key) else HOME

    def _in(self, key: bytes, start: int) -> int | None:
        colon = key.find(b":", start)
        end = key.find(b":", colon + 1) + 1 if colon > 0 else 0
        if not end:
            return None
        name = key[start:end]
        place = self._known.get(name)
        return self._read(name) if place is None else place

    def _read(self, name: bytes) -> int:
        namespace, text, _ = name.decode("ascii").split(":")
        topic, _, number = text.rpartition(".")
        if not topic:  # a topic's own rows, or perhaps those of a queue
            topic, number = text, "0"
        found = TopicName(topic, namespace)
        row = self._get(TOPIC + found.key)
        if row is None:
            return HOME
        read = Topic.from_bytes(found, row)
        place = read.shard_of(int(number))
        if int(number) < max(read.partitions, read.former_partitions):
            if len(self._known) >= KNOWN_PLACES:
                self._known.clear()
            self._known[name] = place
        return place


class ShardedRows:
    """Rows of all shards as a check reads them; those of a missing one are not there.

    The saved time is the latest of all shards.
    """

    def __init__(self, shards: Mapping[int, CheckedRows]) -> None:
        self._shards = shards
        self._places = ShardPlaces(shards[HOME].get)

    def _readable(self, key: bytes) -> Iterable[CheckedRows]:
        place = self._places.of(key) if key else HOME
        if place is None:
            return self._shards.values()
        return (self._shards[place],) if place in self._shards else ()

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""
        if key == TIME:
            return max(rows.get(key) or b"" for rows in self._shards.values()) or None
        for rows in self._readable(key):
            if (value := rows.get(key)) is not None:
                return value
        return None

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
    ) -> list[Row]:
        """Returns rows whose key begins with `prefix`, which is left off, in order."""
        pages = [
            rows.scan(prefix, start=start, stop=stop, limit=limit, max_bytes=max_bytes)
            for rows in self._readable(prefix)
        ]
        if len(pages) == 1:
            return pages[0]
        return merged(pages, limit, max_bytes, reverse=False)


def merged(
    pages: Sequence[list[Row]], limit: int, max_bytes: int, *, reverse: bool
) -> list[Row]:
    """Merges pages that were cut at the same limits, up to where all are known.

    Of a row that is in several pages the first one counts.
    """
    found: dict[bytes, bytes] = {}
    cut = [page[-1][0] for page in pages if _is_cut(page, limit, max_bytes)]
    end = (max(cut) if reverse else min(cut)) if cut else None
    for page in pages:
        for key, value in page:
            if end is None or key == end or (key > end) == reverse:
                found.setdefault(key, value)
    rows: list[Row] = []
    size = 0
    ordered = sorted(found.items(), key=itemgetter(0), reverse=reverse)
    for row in islice(ordered, limit):
        rows.append(row)
        size += len(row[1])
        if size >= max_bytes:
            break
    return rows


def _is_cut(page: list[Row], limit: int, max_bytes: int) -> bool:
    return bool(page) and (
        len(page) >= limit or sum(len(value) for _, value in page) >= max_bytes
    )
