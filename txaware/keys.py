"""The keys of all rows: which table, which topic, and then the order of delivery."""

from txaware.topics import TopicName

# One byte in front says which table a row belongs to; producers have no table yet.
TOPIC, MESSAGE, POSITION, MARK = b"t", b"m", b"o", b"k"
PRODUCER = b"s"
KEEPER = b"n"
JOURNAL, STATE = b"j", b"w"
# Behind all others: what a load of payloads brings then lies behind all there is, also
# where the saved time goes along, and LevelDB sorts it once.
PAYLOAD = b"z"
# What payloads had in front in the first format.
FIRST_PAYLOAD = b"p"

# Which kind of coordinator the pointers of a table are from.
COORDINATOR = STATE + b"coordinator"
# Where that is, unless it is the embedded one.
COORDINATOR_ADDRESS = STATE + b"coordinator-address"

# Up to which pointer nobody wrote down who keeps rows elsewhere: an earlier version.
UNWATCHED = STATE + b"unwatched"

# What was copied here, and how far that has come.
COPY, COPY_PLACE = STATE + b"copy", STATE + b"copy-place"

MAX_SEQUENCE = 0xFFFF
POINTER_BYTES = 8
ROW_KEY_BYTES = 10
_TIMED = (MESSAGE, PAYLOAD)


def topic_key(topic: TopicName) -> bytes:
    """The row of a topic's metadata."""
    return TOPIC + topic.key


def row_key(time_ms: int, sequence: int = 0) -> bytes:
    """The end of a message's row key, and of a payload's: time and sequence."""
    return time_ms.to_bytes(8, "big") + sequence.to_bytes(2, "big")


def pointer_key(pointer: int) -> bytes:
    """A write pointer as part of a key."""
    return pointer.to_bytes(POINTER_BYTES, "big")


def payload_prefix(data_prefix: bytes, pointer: int) -> bytes:
    """What the payload rows of one transaction in one topic begin with."""
    return PAYLOAD + data_prefix + pointer_key(pointer)


def mark_key(data_prefix: bytes, pointer: int) -> bytes:
    """What is remembered of a transaction's references in one topic."""
    return MARK + data_prefix + pointer_key(pointer)


def position_prefix(group: str, topic: TopicName) -> bytes:
    """What the positions of a group in a topic begin with, before the pointer."""
    return POSITION + group.encode("ascii") + b":" + topic.key


def row_prefix(key: bytes) -> bytes:
    """What a key begins with before time and sequence, or before its pointer."""
    return key[:-ROW_KEY_BYTES] if key[:1] in _TIMED else key[:-POINTER_BYTES]


def after(prefix: bytes) -> bytes:
    """The least key above all that begin with this."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
