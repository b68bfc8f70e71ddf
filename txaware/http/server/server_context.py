"""What the routes of a server work on, together."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from txaware.auth import Principal
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.http.outcomes import Outcomes
from txaware.http.server.hidden_paths import HiddenPaths
from txaware.http.server.owners import Owners
from txaware.http.threads import Threads
from txaware.service.administration import Administration
from txaware.service.local import LocalService
from txaware.service.topic_handles import Place

T = TypeVar("T")


class Stopping:
    """Whether the server was told to stop, and who wants to know that at once."""

    def __init__(self) -> None:
        self.is_set = False
        self._events: set[asyncio.Event] = set()

    def tell(self, event: asyncio.Event) -> None:
        """Sets the event when the server is told to stop."""
        self._events.add(event)

    def forget(self, event: asyncio.Event) -> None:
        """It is not waited for any more."""
        self._events.discard(event)

    def set(self) -> None:
        """The server is told to stop."""
        self.is_set = True
        for event in self._events:
            event.set()


@attrs.frozen(eq=False)
class Hosted:
    """A store that is served: its parts, and the threads that wait for its disk.

    `shares_journal` is whether commits are kept in the same table as rows.
    `hidden_paths` are told to operators alone. `owners` knows who began which
    transaction, where that is asked, and is that of all servers.
    """

    service: LocalService
    administration: Administration
    coordinator: Coordinator
    settings: Settings
    clock_ms: ClockMs
    instance: str
    threads: Threads
    outcomes: Outcomes
    stopping: Stopping
    owners: Owners
    shares_journal: bool = False
    hidden_paths: HiddenPaths = attrs.field(factory=HiddenPaths)

    def told(self, principal: Principal, text: str) -> str:
        """A sentence on how things stand: where the data is, is for operators."""
        return text if principal.is_operator else self.hidden_paths.hidden_in(text)

    def coordinator_may_wait(self) -> bool:
        """Whether to ask the coordinator may take more than a moment."""
        coordinator = self.coordinator
        return (
            not isinstance(coordinator, EmbeddedCoordinator) or coordinator.may_wait()
        )

    async def place(self, topic: str) -> Place:
        """A topic that exists, found without keeping the event loop waiting."""
        found = self.service.place_at_once(topic)
        if found is not None:
            return found
        return await self.in_thread(self.service.place, topic)

    async def in_thread(self, act: Callable[..., T], *args: Any, **named: Any) -> T:
        """Has a thread do what may wait for a disk or take long."""
        return await _in(self.threads.rows, partial(act, *args, **named))

    async def in_coordinator_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """For what asks the coordinator: one that hangs keeps no plain call waiting."""
        is_here = isinstance(self.coordinator, EmbeddedCoordinator)
        pool = self.threads.rows if is_here else self.threads.coordinator
        return await _in(pool, partial(act, *args, **named))

    async def in_slow_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """The same for what may take minutes: it keeps nothing else waiting."""
        return await _in(self.threads.slow, partial(act, *args, **named))

    async def in_planning_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """For what readers wait for before they begin: no clean-up keeps it waiting."""
        return await _in(self.threads.planning, partial(act, *args, **named))

    async def in_monitor_thread(
        self, act: Callable[..., T], *args: Any, **named: Any
    ) -> T:
        """For how things stand, asked all the time: no check keeps it waiting."""
        return await _in(self.threads.monitor, partial(act, *args, **named))


async def _in(pool: ThreadPoolExecutor, act: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, act)
