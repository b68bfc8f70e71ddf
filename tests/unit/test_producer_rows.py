"""Rows of producers: their bytes, and what may come after which request."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txaware.errors import OutOfOrderSequence, ProducerFenced, StoreCorrupted
from txaware.model.messages import MessageId
from txaware.model.producers import MAX_EPOCH, SEQUENCES, ProducerIdentity
from txaware.service.producers.sequences import SequenceGap, judge
from txaware.service.write.topic_writer import Stamper
from txaware.store.keys import row_key
from txaware.store.producer_table import (
    REMEMBERED,
    ProducerRow,
    SequenceState,
    StoredRequest,
    check_mark,
    decode_producer,
    decode_state,
    encode_mark,
    encode_producer,
    encode_state,
    next_of,
    value_after,
)

EPOCHS = st.integers(0, MAX_EPOCH)
TIMES = st.integers(0, 2**63 - 1)


@given(st.integers(0, SEQUENCES - 1), EPOCHS, st.lists(st.integers(1, 70_000)))
def test_a_sequence_row_is_read_as_it_was_written(
    base: int, epoch: int, counts: list[int]
) -> None:
    state, value = SequenceState(epoch, ()), None
    for time_ms, count in enumerate(counts):
        first = row_key(time_ms)
        state = state.with_request(StoredRequest(base, count, first))
        value = value_after(value, epoch, base=base, count=count, first=first)
        base = (base + count) % SEQUENCES
        assert value == encode_state(state)
        assert next_of(value) == (epoch, base)
    if counts:
        assert decode_state(encode_state(state)) == state
        assert state.next == base
        assert len(state.requests) == min(len(counts), REMEMBERED)


@given(
    EPOCHS,
    st.none() | st.text(),
    TIMES,
    st.booleans(),
    st.booleans(),
    st.none() | st.text(),
)
def test_a_producer_is_read_as_it_was_written(
    epoch: int,
    owner: str | None,
    opened_ms: int,
    has_ended: bool,
    by_client: bool,
    transactional_id: str | None,
) -> None:
    row = ProducerRow(
        7,
        epoch,
        owner or None,
        opened_ms,
        has_ended,
        by_client,
        transactional_id or None,
    )
    assert decode_producer(7, encode_producer(row)) == row


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b'{"epoch": -1}', b'{"owner": 1}'])
def test_a_damaged_producer_is_told(value: bytes) -> None:
    with pytest.raises(StoreCorrupted, match="producer 7 cannot be read"):
        decode_producer(7, value)


@given(st.binary(max_size=120))
def test_any_bytes_are_a_sequence_row_or_damage(value: bytes) -> None:
    try:
        state = decode_state(value)
    except StoreCorrupted:
        return
    assert encode_state(state) == value


def test_a_mark_says_who_published_what() -> None:
    mark = encode_mark(ProducerIdentity(5, 2), 17, 3)
    assert mark.hex() == "000000000000000500020000001100000003"
    check_mark(mark)
    for damaged in (mark[:-1], b"\xff" * len(mark), mark[:-4] + bytes(4)):
        with pytest.raises(ValueError, match=r"has|request|a producer id"):
            check_mark(damaged)


@given(st.integers(0, SEQUENCES - 1), st.integers(0, 65_535), st.integers(1, 70_000))
def test_the_ids_of_a_repeat_are_the_keys_that_were_given_out(
    base: int, before: int, count: int
) -> None:
    stamper = Stamper(1000)
    stamper.keys(1000, before + 1)
    keys = stamper.keys(1000, count)
    state = SequenceState(0, (StoredRequest(base, count, keys[0]),))
    last = (base + count - 1) % SEQUENCES
    assert state.repeated(last, 1) == [MessageId.of_row(keys[-1])] == [state.last_id]
    assert state.repeated(base, count) == [MessageId.of_row(key) for key in keys]


class Model:
    """What a topic should hold, and which requests are known again."""

    def __init__(self, base: int) -> None:
        self.stored: dict[int, MessageId] = {}
        self.requests: list[list[int]] = []
        self.next = base


@given(
    st.sampled_from([0, SEQUENCES - 7]),
    st.lists(st.tuples(st.integers(-25, 3), st.integers(1, 5)), max_size=40),
)
def test_requests_in_any_order_are_stored_once_or_refused(
    begin: int, asked: list[tuple[int, int]]
) -> None:
    model, producer, stamper = Model(begin), ProducerIdentity(1), Stamper(5)
    state = None
    if begin:
        first = StoredRequest(begin - 1, 1, row_key(1))
        state = SequenceState(0, (first,))
        model.requests.append([begin - 1])
        model.stored[begin - 1] = MessageId.of_row(row_key(1))
    for offset, count in asked:
        base = (model.next + offset) % SEQUENCES
        numbers = [(base + one) % SEQUENCES for one in range(count)]
        known = [n for request in model.requests[-REMEMBERED:] for n in request]
        if offset == 0:
            assert judge(state, producer, base, count) is None
            keys = stamper.keys(5, count)
            request = StoredRequest(base, count, keys[0])
            state = (state or SequenceState(0, ())).with_request(request)
            model.requests.append(numbers)
            ids = [MessageId.of_row(key) for key in keys]
            model.stored.update(zip(numbers, ids, strict=True))
            model.next = (base + count) % SEQUENCES
        elif set(numbers) <= set(known):
            expected = [model.stored[number] for number in numbers]
            assert judge(state, producer, base, count) == expected
        elif offset > 0 or state is None:
            with pytest.raises(SequenceGap):
                judge(state, producer, base, count)
        else:
            with pytest.raises(OutOfOrderSequence) as refused:
                judge(state, producer, base, count)
            assert not isinstance(refused.value, SequenceGap)
    numbers = [number for request in model.requests for number in request]
    assert all(b == (a + 1) % SEQUENCES for a, b in pairwise(numbers))


def test_a_new_epoch_begins_at_0_and_an_older_one_is_fenced() -> None:
    state = SequenceState(3, (StoredRequest(0, 5, row_key(1)),))
    assert judge(state, ProducerIdentity(1, 4), 0, 1) is None
    with pytest.raises(SequenceGap, match="and not at 0"):
        judge(state, ProducerIdentity(1, 4), 5, 1)
    with pytest.raises(ProducerFenced, match="2 is older"):
        judge(state, ProducerIdentity(1, 2), 5, 1)


def test_what_is_known_before_a_time_has_no_gap() -> None:
    requests = tuple(StoredRequest(n, 1, row_key(n)) for n in range(5))
    state = SequenceState(0, requests)
    for time_ms in range(1, 6):
        before = state.before(time_ms)
        assert before is not None
        assert before.next == time_ms
    assert state.before(0) is None
