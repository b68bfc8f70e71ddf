"""A coordinator that fails on demand: before it acts, or with a lost answer."""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator import interfaces
from coordinator.errors import Unavailable

Instead = Callable[[Callable[[], Any]], Any]

# The calls that are written down, and that can be replaced.
CALLS = frozenset(
    (
        *("start_short", "start_long", "can_commit", "persist", "commit", "abort"),
        *("invalidate", "checkpoint", "snapshot"),
        *("prepare", "commit_prepared", "rollback_prepared"),
    )
)


class FailingCoordinator:
    """A coordinator that passes calls on to another one, and fails where it is told to.

    `log` has the names of the calls in their order. `fail("commit")` has that call do
    nothing and raise, `lose("commit")` has it done and its answer lost, and
    `work("commit")` mends it. `instead["commit"] = f` has `f(call)` run in its place,
    where `call()` does what was asked for.
    """

    def __init__(
        self, inner: interfaces.Coordinator, log: list[str] | None = None
    ) -> None:
        self.inner = inner
        self.log: list[str] = [] if log is None else log
        self.instead: dict[str, Instead] = {}
        # Whoever asks for a port sees no `__getattr__`, from Python 3.12 on.
        for name in {*dir(type(inner))} - {*dir(type(self))}:
            if name[0] != "_" and callable(getattr(type(inner), name)):
                vars(self)[name] = partial(self._called, name)

    def fail(self, call: str, error: BaseException | None = None) -> None:
        """Has a call do nothing and raise, by default `Unavailable`."""
        self.instead[_known(call)] = failing(error or _away(call))

    def lose(self, call: str, error: BaseException | None = None) -> None:
        """Has a call done, and its answer lost."""
        self.instead[_known(call)] = lost(error or _away(call))

    def work(self, call: str) -> None:
        """Has a call work again."""
        self.instead.pop(_known(call), None)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return partial(self._called, name) if name in CALLS else found

    def _called(self, name: str, *args: Any, **options: Any) -> Any:
        call = partial(getattr(self.inner, name), *args, **options)
        if name in CALLS:
            self.log.append(name)
        replaced = self.instead.get(name)
        return call() if replaced is None else replaced(call)


def lost(error: BaseException) -> Instead:
    """Returns what does a call, and loses its answer."""

    def replaced(call: Callable[[], Any]) -> Any:
        call()
        raise error

    return replaced


def failing(error: BaseException) -> Instead:
    """Returns what does nothing and raises."""

    def replaced(_: Callable[[], Any]) -> Any:
        raise error

    return replaced


def _known(call: str) -> str:
    if call not in CALLS:
        raise ValueError(f"{call!r} is none of {', '.join(sorted(CALLS))}")
    return call


def _away(call: str) -> Unavailable:
    return Unavailable(f"the test has {call} fail")
