"""The keys of all rows: first the table, then the topic, then the order of delivery."""

from txaware.model.topics import TopicName

# The first byte says which table a row belongs to.
TOPIC, MESSAGE, POSITION, MARK = b"t", b"m", b"o", b"k"
PRODUCER = b"s"
# The second byte of a producer's row: the producer itself, how far it has come in a
# topic, and who has which transactional id.
PRODUCER_ROW, SEQUENCE_ROW = PRODUCER + b"p", PRODUCER + b"q"
TRANSACTIONAL_ID_ROW = PRODUCER + b"t"
# The members of groups, and who has which partition.
GROUP_ROW = PRODUCER + b"g"
# The last commit of each place in which clients begin transactions with their commits.
SLOT_ROW = PRODUCER + b"c"
KEEPER = b"n"
# The pipes of queues with their counts, and what is known of items that were popped.
PIPE, LEASE = b"i", b"l"
# The rows of users' tables.
TABLE = b"d"
JOURNAL, STATE = b"j", b"w"
# Payloads sort behind all other rows: a batch of many payloads then lies behind all
# that is there, also if the saved time goes with it, and LevelDB sorts it once.
PAYLOAD = b"z"
# The first byte of payloads in the first format.
FIRST_PAYLOAD = b"p"

# The kind of coordinator that gave out the pointers of a table.
COORDINATOR = STATE + b"coordinator"
# The address of that coordinator, unless it is the embedded one.
COORDINATOR_ADDRESS = STATE + b"coordinator-address"

# The pointer up to which an earlier version did not note who keeps rows elsewhere.
UNWATCHED = STATE + b"unwatched"

# The store that is copied here, and how far that copy has come.
COPY, COPY_PLACE = STATE + b"copy", STATE + b"copy-place"

# The shards of a store, in its first one; and in each other one which of them it is.
STORE_SHARDS, STORE_SHARD = STATE + b"shards", STATE + b"shard"
# What the servers of a store know each other by, in its first shard.
STORE_SECRET = STATE + b"secret"

# Sorts behind every row.
ABOVE_ALL = b"\xff" * 64

MAX_SEQUENCE = 0xFFFF
POINTER_BYTES = 8
ROW_KEY_BYTES = 10
_TIMED = (MESSAGE, PAYLOAD)


def topic_key(topic: TopicName) -> bytes:
    """Returns the key of the row with a topic's metadata."""
    return TOPIC + topic.key


def row_key(time_ms: int, sequence: int = 0) -> bytes:
    """Returns time and sequence as the end of the key of a message or a payload."""
    return time_ms.to_bytes(8, "big") + sequence.to_bytes(2, "big")


def pointer_key(pointer: int) -> bytes:
    """Returns a write pointer as part of a key."""
    return pointer.to_bytes(POINTER_BYTES, "big")


def payload_prefix(data_prefix: bytes, pointer: int) -> bytes:
    """Returns the beginning of the payload rows of one transaction in one topic."""
    return PAYLOAD + data_prefix + pointer_key(pointer)


def mark_key(data_prefix: bytes, pointer: int) -> bytes:
    """Returns the key of the mark for a transaction's references in one topic."""
    return MARK + data_prefix + pointer_key(pointer)


def row_prefix(key: bytes) -> bytes:
    """Returns the part of a key before time and sequence, or before its pointer."""
    return key[:-ROW_KEY_BYTES] if key[:1] in _TIMED else key[:-POINTER_BYTES]


def after(prefix: bytes) -> bytes:
    """Returns the least key above all keys that begin with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
