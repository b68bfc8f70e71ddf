"""Ctrl-C at every place of a `with` block: all of it took place, or nothing did.

No transaction is left behind that takes what is published afterwards.
"""

import asyncio
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator.context import TransactionContext, current_transaction
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from coordinator.transaction import Status
from tests.support.doubles import Clock, Recorder
from tests.support.fake_disk import FakeDisk
from tests.support.interrupts import Interrupted, interrupted_at, places
from tests.support.messagings import Site, payloads
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    WorkerThread,
)

ENDED = {Status.NEW, Status.COMMITTED, Status.ABORTED, Status.INVALIDATED}


def body(context: TransactionContext) -> None:
    with context:
        context.checkpoint()


def failing_body(context: TransactionContext) -> None:
    with pytest.raises(ValueError, match="wrong"), context:
        raise ValueError("wrong")


def by_hand(context: TransactionContext) -> None:
    context.start()
    context.finish()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("block", [body, failing_body, by_hand])
def test_an_interrupt_at_any_place_of_a_block_leaves_all_of_it_or_nothing(
    block: Callable[[TransactionContext], None], durable: bool
) -> None:
    ends: set[Status] = set()

    def interrupt(place: int) -> bool:
        stand_in: Any = FakeDisk()
        journal = FileJournal(stand_in) if durable else None
        with EmbeddedCoordinator(journal, clock_ms=Clock()) as coordinator:
            tables = [Recorder("a", changes=[b"k"]), Recorder("b", flushes_last=True)]
            context = TransactionContext(coordinator, *tables)
            found = interrupted_at(place, partial(block, context))
            assert current_transaction(coordinator) is None
            if block is by_hand and context.status is Status.ACTIVE:
                context.abort()  # between the two calls, it is its holder's
            assert context.status in ENDED, place
            snapshot = coordinator.snapshot()
            assert not snapshot.in_progress, place
            ends.add(context.status)
            committed = context.status is Status.COMMITTED
            for table in tables:
                if table.tx is None:
                    continue
                calls = [line.split()[0] for line in table.log]
                joined = context._participants.listed(table) is not None
                assert calls.count("rollback_tx") == (joined and not committed), place
                assert calls.count("post_tx_commit") == committed, place
            if context._tx is not None and committed:
                assert snapshot.is_visible(context._tx.transaction_id)
            with TransactionContext(coordinator):
                pass
        return found

    assert places(interrupt) > 30
    assert ends > {Status.ABORTED}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_published_after_an_interrupted_block_is_in_no_block(
    site: Site,
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    step = {"memory": 1, "leveldb": 3}.get(site.kind, 23)
    expected: list[bytes] = []

    def block(number: int) -> None:
        with messaging.transaction():
            messaging.publisher("t").publish(b"in %d" % number)

    def interrupt(number: int) -> bool:
        found = interrupted_at(number * step, partial(block, number))
        messaging.publisher("t").publish(b"after %d" % number)
        snapshot = messaging.coordinator.snapshot()
        page = messaging.poll("t", transaction=snapshot, limit=10_000)
        seen = payloads(page)
        if site.kind in ("memory", "leveldb"):
            assert page.blocked_by is None, number
        if page.blocked_by is None:
            assert seen[len(expected) :] in (
                [b"after %d" % number],
                [b"in %d" % number, b"after %d" % number],
            )
            expected[:] = seen
        else:  # nobody was told of it, and its time-out ends it
            site.clock.advance_s(31)
            expected.append(b"after %d" % number)
        return found

    places(interrupt)
    assert messaging.poll("t")
    assert {b"in 1", b"after 1"} & set(expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_place_of_an_async_block_leaves_no_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.interrupts.OURS", ("/txaware/client/",))
    left: set[tuple[tuple[str, int], ...]] = set()

    def interrupt(place: int) -> bool:
        passed: list[tuple[str, int]] = []
        coordinator = EmbeddedCoordinator(clock_ms=Clock())
        workers = Workers(1, coordinator)
        context = TransactionContext(coordinator, Recorder())
        block_of = AsyncTransaction(context, workers)
        threads: list[WorkerThread] = []

        async def block() -> None:
            async with block_of:
                assert block_of._worker is not None
                threads.append(block_of._worker)

        def run() -> None:
            try:
                asyncio.run(block())
            except Interrupted as raised:
                frames = traceback.walk_tb(raised.__traceback__)
                passed.extend(
                    (frame.f_code.co_name, line)
                    for frame, line in frames
                    if "/txaware/client/" in frame.f_code.co_filename
                )
                raise

        try:
            found = interrupted_at(place, run)
        finally:
            workers.close()
            for thread in threads:
                thread._thread.shutdown(wait=True)
        if coordinator.snapshot().in_progress:
            left.add(tuple(passed))
        if context.status is Status.COMMITTED:
            assert context._tx is not None
            assert coordinator.snapshot().is_visible(context._tx.transaction_id)
        return found

    assert places(interrupt) > 20
    assert all([name for name, _ in frames] == ["__aexit__"] for frames in left), (
        f"only where `__aexit__` begins, its time-out ends it: {left}"
    )


def test_an_exit_that_never_began_is_noticed_and_undone() -> None:
    coordinator = EmbeddedCoordinator()
    table = Recorder()
    context = TransactionContext(coordinator, table)

    def enter() -> None:
        with context:
            raise_where_exit_begins(context)

    with pytest.raises(Interrupted):
        enter()
    assert context.status is Status.ACTIVE
    assert current_transaction(coordinator) is None
    assert {context.status} == {Status.ABORTED}
    assert table.log[-1] == "rollback_tx table"


def raise_where_exit_begins(context: TransactionContext) -> None:
    """As an interrupt does it."""
    code = TransactionContext.__exit__.__code__

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(profile)


def test_a_block_entered_by_hand_is_one_until_it_is_left_by_hand() -> None:
    coordinator = EmbeddedCoordinator()
    context = TransactionContext(coordinator)
    assert callable(context.__exit__)
    context.__enter__()
    assert callable(context.__exit__)
    assert current_transaction(coordinator) is context
    context.__exit__(None, None, None)
    assert context.status is Status.COMMITTED
    assert current_transaction(coordinator) is None
