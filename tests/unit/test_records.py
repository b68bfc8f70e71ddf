"""Records of the journal: their bytes, and what they add up to."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.embedded.file_journal import HEADER, frame, read_frames
from coordinator.embedded.history import History
from coordinator.embedded.records import (
    Aborted,
    Checkpointed,
    Closed,
    Committed,
    Invalidated,
    Lost,
    Prepared,
    Reached,
    Record,
    Reserved,
    Seen,
    Started,
    Truncated,
    decode_records,
    encode_records,
)
from coordinator.errors import JournalCorrupted

ids = st.integers(min_value=1, max_value=40)
keys = st.lists(st.binary(max_size=4), max_size=3).map(tuple)
records = st.one_of(
    st.builds(Started, ids, ids, st.booleans(), st.booleans()),
    st.builds(Checkpointed, ids, ids),
    st.builds(Committed, ids, keys),
    st.builds(Seen, ids, ids),
    st.builds(Aborted, ids),
    st.builds(Invalidated, ids, st.lists(ids, max_size=4, unique=True)),
    st.builds(Truncated, st.lists(ids, max_size=4, unique=True)),
    st.builds(Prepared, ids, ids, st.text(min_size=1), st.text(min_size=1), keys),
    st.builds(Reserved, ids),
    st.builds(Reached, ids, ids),
    st.builds(Lost, ids, ids),
    st.builds(Closed, ids),
)


def added_up(listed: list[Record]) -> dict[str, object]:
    history = History()
    for record in listed:
        history.apply(record)
    kept = {name: value for name, value in vars(history).items() if name != "_apply"}
    kept["checkpoints"] = {
        transaction_id: pointers
        for transaction_id, pointers in history.checkpoints.items()
        if transaction_id in history.open
    }
    return kept


@given(st.lists(records))
def test_records_are_read_back_as_they_were_written(listed: list[Record]) -> None:
    assert list(decode_records(encode_records(listed))) == listed


@given(st.lists(records, min_size=1), st.data())
def test_cut_records_are_a_clear_error_or_fewer_records(
    listed: list[Record], data: st.DataObject
) -> None:
    whole = encode_records(listed)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with contextlib.suppress(JournalCorrupted):
        assert len(list(decode_records(cut))) < len(listed)


def test_a_record_of_a_later_version_is_named() -> None:
    with pytest.raises(JournalCorrupted, match="of kind 99, which this version"):
        list(decode_records(b"\x63\x00\x00\x00\x00"))


@given(st.lists(records))
def test_the_shortest_history_adds_up_to_the_same(listed: list[Record]) -> None:
    history = History()
    for record in listed:
        history.apply(record)
    assert added_up(list(history.records())) == added_up(listed)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_frames_are_read_back_whole(payloads: list[bytes]) -> None:
    data = HEADER + b"".join(frame(n, p) for n, p in enumerate(payloads))
    found = read_frames(data, "journal")
    assert list(found.payloads) == payloads
    assert found.end == len(data)


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.data())
def test_a_torn_last_frame_is_cut_off(
    payloads: list[bytes], data: st.DataObject
) -> None:
    frames = [frame(n, p) for n, p in enumerate(payloads)]
    whole = HEADER + b"".join(frames[:-1])
    torn = frames[-1][: data.draw(st.integers(0, len(frames[-1]) - 1))]
    zeroed = data.draw(st.integers(0, len(torn)))
    found = read_frames(whole + bytes(zeroed) + torn[zeroed:], "journal")
    assert found.end == len(whole)
    assert list(found.payloads) == payloads[:-1]


@given(st.lists(st.binary(max_size=30), min_size=2, max_size=4), st.data())
def test_damage_before_a_whole_frame_is_an_error_that_says_where(
    payloads: list[bytes], data: st.DataObject
) -> None:
    frames = [frame(n, p) for n, p in enumerate(payloads)]
    whole = bytearray(HEADER + b"".join(frames))
    last = len(whole) - len(frames[-1])
    at = data.draw(st.integers(len(HEADER), last - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalCorrupted, match=r"journal is damaged at byte \d+"):
        read_frames(bytes(whole), "journal")


def test_a_file_that_is_no_journal_is_named() -> None:
    with pytest.raises(JournalCorrupted, match="notes is not a journal: it begins"):
        read_frames(b"dear diary", "notes")
