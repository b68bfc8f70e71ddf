"""Checks rows of producers, sequences, transactional ids, groups, and slots.

They are one table: its second byte tells them apart.
"""

import json
from itertools import pairwise

from txaware.errors import StoreCorrupted
from txaware.model.producers import ProducerIdentity, checked_identity
from txaware.model.topics import Topic, checked_transactional_id, data_prefix
from txaware.service.check.groups import Judging
from txaware.service.check.rows import check_value, check_version
from txaware.service.check.table_scan import CheckScan
from txaware.store.columns import PRODUCED, decode
from txaware.store.keys import (
    GROUP_ROW,
    MESSAGE,
    PRODUCER,
    PRODUCER_ROW,
    SEQUENCE_ROW,
    SLOT_ROW,
    TRANSACTIONAL_ID_ROW,
)
from txaware.store.kinds import GROUPS, SLOTS
from txaware.store.packed_rows import first_key
from txaware.store.producer_table import (
    ID_BYTES,
    ProducerRow,
    SequenceState,
    StoredRequest,
    decode_producer,
    decode_producer_id,
    decode_state,
    encode_mark,
    encode_producer,
    producer_key,
    topic_of,
)
from txaware.store.slot_table import SLOT_NAME_BYTES

_KIND_BYTES = len(PRODUCER_ROW)


def check_producers(scan: CheckScan, judging: Judging) -> None:
    """Checks that all can be read, and that the rows of each agree."""
    for rest, value in scan.table(PRODUCER):
        key = PRODUCER + rest
        kind, name = key[:_KIND_BYTES], key[_KIND_BYTES:]
        try:
            if kind == PRODUCER_ROW:
                _check_producer(judging, name, value)
            elif kind == SEQUENCE_ROW:
                _check_sequence(judging, key, value)
            elif kind == TRANSACTIONAL_ID_ROW:
                _check_transactional_id(judging, key, value)
            elif kind == GROUP_ROW:
                judging.findings.counts[GROUPS.name] += 1
                check_version(judging, GROUPS, key, value)
            elif kind == SLOT_ROW and len(name) == SLOT_NAME_BYTES:
                judging.findings.counts[SLOTS.name] += 1
                check_value(judging, SLOTS, key, value)
            else:
                judging.problem("key", key, "no row of a producer has such a key")
        except (StoreCorrupted, ValueError, OverflowError) as error:
            if judging.rows.get(key) == value:
                judging.problem("producer", key, str(error))


def _check_producer(judging: Judging, name: bytes, value: bytes) -> None:
    judging.findings.counts["producers"] += 1
    if len(name) != ID_BYTES:
        raise ValueError(f"a producer's id has {ID_BYTES} bytes, not {len(name)}")
    row = decode_producer(int.from_bytes(name, "big"), value)
    if row.transactional_id is not None:
        checked_transactional_id(row.transactional_id)
    if json.loads(encode_producer(row)) != json.loads(value):
        raise ValueError(f"nobody writes a producer as {value!r:.300}")


def _check_transactional_id(judging: Judging, key: bytes, value: bytes) -> None:
    judging.findings.counts["transactional ids"] += 1
    name = key[_KIND_BYTES:].decode("ascii")
    checked_transactional_id(name)
    row = _producer_of(judging, key, value, decode_producer_id(value))
    if row is not None and row.transactional_id != name:
        raise ValueError(f"producer {row.producer_id} has another transactional id")


def _check_sequence(judging: Judging, key: bytes, value: bytes) -> None:
    judging.findings.counts["sequences"] += 1
    start = _KIND_BYTES + ID_BYTES
    producer_id, topic_key = int.from_bytes(key[_KIND_BYTES:start], "big"), key[start:]
    state = decode_state(value)
    checked_identity(ProducerIdentity(producer_id, state.epoch))
    topic = judging.topic(topic_of(topic_key).key)
    if topic is None:
        raise ValueError(f"{topic_key!r} is no topic of this data")
    row = _producer_of(judging, key, value, producer_id)
    if row is None:
        return
    if state.epoch > row.epoch:
        raise ValueError(
            f"it was published under epoch {state.epoch}, and its producer is at "
            f"{row.epoch}"
        )
    for before, request in pairwise(state.requests):
        if request.first <= before.last:
            raise ValueError("the messages of a request precede those of an earlier")
    judging.check_time(key[:1], key[1:], state.last_id.publish_time_ms)
    if not row.by_client:  # whose messages have no mark
        for request in state.requests:
            _check_first(judging, topic, row, state, request)


def _producer_of(
    judging: Judging, key: bytes, value: bytes, producer_id: int
) -> ProducerRow | None:
    """Returns the producer of a row; None if the row is being removed just now."""
    found = judging.rows.get(producer_key(producer_id))
    if found is not None:
        return decode_producer(producer_id, found)
    if judging.rows.get(key) == value:
        raise ValueError(f"there is no producer {producer_id}")
    return None


def _check_first(
    judging: Judging,
    topic: Topic,
    row: ProducerRow,
    state: SequenceState,
    request: StoredRequest,
) -> None:
    """Checks that the first message of a request is that, if it is still there.

    Else a repeat would answer the ids of other messages.
    """
    prefix = data_prefix(topic.topic, abs(topic.generation))
    rows = judging.rows.scan(MESSAGE + prefix, start=request.first, limit=1)
    if (
        not rows or first_key(*rows[0]) != request.first
    ):  # it has expired, or is of an older generation
        return
    identity = ProducerIdentity(row.producer_id, state.epoch)
    mark = encode_mark(identity, request.base, request.count)
    if decode(rows[0][1]).more.get(PRODUCED) != mark:
        raise ValueError(
            f"the request of sequence {request.base} begins with a message that is not "
            f"marked as its first"
        )
