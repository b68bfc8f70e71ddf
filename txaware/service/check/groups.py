"""Judges rows by their key: the topic has to exist, and the generation too."""

from collections.abc import Callable

import attrs

from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.labels import check_labels
from txaware.model.partitions import (
    PartitionName,
    parent_of,
    parsed_rows,
    partition_in,
)
from txaware.model.queues import PIPE_BYTES, QueueDescriptor, is_queue, stored_name
from txaware.model.topics import Topic, checked_partitions, checked_ttl_s
from txaware.service.check.findings import Findings
from txaware.service.check.journal import Uncommitted, saved_ms
from txaware.store.columns import (
    EXPIRY,
    HEADERS,
    KEY,
    PRODUCED,
    RECEIPTS,
    Columns,
    decode,
    decode_receipts,
    encode_receipts,
    value_head,
)
from txaware.store.interfaces import CheckedRows
from txaware.store.keys import POINTER_BYTES, ROW_KEY_BYTES, TOPIC
from txaware.store.producer_table import check_mark

GENERATION_BYTES = 4
MOST_SUSPECTS = 1000
_FAST_TAGS = {0: 1, 1: 9}  # messages without and with a pointer: the least length


@attrs.define(eq=False)
class RowGroup:
    """Rows of one generation of a topic, or those of one transaction within it."""

    prefix: bytes
    topic: Topic
    generation: int

    @property
    def is_of_queue(self) -> bool:
        """True when these are items of a queue: each goes when it is done."""
        return is_queue(self.topic.topic)

    @property
    def is_current(self) -> bool:
        """True when readers still see these rows."""
        return self.topic.generation == self.generation


class Judging:
    """The facts that rows are judged by: topics, the time, uncommitted pointers.

    Rows of an uncommitted transaction need not be whole, as nobody reads them. A row
    that looks wrong is read once more, as an open table may have changed meanwhile.
    """

    def __init__(
        self,
        rows: CheckedRows,
        findings: Findings,
        *,
        uncommitted: Uncommitted,
        timed: bool,
    ) -> None:
        self.rows = rows
        self.findings = findings
        self.uncommitted = uncommitted
        self.suspects: list[tuple[bytes, int]] = []
        self._timed = timed
        self._topics: dict[bytes, Topic | None] = {}

    def group(self, first_byte: bytes, prefix: bytes, key: bytes) -> RowGroup | None:
        """Returns the group of a key; None, and a problem, where it has none."""
        end = _topic_end(prefix)
        topic_key, generation = prefix[:end], prefix[end : end + GENERATION_BYTES]
        number = int.from_bytes(generation, "big")
        topic = self.topic(topic_key)
        if topic is not None and number > abs(topic.generation):
            topic = self.topic(topic_key, anew=True)
        if topic is None:
            self.problem(
                "topic", first_byte + key, f"{topic_key!r} is no topic of this data"
            )
            return None
        if not 0 < number <= abs(topic.generation):
            self.problem(
                "generation",
                first_byte + key,
                f"topic {topic.topic} never had generation {number}; it is at "
                f"{abs(topic.generation)}",
            )
            return None
        return RowGroup(prefix, topic, number)

    def topic(self, topic_key: bytes, *, anew: bool = False) -> Topic | None:
        """Returns the topic of a key, deleted ones included."""
        if anew or self._topics.get(topic_key) is None:
            if (name := _partition_or_none(topic_key)) is not None:
                parent = self.topic(parent_of(name).key, anew=anew)
                self._topics[topic_key] = _in_topic(parent, name.number)
            else:
                value = self.rows.get(TOPIC + topic_key)
                self._topics[topic_key] = _topic_or_none(topic_key, value or b"")
        return self._topics[topic_key]

    def take_topic(self, topic_key: bytes, value: bytes) -> Topic | None:
        """Reads a topic row; None, and a problem, where it cannot be read."""
        try:
            topic = self._topics[topic_key] = read_topic(topic_key, value)
        except (BadRequest, ValueError, TypeError, LookupError) as error:
            self._topics[topic_key] = None
            self.problem("topic", TOPIC + topic_key, f"no topic can be read: {error}")
            return None
        return topic

    def check_time(self, first_byte: bytes, key: bytes, time_ms: int) -> None:
        """Checks that a time is below the saved one, or it could be given out again."""
        if not self._timed:
            return
        saved = saved_ms(self.rows)
        if saved is not None and time_ms >= saved:
            self.problem(
                "time",
                first_byte + key,
                f"the row is of {time_ms} ms, and only times below {saved} ms were "
                f"given out",
            )

    def suspect(self, key: bytes, pointer: int) -> None:
        """Notes the highest pointer of a group, to compare it with those given out."""
        if len(self.suspects) < MOST_SUSPECTS:
            self.suspects.append((key, pointer))

    def columns(self, key: bytes, value: bytes) -> Columns | None:
        """Returns the columns of a row; None, and a problem, where they are damaged."""
        try:
            columns = decode(value)
            _check_columns(columns, len(value))
        except (StoreCorrupted, ValueError) as error:
            self.problem("value", key, str(error))
            return None
        return columns

    def problem(self, kind: str, key: bytes, sentence: str) -> None:
        """Adds a problem of a row to the findings."""
        self.findings.problem(kind, key, sentence)


def _topic_end(prefix: bytes) -> int:
    """Finds where the generation begins; items of queues have their pipe behind it."""
    end = len(prefix) - GENERATION_BYTES
    if prefix[:end].endswith(b":") or b":." not in prefix:
        return end
    return end - PIPE_BYTES


def is_plain_value(value: bytes) -> bool:
    """Tells whether a value is of the two common kinds, and long enough."""
    least = _FAST_TAGS.get(value[0]) if value else None
    return least is not None and len(value) >= least


def _check_columns(columns: Columns, size_bytes: int) -> None:
    expiry, receipts = columns.more.get(EXPIRY), columns.more.get(RECEIPTS)
    if expiry is not None and len(expiry) != POINTER_BYTES:
        raise ValueError(f"an expiry has 8 bytes, not {len(expiry)}")
    if receipts is not None:
        read_receipts(receipts)
    mark = columns.more.get(PRODUCED)
    if mark is not None:
        check_mark(mark)
    check_labels(columns.more.get(KEY), columns.more.get(HEADERS))
    is_reference = columns.payload is None
    head = value_head(columns.pointer, reference=is_reference, more=columns.more)
    if len(head) + len(columns.payload or b"") != size_bytes:
        raise ValueError("a column is there twice, or bytes follow the last one")


def read_receipts(data: bytes) -> dict[bytes, int]:
    """Reads the column of receipts; raises `ValueError` where it is damaged."""
    try:
        counts = decode_receipts(data)
    except Exception as error:
        raise ValueError(f"receipts cannot be read: {error}") from error
    if encode_receipts(counts) != data:
        raise ValueError("receipts are cut off, or name an attempt twice")
    return counts


def read_topic(topic_key: bytes, value: bytes) -> Topic:
    """Reads a topic row; raises an error that says what is wrong with it."""
    namespace, name, rest = topic_key.decode("ascii").split(":")
    if rest:
        raise ValueError(f"there is {rest!r} behind the topic's name")
    topic = Topic.from_bytes(stored_name(namespace, name), value)
    if is_queue(topic.topic):
        QueueDescriptor.of(topic)
    checked_ttl_s(topic.ttl_s)
    if topic.partitions != 1 or topic.former_partitions:
        checked_partitions(topic.partitions)
        checked_partitions(topic.former_partitions or 1)
    if not topic.generation:
        raise ValueError("its generation is 0")
    for key, text in topic.properties.items():
        if not isinstance(text, str):
            raise TypeError(f"property {key} is {text!r}, not text")
    return topic


def _topic_or_none(topic_key: bytes, value: bytes) -> Topic | None:
    try:
        return read_topic(topic_key, value)
    except (BadRequest, ValueError, TypeError, LookupError):
        return None


def _partition_or_none(topic_key: bytes) -> PartitionName | None:
    """Returns the partition that a key is of; None where it is that of a topic."""
    if b"." not in topic_key or b":." in topic_key:
        return None
    try:
        name = parsed_rows(topic_key.decode("ascii").removesuffix(":"))
    except (BadRequest, ValueError):
        return None
    return name if isinstance(name, PartitionName) else None


def _in_topic(parent: Topic | None, number: int) -> Topic | None:
    """Returns a partition that a topic has, or once had; None for any other."""
    if parent is None or number >= max(parent.partitions, parent.former_partitions):
        return None
    return partition_in(parent, number)


def grouped(
    judging: Judging, first_byte: bytes, tail_bytes: int
) -> Callable[[bytes], RowGroup | None]:
    """Returns a function from keys to groups; it reports one problem a prefix."""
    last_prefix: bytes | None = None
    last_group: RowGroup | None = None

    def group_of(key: bytes) -> RowGroup | None:
        nonlocal last_prefix, last_group
        prefix = key[:-tail_bytes]
        if prefix != last_prefix:
            last_prefix = prefix
            last_group = judging.group(first_byte, prefix, key)
        if last_group is None:
            judging.findings.counts["rows of no topic"] += 1
        return last_group

    return group_of


PAYLOAD_TAIL_BYTES = POINTER_BYTES + ROW_KEY_BYTES
