"""A user's table for asyncio: the same one, used in the thread of its transaction."""

from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Generic, TypeVar

from coordinator.interfaces import Coordinator
from coordinator.joining import JoinsByItself
from txaware.client.aio.async_transaction import Workers
from txaware.model.messages import T as V
from txaware.tables import Table

T = TypeVar("T")
PAGE_ROWS = 1000


class AsyncTable(JoinsByItself, Generic[V]):
    """A table whose rows commit with the open transaction of this task; see `Table`."""

    def __init__(
        self, table: Table[V], coordinator: Coordinator, workers: Workers
    ) -> None:
        self.name = table.name
        self.transaction_aware_name = table.transaction_aware_name
        self._table = table
        self._coordinator = coordinator
        self._workers = workers

    async def get(self, key: bytes) -> V | None:
        """Returns the value of a key; None if it has none."""
        return await self._run(lambda: self._table.get(key))

    async def put(self, key: bytes, value: V, *, ttl_s: float | None = None) -> None:
        """Sets the value of a key; with `ttl_s` the row is gone after that time."""
        await self._run(lambda: self._table.put(key, value, ttl_s=ttl_s))

    async def delete(self, key: bytes) -> None:
        """Removes a row; one that is not there stays so."""
        await self._run(lambda: self._table.delete(key))

    async def scan(
        self,
        prefix: bytes = b"",
        start: bytes | None = None,
        stop: bytes | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, V]]:
        """Yields keys and values in the order of keys, as one snapshot sees them."""
        rows = self._table.scan(prefix, start=start, stop=stop, limit=limit)
        while page := await self._run(lambda: list(islice(rows, PAGE_ROWS))):
            for row in page:
                yield row

    def items(self) -> AsyncIterator[tuple[bytes, V]]:
        """Yields all keys and values; see `scan`."""
        return self.scan()

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._workers.run(self._coordinator, call)

    def __repr__(self) -> str:
        return f"<AsyncTable {self.name}>"
