"""The producer table: who publishes, and how far each has come in each topic."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import attrs

from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.messages import MessageId
from txaware.model.partitions import stored_rows
from txaware.model.producers import SEQUENCES, ProducerIdentity, checked_identity
from txaware.model.topics import TopicName
from txaware.store.interfaces import pieces
from txaware.store.keys import (
    MAX_SEQUENCE,
    PRODUCER_ROW,
    ROW_KEY_BYTES,
    SEQUENCE_ROW,
    TRANSACTIONAL_ID_ROW,
    row_key,
)

# So many requests of a producer in a topic are known again.
REMEMBERED = 5
ID_BYTES = 8

_EPOCH = struct.Struct(">H")
_REQUEST = struct.Struct(f">II{ROW_KEY_BYTES}s")
_STATES = [
    struct.Struct(">H" + f"II{ROW_KEY_BYTES}s" * count)
    for count in range(REMEMBERED + 1)
]
_LAST_NUMBERS = struct.Struct(">II").unpack_from
_FULL_BYTES = _EPOCH.size + REMEMBERED * _REQUEST.size
_MARK = struct.Struct(">QHII")


@attrs.frozen
class ProducerRow:
    """A producer: its epoch, its owner by name, and since when it is known.

    One that a client opened by its first publish (`by_client`) is of use for as long as
    that client repeats a request, and is forgotten earlier.
    """

    producer_id: int
    epoch: int
    owner: str | None
    opened_ms: int
    has_ended: bool = False
    by_client: bool = False
    transactional_id: str | None = None


@attrs.frozen
class StoredRequest:
    """A request that was stored: its first sequence, its messages, its first row."""

    base: int
    count: int
    first: bytes

    @property
    def keys(self) -> list[bytes]:
        """The keys of its rows."""
        return [_key_at(self.first, number) for number in range(self.count)]

    @property
    def last(self) -> bytes:
        """The key of its last row."""
        return _key_at(self.first, self.count - 1)


@attrs.frozen
class SequenceState:
    """The last requests of a producer in a topic, oldest first, without a gap."""

    epoch: int
    requests: tuple[StoredRequest, ...]

    @property
    def next(self) -> int:
        """The sequence of the next message."""
        last = self.requests[-1]
        return (last.base + last.count) % SEQUENCES

    @property
    def last_ms(self) -> int:
        """The publish time of the last request."""
        return int.from_bytes(self.requests[-1].first[:8], "big")

    @property
    def last_id(self) -> MessageId:
        """The id of the last message."""
        return MessageId.of_row(self.requests[-1].last)

    def with_request(self, request: StoredRequest) -> "SequenceState":
        """Returns the state after one more request of the same epoch."""
        return SequenceState(self.epoch, (*self.requests[1 - REMEMBERED :], request))

    def repeated(self, base: int, count: int) -> list[MessageId] | None:
        """Returns the ids of messages that are remembered; None unless all are."""
        found: list[MessageId] = []
        at = (base - self.requests[0].base) % SEQUENCES
        for request in self.requests:
            for number in range(max(at, 0), min(at + count, request.count)):
                found.append(MessageId.of_row(_key_at(request.first, number)))
            at -= request.count
        return found if len(found) == count else None

    def before(self, time_ms: int) -> "SequenceState | None":
        """Returns the state without requests of that time or later, or None."""
        kept = [
            request
            for request in self.requests
            if int.from_bytes(request.last[:8], "big") < time_ms
        ]
        return SequenceState(self.epoch, tuple(kept)) if kept else None


def _key_at(first: bytes, number: int) -> bytes:
    """Returns the key of a message of a request, whose rows have no gap."""
    ms, sequence = divmod(int.from_bytes(first[8:], "big") + number, MAX_SEQUENCE + 1)
    return row_key(int.from_bytes(first[:8], "big") + ms, sequence)


def encode_state(state: SequenceState) -> bytes:
    """Encodes the value of a sequence row."""
    values: list[int | bytes] = [state.epoch]
    for one in state.requests:
        values += (one.base, one.count, one.first)
    return _STATES[len(state.requests)].pack(*values)


def decode_state(value: bytes) -> SequenceState:
    """Reads the value of a sequence row; raises `StoreCorrupted` for any other."""
    body = value[_EPOCH.size :]
    if not body or len(body) % _REQUEST.size or len(body) > REMEMBERED * _REQUEST.size:
        raise StoreCorrupted(f"a sequence row of {len(value)} bytes is cut off")
    requests = tuple(StoredRequest(*one) for one in _REQUEST.iter_unpack(body))
    follows = requests[0].base
    for one in requests:
        if one.base != follows or not one.count:
            raise StoreCorrupted("the requests of a sequence row do not follow another")
        follows = (one.base + one.count) % SEQUENCES
    return SequenceState(_EPOCH.unpack_from(value)[0], requests)


def state_before(value: bytes, time_ms: int) -> bytes | None:
    """Returns the value of a sequence row as it was before a time, or None.

    With None that producer begins anew: none of its messages is taken for a repeat.
    """
    state = decode_state(value).before(time_ms)
    return None if state is None else encode_state(state)


def epoch_of(value: bytes) -> int:
    """Returns the epoch of a sequence row."""
    return int.from_bytes(value[:2], "big")


def next_of(value: bytes) -> tuple[int, int]:
    """Returns the epoch of a sequence row, and the sequence of the next message."""
    base, count = _LAST_NUMBERS(value, len(value) - _REQUEST.size)
    return epoch_of(value), (base + count) % SEQUENCES


def value_after(
    value: bytes | None, epoch: int, *, base: int, count: int, first: bytes
) -> bytes:
    """Encodes a sequence row after one more request; `value` is of the same epoch.

    What is remembered already stays encoded, as each publish of a producer does this.
    """
    kept = b""
    if value is not None:
        kept = value[2:] if len(value) < _FULL_BYTES else value[2 + _REQUEST.size :]
    return _EPOCH.pack(epoch) + kept + _REQUEST.pack(base, count, first)


def encode_mark(producer: ProducerIdentity, base: int, count: int) -> bytes:
    """Encodes column s of the first message of a request."""
    return _MARK.pack(producer.producer_id, producer.epoch, base, count)


def check_mark(data: bytes) -> None:
    """Raises `ValueError` where a column s is damaged."""
    if len(data) != _MARK.size:
        raise ValueError(f"a producer's mark has {_MARK.size} bytes, not {len(data)}")
    producer_id, epoch, base, count = _MARK.unpack(data)
    checked_identity(ProducerIdentity(producer_id, epoch))
    if base >= SEQUENCES or not 0 < count <= SEQUENCES:
        raise ValueError(f"no request has {count} messages from sequence {base} on")


def encode_producer(row: ProducerRow) -> bytes:
    """Encodes the value of a producer's row, without what it need not say."""
    fields = attrs.asdict(row)
    del fields["producer_id"]
    return json.dumps({name: value for name, value in fields.items() if value}).encode()


def decode_producer(producer_id: int, value: bytes) -> ProducerRow:
    """Reads the value of a producer's row; raises `StoreCorrupted` for any other."""
    try:
        fields: dict[str, Any] = json.loads(value)
        row = ProducerRow(
            producer_id,
            int(fields.pop("epoch", 0)),
            fields.pop("owner", None),
            int(fields.pop("opened_ms", 0)),
            bool(fields.pop("has_ended", False)),
            bool(fields.pop("by_client", False)),
            fields.pop("transactional_id", None),
        )
        checked_identity(ProducerIdentity(producer_id, row.epoch))
        for name in (row.owner, row.transactional_id):
            if name is not None and not isinstance(name, str):
                raise BadRequest(f"{name!r} is no name")
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreCorrupted(
            f"the row of producer {producer_id} cannot be read: {error}; txaware check "
            f"tells more"
        ) from error
    return row


def producer_key(producer_id: int) -> bytes:
    """Returns the key of a producer's row."""
    return PRODUCER_ROW + producer_id.to_bytes(ID_BYTES, "big")


def sequence_prefix(producer_id: int) -> bytes:
    """Returns the beginning of the keys of a producer's sequence rows."""
    return SEQUENCE_ROW + producer_id.to_bytes(ID_BYTES, "big")


def sequence_key(producer_id: int, topic: TopicName) -> bytes:
    """Returns the key of a producer's sequence in a topic, of whatever generation."""
    return sequence_prefix(producer_id) + topic.key


def topic_of(key: bytes) -> TopicName:
    """Returns the topic of what follows the producer in the key of a sequence row."""
    try:
        namespace, name, rest = key.decode("ascii").split(":")
        if rest:
            raise BadRequest(f"{rest!r} follows it")
        return stored_rows(namespace, name)
    except ValueError as error:
        raise StoreCorrupted(f"{key!r:.100} names no topic: {error}") from error


class ProducerTable:
    """The rows of all producers, and of their sequences."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def producer(self, producer_id: int) -> ProducerRow | None:
        """Returns a producer; None if there is none of that id."""
        value = self._table.get(producer_key(producer_id))
        return None if value is None else decode_producer(producer_id, value)

    def value(self, producer_id: int, topic: TopicName) -> bytes | None:
        """Returns the row of a producer's sequence in a topic, which can be read."""
        value = self._table.get(sequence_key(producer_id, topic))
        if value is not None:
            decode_state(value)
        return value

    def producers(self) -> Iterator[ProducerRow]:
        """Reads all producers, by their ids."""
        for key, value in self._all(PRODUCER_ROW):
            yield decode_producer(int.from_bytes(key, "big"), value)

    def states(self, producer_id: int) -> Iterator[tuple[TopicName, SequenceState]]:
        """Reads how far a producer has come, by topic."""
        for key, value in self._all(sequence_prefix(producer_id)):
            yield topic_of(key), decode_state(value)

    def all_states(self) -> Iterator[tuple[int, TopicName, SequenceState]]:
        """Reads how far all producers have come, by producer and topic."""
        for key, value in self._all(SEQUENCE_ROW):
            producer_id = int.from_bytes(key[:ID_BYTES], "big")
            yield producer_id, topic_of(key[ID_BYTES:]), decode_state(value)

    def _all(self, prefix: bytes) -> Iterator[Row]:
        for rows in pieces(self._table, prefix):
            yield from rows


class TransactionalIdTable:
    """The rows of all transactional ids, by their names: which producer has each."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def get(self, name: str) -> int | None:
        """Returns the id of a producer by its name; None if nobody ever used it."""
        value = self._table.get(transactional_id_key(name))
        return None if value is None else decode_producer_id(value)

    def replace(self, name: str, old: int | None, new: int) -> bool:
        """Gives a name another producer id, if it is still `old`; that is kept then."""
        before = None if old is None else old.to_bytes(ID_BYTES, "big")
        key = transactional_id_key(name)
        return self._table.compare_and_set(key, before, new.to_bytes(ID_BYTES, "big"))


def transactional_id_key(name: str) -> bytes:
    """Returns the key of the row of a transactional id."""
    return TRANSACTIONAL_ID_ROW + name.encode("ascii")


def decode_producer_id(value: bytes) -> int:
    """Reads the value of such a row; raises `StoreCorrupted` for any other."""
    if len(value) != ID_BYTES:
        raise StoreCorrupted(
            f"the row of a transactional id has {ID_BYTES} bytes, not {len(value)}"
        )
    return int.from_bytes(value, "big")


def producer_write(row: ProducerRow) -> Write:
    """Makes the row of a producer."""
    return producer_key(row.producer_id), encode_producer(row)


def state_write(producer_id: int, topic: TopicName, state: SequenceState) -> Write:
    """Makes the row of a producer's sequence in a topic."""
    return sequence_key(producer_id, topic), encode_state(state)
