"""Ctrl-C at the places of a producer's transaction: its count says what is there."""

from contextlib import suppress
from pathlib import Path

import pytest

import txaware
from tests.support.interrupts import interrupted_at, places
from tests.support.messagings import payloads
from txaware.messaging import Messaging


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", ["leveldb", "http"])
@pytest.mark.parametrize("ends_well", [True, False])
def test_an_interrupt_leaves_as_many_commits_as_messages(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, *, ends_well: bool
) -> None:
    # Not in the client's sockets: one that is interrupted there is closed by nobody.
    monkeypatch.setattr("tests.support.interrupts.OURS", ("/publish/", "/coordinator/"))
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner:
        owner.create_topic("t")
        if where == "leveldb":
            interrupt_all(owner, owner, ends_well=ends_well)
            return
        with owner.serve() as server, txaware.connect(server.url) as client:
            interrupt_all(owner, client, ends_well=ends_well)


def interrupt_all(owner: Messaging, messaging: Messaging, *, ends_well: bool) -> None:
    publisher = messaging.publisher("t")

    def interrupt(number: int) -> bool:
        producer = messaging.producer("p")  # ends what the one before left

        def block() -> None:
            with producer.transaction():
                publisher.publish(b"%d" % number)
                if not ends_well:
                    raise OSError("the work failed")

        def work() -> None:
            with suppress(OSError):
                block()

        found = interrupted_at(number, work)
        with messaging.producer("p") as newer:
            page = owner.poll("t", limit=10_000, isolation="committed")
            assert page.blocked_by is None, number
            assert newer.commits == len(page), number
            seen = payloads(page)
            assert len({*seen}) == len(seen), number
        return found

    assert places(interrupt) > 20
    assert bool(owner.poll("t", isolation="committed")) == ends_well
