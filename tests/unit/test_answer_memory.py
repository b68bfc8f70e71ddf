"""Answers that nobody reads: they count, and those who do not read make room."""

import logging

import pytest

from txaware.model.settings import Settings
from txaware.server.admission import STALL_S, AnswerMemory, Full

LIMIT = 100_000


class Reader:
    """A connection; what waits is in `unsent_bytes`."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.host_and_port = "10.0.0.7:4711"
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


class Answers:
    """The memory of answers, and its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        settings = Settings(answer_memory_bytes=LIMIT)
        self.memory = AnswerMemory(settings, lambda: self.now_s)

    def unread(self, size_bytes: int) -> Reader:
        reader = Reader(size_bytes)
        self.memory.hold(reader)
        return reader


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_there_is_room_until_as_much_waits_as_there_may(answers: Answers) -> None:
    answers.unread(LIMIT - 1)
    answers.memory.require_room()
    answers.unread(1)
    with pytest.raises(Full, match="100000 bytes wait to be read"):
        answers.memory.require_room()


def test_what_is_read_or_gone_counts_no_more(answers: Answers) -> None:
    first, second = answers.unread(LIMIT), answers.unread(LIMIT)
    answers.memory.release(first)
    answers.memory.release(first)
    assert answers.memory.size_bytes == LIMIT
    second.unsent_bytes = 0  # the transport does not tell of everything
    answers.memory.require_room()
    assert answers.memory.size_bytes == 0


def test_a_reader_counts_once_with_what_waits_now(answers: Answers) -> None:
    reader = answers.unread(50_000)
    reader.unsent_bytes = 70_000
    answers.memory.hold(reader)
    assert answers.memory.size_bytes == 70_000


def test_who_reads_nothing_for_seconds_is_cut_off_for_others(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    oldest, newer = answers.unread(LIMIT), answers.unread(LIMIT - 1)
    answers.now_s = STALL_S
    with caplog.at_level(logging.INFO, "txaware.server"):
        answers.memory.require_room()
    (said,) = caplog.messages
    assert said == (
        f"the connection of 10.0.0.7:4711 ends: it has read nothing of {LIMIT} bytes "
        f"for {STALL_S:g} s, and others need their place; see answer_memory_bytes"
    )
    assert (oldest.is_cut, newer.is_cut) == (True, False)
    assert answers.memory.size_bytes == LIMIT - 1


def test_nobody_is_cut_off_while_there_is_room(answers: Answers) -> None:
    reader = answers.unread(LIMIT - 1)
    answers.now_s = 100 * STALL_S
    answers.memory.require_room()
    assert not reader.is_cut


def test_who_reads_is_not_cut_off(answers: Answers) -> None:
    slow, stalled = answers.unread(2 * LIMIT), answers.unread(2 * LIMIT)
    for _ in range(5):
        answers.now_s += STALL_S / 2
        slow.unsent_bytes -= 5000
        with pytest.raises(Full):
            answers.memory.require_room()
    assert (slow.is_cut, stalled.is_cut) == (False, True)
