"""Copies of stores in memory, that fail on demand, and what readers get of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from coordinator import EmbeddedCoordinator
from coordinator.embedded.commit_log import Wait
from coordinator.embedded.journal import MemoryJournal
from coordinator.embedded.records import Record
from tests.support.doubles import Clock
from tests.support.messagings import table_of
from txaware.errors import TxAwareError, Unavailable
from txaware.messaging import Messaging
from txaware.model.clock import StoreClock
from txaware.model.interfaces import Row, Write
from txaware.model.messages import Message, MessageId
from txaware.model.reports import Report
from txaware.model.settings import Settings
from txaware.model.topics import Topic
from txaware.service.check.checking import check
from txaware.service.local import LocalService
from txaware.service.store_context import StoreContext
from txaware.service.transfer.copying import Copied, CopySource, Target, copy
from txaware.store.kinds import KINDS
from txaware.store.memory import FOR_EVER_MS, MemoryTable
from txaware.store.topic_table import TopicTable

Polls = Callable[..., Iterable[Message]]


class Faults:
    """Has the write of that number fail: not done, done in part, or done."""

    def __init__(self, fail_at: int | None = None, how: str = "lost") -> None:
        self.count = 0
        self._fail_at = fail_at
        self._how = how

    def around(self, write: Callable[[Sequence[Any]], object], all_of: Any) -> None:
        """Does the next write, or less than that."""
        self.count += 1
        if self.count != self._fail_at:
            write(all_of)
            return
        if self._how != "lost":
            write(all_of if self._how == "done" else all_of[1::2])
        raise Unavailable("killed")


class KeptJournal(MemoryJournal):
    """A journal that another coordinator can go on with."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()

    def append(self, *records: Record) -> None:
        def write(these: Sequence[Record]) -> None:
            for record in these:
                self.history.apply(record)

        if not records:
            return
        # A batch of the journal is there as a whole or not at all.
        self.faults.around(lambda _: write(records), [()])


class FaultyTable(MemoryTable):
    """A table whose writes may fail, and need not be whole where they do."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock_ms=clock)
        self.faults = Faults()
        self.reserved_ms = 0

    def reserve_time(self) -> None:
        self.reserved_ms = self.clock.next_ms

    def submit(self, writes: Sequence[Write], then: Any = None) -> Wait:
        wait: list[Wait] = []
        submit = super().submit
        self.faults.around(lambda these: wait.append(submit(these, then)), writes)
        return wait[0]


class CopyInMemory:
    """The target of a copy, which outlives any number of failures."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.table = FaultyTable(self.clock)
        self.journal = KeptJournal()
        self.writes = 0

    def take(
        self, source: Messaging, *, faults: Faults | None = None, **options: Any
    ) -> Copied:
        """Copies, as in a process of its own."""
        faults = faults or Faults()
        self.table.faults = self.journal.faults = faults
        try:
            return copy(
                CopySource(table_of(source), source.coordinator),
                Target("the copy", self.table, self.journal),
                **options,
            )
        finally:
            self.writes = faults.count
            self.table.faults = self.journal.faults = Faults()

    def rows(self) -> list[Row]:
        """All that was copied."""
        return rows_of(self.table)

    def report(self) -> Report:
        """What a check says of it."""
        return check(self.table, durable=False, clock_ms=self.clock)

    def open(self) -> "Reader":
        """Its service, beside its embedded coordinator, as after a restart."""
        self.table.clock = StoreClock(self.clock, self.table.clock.next_ms)
        self.table.clock.saved(FOR_EVER_MS)
        coordinator = EmbeddedCoordinator(
            self.journal, clock_ms=self.table.clock.now_ms
        )
        settings = Settings(janitor_interval_s=0)
        site = StoreContext(
            self.table, coordinator, coordinator.barrier, settings, self.clock
        )
        return Reader(LocalService(site), coordinator)


class Reader:
    """What readers get of a service."""

    def __init__(self, service: Any, coordinator: Any) -> None:
        self.service = service
        self.coordinator = coordinator

    def poll(self, topic: str, **options: Any) -> list[tuple[MessageId, bytes]] | str:
        """Ids and payloads; or why there are none."""
        try:
            return list(self.service.poll(topic, limit=10_000, **options))
        except TxAwareError as error:
            return str(error)

    def seen(self, topic: str) -> list[tuple[MessageId, bytes]] | str:
        """What a transaction gets, and what anybody gets of what is committed."""
        found = self.poll(topic, transaction=self.coordinator.snapshot())
        assert found == self.poll(topic, isolation="committed")
        return found


def rows_of(table: Any) -> list[Row]:
    """All rows that a copy takes, with whole keys."""
    return [
        (first_byte + key, value)
        for first_byte in KINDS.copied
        for key, value in table.scan(first_byte, limit=10**6, max_bytes=1 << 30)
    ]


def topics_of(table: Any) -> list[Topic]:
    """All topics, deleted ones as well."""
    return list(TopicTable(table).all())
