"""Participants and coordinators that record what happens, and fail when told to."""

from collections.abc import Iterable
from typing import Any

from coordinator.transaction import Transaction
from txaware.testing.failing_coordinator import FailingCoordinator as Watched
from txaware.testing.failing_coordinator import failing, lost
from txaware.testing.manual_clock import ManualClock as Clock

__all__ = ["Clock", "Log", "Recorder", "Watched", "failing", "lost"]

Log = list[str]


class Recorder:
    """A participant that writes down its calls; `answers` replaces what they return.

    An answer that is an exception is raised, and one that is a function is called.
    """

    def __init__(
        self,
        name: str = "table",
        log: Log | None = None,
        changes: Iterable[bytes] = (),
        *,
        flushes_last: bool = False,
        shares_journal: bool = False,
        **answers: object,
    ) -> None:
        self.transaction_aware_name = name
        self.flushes_last = flushes_last
        self.shares_journal = shares_journal
        self.log: Log = [] if log is None else log
        self.tx: Transaction | None = None
        self._changes = list(changes)
        self._answers = answers

    def _answer(self, call: str, usual: Any = None) -> Any:
        self.log.append(f"{call} {self.transaction_aware_name}")
        answer = self._answers.get(call, usual)
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def start_tx(self, tx: Transaction) -> None:
        self.tx = tx
        self._answer("start_tx")

    def update_tx(self, tx: Transaction) -> None:
        self.tx = tx
        self._answer("update_tx")

    def get_tx_changes(self) -> Iterable[bytes]:
        changes: Iterable[bytes] = self._answer("get_tx_changes", self._changes)
        return changes

    def commit_tx(self) -> bool:
        answer: bool = self._answer("commit_tx", True)
        return answer

    def post_tx_commit(self) -> None:
        self._answer("post_tx_commit")

    def rollback_tx(self) -> bool:
        answer: bool = self._answer("rollback_tx", True)
        return answer
