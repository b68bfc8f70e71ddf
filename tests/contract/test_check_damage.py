"""Every kind of damage in a data directory, planted and found."""

from pathlib import Path

import pytest

from coordinator.embedded.records import Invalidated, Lost, Reached, Reserved, Started
from tests.support.check_setting import (
    NOW_MS,
    POINTER,
    POSITION_KEY,
    PREFIX,
    REFERENCE,
    ROW,
    STORED,
    Write,
    checked,
    data,
    hashes,
    journal,
    number,
    payload_keys,
    sound,
    write,
)
from txaware.model.topics import TableName, Topic, TopicName
from txaware.store.batch_writer import TIME
from txaware.store.columns import EXPIRY, RECEIPTS, encode_receipts, value_head
from txaware.store.journaled_table import FORMAT
from txaware.store.keys import (
    COORDINATOR,
    JOURNAL,
    MARK,
    MESSAGE,
    PAYLOAD,
    POSITION,
    TABLE,
    TOPIC,
    row_key,
)
from txaware.store.kinds import USERS_ROWS

__all__ = ["data", "sound"]

ANN = USERS_ROWS.prefix_of((TableName("accounts"), b"ann"))
HALF_A_DAY = 12 * 3600 * 10**9  # in pointers; a day ahead is another's coordinator

DAMAGE: dict[str, tuple[str, list[Write]]] = {
    "a table of no name": ("key", [(b"x1", b"")]),
    "the last byte": ("key", [(b"\xffabc", b"")]),
    "no key at all": ("key", [(b"", b"")]),
    "a key without a topic": ("topic", [(MESSAGE + b"ab", b"\0x")]),
    "a key that is too long": ("topic", [(ROW + b"y", b"\0x")]),
    "a message of no topic": (
        "topic",
        [(MESSAGE + b"default:none:\0\0\0\1" + row_key(NOW_MS), b"\0x")],
    ),
    "a generation to come": (
        "generation",
        [(MESSAGE + b"default:orders:\0\0\0\2" + row_key(NOW_MS), b"\0x")],
    ),
    "generation 0": (
        "generation",
        [(MESSAGE + b"default:orders:\0\0\0\0" + row_key(NOW_MS), b"\0x")],
    ),
    "a payload of no topic": (
        "topic",
        [(PAYLOAD + b"a:b:\0\0\0\1" + number(POINTER) + row_key(NOW_MS), b"\0x")],
    ),
    "a value without a tag": ("value", [(ROW, b"")]),
    "an unknown tag": ("value", [(ROW, b"\x09x")]),
    "a pointer cut off": ("value", [(ROW, b"\1\0\0")]),
    "a column cut off": ("value", [(ROW, b"\4\1e\0\0\0\x09x")]),
    "an expiry of 3 bytes": ("value", [(ROW, b"\4\1e\0\0\0\3abc")]),
    "receipts cut off": (
        "value",
        [(ROW, value_head(POINTER, reference=True, more={RECEIPTS: b"\1\0"}))],
    ),
    "pointer 0": ("pointer", [(ROW, value_head(0) + b"x")]),
    "a pointer to come": (
        "pointer",
        [(ROW, value_head(POINTER + HALF_A_DAY) + b"x")],
    ),
    "a message to come": (
        "time",
        [(MESSAGE + PREFIX + row_key(NOW_MS + 10**7), b"\0x")],
    ),
    "a payload to come": (
        "time",
        [(PAYLOAD + PREFIX + number(POINTER) + row_key(NOW_MS + 10**7), b"\0x")],
    ),
    "a payload of nobody": (
        "pointer",
        [(PAYLOAD + PREFIX + number(0) + row_key(NOW_MS), b"\0x")],
    ),
    "a payload row without payload": (
        "value",
        [(payload_keys(1)[0], value_head(5, reference=True))],
    ),
    "a reference to nothing": ("reference", [(ROW, REFERENCE)]),
    "a reference to less": (
        "reference",
        [(ROW, REFERENCE), *((key, STORED) for key in payload_keys(1))],
    ),
    "a reference to more": (
        "reference",
        [(ROW, REFERENCE), *((key, STORED) for key in payload_keys(3))],
    ),
    "a reference to another attempt": (
        "reference",
        [(ROW, REFERENCE), *((key, b"\0x") for key in payload_keys(2))],
    ),
    "a mark of no kind": ("value", [(MARK + PREFIX + number(POINTER), b"z")]),
    "a mark cut off": ("value", [(MARK + PREFIX + number(POINTER), b"o\1\0")]),
    "a mark of no topic": ("topic", [(MARK + b"a:b:\0\0\0\1" + number(5), b"o")]),
    "a mark that says more": (
        "mark",
        [(MARK + PREFIX + number(POINTER), b"c" + encode_receipts({b"": 3}))],
    ),
    "a topic that is no JSON": ("topic", [(TOPIC + b"default:orders:", b"{")]),
    "a topic of generation 0": (
        "topic",
        [(TOPIC + b"default:new:", Topic(TopicName("new"), 0).to_bytes())],
    ),
    "a topic that lives no time": (
        "topic",
        [(TOPIC + b"default:new:", Topic(TopicName("new"), 1, ttl_s=0).to_bytes())],
    ),
    "a topic of no name": ("topic", [(TOPIC + b"default:n w:", b"{}")]),
    "a topic with more behind": (
        "topic",
        [(TOPIC + b"default:new:x", Topic(TopicName("new"), 1).to_bytes())],
    ),
    "a position of no group": (
        "key",
        [(POSITION + b"b g:default:orders:" + number(5), value_head(5) + bytes(20))],
    ),
    "a position of no topic": (
        "topic",
        [(POSITION + b"g:default:none:" + number(5), value_head(5) + bytes(20))],
    ),
    "a position of two transactions": (
        "pointer",
        [(POSITION_KEY + number(5), value_head(6) + bytes(20))],
    ),
    "a position of 19 bytes": (
        "position",
        [(POSITION_KEY + number(5), value_head(5) + bytes(19))],
    ),
    "a row of no table": ("key", [(TABLE + b"accounts" + number(5), value_head(5))]),
    "a row whose key does not end": (
        "key",
        [(TABLE + b"default:accounts:ann" + number(5), value_head(5))],
    ),
    "a row of two transactions": ("pointer", [(ANN + number(5), value_head(6))]),
    "a row of no value": ("value", [(ANN + number(5), b"\xff")]),
    "a row that expires at no time": (
        "value",
        [(ANN + number(5), value_head(5, more={EXPIRY: b"soon"}))],
    ),
    "a journal key of 3 bytes": ("journal", [(JOURNAL + b"abc", b"")]),
    "a journal of no records": ("journal", [(JOURNAL + number(1 << 40), b"\xff")]),
    "a record above what was reserved": (
        "journal",
        [journal(Reached(1, 1 << 62), number=0)],
    ),
    "an open one above what was reserved": (
        "journal",
        [journal(Started(1 << 62, 0), number=0)],
    ),
    "an invalid one above what was reserved": (
        "journal",
        [journal(Invalidated(0, [1 << 62]), number=0)],
    ),
    "lost pointers that never were": (
        "journal",
        [journal(Lost(5, 4), number=0)],
    ),
    "no saved time": ("state", [(TIME, None)]),
    "a saved time of 3 bytes": ("state", [(TIME, b"abc")]),
    "another format": ("format", [(FORMAT, b"txaware 9")]),
    "no format": ("format", [(FORMAT, None)]),
    "nothing known of the store": ("key", [(b"wother", b"")]),
    "no coordinator": ("coordinator", [(COORDINATOR, None)]),
    "an unknown coordinator": ("coordinator", [(COORDINATOR, b"?")]),
    "another coordinator": ("coordinator", [(COORDINATOR, b"other")]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(data: Path, damage: str) -> None:
    kind, writes = DAMAGE[damage]
    write(data, writes)
    before = hashes(data)
    report = checked(data)
    assert kind in {problem.kind for problem in report.problems}, report
    assert report.problem_count == len(report.problems)
    assert all(problem.sentence for problem in report.problems)
    assert hashes(data) == before


def test_an_open_transaction_that_is_also_invalid_is_found(data: Path) -> None:
    late = journal(Reserved(1 << 61), Invalidated(0, [9]), Started(9, 0), number=0)
    write(data, [late])
    assert "both open and invalid" in str(checked(data).problems[0])


def test_a_table_file_that_was_changed_is_found(data: Path) -> None:
    path = max(data.rglob("*.ldb"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    found = [problem for problem in checked(data).problems if problem.kind == "store"]
    assert found
    for problem in found:
        assert f"{path} is damaged and cannot be read" in str(problem)
        assert f"TXAWARE_ACCEPT_DAMAGE=true txaware --url leveldb:{data}" in str(
            problem
        )


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.ldb"])
def test_a_file_that_is_missing_is_found(data: Path, pattern: str) -> None:
    for path in (data / "rows").glob(pattern):
        path.unlink()
    report = checked(data)
    assert "store" in {problem.kind for problem in report.problems}
