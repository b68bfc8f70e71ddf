"""Kinds of rows: what is registered is checked, copied, saved, cleaned and shown."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import txaware
from coordinator.transaction import Transaction
from tests.support.cli_runs import run
from tests.support.messagings import Site, commit, table_of
from txaware.messaging import Messaging
from txaware.model.interfaces import OrderedTable, Row
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import backup_chunks, restore, save
from txaware.store.columns import negated, value_head
from txaware.store.keys import pointer_key
from txaware.store.kinds import KINDS
from txaware.store.row_kinds import RowKind
from txaware.store.versioned_rows import (
    Codec,
    VersionedKind,
    VersionedRows,
    without_pointer,
)

SETTINGS = Settings(janitor_interval_s=0)


def decode_color(data: bytes) -> str:
    if data not in (b"red", b"blue", b"green"):
        raise ValueError(f"{data!r} is no color")
    return data.decode()


COLORS = VersionedKind[int, str](
    name="colors",
    prefix=b"c",
    key=Codec(lambda n: n.to_bytes(2, "big"), lambda data: int.from_bytes(data, "big")),
    value=Codec(str.encode, decode_color),
    noun="color",
    owner=lambda number: f"color {number}",
    kept_s=lambda number, _: 60 if number == 9 else None,
)
PLAIN = RowKind(name="plain things", prefix=b"x", decode=decode_color)


@pytest.fixture
def messaging(durable: Site) -> Iterator[Messaging]:
    for kind in (COLORS, PLAIN):
        KINDS.add(kind)
    yield durable.messaging
    for kind in (COLORS, PLAIN):
        KINDS.remove(kind)


def paint(messaging: Messaging, number: int, color: str | None) -> Transaction:
    tx = messaging.coordinator.start_short()
    write = COLORS.write(number, tx.transaction_id, color)
    table_of(messaging).submit([write, (b"xnumber", b"red")])()
    return tx


def painted(messaging: Messaging, number: int, *colors: str | None) -> None:
    for color in colors:
        commit(messaging, paint(messaging, number, color))


def versions(messaging: Messaging, number: int) -> list[str | None]:
    """The newest first, as they stand."""
    prefix = COLORS.prefix_of(number)
    found = VersionedRows(table_of(messaging)).newest_first(prefix)
    return [COLORS.read(version) for version in found]


def test_a_made_up_kind_is_checked_and_shown(
    durable: Site, messaging: Messaging
) -> None:
    painted(messaging, 1, "red", "blue")
    counts = messaging.check().counts
    assert (counts["colors"], counts["plain things"]) == (2, 1)
    key, (red, gone) = COLORS.key_of(2, 5), (value_head(5) + b"red", value_head(6))
    table_of(messaging).submit(
        [
            (key, gone + b"red"),  # of another transaction than its key
            (COLORS.key_of(3, 5), value_head(5) + b"mauve"),
            (b"c" + b"a" + pointer_key(5), red),  # a name of one byte
            (b"xother", b"mauve"),
        ]
    )()
    durable.close()
    shown = run("--url", f"leveldb:{durable.directory}", "check", code=1)
    for words in (
        *("colors", "plain things", "no color has that key"),
        *("the key names transaction 5, and the row 6", "b'mauve' is no color"),
    ):
        assert words in shown.output
    assert "4 problems" in shown.output


def test_a_made_up_kind_is_cleaned_up(durable: Site, messaging: Messaging) -> None:
    painted(messaging, 1, "red", "blue", "green")
    painted(messaging, 2, "red", None)
    painted(messaging, 9, "red")
    messaging.coordinator.invalidate(paint(messaging, 1, "red"))
    cleaned = messaging.clean_up()
    assert (cleaned.table_versions, cleaned.marked_rows) == (2 + 1 + 2, 1)
    assert versions(messaging, 1) == ["green"]
    assert versions(messaging, 2) == []
    assert versions(messaging, 9) == ["red"]
    durable.clock.advance_s(120)
    assert messaging.clean_up().table_versions == 1
    assert versions(messaging, 9) == []


def test_a_made_up_kind_is_copied_as_the_snapshot_sees_it(
    durable: Site, messaging: Messaging
) -> None:
    painted(messaging, 1, "red")
    messaging.coordinator.invalidate(paint(messaging, 2, "blue"))
    paint(messaging, 3, "green")
    rows = dict(table_of(messaging).scan(b"c"))
    seen = COLORS.prefix_of(1)[1:]  # what is open when the store is closed is lost
    expected = {
        key: value if key.startswith(seen) else negated(value)
        for key, value in rows.items()
    }
    durable.close()
    target = f"leveldb:{durable.directory.parent / 'copy'}"
    source = f"leveldb:{durable.directory}"
    copied = txaware.copy(source, target, settings=SETTINGS, clock_ms=durable.clock)
    assert (copied.rolled_back_rows, copied.left_out_rows) == (2, 0)
    with txaware.connect(target, settings=SETTINGS, clock_ms=durable.clock) as copy:
        assert dict(table_of(copy).scan(b"c")) == expected
        assert versions(copy, 1) == ["red"]
        assert dict(table_of(copy).scan(b"x")) == {b"number": b"red"}


def test_a_made_up_kind_is_backed_up_as_a_snapshot_sees_it(
    durable: Site, messaging: Messaging
) -> None:
    painted(messaging, 1, "red")
    seen_by = messaging.coordinator.snapshot()
    paint(messaging, 1, "blue")
    file = io.BytesIO()
    save(backup_chunks(table_of(messaging), seen_by), file)
    directory: Path = durable.directory.parent / "restored"
    restore(io.BytesIO(file.getvalue()), directory, SETTINGS, clock_ms=durable.clock)
    report = check_directory(directory, SETTINGS)
    assert (report.is_clean, report.counts["colors"]) == (True, 2)
    url = f"leveldb:{directory}"
    with txaware.connect(url, settings=SETTINGS, clock_ms=durable.clock) as found:
        judge = found.coordinator.snapshot()
        pointers = VersionedRows(table_of(found)).newest_first(COLORS.prefix_of(1))
        assert [version[1] >> 7 for version in pointers] == [1, 0]  # one is negative
        assert judge.transaction_id


def test_the_first_row_of_each_name_is_read_in_few_looks(
    durable: Site, messaging: Messaging
) -> None:
    table = table_of(messaging)
    many = {number: [*range(1, 50)] for number in (0, 7)}
    few = {number: [5] for number in range(100, 400)}
    rows = [
        COLORS.write(number, pointer, "red")
        for number, pointers in (many | few).items()
        for pointer in pointers
    ]
    table.submit(rows)()
    looks: list[int] = []

    class Counted:
        def scan(self, prefix: bytes, **options: Any) -> list[Row]:
            found = table.scan(prefix, **options)
            looks.append(len(found))
            return found

    reader = VersionedRows(cast(OrderedTable, Counted()))
    found = [key for key, _ in reader.first_of_each(COLORS.prefix, without_pointer)]
    assert found == [COLORS.key_of(n, p[0]) for n, p in (many | few).items()]
    assert len(looks) < 20
    assert sum(looks) < 2 * len(found)
    before = COLORS.prefix_of(103)[len(COLORS.prefix) :]
    parts = reader.first_of_each(COLORS.prefix, without_pointer, stop=before)
    assert [key for key, _ in parts] == found[:5]


def test_every_kind_of_row_is_described() -> None:
    text = Path("docs/format.md").read_text()
    for kind in KINDS:
        assert f"`{kind.prefix[:1].decode()}" in text, kind
