"""The audit log of refused calls: what it writes, how much, and what it survives."""

import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.doubles import Clock
from txaware.auth import AuditLog, Refusal, new_token
from txaware.auth.audit import CALLERS, LINES
from txaware.errors import BadRequest

REFUSAL = Refusal(
    principal="ann",
    remote="10.0.0.7",
    method="POST",
    path="/v1/namespaces/default/topics/orders/publish",
    status=403,
    reason="ann may not publish to topic orders",
)
UNKNOWN = attrs.evolve(REFUSAL, principal=None, status=401)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audit(path: Path, clock: Clock) -> Iterator[AuditLog]:
    opened = AuditLog(path, clock_ms=clock)
    yield opened
    opened.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def left_out(path: Path) -> dict[tuple[str | None, str | None], int]:
    return {
        (line["principal"], line["remote"]): line["left_out"]
        for line in lines(path)
        if "left_out" in line
    }


def test_a_refusal_is_one_json_line(audit: AuditLog, path: Path) -> None:
    audit.refused(REFUSAL)
    audit.refused(attrs.evolve(UNKNOWN, remote=None))
    first, second = lines(path)
    assert first == {
        "time": "2023-11-14T22:13:20.000Z",
        "principal": "ann",
        "remote": "10.0.0.7",
        "method": "POST",
        "path": "/v1/namespaces/default/topics/orders/publish",
        "status": 403,
        "reason": "ann may not publish to topic orders",
    }
    assert (second["principal"], second["remote"], second["status"]) == (
        None,
        None,
        401,
    )


def test_a_file_that_is_made_is_read_by_its_owner_only_and_an_old_one_goes_on(
    path: Path,
) -> None:
    old = os.umask(0)
    try:
        AuditLog(path).close()
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        audit = AuditLog(path)
        audit.refused(REFUSAL)
        audit.close()
    assert len(lines(path)) == 2


@given(st.text(), st.text())
def test_whatever_is_asked_for_a_line_stays_one_printable_line(
    asked: str, reason: str
) -> None:
    fields = attrs.evolve(REFUSAL, path=asked, reason=reason).fields()
    assert all(str(value).isprintable() for value in fields.values())
    assert "?" not in str(fields["path"])


def test_a_token_or_a_query_in_a_path_is_not_written(
    audit: AuditLog, path: Path
) -> None:
    token = new_token()
    long = "x" * 490 + token
    for text in (f"/{token}/a", f"/v1?token={token}", f"/a\n{token}", long):
        audit.refused(attrs.evolve(REFUSAL, path=text, reason=f"no {token}"))
    written = path.read_text()
    assert token[4:14] not in written
    assert [line["path"] for line in lines(path)[:3]] == [
        "/txa_.../a",
        "/v1",
        r"/a\ntxa_...",
    ]
    assert all(line["reason"] == "no txa_..." for line in lines(path))


def test_a_long_path_is_cut(audit: AuditLog, path: Path) -> None:
    audit.refused(attrs.evolve(REFUSAL, path="/" + "\x00" * 100_000))
    assert path.stat().st_size < 10_000


def test_of_one_caller_only_so_many_are_written_and_the_others_counted(
    audit: AuditLog, path: Path, clock: Clock
) -> None:
    for _ in range(LINES + 5):
        audit.refused(REFUSAL)
    audit.refused(attrs.evolve(REFUSAL, remote="10.0.0.8"))
    assert len(lines(path)) == LINES + 1
    clock.advance_s(1)
    audit.refused(REFUSAL)
    *_, told, last = lines(path)
    assert told == {
        "time": "2023-11-14T22:13:21.000Z",
        "principal": "ann",
        "remote": "10.0.0.7",
        "since": "2023-11-14T22:13:20.000Z",
        "left_out": 5,
    }
    assert last["status"] == 403
    clock.advance_s(1)
    audit.refused(REFUSAL)
    assert list(left_out(path).values()) == [5]


def test_what_was_left_out_is_written_when_asked_for_and_at_the_end(
    audit: AuditLog, path: Path
) -> None:
    for _ in range(LINES + 2):
        audit.refused(REFUSAL)
    audit.flush()
    assert left_out(path) == {("ann", "10.0.0.7"): 2}
    audit.flush()
    assert len(lines(path)) == LINES + 1
    for _ in range(LINES + 3):
        audit.refused(REFUSAL)
    audit.close()
    assert left_out(path) == {("ann", "10.0.0.7"): 3}


def test_a_flood_from_many_addresses_is_bounded_and_hides_no_principal(
    audit: AuditLog, path: Path, clock: Clock
) -> None:
    for number in range(50 * CALLERS):
        audit.refused(attrs.evolve(UNKNOWN, remote=f"10.0.{number}.1"))
    audit.refused(REFUSAL)
    assert len(audit._counts) == CALLERS + 2
    written = lines(path)
    assert len(written) == CALLERS + LINES + 1
    assert (written[-1]["principal"], written[-1]["remote"]) == ("ann", "10.0.0.7")
    clock.advance_s(1)
    audit.flush()
    assert left_out(path) == {(None, None): 49 * CALLERS - LINES}


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_clock_that_jumps_stops_nothing(
    audit: AuditLog, path: Path, clock: Clock, seconds: int
) -> None:
    for _ in range(LINES + 1):
        audit.refused(REFUSAL)
    clock.advance_s(seconds)
    audit.refused(REFUSAL)
    assert len(lines(path)) == LINES + 2


def test_after_the_file_was_moved_away_it_goes_on_in_a_new_one(
    audit: AuditLog, path: Path
) -> None:
    audit.refused(REFUSAL)
    old = path.rename(path.with_suffix(".1"))
    audit.refused(REFUSAL)
    audit.reopen()
    audit.refused(UNKNOWN)
    assert [line["status"] for line in lines(old)] == [403, 403]
    assert [line["status"] for line in lines(path)] == [401]
    assert path.stat().st_mode & 0o777 == 0o600


def test_reopening_gives_the_old_file_back(audit: AuditLog) -> None:
    audit.reopen()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        audit.reopen()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_reopen_that_fails_goes_on_in_the_old_file(
    audit: AuditLog, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = path.rename(path.with_suffix(".1"))
    path.mkdir()
    audit.reopen()
    audit.refused(REFUSAL)
    assert len(lines(old)) == 1
    assert "not reopened, goes on: " in caplog.text


def test_a_file_that_cannot_be_opened_is_said_at_the_start(path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be opened: No such file"):
        AuditLog(path / "audit.log")


def test_without_a_file_refusals_are_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(clock_ms=clock)
    for _ in range(LINES + 2):
        audit.refused(REFUSAL)
    audit.reopen()
    audit.close()
    *refused, told = caplog.records
    assert len(refused) == LINES
    assert {(one.name, one.levelno, one.message) for one in caplog.records} == {
        ("txaware.audit", logging.WARNING, "refused")
    }
    assert vars(refused[0]).items() >= REFUSAL.fields().items()
    assert vars(told)["left_out"] == 2


def test_a_failure_to_write_fails_no_request_and_is_logged_once(
    audit: AuditLog,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def torn(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:-10])

    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", torn)
        audit.refused(REFUSAL)
        audit.refused(REFUSAL)
    audit.refused(UNKNOWN)
    audit.refused(UNKNOWN)
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "cannot be written: [Errno 28] No space left" in errors[0].message
    # What is not in the file is in the log, and what comes next stands for itself.
    assert [vars(one)["status"] for one in caplog.records if one not in errors] == [
        403,
        403,
    ]
    whole = [json.loads(line) for line in path.read_text().splitlines()[2:]]
    assert [line["status"] for line in whole] == [401, 401]


def test_after_its_end_refusals_are_logged(
    audit: AuditLog, caplog: pytest.LogCaptureFixture
) -> None:
    audit.close()
    audit.close()
    audit.refused(REFUSAL)
    assert [one.message for one in caplog.records] == ["refused"]


def test_no_line_is_lost_when_threads_write_while_it_is_reopened(
    path: Path, clock: Clock
) -> None:
    audit = AuditLog(path, clock_ms=clock)

    def refuse(number: int) -> None:
        for _ in range(100):
            audit.refused(attrs.evolve(REFUSAL, principal=f"p{number}"))

    threads = [threading.Thread(target=refuse, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        audit.reopen()
    for thread in threads:
        thread.join()
    audit.close()
    assert len(lines(path)) == 8 * (LINES + 1)
    assert set(left_out(path).values()) == {100 - LINES}
