"""The participant keeps the contract, and is right after a crash."""

from pathlib import Path
from typing import Any

import pytest
from line_file import LineFile

from txaware import Messaging
from txaware.testing import ParticipantContract


class TestLineFile(ParticipantContract):
    """All that a participant has to do, with a new file for each test."""

    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> None:
        self._next = (tmp_path / f"lines-{n}" for n in range(100))

    def make(self, messaging: Messaging) -> Any:
        return LineFile(next(self._next))

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        participant.put(key.decode(), value.decode())

    def read(self, participant: Any, key: bytes) -> bytes | None:
        value = participant.get(key.decode())
        return None if value is None else value.encode()


def test_a_crash_between_the_write_and_the_commit(
    messaging: Messaging, tmp_path: Path
) -> None:
    lines = LineFile(tmp_path / "lines")
    messaging.register_keeper(lines)
    with messaging.transaction(lines):
        lines.put("ann", "1")
    tx = messaging.coordinator.start_short()
    lines.start_tx(tx)
    lines.put("ann", "2")
    lines.commit_tx()  # here the process dies
    messaging.coordinator.invalidate(tx)

    again = LineFile(tmp_path / "lines")
    assert again.smallest_pointer() is not None
    with messaging.transaction(again):
        assert again.get("ann") == "1"
    again.settle(messaging.coordinator)
    assert again.smallest_pointer() is None
    with messaging.transaction(again):
        assert again.get("ann") == "1"


def test_a_line_and_a_message_wait_for_one_end(
    messaging: Messaging, tmp_path: Path
) -> None:
    lines = LineFile(tmp_path / "lines")
    with messaging.transaction(lines) as tx:
        lines.put("ann", "1")
        tx.prepare("order-7")
    with messaging.transaction(lines):
        assert lines.get("ann") is None
    messaging.commit_prepared("order-7")
    with messaging.transaction(lines):
        assert lines.get("ann") == "1"
