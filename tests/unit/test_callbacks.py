"""`on_commit` and `on_rollback`: functions that are called when a block has ended."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import txaware
from coordinator import retry_on_conflict
from coordinator.transaction import Status
from tests.support.doubles import Recorder
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    TransactionConflict,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        yield messaging


def fails(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def test_functions_are_called_in_order_after_all_participants_were_told(
    messaging: Messaging,
) -> None:
    log: list[str] = []
    with messaging.transaction(Recorder("a", log)) as tx:
        tx.on_commit(lambda: log.append("first"))
        tx.on_rollback(lambda: log.append("never"))
        tx.on_commit(lambda: log.append(f"second {tx.status.value}"))
        messaging.publisher("t").publish(b"x")
        tx.on_commit(lambda: log.append(str(len(messaging.poll("t")))))
    assert log[-4:] == ["post_tx_commit a", "first", "second committed", "1"]


def test_a_block_that_raises_calls_those_for_a_rollback(messaging: Messaging) -> None:
    log: list[str] = []
    with (  # noqa: PT012
        pytest.raises(ValueError, match="no") as caught,
        messaging.transaction() as tx,
    ):
        tx.on_rollback(lambda: log.append(tx.status.value))
        tx.on_rollback(fails(KeyError("one")))
        tx.on_rollback(lambda: log.append("last"))
        tx.on_commit(lambda: log.append("never"))
        raise ValueError("no")
    assert log == ["aborted", "last"]
    assert "KeyError('one')" in caught.value.__notes__[0]


def test_what_functions_raise_undoes_no_commit_and_is_raised_together(
    messaging: Messaging,
) -> None:
    log: list[str] = []
    one, two = ValueError("one"), KeyError("two")
    with (  # noqa: PT012
        pytest.raises(ExceptionGroup) as caught,
        messaging.transaction() as tx,
    ):
        messaging.publisher("t").publish(b"x")
        tx.on_commit(fails(one))
        tx.on_commit(lambda: log.append("between"))
        tx.on_commit(fails(two))
    assert caught.value.exceptions == (one, two)
    assert "2 functions given to on_commit failed" in str(caught.value)
    assert "stays committed" in caught.value.__notes__[0]
    assert log == ["between"]
    assert tx.status is Status.COMMITTED
    assert len(messaging.poll("t", isolation="committed")) == 1


def test_a_conflict_of_a_function_does_not_repeat_what_has_committed(
    messaging: Messaging,
) -> None:
    @retry_on_conflict
    def transact() -> None:
        with messaging.transaction() as tx:
            messaging.publisher("t").publish(b"x")
            tx.on_commit(fails(TransactionConflict("of another")))

    with pytest.raises(ExceptionGroup):
        transact()
    assert len(messaging.poll("t")) == 1


def test_an_interrupt_in_a_function_is_raised_after_the_others_were_called(
    messaging: Messaging,
) -> None:
    log: list[str] = []
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        messaging.transaction() as tx,
    ):
        tx.on_commit(fails(KeyboardInterrupt()))
        tx.on_commit(lambda: log.append("called"))
    assert log == ["called"]
    assert tx.status is Status.COMMITTED


def test_a_function_may_begin_a_transaction_of_its_own(messaging: Messaging) -> None:
    def follow() -> None:
        with messaging.transaction():
            messaging.publisher("t").publish(b"second")

    with messaging.transaction() as tx:
        messaging.publisher("t").publish(b"first")
        tx.on_commit(follow)
    assert [message.payload for message in messaging.poll("t")] == [b"first", b"second"]


def test_abort_calls_those_for_a_rollback_and_raises_what_they_raise(
    messaging: Messaging,
) -> None:
    log: list[str] = []
    with messaging.transaction() as tx:
        tx.on_rollback(lambda: log.append("called"))
        tx.abort()
        assert log == ["called"]
    with messaging.transaction() as tx:
        tx.on_rollback(fails(ValueError("one")))
        with pytest.raises(ExceptionGroup):
            tx.abort()
    assert tx.status is Status.ABORTED


def test_a_refused_commit_calls_those_for_a_rollback(messaging: Messaging) -> None:
    log: list[str] = []
    refusing = Recorder("a", [], commit_tx=False)
    with (  # noqa: PT012
        pytest.raises(ParticipantFailed),
        messaging.transaction(refusing) as tx,
    ):
        tx.on_commit(lambda: log.append("never"))
        tx.on_rollback(lambda: log.append("called"))
    assert log == ["called"]


def test_an_unknown_outcome_calls_neither(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def away(*_: Any) -> None:
        raise Unavailable("away")

    with (  # noqa: PT012
        pytest.raises(TransactionOutcomeUnknown),
        messaging.transaction() as tx,
    ):
        tx.on_commit(lambda: log.append("commit"))
        tx.on_rollback(lambda: log.append("rollback"))
        for call in ("commit", "invalidate", "snapshot"):
            monkeypatch.setattr(messaging.coordinator, call, away)
    assert tx.status is Status.UNKNOWN
    assert log == []


@pytest.mark.parametrize("call", ["on_commit", "on_rollback"])
def test_a_function_comes_while_the_block_is_open(
    messaging: Messaging, call: str
) -> None:
    with messaging.transaction() as tx:
        pass
    with pytest.raises(MisusedTransaction, match=rf"{call}\(\) needs an active"):
        getattr(tx, call)(print)


async def _waits() -> None:
    pass


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "is no function to call"),
        (lambda one: one, "called without arguments, and: missing"),
        (_waits, "a coroutine function, which nobody awaits"),
    ],
    ids=["none", "takes one", "coroutine"],
)
def test_what_cannot_be_called_is_refused_at_once(
    messaging: Messaging, wrong: Any, said: str
) -> None:
    with messaging.transaction() as tx, pytest.raises(BadRequest, match=said):
        tx.on_commit(wrong)
