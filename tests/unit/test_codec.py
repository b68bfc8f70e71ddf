"""The bytes of Tephra's TransactionCodec, both ways."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.codec import decode, encode
from coordinator.errors import BadRequest, MalformedTransaction
from coordinator.transaction import (
    NO_POINTER,
    Transaction,
    TransactionType,
    VisibilityLevel,
)
from tests.support.strategies import transactions

GOLDEN = bytes.fromhex(
    "0a000100000000000000030a000200000000000000030f00030a0000000100000000000000020f0004"
    "0a000000000a00050000000000000000080006000000010a000700000000000000030f00080a000000"
    "00080009"
    "0000000100"
)
GOLDEN_TRANSACTION = Transaction(3, 3, invalids=[2], first_short_in_progress=0)

unknown_values = st.one_of(
    st.binary(min_size=1, max_size=1).map(lambda b: (2, b)),
    st.binary(min_size=1, max_size=1).map(lambda b: (3, b)),
    st.binary(min_size=8, max_size=8).map(lambda b: (4, b)),
    st.binary(min_size=2, max_size=2).map(lambda b: (6, b)),
    st.binary(min_size=4, max_size=4).map(lambda b: (8, b)),
    st.binary(min_size=8, max_size=8).map(lambda b: (10, b)),
    st.binary(max_size=9).map(lambda b: (11, struct.pack(">i", len(b)) + b)),
)


def nested(
    inner: st.SearchStrategy[tuple[int, bytes]],
) -> st.SearchStrategy[tuple[int, bytes]]:
    fields = st.lists(inner, max_size=3).map(
        lambda values: (
            12,
            b"".join(
                bytes([kind]) + struct.pack(">H", number) + value
                for number, (kind, value) in enumerate(values)
            )
            + b"\0",
        )
    )
    elements = st.tuples(st.sampled_from([14, 15]), inner, st.integers(0, 3)).map(
        lambda e: (e[0], struct.pack(">Bi", e[1][0], e[2]) + e[1][1] * e[2])
    )
    pairs = st.tuples(inner, inner, st.integers(0, 3)).map(
        lambda p: (
            13,
            struct.pack(">BBi", p[0][0], p[1][0], p[2]) + (p[0][1] + p[1][1]) * p[2],
        )
    )
    return st.one_of(fields, elements, pairs)


any_value = st.recursive(unknown_values, nested, max_leaves=4)


def test_scenario_15_golden_bytes_both_ways() -> None:
    assert encode(GOLDEN_TRANSACTION) == GOLDEN
    assert decode(GOLDEN) == GOLDEN_TRANSACTION


@given(transactions)
def test_what_is_encoded_is_decoded_equal(tx: Transaction) -> None:
    assert decode(encode(tx)) == tx
    assert encode(decode(encode(tx))) == encode(tx)
    counted = (tx.invalids, tx.in_progress, tx.checkpoint_write_pointers)
    assert len(encode(tx)) == 83 + 8 * sum(map(len, counted))


@given(transactions, st.data())
def test_every_truncation_is_a_clear_error(
    tx: Transaction, data: st.DataObject
) -> None:
    whole = encode(tx)
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    with pytest.raises(MalformedTransaction, match=r"transaction ends too early|no "):
        decode(whole[:cut])


@given(st.integers(min_value=10, max_value=65535), any_value)
def test_unknown_fields_of_any_type_are_skipped(
    number: int, value: tuple[int, bytes]
) -> None:
    extra = bytes([value[0]]) + struct.pack(">H", number) + value[1]
    assert decode(GOLDEN[:-1] + extra + b"\0") == GOLDEN_TRANSACTION
    assert decode(extra + GOLDEN) == GOLDEN_TRANSACTION


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_and_never_anything_else(data: bytes) -> None:
    with suppress(MalformedTransaction):
        decode(data)


@given(st.integers(min_value=0, max_value=90), st.integers(0, 255))
def test_a_changed_byte_is_a_transaction_or_a_clear_error(at: int, byte: int) -> None:
    changed = bytearray(GOLDEN)
    changed[at] = byte
    with suppress(MalformedTransaction):
        decode(bytes(changed))


def test_missing_lists_and_level_are_filled_in_as_tephra_does() -> None:
    three = b"".join(
        b"\x0a" + struct.pack(">Hq", field, value)
        for field, value in ((1, 7), (2, 5), (7, 7))
    )
    assert decode(three + b"\0") == Transaction(
        7, 5, first_short_in_progress=0, type=TransactionType.LONG
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends too early, after 0 bytes"),
        (b"\0", r"has no id \(field 1\)"),
        (GOLDEN + b"x", "1 bytes follow a transaction of 91 bytes"),
        (GOLDEN[:-8] + b"\x08\x00\x09\x00\x00\x00\x07\x00", "level 7 is none of"),
        (b"\x0f\x00\x03\x0a\xff\xff\xff\xff", "a list of -1 elements of type 10"),
        (b"\x0f\x00\x03\x0b\x00\x00\x00\x01", "a list of 1 elements of type 11"),
        (b"\x0f\x00\x03\x0a\x7f\xff\xff\xff", "ends too early"),
        (b"\x0b\x00\x0a\xff\xff\xff\xff", "a length of -1"),
        (b"\x63\x00\x0a", "99 is no Thrift type"),
        (b"\x0c\x00\x0a" * 40, "nested deeper than 32"),
        (b"hello world", "no Thrift type"),
    ],
)
def test_errors_say_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(MalformedTransaction, match=says) as caught:
        decode(data)
    assert isinstance(caught.value, BadRequest)


def test_a_list_of_fifty_thousand_goes_both_ways() -> None:
    many = Transaction(
        2**60,
        2**59,
        invalids=range(1, 50_001),
        in_progress=range(60_000, 110_000),
        first_short_in_progress=NO_POINTER,
        visibility_level=VisibilityLevel.SNAPSHOT_ALL,
    )
    assert decode(encode(many)) == many
    assert decode(encode(many)).is_visible(50_001)
    assert not decode(encode(many)).is_visible(50_000)
