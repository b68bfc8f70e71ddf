"""The one place that puts the parts together: `connect` and what it answers."""

from typing import Self

from coordinator import Coordinator, TransactionAware, TransactionContext
from coordinator.address import open_coordinator
from txaware.errors import BadRequest


class Messaging:
    """What a program holds: transactions, and everything that takes part in them."""

    def __init__(self, coordinator: Coordinator, *, owns_coordinator: bool) -> None:
        self._coordinator = coordinator
        self._owns_coordinator = owns_coordinator

    @property
    def coordinator(self) -> Coordinator:
        """Who decides what commits."""
        return self._coordinator

    def transaction(
        self,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
    ) -> TransactionContext:
        """`with messaging.transaction(table) as tx:` commits at the end of the block.

        Or it undoes everything, when the block raises or the commit is refused. A long
        transaction may run for a day, and has no time-out of its own.
        """
        return TransactionContext(
            self._coordinator, *participants, timeout_s=timeout_s, long=long
        )

    def close(self) -> None:
        """Closes what `connect` opened; a coordinator of the caller's stays open."""
        if self._owns_coordinator:
            self._coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def connect(url: str, *, coordinator: str | Coordinator = "embedded") -> Messaging:
    """Connects to `memory:`, which ends with the process.

    `coordinator` is `embedded`, the address of a Tephra (`tephra:DIR` in a JVM of its
    own, `tephra://HOST:PORT`, `tephra+zk://HOSTS`), or a `Coordinator` of the caller's.
    """
    if url != "memory:":
        raise BadRequest(f"{url!r} cannot be connected to; memory: can")
    if isinstance(coordinator, str):
        return Messaging(open_coordinator(coordinator), owns_coordinator=True)
    return Messaging(coordinator, owns_coordinator=False)
