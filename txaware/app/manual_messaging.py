"""An app's messaging in memory, for tests: its handlers run when they are told to."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from txaware.app.app_run import AppRun
from txaware.app.declarations import Declaration
from txaware.app.schedule import Ticker
from txaware.messaging import Messaging
from txaware.messaging.addresses import open_parts
from txaware.model.settings import Settings
from txaware.testing.manual_clock import ManualClock

T = TypeVar("T")


class EventLoopThread:
    """An event loop in a thread, for the coroutines of a test that has none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, and returns what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ManualMessaging(Messaging):
    """A `Messaging` in memory with the handlers of an app; `with app.test()` has one.

    `clock` moves when it is told to, and `run` handles all that is there.
    """

    clock: ManualClock

    def __init__(self) -> None:
        self.clock = ManualClock()
        settings = Settings(janitor_interval_s=0)
        super().__init__(open_parts("memory:", None, settings, self.clock, None))
        self._loop: EventLoopThread | None = None
        self._steps: list[Callable[[], int]] = []

    def begin(
        self,
        app_run: AppRun,
        subscriptions: list[Declaration],
        work: list[Declaration],
        ticker: Ticker,
    ) -> None:
        """Takes the handlers; the first period of each schedule begins now."""
        ticker.tick()
        ticker.tick()
        self._steps.append(ticker.tick)
        for declared in subscriptions:
            loop = self.in_loop(app_run.subscribed(declared))
            self._steps.append(
                self._step(declared, loop, declared.options.get("tries"))
            )
        for declared in work:
            most = self.queue(declared.source).descriptor.max_deliveries
            failures: list[BaseException] = []
            noted = _noting(declared, failures)
            loop = self.in_loop(app_run.worker(noted))
            self._steps.append(
                _raising(self._step(declared, loop, None), failures, most)
            )

    def run(self) -> None:
        """Runs handlers until nothing is left to be done at this moment.

        What a handler raises is raised here, unless it is tried again at once or goes
        to the dead letters: then `run` goes on. What waits for the time to pass waits
        for `clock.advance_s`.
        """
        while sum(step() for step in self._steps):
            pass

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the event loop of the handlers."""
        if self._loop is None:
            self._loop = EventLoopThread()
        return self._loop.run(coroutine)

    def end_loop(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Ends the event loop of the handlers, if any, after a last call in it."""
        if self._loop is not None:
            self._loop.run(last())
            self._loop.close()

    def _step(
        self, declared: Declaration, loop: Any, tries: int | None
    ) -> Callable[[], int]:
        failures = 0

        def step() -> int:
            nonlocal failures
            try:
                answer = loop.run_once()
                done: int = self.in_loop(answer) if declared.is_async else answer
            except Exception:
                failures += 1
                if tries is None or failures > tries + 1:
                    raise
                return 1
            failures = 0
            return done

        return step


def _noting(declared: Declaration, failures: list[BaseException]) -> Declaration:
    """Returns the same, which notes what its handler raises."""
    handler: Any = declared.handler
    if declared.is_async:

        async def awaited(*given: Any) -> Any:
            try:
                return await handler(*given)
            except BaseException as error:
                failures.append(error)
                raise

        return declared.handled_by(awaited)

    def called(*given: Any) -> Any:
        try:
            return handler(*given)
        except BaseException as error:
            failures.append(error)
            raise

    return declared.handled_by(called)


def _raising(
    step: Callable[[], int], failures: list[BaseException], most: int | None
) -> Callable[[], int]:
    """Returns the step of a queue; it raises what its handler raised.

    Where jobs become dead letters it does not: a failure is nothing special there.
    """

    def raising() -> int:
        done = step()
        raised, failures[:] = list(failures), []
        if raised and most is None:
            raise raised[0]
        return done

    return raising
