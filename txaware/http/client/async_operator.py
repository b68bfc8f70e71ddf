"""What an operator asks of a server, as coroutines."""

from txaware.http.client import admin_calls
from txaware.http.client.async_service import AsyncService
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.requests import Start
from txaware.service.check.report import Report
from txaware.service.keepers import Keeper
from txaware.service.monitor.inspection import Peeked, TopicReport
from txaware.service.retention.clean_up import CleanUp, Pruned


class AsyncOperator(AsyncService):
    """The verbs of `Messaging` beside those of the service, awaited; see there.

    Reading or cleaning all of a large store takes a while; no progress is told.
    """

    async def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Rows of a topic as they stand, whatever became of their transactions."""
        return await self._run(admin_calls.peek(topic, start, limit))

    async def namespaces(self) -> list[str]:
        """All namespaces that have a topic, in order."""
        return await self._perform(admin_calls.namespaces())

    async def inspect(self, topic: str) -> TopicReport:
        """Counts, sizes, times and who blocks a topic; reads all of it."""
        return await self._perform(admin_calls.inspect(topic))

    async def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """The ids between both at which parts of about so many bytes begin; cheap."""
        return await self._perform(
            admin_calls.splits(topic, start=start, stop=stop, part_bytes=part_bytes)
        )

    async def lag_ms(self, group: str, topic: str) -> int:
        """How far a group is behind the newest message of a topic."""
        return await self._perform(admin_calls.lag_ms(group, topic))

    async def oldest_unread_ms(self, group: str, topic: str) -> int:
        """The age of the oldest message that a group may read; 0 where it has none."""
        return await self._perform(admin_calls.oldest_unread_ms(group, topic))

    async def check(self) -> Report:
        """Verifies every invariant of the server's data, which stays in use."""
        return await self._perform(admin_calls.check())

    async def clean_up(self) -> CleanUp:
        """Removes what has expired, and marks what invalid transactions wrote.

        The server goes on with it when the task that awaits it is cancelled.
        """
        return await self._perform(admin_calls.clean_up())

    async def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs."""
        return await self._perform(admin_calls.prune(exclusive=exclusive))

    async def forget_keeper(self, name: str) -> None:
        """Has `prune` no longer ask for a keeper, as its rows are gone."""
        await self._perform(admin_calls.forget_keeper(name))

    async def keepers(self) -> list[Keeper]:
        """The participants that keep rows of their own, registered or not."""
        return await self._perform(admin_calls.keepers())

    async def metrics(self) -> Metrics:
        """What was counted in the server, and how things stand."""
        return await self._perform(admin_calls.metrics())
