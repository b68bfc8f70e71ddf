"""All kinds of rows, each declared once: what goes through rows goes through these."""

from functools import lru_cache

import attrs

from txaware.model.groups import GroupName
from txaware.model.markers import (
    MARKERS,
    PRODUCERS,
    checked_producer_marker,
    is_marker,
    is_save_marker,
    producer_marker,
)
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.partitions import parsed_rows
from txaware.model.queues import PIPE_BYTES
from txaware.model.settings import Settings
from txaware.model.topics import TableName, TopicName, checked_group
from txaware.store.group_table import GroupRow
from txaware.store.keys import (
    GROUP_ROW,
    JOURNAL,
    KEEPER,
    LEASE,
    MARK,
    MESSAGE,
    PAYLOAD,
    PIPE,
    POINTER_BYTES,
    POSITION,
    PRODUCER_ROW,
    ROW_KEY_BYTES,
    SEQUENCE_ROW,
    SLOT_ROW,
    STATE,
    TABLE,
    TOPIC,
    TRANSACTIONAL_ID_ROW,
)
from txaware.store.producer_table import state_before
from txaware.store.queue_table import LeaseRow, PipeRow
from txaware.store.row_kinds import PointerAt, RowKind, RowKinds
from txaware.store.slot_table import SlotRow
from txaware.store.versioned_rows import AnyKind, Codec, VersionedKind

# A group, or a transactional id, and the topic or what stands in place of one.
Place = tuple[str, TopicName]
# A table, and the key of a row as its user wrote it.
UsersRow = tuple[TableName, bytes]
# A zero byte in a user's key, and the end of a key: so none continues another one, and
# their order stays.
ZERO, END = b"\0\xff", b"\0\0"


def _place(data: bytes) -> tuple[str, str, str]:
    name, namespace, topic, rest = data.decode("ascii").split(":")
    if rest:
        raise ValueError(f"{rest!r} stands behind the topic's name")
    return name, namespace, topic


def _encode_group(place: Place) -> bytes:
    return place[0].encode("ascii") + b":" + place[1].key


@lru_cache(maxsize=4096)  # an overview decodes those of all groups again and again
def _decode_group(data: bytes) -> Place:
    group, namespace, topic = _place(data)
    return checked_group(group), parsed_rows(f"{namespace}:{topic}")


def _encode_group_row(name: GroupName) -> bytes:
    return GROUP_ROW[1:] + name.key


def _decode_group_row(data: bytes) -> GroupName:
    kind, namespace, group, rest = data[:1], *data[1:].decode("ascii").split(":")
    if kind != GROUP_ROW[1:] or rest:
        raise ValueError(f"{data!r:.100} names no group")
    return GroupName.parse(f"{namespace}:{group}")


def _encode_producer(place: Place) -> bytes:
    return producer_marker(place[0]).encode("ascii") + b":" + place[1].key


def _decode_producer(data: bytes) -> Place:
    marker, namespace, name = _place(data)
    found = checked_producer_marker(marker, TopicName(name, namespace))
    return marker.removeprefix(PRODUCERS), found


def _encode_row(row: UsersRow) -> bytes:
    return row[0].key + escaped(row[1]) + END


def _decode_row(data: bytes) -> UsersRow:
    namespace, name, key = data.split(b":", 2)
    table = TableName.parse(f"{namespace.decode('ascii')}:{name.decode('ascii')}")
    if not key.endswith(END):
        raise ValueError("it has no end before the pointer")
    return table, unescaped(key[: -len(END)])


def escaped(key: bytes) -> bytes:
    """Returns a user's key so that no other one continues it, in the same order."""
    return key.replace(b"\0", ZERO)


def unescaped(key: bytes) -> bytes:
    """Returns the user's key that `escaped` was given."""
    return key.replace(ZERO, b"\0")


def _as_it_is(value: bytes) -> bytes:
    return value


def _decode_position(data: bytes) -> MessageId:
    if len(data) != ID_BYTES:
        raise ValueError(f"a position has {ID_BYTES} bytes, not {len(data)}")
    return MessageId(data)


def _decode_commits(data: bytes) -> int:
    return _decode_position(data).publish_time_ms


def _marker_kept_s(place: Place, settings: Settings) -> float | None:
    if not is_marker(place[0]):
        return None
    is_save = is_save_marker(place[0])
    return settings.save_marker_ttl_s if is_save else settings.stream_marker_ttl_s


def _topic_of(place: Place) -> TopicName:
    return place[1]


def _place_text(place: Place) -> str:
    return str(place[1])


_GROUP_KEY = Codec[Place](_encode_group, _decode_group)
_POSITION_VALUE = Codec[MessageId](_as_it_is, _decode_position)

POSITIONS = VersionedKind[Place, MessageId](
    name="positions",
    prefix=POSITION,
    key=_GROUP_KEY,
    value=_POSITION_VALUE,
    noun="position",
    problem="position",
    topic=_topic_of,
    owner=_place_text,
    may_delete=False,
    reason="positions",
    has_cells=True,
)
# Positions of groups whose names may say that they are markers of Spark.
SPARK_MARKERS = attrs.evolve(
    POSITIONS,
    prefix=POSITION + MARKERS.encode("ascii"),
    kept_s=_marker_kept_s,
)
# The commits of transactional ids, and the keys of what these did once: a number each.
COMMITS = VersionedKind[Place, int](
    name="positions",
    prefix=POSITION + PRODUCERS.encode("ascii"),
    key=Codec(_encode_producer, _decode_producer),
    value=Codec(MessageId.of, _decode_commits),
    noun="position",
    problem="position",
    owner=_place_text,
    may_delete=False,
    reason="positions",
    has_cells=True,
)
USERS_ROWS = VersionedKind[UsersRow, bytes](
    name="versions of rows",
    prefix=TABLE,
    key=Codec(_encode_row, _decode_row),
    value=Codec(_as_it_is, _as_it_is),
    noun="row of a table",
    owner=lambda row: f"table {row[0]}",
    trim_after=64,
    is_listed=True,
    is_newest=True,
)

# The second byte of these keys tells them from those of producers.
GROUPS = VersionedKind[GroupName, GroupRow](
    name="groups",
    prefix=GROUP_ROW,
    key=Codec(_encode_group_row, _decode_group_row),
    value=Codec(GroupRow.to_bytes, GroupRow.from_bytes),
    noun="group",
    owner=lambda name: f"group {name}",
    is_listed=True,
    is_newest=True,
)
# Commits that began their own transaction, by the slots of clients.
SLOTS = RowKind(
    name="commits in slots",
    prefix=SLOT_ROW,
    pointer_at=PointerAt.VALUE,
    decode=SlotRow.from_bytes,
    is_rolled_back=True,
    is_newest=True,
)


def commits_prefix(transactional_id: str) -> bytes:
    """Returns the beginning of the keys of all rows of an id: commits and keys."""
    return COMMITS.prefix + transactional_id.encode("ascii") + b":"


KINDS = RowKinds(
    [
        RowKind(name="topics", prefix=TOPIC),
        RowKind(
            name="messages",
            prefix=MESSAGE,
            pointer_at=PointerAt.VALUE,
            behind_topic=ROW_KEY_BYTES,
            is_timed=True,
            is_rolled_back=True,
            has_cells=True,
        ),
        RowKind(
            name="payloads",
            prefix=PAYLOAD,
            pointer_at=PointerAt.BEFORE_TIME,
            behind_topic=POINTER_BYTES + ROW_KEY_BYTES,
            is_timed=True,
            has_cells=True,
        ),
        RowKind(
            name="marks",
            prefix=MARK,
            pointer_at=PointerAt.KEY_END,
            behind_topic=POINTER_BYTES,
        ),
        POSITIONS,
        SPARK_MARKERS,
        COMMITS,
        USERS_ROWS,
        RowKind(
            name="pipes",
            prefix=PIPE,
            behind_topic=PIPE_BYTES,
            decode=PipeRow.from_bytes,
            is_newest=True,
        ),
        RowKind(
            name="leases",
            prefix=LEASE,
            pointer_at=PointerAt.VALUE,
            behind_topic=ID_BYTES,
            decode=LeaseRow.from_bytes,
            is_newest=True,
        ),
        RowKind(name="producers", prefix=PRODUCER_ROW, is_newest=True),
        RowKind(
            name="sequences", prefix=SEQUENCE_ROW, as_of=state_before, is_newest=True
        ),
        RowKind(name="transactional ids", prefix=TRANSACTIONAL_ID_ROW, is_newest=True),
        SLOTS,
        GROUPS,
        RowKind(name="keepers", prefix=KEEPER),
        RowKind(name="journal entries", prefix=JOURNAL, is_copied=False),
        RowKind(name="state rows", prefix=STATE, is_copied=False),
    ]
)


def versioned_prefixes() -> list[bytes]:
    """Returns what the keys of versioned kinds begin with."""
    return [kind.prefix for kind in KINDS if isinstance(kind, VersionedKind)]


def versioned_tables() -> dict[bytes, bool]:
    """Returns the first bytes of versioned kinds, and whether all are listed."""
    found: dict[bytes, bool] = {}
    for kind in KINDS:
        if isinstance(kind, VersionedKind):
            table = kind.prefix[:1]
            found[table] = found.get(table, True) and kind.is_listed
    return found


def versioned_kind(key: bytes) -> AnyKind | None:
    """Returns the versioned kind of a row by its key; None for other kinds."""
    kind = KINDS.of(key)
    return kind if isinstance(kind, VersionedKind) else None
