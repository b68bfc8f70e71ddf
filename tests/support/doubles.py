"""Participants and coordinators that record what happens, and fail when told to."""

from collections.abc import Callable, Iterable
from typing import Any

from coordinator import interfaces
from coordinator.transaction import Transaction

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


WATCHED = {
    *("start_short", "start_long", "can_commit", "persist", "commit", "abort"),
    *("invalidate", "checkpoint", "snapshot"),
}


class Watched:
    """A coordinator that writes down the calls to another one, and can replace them.

    `watched.instead["commit"] = f` has `f(call)` run in its place, where `call()` does
    what was asked for.
    """

    def __init__(self, inner: interfaces.Coordinator, log: Log | None = None) -> None:
        self.inner = inner
        self.log: Log = [] if log is None else log
        self.instead: dict[str, Callable[[Callable[[], Any]], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in WATCHED:
            return method

        def call(*args: Any, **options: Any) -> Any:
            self.log.append(name)
            replaced = self.instead.get(name)
            if replaced is None:
                return method(*args, **options)
            return replaced(lambda: method(*args, **options))

        return call


def lost(error: BaseException) -> Callable[[Callable[[], Any]], Any]:
    """Does what was asked, and loses the answer."""

    def replaced(call: Callable[[], Any]) -> Any:
        call()
        raise error

    return replaced


def failing(error: BaseException) -> Callable[[Callable[[], Any]], Any]:
    """Does nothing and raises."""

    def replaced(_: Callable[[], Any]) -> Any:
        raise error

    return replaced


class Clock:
    """A clock that only moves when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self._set_by_ms = 0

    def __call__(self) -> int:
        return self.now_ms

    def elapsed_ms(self) -> int:
        return self.now_ms - self._set_by_ms

    def advance_s(self, seconds: float) -> None:
        if seconds < 0:
            self.set_s(seconds)
        else:
            self.now_ms += int(seconds * 1000)

    def set_s(self, seconds: float) -> None:
        """Sets it ahead or back by so much: no time passes."""
        self.now_ms += int(seconds * 1000)
        self._set_by_ms += int(seconds * 1000)
