"""The questions of an operator to a store, asked of a server."""

from collections.abc import Iterator

from coordinator.transaction import Transaction
from txaware.http.client import admin_calls
from txaware.http.client.transport import Transport
from txaware.keeper import Keeper
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.reports import (
    CleanUp,
    OnProgress,
    OpenPlan,
    Peeked,
    Progress,
    Pruned,
    Report,
    TopicReport,
)
from txaware.requests import Start


class HttpAdministration:
    """The calls of `Administration`; no progress comes over the network."""

    def __init__(self, transport: Transport) -> None:
        self._perform = transport.perform
        self._run = transport.run
        self._stream = transport.stream

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Returns rows as they stand, whatever became of their transactions."""
        return self._run(admin_calls.peek(topic, start, limit))

    def namespaces(self) -> list[str]:
        """Returns all namespaces that have a topic."""
        return self._perform(admin_calls.namespaces())

    def inspect(self, topic: str) -> TopicReport:
        """Returns counts, sizes, times and the blocker of a topic; reads all of it."""
        return self._perform(admin_calls.inspect(topic))

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Returns the ids between both at which parts of so many bytes begin; cheap."""
        return self._perform(
            admin_calls.splits(topic, start=start, stop=stop, part_bytes=part_bytes)
        )

    def first_undecided(
        self, topic: str, *, start: MessageId, stop: MessageId, snapshot: Transaction
    ) -> MessageId:
        """Returns where a reader with this snapshot stops in a range."""
        return self._perform(
            admin_calls.first_undecided(
                topic, start=start, stop=stop, snapshot=snapshot
            )
        )

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant of the server's data; `progress` is not told."""
        return self._perform(admin_calls.check())

    def backup(self) -> Iterator[bytes]:
        """Yields all that is on disk there at this moment, as the bytes of a backup."""
        return self._stream(admin_calls.backup())

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes what has expired, on the server; `on_progress` is not told."""
        return self._perform(admin_calls.clean_up())

    def plan_clean_up(self, *, pieces: int = 1) -> OpenPlan:
        """Plans a clean-up that many processes share, each by some of its pieces."""
        return self._perform(admin_calls.plan_clean_up(pieces=pieces))

    def clean_piece(self, plan: str, piece: int) -> int:
        """Has the server do a piece of a plan; answers how many rows."""
        return self._perform(admin_calls.clean_piece(plan, piece))

    def finish_clean_up(self, plan: str) -> CleanUp:
        """Does what comes after all pieces, and answers what they did together."""
        return self._perform(admin_calls.finish_clean_up(plan))

    def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs."""
        return self._perform(admin_calls.prune(exclusive=exclusive))

    def report_keeper(self, name: str, smallest_pointer: int | None) -> Keeper:
        """Says which pointer on a participant with rows of its own still needs."""
        return self._perform(admin_calls.report_keeper(name, smallest_pointer))

    def forget_keeper(self, name: str) -> None:
        """Removes a keeper whose rows are gone."""
        self._perform(admin_calls.forget_keeper(name))

    def keepers(self) -> list[Keeper]:
        """Returns all that keep rows of their own, by name."""
        return self._perform(admin_calls.keepers())

    def lag_ms(self, group: str, topic: str) -> int:
        """Returns how far a group is behind the newest message; 0 if at its end."""
        return self._perform(admin_calls.lag_ms(group, topic))

    def oldest_unread_ms(self, group: str, topic: str) -> int:
        """Returns the age of the oldest message a group may read; 0 without one."""
        return self._perform(admin_calls.oldest_unread_ms(group, topic))

    def metrics(self) -> Metrics:
        """Returns what was counted in the server, and how things stand."""
        return self._perform(admin_calls.metrics())
