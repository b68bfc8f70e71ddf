"""Answers that are not read: their memory has a limit, and goes with the connection."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.concurrency import until
from tests.support.http_raw import Raw, Served, one, poll, publish, serving
from txaware.server import admission
from txaware.server.admission import AnswerMemory
from txaware.server.routes import polls

MIB = 1 << 20
LIMIT = 4 * MIB


@pytest.fixture
def here() -> Iterator[Served]:
    """A server with a page of 32 MiB in its topic."""
    with serving(poll_limit_bytes=64 * MIB, answer_memory_bytes=LIMIT) as opened:
        for _ in range(32):
            opened.messaging.publish("t", [bytes(MIB)])
        yield opened


def answers_of(here: Served) -> AnswerMemory:
    return here.server._answers


def not_reading(here: Served, stack: ExitStack) -> Raw:
    """Asks for the page, and reads nothing of it."""
    raw = stack.enter_context(here.connect(receive_bytes=4096))
    return raw.send(poll())


def unread(here: Served, stack: ExitStack) -> list[Raw]:
    """As many that do not read as there is memory for."""
    readers: list[Raw] = []
    while answers_of(here).size_bytes < LIMIT:
        held_bytes = answers_of(here).size_bytes
        readers.append(not_reading(here, stack))
        assert until(lambda: answers_of(here).size_bytes > held_bytes)  # noqa: B023
    return readers


def test_a_piece_of_a_page_is_made_when_the_one_before_it_was_read(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    take = polls.PollAnswer.take

    def noted(page: polls.PollAnswer) -> bytes:
        made.append(page)
        return take(page)

    monkeypatch.setattr(polls.PollAnswer, "take", noted)
    with ExitStack() as stack:
        raw = not_reading(here, stack)
        assert until(lambda: answers_of(here).size_bytes > 0)
        assert len(made) < 20  # of 33, and most of these are the system's by now
        assert answers_of(here).size_bytes < 3 * MIB
        assert len(raw.response().body) > 32 * MIB
        assert until(lambda: answers_of(here).size_bytes == 0)


def test_who_does_not_read_leaves_memory_to_others_and_is_cut_off_for_pages(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        readers = unread(here, stack)
        assert len(readers) > 1
        refused = here.ask(poll())
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "wait to be read" in refused.json()["message"]
        assert here.ask(publish(one(b"x"))).status == 200
        monkeypatch.setattr(admission, "STALL_S", 0)
        assert here.ask(poll()).status == 200
        assert until(lambda: here.connections < len(readers))


def test_memory_is_given_back_with_the_connection(here: Served) -> None:
    with ExitStack() as stack:
        unread(here, stack)
    assert until(lambda: answers_of(here).size_bytes == 0)
    assert here.ask(poll()).status == 200
    assert here.is_well()
