"""The tests that every participant for asyncio has to pass."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

from coordinator import EmbeddedCoordinator
from coordinator.interfaces import TransactionAware
from coordinator.transaction import Status, Transaction
from txaware.client import ClientSettings
from txaware.client.aio.async_messaging import AsyncMessaging, connect_async
from txaware.client.aio.async_transaction import AsyncTransaction
from txaware.messaging import connect
from txaware.testing.participant_contract import (
    KeysSeen,
    Made,
    PromisesOfParticipants,
)

# What is lost stays lost in these tests, so nobody asks for long.
SETTINGS = ClientSettings(retry_for_s=0.2)


class AsyncParticipantContract(PromisesOfParticipants):
    """Tests what a participant for asyncio promises, as `ParticipantContract` does.

    `make`, `write` and `read` are `async def`, in one task of an event loop; the blocks
    are `async with messaging.transaction(participant)` of an `AsyncMessaging`. The
    participant is closed after each test, by its `close()` in a thread.
    """

    async def make(self, messaging: AsyncMessaging) -> Any:
        """Makes the participant, over empty data."""
        raise NotImplementedError("say how your participant is made")

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        """Changes a value, in a block that the participant has joined."""
        raise NotImplementedError("say how your participant is written to")

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        """Returns a value as a block sees it that the participant has joined."""
        raise NotImplementedError("say how your participant is read")

    @contextmanager
    def _made(self) -> Iterator[Made]:
        with (
            EmbeddedCoordinator() as inner,
            connect("memory:", coordinator=(failing := KeysSeen(inner))) as served,
            served.serve() as server,
            TaskInThread() as task,
        ):
            messaging = task.run(lambda: _opened(server.url))
            try:
                participant = task.run(lambda: self.make(messaging))
                try:
                    yield AwaitedMade(self, messaging, failing, participant, task)
                finally:
                    close = getattr(participant, "close", None)
                    if close is not None:
                        task.run(lambda: messaging.in_thread(close))
            finally:
                task.run(messaging.close)


async def _opened(url: str) -> AsyncMessaging:
    return connect_async(url, settings=SETTINGS)


class TaskInThread:
    """A task of an event loop in another thread, which does one thing after another."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))

    def run(self, make: Callable[[], Awaitable[Any] | Any]) -> Any:
        """Has the task call a function, and await its answer; returns that."""
        done: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._requests.put_nowait, (make, done))
        return done.result()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._ready.set()
        while (request := await self._requests.get()) is not None:
            make, done = request
            try:
                answer = make()
                done.set_result(await answer if inspect.isawaitable(answer) else answer)
            except BaseException as error:
                done.set_exception(error)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._requests.put_nowait, None)
        self._thread.join()


class AwaitedMade(Made):
    """A participant for asyncio; each call is awaited in one task."""

    def __init__(
        self,
        contract: AsyncParticipantContract,
        messaging: AsyncMessaging,
        coordinator: KeysSeen,
        participant: Any,
        task: TaskInThread,
    ) -> None:
        super().__init__(contract, messaging, coordinator, participant)
        self._task = task

    def empty_block(self, *participants: TransactionAware) -> "AwaitedBlock":
        """Makes a transaction."""
        return AwaitedBlock(self.messaging.transaction(*participants), self._task)

    def put(self, key: bytes, value: bytes) -> None:
        """Writes in the open block."""
        self._task.run(lambda: self._contract.write(self.participant, key, value))

    def get(self, key: bytes) -> bytes | None:
        """Reads in the open block."""
        read = self._contract.read
        value: bytes | None = self._task.run(lambda: read(self.participant, key))
        return value


class AwaitedBlock:
    """A block of the task, as a `with` statement has it."""

    def __init__(self, block: AsyncTransaction, task: TaskInThread) -> None:
        self._block = block
        self._task = task

    @property
    def status(self) -> Status:
        """The state of the transaction."""
        return self._block.status

    @property
    def transaction(self) -> Transaction:
        """The snapshot and the pointer of the block."""
        return self._block.transaction

    def join(self, participant: TransactionAware) -> None:
        """Adds a participant."""
        self._task.run(lambda: self._block.join(participant))

    def checkpoint(self) -> None:
        """Lets participants write what was changed."""
        self._task.run(self._block.checkpoint)

    def __enter__(self) -> Self:
        self._task.run(self._block.__aenter__)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._task.run(lambda: self._block.__aexit__(*raised))
