"""Whatever is passed to a call: it works, or it is one of our errors."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.odd_values import CALLS, ODD
from txaware import participants
from txaware.errors import BadRequest, TxAwareError
from txaware.messaging import Messaging


@pytest.fixture
def messaging() -> Messaging:
    opened = txaware.connect("memory:", coordinator=EmbeddedCoordinator())
    opened.create_topic("t")
    opened.publish("t", [b"so that nobody waits"])
    opened.create_queue("q")
    opened.queue("q").push_all([b"so that nobody waits"] * 2 * len(ODD))
    return opened


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_an_error_of_ours(messaging: Messaging, name: str) -> None:
    for value in ODD:
        tx = messaging.coordinator.start_short()
        with suppress(TxAwareError):
            CALLS[name](messaging, tx, value)


def test_participants_say_what_to_use_instead_of_what_is_awaited(
    messaging: Messaging, tmp_path: Path
) -> None:
    takes: list[Any] = [
        (participants.sqlite, sqlite3.connect(tmp_path / "shop.db")),
        (participants.postgres, object()),
        (participants.sqlalchemy, Session()),
        (participants.files, tmp_path / "files"),
    ]
    awaited: Any = txaware.connect_async("http://127.0.0.1:1")
    for make, place in takes:
        said = (
            rf"^participants\.{make.__name__} joins blocks \(with messaging.*\) of the "
            rf"Messaging of txaware.connect, whose calls block, not <AsyncMessaging .*"
        )
        with pytest.raises(BadRequest, match=said):
            make(awaited, place)
    takes[0][1].close()
    session: Any = AsyncSession()
    with pytest.raises(BadRequest, match=r"joins blocks of asyncio \(async with mess"):
        participants.sqlalchemy(messaging, session)


@pytest.mark.parametrize("name", ["save", "receipts", "publish messages", "consumer"])
def test_most_odd_values_are_refused(messaging: Messaging, name: str) -> None:
    refused = 0
    for value in ODD:
        tx = messaging.coordinator.start_short()
        try:
            CALLS[name](messaging, tx, value)
        except TxAwareError:
            refused += 1
    assert refused >= len(ODD) - 5
