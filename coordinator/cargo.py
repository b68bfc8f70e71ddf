"""The rows that a commit carries: of one participant, or of any number at once."""

from collections.abc import Callable, Sequence
from typing import Any

from coordinator.errors import Unavailable
from coordinator.interfaces import Cargo, Coordinator, Loading, SubmitRows, Told

# Made once: the types of a function within another one are made at each call.
Loaded = Callable[[], None] | None
Wake = Callable[[], object]
Away = Unavailable | None


def load(cargo: Cargo, submit: SubmitRows) -> Loaded:
    """Submits the rows of a cargo under its locks; returns what `submit` returned."""
    loading = cargo.loading()
    try:
        rows, told = next(loading)
        wait = submit(rows, told)
        try:
            loading.send(wait is not None)
        except StopIteration:
            return wait
        raise AssertionError(f"{cargo!r:.200} yields rows once")
    except Exception:
        _end(loading, is_submitted=False)
        raise
    except BaseException:
        loading.close()
        raise


def _end(loading: Loading, *, is_submitted: bool) -> None:
    # As `suppress` does, in a third of the time: a commit may have many.
    try:  # noqa: SIM105
        loading.send(is_submitted)
    except StopIteration:
        pass


class JoinedCargo:
    """Several cargoes that one commit carries, in one piece.

    Their locks are taken one after the other and held together.
    """

    def __init__(self, cargoes: Sequence[Cargo] = ()) -> None:
        self._cargoes = cargoes

    def loading(self) -> Loading:
        """Yields the rows of all; all of them are told how it ended."""
        rows: list[Any] = []
        listeners: list[Told] = []
        begun: list[Loading] = []
        try:
            for cargo in self._cargoes:
                begun.append(cargo.loading())
                more, told = next(begun[-1])
                rows += more
                listeners.append(told)
            is_submitted = yield rows, _tell_all(listeners)
            _end_all(begun, is_submitted=is_submitted)
        except Exception:
            _end_all(begun, is_submitted=False)
            raise
        finally:
            for loading in reversed(begun):
                loading.close()


def _end_all(begun: list[Loading], *, is_submitted: bool) -> None:
    for loading in reversed(begun):
        _end(loading, is_submitted=is_submitted)


def joined(cargoes: Sequence[Cargo]) -> Cargo:
    """Returns one or several cargoes as one; a single one as it is."""
    first, *others = cargoes
    return JoinedCargo(cargoes) if others else first


def empty_cargo(coordinator: Coordinator) -> Cargo | None:
    """Returns the cargo of a participant that has nothing to write at the commit.

    Returns None for a coordinator whose commits carry nothing.
    """
    return JoinedCargo() if hasattr(type(coordinator), "commit_with") else None


def _tell_all(listeners: Sequence[Told]) -> Told:
    """Returns a listener that tells each of the given ones, and then wakes for all."""

    def tell(error: Away) -> Wake:
        wakes = [wake for listen in listeners if (wake := listen(error)) is not None]

        def wake_all() -> None:
            for wake in wakes:
                wake()

        return wake_all

    return tell
