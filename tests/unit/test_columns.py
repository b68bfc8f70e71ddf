"""The bytes of ids and of rows: as CDAP writes them, and back again."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messagings import Site, publish
from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.messages import MessageId, Outgoing
from txaware.store.columns import (
    ATTEMPT,
    EXPIRY,
    HEADERS,
    KEY,
    RECEIPTS,
    Columns,
    decode,
    decode_expiry,
    decode_keyed,
    decode_receipts,
    encode_expiry,
    encode_receipts,
    keyed_values,
    negated,
    pointer_of,
    value_head,
)
from txaware.store.keys import MAX_SEQUENCE, MESSAGE, payload_prefix
from txaware.store.message_table import decode_block

times = st.integers(0, 2**63 - 1)
sequences = st.integers(0, MAX_SEQUENCE)
ids = st.tuples(times, sequences, times, sequences)
pointers = st.integers(1, 2**63 - 1)
columns = st.dictionaries(
    st.binary(min_size=1, max_size=1), st.binary(max_size=300), max_size=4
)

GOLDEN = "0000018bcfe56800000100000000000000000000"


def test_the_golden_bytes_of_an_id() -> None:
    """FACTS 1.4."""
    message_id = MessageId.of(1_700_000_000_000, 1)
    assert str(message_id) == GOLDEN
    assert bytes(message_id).hex() == GOLDEN
    assert MessageId.parse(GOLDEN) == message_id
    assert MessageId.parse(GOLDEN.upper()) == message_id
    assert repr(message_id) == f"MessageId({GOLDEN})"
    other = MessageId.of(1, 2, 3, 4)
    assert str(other) == "0000000000000001000200000000000000030004"


@settings(deadline=None)
@given(ids, ids)
def test_ids_are_ordered_as_their_numbers(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    first, second = MessageId.of(*one), MessageId.of(*other)
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)
    assert MessageId.parse(str(first)) == first == MessageId.from_bytes(first + b"more")
    assert one == (
        first.publish_time_ms,
        first.sequence,
        first.write_time_ms,
        first.payload_sequence,
    )
    assert first.row_key + first.payload_key == first


@settings(deadline=None)
@given(st.binary(min_size=20, max_size=20), st.binary(min_size=20, max_size=20))
def test_before_is_the_greatest_id_below(one: bytes, other: bytes) -> None:
    message_id, another = MessageId(one), MessageId(other)
    before = message_id.before()
    assert len(before) == 20
    assert before < message_id or not any(one)
    assert not before < another < message_id


@settings(deadline=None)
@given(st.binary(min_size=20, max_size=20))
def test_after_is_the_least_id_above(one: bytes) -> None:
    message_id = MessageId(one)
    after = message_id.after()
    assert type(after) is MessageId
    if one == b"\xff" * 20:
        assert after == message_id
    else:
        assert after > message_id == after.before()


def test_after_the_greatest_number_comes_the_next_one_before_it() -> None:
    greatest = MessageId(b"\xff" * 20)
    assert greatest.after() == greatest
    assert MessageId(bytes(20)).after() == MessageId.of(0, 0, 0, 1)
    assert MessageId.of(0, 0, 0, 0xFFFF).after() == MessageId.of(0, 0, 1, 0)


@pytest.mark.parametrize("text", ["", "00" * 19, "00" * 21, "0g" * 20, " " * 40, "é"])
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(BadRequest):
        MessageId.parse(text)


def test_numbers_that_do_not_fit_make_no_id() -> None:
    for numbers in ((-1,), (2**64,), (0, 65_536), (0, 0, -1), (0, 0, 0, 65_536)):
        with pytest.raises(BadRequest):
            MessageId.of(*numbers)


@pytest.mark.foreign_pointers
def test_the_golden_bytes_of_row_keys_and_values(site: Site) -> None:
    """DESIGN section 4: topic, generation, time, sequence; a tag before the columns."""
    messaging = site.messaging
    messaging.create_topic("ns:t")
    now = site.clock().to_bytes(8, "big").hex()
    messaging.publish("ns:t", [b"plain"])
    publish(messaging, b"tx", transaction=5, topic="ns:t")
    messaging.store("ns:t", [b"one"], transaction=6)
    messaging.store("ns:t", [b"two"], transaction=6, attempt=b"try")
    response = publish(messaging, transaction=6, topic="ns:t")
    messaging.publish("ns:t", [Outgoing(b"late", expire_after_s=5)])
    rows = site.table.scan(MESSAGE)
    prefix = b"ns:t:".hex() + "00000001" + now
    assert [key.hex() for key, _ in rows] == [f"{prefix}000{n}" for n in range(4)]
    values = [value.hex() for _, value in rows]
    assert values[0] == "00" + b"plain".hex()
    assert values[1] == "01" + "0000000000000005" + b"tx".hex()
    receipts = "0000000001" + "0300000001" + b"try".hex()
    more = "01" + "72" + f"{len(receipts) // 2:08x}" + receipts
    assert values[2] == "06" + "0000000000000006" + more
    expiry = (site.clock() + 5_000).to_bytes(8, "big").hex()
    assert values[3] == "04" + "01" + "65" + "00000008" + expiry + b"late".hex()
    stored = site.table.scan(payload_prefix(b"ns:t:\0\0\0\1", 6))
    assert [key.hex() for key, _ in stored] == [f"{now}000{n}" for n in range(2)]
    assert stored[0][1].hex() == "00" + b"one".hex()
    assert stored[1][1].hex() == "04" + "01" + "61" + "00000003" + b"trytwo".hex()
    assert payload_prefix(b"ns:t:\0\0\0\1", 6).hex() == (
        "7a" + b"ns:t:".hex() + "00000001" + "0000000000000006"
    )
    messaging.rollback("ns:t", response)
    value = site.table.scan(MESSAGE)[2][1]
    assert value.hex() == "06" + "fffffffffffffffa" + more


def test_rows_of_others_without_more_columns_are_read(site: Site) -> None:
    """A reference without `r` stands for all rows of its pointer."""
    messaging, table = site.messaging, site.table
    messaging.create_topic("t")
    prefix = b"default:t:\0\0\0\1"
    time = (site.clock() - 1).to_bytes(8, "big")
    messaging.publish("t", [b"later"])
    pointer = (7).to_bytes(8, "big")
    table.submit(
        [
            (MESSAGE + prefix + time + b"\0\0", b"\2" + pointer),
            (MESSAGE + prefix + time + b"\0\1", b"\1" + pointer + b"tx"),
            (MESSAGE + prefix + time + b"\0\2", b"\0plain"),
            (payload_prefix(prefix, 7) + time + b"\0\0", b"\0one"),
            (payload_prefix(prefix, 7) + time + b"\0\1", value_head(None) + b"two"),
            (
                payload_prefix(prefix, 7) + time + b"\0\2",
                value_head(None, more={ATTEMPT: b"x", b"z": b"unknown"}) + b"three",
            ),
        ]
    )()
    found = [message.payload for message in messaging.poll("t")]
    assert found == [b"one", b"two", b"three", b"tx", b"plain", b"later"]


@settings(deadline=None)
@given(st.none() | pointers, st.none() | st.binary(max_size=300), columns)
def test_a_value_is_what_its_columns_say(
    pointer: int | None, payload: bytes | None, more: dict[bytes, bytes]
) -> None:
    if payload is None and pointer is None:
        return
    head = value_head(pointer, reference=payload is None, more=more)
    value = head + (payload or b"")
    assert decode(value) == Columns(pointer, payload, more)
    assert list(decode(value).more) == list(more)
    assert pointer_of(value) == pointer
    if pointer is None:
        return
    for negative in (negated(value), negated(negated(value))):
        assert decode(negative) == Columns(-pointer, payload, more)
        assert len(negative) == len(value)


@settings(deadline=None)
@given(st.none() | pointers, columns.filter(bool), st.integers(0, 400))
def test_a_value_that_is_cut_off_is_noticed(
    pointer: int | None, more: dict[bytes, bytes], at: int
) -> None:
    value = value_head(pointer, more=more)
    if at < len(value):
        with pytest.raises(StoreCorrupted):
            decode(value[:at])


@pytest.mark.parametrize("tag", [3, 7, 8, 9, 16, 255])
def test_an_unknown_tag_is_noticed(tag: int) -> None:
    with pytest.raises(StoreCorrupted):
        decode(bytes([tag]) + bytes(30))


@settings(deadline=None)
@given(
    st.dictionaries(st.binary(max_size=16), st.integers(0, 2**32 - 1), max_size=5),
    times,
)
def test_receipts_and_expiry_are_what_their_bytes_say(
    counts: dict[bytes, int], time_ms: int
) -> None:
    data = encode_receipts(counts)
    assert decode_receipts(data) == counts
    assert list(decode_receipts(data)) == list(counts)
    assert decode_expiry(encode_expiry(time_ms)) == time_ms
    assert encode_expiry(time_ms) == struct.pack(">q", time_ms)


rows = st.lists(
    st.tuples(
        st.sampled_from(["plain", "tx", "reference"]),
        st.binary(max_size=20),
        columns,
        pointers,
    ),
    max_size=8,
)


@settings(deadline=None)
@given(rows, st.sampled_from([None, "plain", "tx", "reference"]), st.booleans())
def test_a_block_is_what_its_rows_say(
    described: list[tuple[str, bytes, dict[bytes, bytes], int]],
    only: str | None,
    simple: bool,
) -> None:
    written, expected = [], []
    for number, (kind, payload, found, pointer) in enumerate(described):
        kind, more = only or kind, {} if simple else found
        head = value_head(
            None if kind == "plain" else pointer,
            reference=kind == "reference",
            more=more,
        )
        key = MessageId.of(number).row_key
        written.append((key, head + (b"" if kind == "reference" else payload)))
        expected.append(decode(written[-1][1]))
    block = decode_block(written)
    assert len(block) == len(written)
    assert list(block.keys) == [key for key, _ in written]
    known = block.pointers or [None] * len(block)
    assert list(known) == [found.pointer for found in expected]
    assert block.size_bytes == sum(len(value) for _, value in written)
    for at, row in enumerate(expected):
        message = block.message(at)
        assert (message and message.payload) == row.payload
        assert message is None or message.id.row_key == block.keys[at]
        deciding = {EXPIRY, RECEIPTS} & row.more.keys()
        assert block.more.get(at, {}) == {name: row.more[name] for name in deciding}
        if message is not None:
            assert message.key == row.more.get(KEY)
            assert message.packed_headers == row.more.get(HEADERS, b"")
    assert not block.more.keys() - range(len(block))


label_keys = st.binary(max_size=400)


@settings(deadline=None)
@given(
    st.lists(st.tuples(label_keys, st.binary(max_size=20)), min_size=1, max_size=8),
    st.none() | pointers,
)
def test_rows_with_a_key_decode_at_once_to_what_each_of_them_says(
    described: list[tuple[bytes, bytes]], pointer: int | None
) -> None:
    values = [*keyed_values(*zip(*described, strict=True), pointer=pointer)]
    each = [decode(value) for value in values]
    assert each == [Columns(pointer, data, {KEY: key}) for key, data in described]
    found = decode_keyed(values)
    assert found is not None
    assert found.keys == [key for key, _ in described]
    assert found.payloads == [payload for _, payload in described]
    assert found.pointers == (None if pointer is None else [pointer] * len(values))


@settings(deadline=None)
@given(st.lists(label_keys, min_size=1, max_size=4), st.integers(0, 400), pointers)
def test_rows_with_a_key_that_are_cut_off_are_noticed(
    described: list[bytes], at: int, pointer: int
) -> None:
    payloads = [b""] * len(described)
    values = [*keyed_values(described, payloads, pointer=pointer)]
    if at < len(values[-1]):
        values[-1] = values[-1][:at]
        if at:
            assert decode_keyed(values) is None
        with pytest.raises((StoreCorrupted, IndexError)):
            decode_block([(bytes(10), value) for value in values])


@settings(deadline=None)
@given(st.none() | pointers, columns, label_keys)
def test_rows_that_have_more_than_a_key_are_not_decoded_at_once(
    pointer: int | None, more: dict[bytes, bytes], key: bytes
) -> None:
    plain = value_head(pointer, more={KEY: key})
    other = value_head(pointer, more=more)
    assert decode_keyed([other, plain]) is None or [*more] == [KEY]
    assert decode_keyed([plain, other]) is None or [*more] == [KEY]


def test_the_columns_of_a_row_rise_so_that_every_store_writes_the_same() -> None:
    names = [ATTEMPT, EXPIRY, HEADERS, RECEIPTS, KEY]
    assert names == sorted(names) == [b"a", b"e", b"h", b"r", b"y"]


def test_the_names_of_our_columns() -> None:
    assert (EXPIRY, ATTEMPT, RECEIPTS) == (b"e", b"a", b"r")
