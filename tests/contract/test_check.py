"""A check of a data directory: clean where all is well, and changes nothing."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

import txaware
from coordinator import EmbeddedCoordinator
from tests.support.check_setting import (
    LONG_AGO_MS,
    NOW_MS,
    POINTER,
    PREFIX,
    REFERENCE,
    ROW,
    SETTINGS,
    STORED,
    Write,
    as_after_a_crash,
    checked,
    data,
    hashes,
    invalid_rows,
    number,
    payload_keys,
    sound,
    write,
)
from tests.support.messagings import table_of
from txaware.cli.root import command
from txaware.errors import Unavailable
from txaware.model.messages import MessageId
from txaware.model.topics import Topic, TopicName, data_prefix
from txaware.service.check.checking import check, check_directory
from txaware.service.check.findings import LISTED
from txaware.store.columns import RECEIPTS, encode_receipts, value_head
from txaware.store.keys import MARK, MESSAGE, TOPIC, row_key
from txaware.store.leveldb_store import Database
from txaware.store.memory import MemoryTable

__all__ = ["data", "sound"]


def test_a_sound_directory_is_clean(data: Path) -> None:
    report = checked(data)
    assert report.problems == ()
    assert report.is_clean
    assert report.needed == {}
    counts = report.counts
    assert counts["topics"] == 2
    assert counts["messages"] == 1002
    assert counts["references"] == 1
    assert counts["payloads"] == 20
    assert counts["positions"] == 1
    assert counts["rolled back"] == 1
    assert counts["rows of older generations"] == 1
    assert "payloads without a reference" not in counts


def test_a_new_directory_is_clean(tmp_path: Path) -> None:
    txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=SETTINGS).close()
    assert checked(tmp_path / "data").problems == ()


def test_nothing_in_the_directory_changes(data: Path) -> None:
    assert any(data.rglob("*.ldb"))
    before = hashes(data)
    assert checked(data).is_clean
    assert hashes(data) == before


def test_nothing_changes_while_somebody_is_told_that_it_is_in_use(data: Path) -> None:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS):
        before = hashes(data)
        with pytest.raises(Unavailable, match="in use by process"):
            checked(data)
        assert hashes(data) == before
    assert list(data.parent.iterdir()) == [data]


def test_a_directory_in_use_by_another_process_is_refused(data: Path) -> None:
    program = (
        "import sys, txaware\n"
        f"with txaware.connect('leveldb:{data}'):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(Unavailable, match=f"process {other.pid}"):
            checked(data)
    assert checked(data).is_clean


def test_files_that_cannot_be_linked_are_copied(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr("os.link", refuse)
    before = hashes(data)
    assert checked(data).counts["messages"] == 1002
    assert hashes(data) == before


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no data directory"):
        checked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_references_that_nobody_reads_need_no_rows(data: Path) -> None:
    rolled_back = value_head(
        -POINTER, reference=True, more={RECEIPTS: encode_receipts({b"": 3})}
    )
    foreign = value_head(POINTER, reference=True)
    expired = MESSAGE + PREFIX + row_key(LONG_AGO_MS)
    older = MESSAGE + data_prefix(TopicName("deleted", "sales"), 1) + row_key(NOW_MS)
    first, second = row_key(NOW_MS, 1), row_key(NOW_MS, 2)
    writes: list[Write] = [
        (MESSAGE + PREFIX + first, rolled_back),
        (MESSAGE + PREFIX + second, foreign),
        (expired, REFERENCE),
        (older, REFERENCE),
    ]
    write(data, writes)
    assert checked(data).problems == ()


def test_what_a_transaction_named_that_never_committed_need_not_be_there(
    data: Path, tmp_path: Path
) -> None:
    """Its reference was synced, what it had stored was still held at the crash."""
    small = attrs.evolve(SETTINGS, sync_limit_bytes=1000)
    url = f"leveldb:{data}"
    with txaware.connect(url, settings=small) as messaging:
        tx = messaging.coordinator.start_short()
        receipt = messaging.store("orders", [b"x" * 940], transaction=tx)
        messaging.publish("orders", [], transaction=tx, receipts=[receipt])
        assert messaging.check().problems == ()
        crashed = as_after_a_crash(data, tmp_path / "crashed")
        messaging.coordinator.invalidate(tx)
    found = checked(crashed)
    assert found.counts["references"] == 2, "the reference is on disk"
    assert found.problems == ()
    with txaware.connect(f"leveldb:{crashed}", settings=small) as messaging:
        assert list(messaging.coordinator.snapshot().invalids) == [tx.transaction_id]
        assert messaging.check().problems == ()
    assert checked(crashed).problems == ()


def test_a_group_may_be_anywhere(data: Path) -> None:
    """A position is what its group says; nobody gives out that time for it."""
    far = MessageId.of(NOW_MS + 10**9)
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        with messaging.transaction() as tx:
            messaging.save_position("g", "orders", far, transaction=tx.transaction)
        assert messaging.check().problems == ()
        messaging.clean_up()
        assert messaging.position("g", "orders") == far
    assert checked(data).problems == ()


def test_a_store_whose_first_opening_was_killed_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first batch, or between any of those with which it begins."""
    killed: list[Path] = []
    batch = Database.batch

    def copied(database: Database, number: int) -> Any:
        killed.append(tmp_path / f"killed {len(killed)}")
        as_after_a_crash(tmp_path / "data", killed[-1])
        return batch(database, number)

    monkeypatch.setattr(Database, "batch", copied)
    with txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=SETTINGS):
        monkeypatch.undo()
    assert len(killed) == 3, "the format, the coordinator's start, whose it is"
    unborn = Path(shutil.copytree(killed[0], tmp_path / "unborn"))
    for path in (unborn / "rows").iterdir():
        if path.name not in ("LOG", "LOCK", "MANIFEST-000002"):
            path.unlink()
    for found in (*killed, unborn):
        assert checked(found).problems == (), found
        assert not checked(found).counts.get("topics")
        with txaware.connect(f"leveldb:{found}", settings=SETTINGS) as messaging:
            messaging.create_topic("a")
        assert checked(found).is_clean


def test_payloads_without_a_reference_are_counted_and_no_problem(data: Path) -> None:
    write(data, [(key, STORED) for key in payload_keys(3)])
    report = checked(data)
    assert report.is_clean
    assert report.counts["payloads without a reference"] == 3


def test_rows_of_removed_payloads_may_have_a_mark(data: Path) -> None:
    mark = b"d" + encode_receipts({b"": 3})
    write(data, [(MARK + PREFIX + number(POINTER), mark)])
    assert checked(data).problems == ()


def test_it_tells_which_invalid_transactions_the_data_needs(data: Path) -> None:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        needed = invalid_rows(messaging)
    report = checked(data)
    assert report.is_clean
    assert report.needed == needed
    assert report.least_needed == needed["orders"]
    assert report.counts["invalid and not marked"] == 2


def test_only_the_first_problems_are_listed_and_all_are_counted(data: Path) -> None:
    write(data, [(b"x%d" % n, b"") for n in range(LISTED + 50)])
    report = checked(data)
    assert len(report.problems) == LISTED
    assert report.problem_count == LISTED + 50


def test_progress_rises_to_all_rows(data: Path) -> None:
    write(data, [(MESSAGE + PREFIX + row_key(n), b"\0x" * 50) for n in range(20_000)])
    seen: list[tuple[int, float | None]] = []
    check_directory(
        data, SETTINGS, progress=lambda rows, part: seen.append((rows, part))
    )
    rows = [rows for rows, _ in seen]
    parts = [part for _, part in seen if part is not None]
    assert rows == sorted(rows)
    assert rows[-1] > 21_000
    assert parts == sorted(parts)
    assert 0 <= parts[0] <= parts[-1] <= 1


def test_data_of_another_coordinator_is_clean_and_may_have_any_pointer(
    tmp_path: Path,
) -> None:
    url = f"leveldb:{tmp_path / 'data'}"
    with (
        EmbeddedCoordinator() as coordinator,
        txaware.connect(url, coordinator=coordinator, settings=SETTINGS) as messaging,
    ):
        messaging.create_topic("t")
        with messaging.transaction():
            messaging.publisher("t", buffer_limit_bytes=50).publish_all([b"x" * 40] * 3)
        messaging.publish("t", [b"x"], transaction=1)
        messaging.publish("t", [b"x"], transaction=2**62)
    report = checked(tmp_path / "data")
    assert report.problems == ()
    assert report.counts["marks"] == 1
    assert report.counts["payloads"] == 3


def test_an_open_table_is_checked_while_it_is_used(tmp_path: Path) -> None:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=SETTINGS) as using:
        using.create_topic("t")
        table: Any = table_of(using)
        until_s = time.monotonic() + 0.5
        checks = 0
        while time.monotonic() < until_s or not checks:
            with using.transaction():
                using.publisher("t", buffer_limit_bytes=50).publish_all([b"x" * 40] * 3)
            tx = using.coordinator.start_short()
            using.publish("t", [b"held"], transaction=tx)
            report = check(table)
            using.coordinator.invalidate(tx)
            assert report.problems == ()
            checks += 1
        assert report.counts["references"] == checks


def test_a_table_in_memory_has_no_journal_and_no_saved_time() -> None:
    table = MemoryTable()
    table.submit([(TOPIC + b"default:t:", Topic(TopicName("t"), 1).to_bytes())])()
    table.submit([(MESSAGE + data_prefix(TopicName("t"), 1) + bytes(10), b"\0x")])()
    assert check(table, durable=False).problems == ()
    table.submit([(b"\xff", b""), (ROW, b"\0x")])()
    kinds = [problem.kind for problem in check(table, durable=False).problems]
    assert kinds == ["topic", "key"]


def test_the_command_ends_with_0_where_all_is_well(data: Path) -> None:
    done = CliRunner().invoke(command, ["--url", f"leveldb:{data}", "check"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "clean"
    assert "messages" in done.stdout


def test_the_command_ends_with_1_and_says_what_is_wrong(data: Path) -> None:
    write(data, [(b"x1", b"")])
    arguments = ["--url", f"leveldb:{data}", "check"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-2:] == [
        "key 7831: no table has such keys",
        "1 problem",
    ]
    found = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert found["clean"] is False
    assert found["problems"] == [
        {"kind": "key", "key": "7831", "sentence": "no table has such keys"}
    ]


def test_the_command_says_that_a_directory_is_in_use(data: Path) -> None:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS):
        done = CliRunner().invoke(command, ["--url", f"leveldb:{data}", "check"])
    assert done.exit_code == 3
    assert "in use by process" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_checks_directories_only() -> None:
    done = CliRunner().invoke(command, ["--url", "memory:", "check"])
    assert done.exit_code == 2
    assert "leveldb:PATH" in done.stderr
