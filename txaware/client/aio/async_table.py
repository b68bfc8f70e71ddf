"""A user's table for asyncio: the same one, used in the thread of its transaction."""

from collections.abc import AsyncIterator
from itertools import islice
from typing import Any, Generic

from coordinator.joining import JoinsByItself
from txaware.client.aio.async_transaction import Workers
from txaware.client.aio.in_threads import Awaited, in_thread
from txaware.model.messages import T
from txaware.model.signatures import signed_as
from txaware.tables import Table

PAGE_ROWS = 1000


class AsyncTable(Awaited[Table[T]], JoinsByItself, Generic[T]):
    """A table whose rows commit with the open transaction of this task; see `Table`."""

    def __init__(self, table: Table[T], workers: Workers) -> None:
        super().__init__(table, workers)
        self.name = table.name
        self.transaction_aware_name = table.transaction_aware_name
        self._coordinator = workers.coordinator

    get = in_thread(Table[T].get)
    put = in_thread(Table[T].put)
    delete = in_thread(Table[T].delete)

    @signed_as(Table.scan)
    async def scan(self, *args: Any, **options: Any) -> AsyncIterator[tuple[bytes, T]]:
        rows = self._blocking.scan(*args, **options)
        while page := await self._run(lambda: list(islice(rows, PAGE_ROWS))):
            for row in page:
                yield row

    def items(self) -> AsyncIterator[tuple[bytes, T]]:
        """Yields all keys and values; see `scan`."""
        return self.scan()

    def __repr__(self) -> str:
        return f"<AsyncTable {self.name}>"
