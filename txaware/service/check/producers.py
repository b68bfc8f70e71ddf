"""Checks the rows of producers, and of their sequences."""

from txaware.errors import StoreCorrupted
from txaware.keys import (
    PRODUCER,
    PRODUCER_ROW,
    SEQUENCE_ROW,
    TRANSACTIONAL_ID_ROW,
)
from txaware.producers import ProducerIdentity, checked_identity
from txaware.service.check.groups import Judging
from txaware.service.check.table_scan import CheckScan
from txaware.store.producer_table import (
    ID_BYTES,
    SequenceState,
    decode_producer,
    decode_state,
    producer_key,
    topic_of,
)
from txaware.store.transactional_id_table import decode_producer_id
from txaware.topics import checked_transactional_id

_KIND_BYTES = len(PRODUCER_ROW)


def check_producers(scan: CheckScan, judging: Judging) -> None:
    """Checks that all can be read, and whose sequences they are."""
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
            else:
                judging.problem("key", key, "no row of a producer has such a key")
        except (StoreCorrupted, ValueError) as error:
            if judging.rows.get(key) == value:
                judging.problem("producer", key, str(error))


def _check_producer(judging: Judging, name: bytes, value: bytes) -> None:
    judging.findings.counts["producers"] += 1
    if len(name) != ID_BYTES:
        raise ValueError(f"a producer's id has {ID_BYTES} bytes, not {len(name)}")
    decode_producer(int.from_bytes(name, "big"), value)


def _check_transactional_id(judging: Judging, key: bytes, value: bytes) -> None:
    judging.findings.counts["transactional ids"] += 1
    name = key[_KIND_BYTES:].decode("ascii")
    checked_transactional_id(name)
    producer_id = decode_producer_id(value)
    found = judging.rows.get(producer_key(producer_id))
    if found is None:
        if judging.rows.get(key) == value:  # it is not being removed just now
            raise ValueError(f"there is no producer {producer_id}")
        return
    if decode_producer(producer_id, found).transactional_id != name:
        raise ValueError(f"producer {producer_id} has another transactional id")


def _check_sequence(judging: Judging, key: bytes, value: bytes) -> None:
    judging.findings.counts["sequences"] += 1
    start = _KIND_BYTES + ID_BYTES
    producer_id, topic = int.from_bytes(key[_KIND_BYTES:start], "big"), key[start:]
    state = decode_state(value)
    checked_identity(ProducerIdentity(producer_id, state.epoch))
    if judging.topic(topic_of(topic).key) is None:
        raise ValueError(f"{topic!r} is no topic of this data")
    found = judging.rows.get(producer_key(producer_id))
    if found is None:
        if judging.rows.get(key) == value:  # it is not being removed just now
            raise ValueError(f"there is no producer {producer_id}")
        return
    _check_epoch(decode_producer(producer_id, found).epoch, state)
    for request in state.requests:
        time_ms = int.from_bytes(request.first[:8], "big")
        judging.check_time(key[:1], key[1:], time_ms)


def _check_epoch(epoch: int, state: SequenceState) -> None:
    if state.epoch > epoch:
        raise ValueError(
            f"it was published under epoch {state.epoch}, and its producer is at "
            f"{epoch}"
        )
