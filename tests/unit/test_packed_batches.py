"""Compressed batches as values: what is packed comes out again, and damage is told."""

import gzip
import struct
import sys
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txaware.errors import BadRequest, MissingExtra
from txaware.model.compression import (
    COMPRESSIONS,
    MOST_PACKED_MESSAGES,
    MOST_UNPACKED_BYTES,
    Packed,
    compression_of,
)
from txaware.model.messages import Outgoing
from txaware.model.packed_batches import pack, unpack
from txaware.model.requests import Payload, Payloads, checked_payloads

GZIP = compression_of("gzip")
NAMES = [one.name for one in COMPRESSIONS]

headers = st.none() | st.dictionaries(st.text(min_size=1, max_size=3), st.binary())
said = st.builds(
    Outgoing, st.binary(), key=st.none() | st.binary(max_size=300), headers=headers
)
listed = st.lists(st.binary() | said, min_size=1, max_size=20)


def payloads_of(messages: list[Payload]) -> Payloads:
    return checked_payloads(messages, limit_bytes=sys.maxsize)


def packed(unpacked: bytes, **changed: Any) -> Packed:
    data = gzip.compress(unpacked, mtime=0)
    made = Packed("gzip", 1, len(unpacked), data)
    return attrs.evolve(made, **changed)


@pytest.mark.parametrize("name", NAMES)
@given(listed)
def test_what_was_packed_comes_out_again(name: str, messages: list[Payload]) -> None:
    # Alike, so that they get smaller.
    given_ = payloads_of(messages * 50)
    made = pack(given_, compression_of(name))
    if made is None:
        return
    found = unpack(made)
    assert found.messages() == given_.messages()
    assert found.size_bytes == given_.size_bytes
    assert found.packed is made
    assert pack(given_, compression_of(name)) == made


def test_what_gets_no_smaller_goes_as_it_is() -> None:
    assert pack(payloads_of([b"a"]), GZIP) is None
    assert pack(payloads_of([bytes(range(256))]), GZIP) is None


def test_what_expires_by_itself_is_not_packed() -> None:
    messages = [Outgoing(b"a" * 1000, expire_after_s=1.0)]
    assert pack(payloads_of([*messages]), GZIP) is None


def test_more_than_a_batch_may_have_is_not_packed() -> None:
    assert pack(payloads_of([b"a"] * MOST_PACKED_MESSAGES), GZIP) is not None
    assert pack(payloads_of([b"a"] * (MOST_PACKED_MESSAGES + 1)), GZIP) is None
    assert pack(payloads_of([bytes(MOST_UNPACKED_BYTES - 100)]), GZIP) is not None
    assert pack(payloads_of([bytes(MOST_UNPACKED_BYTES)]), GZIP) is None


@given(st.binary(max_size=40), st.integers(1, 5))
def test_any_bytes_are_messages_or_a_bad_request(data: bytes, count: int) -> None:
    try:
        found = unpack(packed(data + b"\0", count=count))
    except BadRequest:
        return
    assert len(found) == count


SIZE = struct.pack(">I", 1)
WRONG = {
    "no messages": packed(b"\0", count=0),
    "too many messages": packed(b"\0", count=MOST_PACKED_MESSAGES + 1),
    "no bytes": packed(b"", size_bytes=0),
    "too many bytes": packed(b"\0", size_bytes=MOST_UNPACKED_BYTES + 1),
    "less than it says": packed(SIZE + b"\0a", size_bytes=7),
    "more than it says": packed(SIZE + b"\0a", size_bytes=5),
    "no gzip": packed(SIZE + b"\0a", data=b"a"),
    "cut off": packed(SIZE + b"\0a", data=gzip.compress(SIZE + b"\0a")[:-1]),
    "bytes behind": packed(SIZE + b"\0a", data=gzip.compress(SIZE + b"\0a") + b"x"),
    "another way": packed(SIZE + b"\0a", compression="lz4"),
    "cut off before the sizes": packed(SIZE[:3]),
    "cut off before the payload": packed(SIZE + b"\0"),
    "a payload too many": packed(SIZE + b"\0ab"),
    "unknown columns": packed(SIZE + b"\4a"),
    "a long key": packed(SIZE + b"\1" + b"\x04\x02" + b"a" + b"k" * 1025),
    "wrong headers": packed(SIZE + b"\2" + SIZE + b"ah"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_one_sentence(what: str) -> None:
    with pytest.raises(BadRequest) as raised:
        unpack(WRONG[what])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_is_not_unpacked(name: str) -> None:
    """No more bytes are made than the batch is said to have, and one."""
    compression = compression_of(name)
    bomb = compression.compress(bytes(1 << 26))
    assert len(compression.expand(bomb, 1000)) == 1001
    with pytest.raises(BadRequest, match="1000 bytes unpacked, and has more"):
        unpack(Packed(name, 1, 1000, bomb))


def test_a_name_that_is_not_known_is_told_with_those_that_are() -> None:
    for wrong in ("lz4", "", 1, b"gzip"):
        with pytest.raises(BadRequest, match="compression is one of gzip, zstd, or No"):
            compression_of(wrong)


def test_a_missing_package_is_told_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"zstandard: pip install '\.\[zstd\]' in"):
        compression_of("zstd")
    assert compression_of("gzip").name == "gzip"
