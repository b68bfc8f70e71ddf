"""Whoever cannot take part in a transaction is refused where it is handed over."""

import re
from contextlib import suppress
from typing import Any

import pytest

import txaware
from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Participant
from tests.support.doubles import Recorder
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import BadRequest, MisusedTransaction
from txaware.messaging import Messaging


class Named:
    transaction_aware_name = "half a table"

    def __repr__(self) -> str:
        return "<Half>"


class Half(Named):
    def start_tx(self, tx: object) -> None: ...

    def get_tx_changes(self) -> list[bytes]:
        return []

    def commit_tx(self) -> bool:
        return True

    def post_tx_commit(self) -> None: ...


class WithoutName(Recorder):
    def __init__(self) -> None:
        super().__init__()
        del self.transaction_aware_name

    def __repr__(self) -> str:
        return "<WithoutName>"


class Whole(Half):
    def update_tx(self, tx: object) -> None: ...

    def rollback_tx(self) -> bool:
        return True


class Deaf(Whole):
    def start_tx(self) -> None:  # type: ignore[override]
        ...


class Asking(Whole):
    def commit_tx(self, tx: object) -> bool:  # type: ignore[override]
        return True


class Awaited(Whole):
    async def rollback_tx(self) -> bool:  # type: ignore[override]
        return True


class Flag(Whole):
    post_tx_commit = True  # type: ignore[assignment]


class CannotUndo(Participant):
    transaction_aware_name = "writes"

    def __repr__(self) -> str:
        return "<CannotUndo>"

    def commit_tx(self) -> bool:
        return True


class Nameless(Participant):
    def __repr__(self) -> str:
        return "<Nameless>"


INCOMPLETE: list[tuple[Any, str]] = [
    (Half(), "<Half> cannot take part in a transaction: it has no update_tx, rollback"),
    (WithoutName(), "<WithoutName> cannot take part in a transaction: it has no trans"),
    (Deaf(), "its start_tx is called with the transaction, and too many positional"),
    (Asking(), "its commit_tx is called with nothing, and missing a required argument"),
    (Awaited(), "its rollback_tx is a coroutine, which nobody awaits"),
    (Flag(), "its post_tx_commit is no method"),
    (CannotUndo(), "it has a commit_tx of its own, and no rollback_tx to undo what"),
    (Nameless(), "<Nameless> cannot take part in a transaction: it has no transaction"),
    (
        Recorder,
        "Recorder is a class, and cannot take part in a transaction; pass an object "
        "of it",
    ),
    (30, "30 cannot take part in a transaction: it has no start_tx, update_tx, get_"),
    (None, "None cannot take part in a transaction: it has no start_tx"),
]


@pytest.fixture
def messaging() -> Messaging:
    opened = txaware.connect("memory:", coordinator=EmbeddedCoordinator())
    opened.create_topic("t")
    return opened


@pytest.mark.parametrize(("participant", "why"), INCOMPLETE, ids=lambda one: f"{one}")
def test_it_is_refused_where_it_is_handed_over(
    messaging: Messaging, participant: Any, why: str
) -> None:
    for _ in range(2):  # a class is not remembered for what it lacks
        with pytest.raises(BadRequest, match=re.escape(why)):
            messaging.transaction(Recorder(), participant)
    with pytest.raises(BadRequest, match=re.escape(why)):
        messaging.subscribe("t", print, participants=[participant])
    with pytest.raises(BadRequest, match=re.escape(why)):
        TransactionContext(messaging.coordinator).join(participant)
    with messaging.transaction() as tx:
        with pytest.raises(BadRequest, match=re.escape(why)):
            tx.join(participant)
        with pytest.raises(BadRequest, match=re.escape(why)):
            tx.joined("key", lambda: participant)
        tx.join(table := Recorder())
    assert "commit_tx table" in table.log
    with pytest.raises(BadRequest, match=re.escape(why)):
        connect_async("http://127.0.0.1:1").transaction(participant)


def test_nothing_is_begun_for_it(messaging: Messaging) -> None:
    with pytest.raises(BadRequest), messaging.transaction(Half()):  # type: ignore[arg-type]
        raise AssertionError("the block does not begin")
    assert not messaging.coordinator.snapshot().in_progress


def test_what_answers_by_itself_is_taken_as_it_is(messaging: Messaging) -> None:
    class Anything:
        transaction_aware_name = "any"

        def __getattr__(self, name: str) -> Any:
            if name.endswith("changes"):
                return list
            return lambda *_: True

    with messaging.transaction(Anything()) as tx:
        pass
    assert tx.status.value == "committed"


class Observer(Participant):
    """It says nothing but its name."""

    transaction_aware_name = "observer"


@pytest.mark.parametrize("commits", [True, False])
def test_one_that_says_nothing_but_its_name_takes_part(
    messaging: Messaging, commits: bool
) -> None:
    with (
        suppress(KeyError),
        messaging.transaction(Observer(), table := Recorder()) as tx,
    ):
        tx.checkpoint()
        if not commits:
            raise KeyError
    assert tx.status.value == ("committed" if commits else "aborted")
    assert ("post_tx_commit table" in table.log) == commits


def test_one_that_does_nothing_at_a_prepare_has_to_say_so(messaging: Messaging) -> None:
    class Ready(Observer):
        def post_tx_prepare(self) -> None:
            """Remembers nothing."""

    with (
        pytest.raises(MisusedTransaction, match="observer cannot take part"),
        messaging.transaction(Observer()) as tx,
    ):
        tx.prepare("one")
    with messaging.transaction(Ready()) as tx:
        tx.prepare("one")
    messaging.rollback_prepared("one")
