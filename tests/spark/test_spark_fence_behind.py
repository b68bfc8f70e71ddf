"""Two runs that died at once: neither of them holds up the readers of a third."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import txaware
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.messagings import committed
from txaware.messaging import Messaging
from txaware.model.messages import Receipt
from txaware.publish.outbox import TopicOutbox
from txaware.spark.committing import Once, commit

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Stands for the end of a process."""


@contextmanager
def dying_before_commit() -> Iterator[None]:
    calls: list[tuple[Any, str]] = [
        *((RemoteCoordinator, call) for call in ("_commit", "abort", "invalidate")),
        (TopicOutbox, "rollback"),
    ]
    with ExitStack() as stack, suppress(Killed):
        for owner, call in calls:
            stack.enter_context(patch.object(owner, call, side_effect=Killed))
        yield


def begun(messaging: Messaging) -> tuple[Transaction, Receipt]:
    tx = messaging.coordinator.start_short(60)
    return tx, messaging.store("t", [b"1"], transaction=tx, attempt=b"a")


def test_one_that_came_late_to_its_end_is_fenced_too(tmp_path: Path) -> None:
    once = Once("t", "spark-q", 0)
    with (
        txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner,
        owner.serve() as server,
        txaware.connect(server.url) as messaging,
    ):
        owner.create_topic("t")
        (slow, slow_receipt), (fast, fast_receipt) = begun(messaging), begun(messaging)
        fence = Once.fence

        def woken(self: Once, messaging: Messaging, tx: Transaction) -> None:
            """The slow one wakes after the fence of the fast one, and dies as well."""
            fence(self, messaging, tx)
            if tx == fast:
                thread = threading.Thread(target=slow_end)
                thread.start()
                thread.join()

        def slow_end() -> None:
            with suppress(Killed):
                commit(messaging, slow, receipts=[slow_receipt], once=once)

        with patch.object(Once, "fence", woken), dying_before_commit():
            commit(messaging, fast, receipts=[fast_receipt], once=once)
        third, receipt = begun(messaging)
        commit(messaging, third, receipts=[receipt], once=once)
        assert committed(owner) == [b"1"]
