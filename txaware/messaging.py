"""The one place that puts the parts together: `connect` and what it answers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from coordinator import (
    Coordinator,
    EmbeddedCoordinator,
    TransactionAware,
    TransactionContext,
)
from coordinator.address import open_coordinator
from coordinator.transaction import Transaction
from txaware.clock import ClockMs, system_clock_ms
from txaware.config import Settings
from txaware.errors import BadRequest
from txaware.interfaces import UNCOMMITTED, OrderedTable
from txaware.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.requests import Payload, Pointer, Start
from txaware.rowkeys import STATE
from txaware.service.local import LocalService
from txaware.tables.leveldb import LevelDbTable
from txaware.tables.memory import MemoryTable
from txaware.topics import Topic

COORDINATOR = STATE + b"coordinator"


class Messaging:
    """What a program holds: topics, transactions, and all that takes part in them."""

    def __init__(
        self,
        service: LocalService,
        coordinator: Coordinator,
        *,
        table: OrderedTable,
        settings: Settings,
        shares_journal: bool,
        owns_coordinator: bool,
    ) -> None:
        self._service = service
        self._coordinator = coordinator
        self._table = table
        self._settings = settings
        self._shares_journal = shares_journal
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

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        return self._service.create_topic(topic, ttl_s=ttl_s, properties=properties)

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Replaces all properties; a ttl that is not named falls to the default."""
        return self._service.update_topic(topic, ttl_s=ttl_s, properties=properties)

    def topic(self, topic: str) -> Topic:
        """The topic as it stands."""
        return self._service.topic(topic)

    def topics(self, namespace: str = "default") -> list[str]:
        """The names of a namespace's topics, in the order of their keys."""
        return self._service.topics(namespace)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        self._service.delete_topic(topic)

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction answers what `rollback` takes.

        This is the call itself, which joins no transaction: `publisher` does.
        """
        return self._service.publish(
            topic, messages, transaction=transaction, receipts=receipts
        )

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""
        return self._service.store(
            topic, messages, transaction=transaction, attempt=attempt
        )

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all who poll in a transaction."""
        self._service.rollback(topic, response)

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: str = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Messages from `start` on: an id, a time in ms, or None for the beginning.

        With a transaction it stops at the first row that its snapshot cannot decide;
        `isolation="committed"` does the same with a fresh snapshot. `wait_s` waits for
        the first message, without a transaction only.
        """
        return self._service.poll(
            topic,
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
            isolation=isolation,
            wait_s=wait_s,
        )

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """How far a group has come, as the transaction or a fresh snapshot sees it."""
        return self._service.position(group, topic, transaction=transaction)

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what this one had saved."""
        self._service.save_position(group, topic, position, transaction=transaction)

    def bounds(self, topic: str) -> Bounds:
        """The first and the last id, committed or not, and where the next goes."""
        return self._service.bounds(topic)

    def close(self) -> None:
        """Closes what `connect` opened; a coordinator of the caller's stays open."""
        self._service.close()
        try:
            if self._owns_coordinator:
                self._coordinator.close()
        finally:
            self._table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def connect(
    url: str,
    *,
    coordinator: str | Coordinator = "embedded",
    settings: Settings | None = None,
    clock_ms: ClockMs = system_clock_ms,
) -> Messaging:
    """Connects to `memory:`, which ends with the process, or to `leveldb:PATH`.

    `coordinator` is `embedded` (durable beside the data), the address of a Tephra
    (`tephra:DIR` in a JVM of its own, `tephra://HOST:PORT`, `tephra+zk://HOSTS`), or a
    `Coordinator` of the caller's.
    """
    settings = Settings.load() if settings is None else settings
    table = _open_table(url, settings, clock_ms)
    try:
        return _put_together(table, coordinator, settings, clock_ms)
    except BaseException:
        table.close()
        raise


def _open_table(url: str, settings: Settings, clock_ms: ClockMs) -> OrderedTable:
    scheme, _, path = url.partition(":")
    if url == "memory:":
        return MemoryTable(clock_ms=clock_ms)
    if scheme == "leveldb" and path:
        return LevelDbTable.open(Path(path), settings, clock_ms=clock_ms)
    raise BadRequest(f"{url!r} cannot be connected to; memory: and leveldb:PATH can")


def _put_together(
    table: OrderedTable,
    coordinator: str | Coordinator,
    settings: Settings,
    clock_ms: ClockMs,
) -> Messaging:
    gate, owned = None, isinstance(coordinator, str)
    _check_coordinator(table, b"embedded" if coordinator == "embedded" else b"other")
    if coordinator == "embedded":
        embedded = EmbeddedCoordinator(
            table.journal if isinstance(table, LevelDbTable) else None,
            clock_ms=clock_ms,
            timeout_s=settings.transaction_timeout_s,
        )
        chosen: Coordinator = embedded
        gate = embedded.gate
    else:
        chosen = (
            open_coordinator(coordinator)
            if isinstance(coordinator, str)
            else coordinator
        )
    try:
        service = LocalService(
            table, chosen, gate=gate, settings=settings, clock_ms=clock_ms
        )
        if gate is not None:
            embedded.on_end(service.ended)
    except BaseException:
        if owned:
            chosen.close()
        raise
    return Messaging(
        service,
        chosen,
        table=table,
        settings=settings,
        shares_journal=gate is not None,
        owns_coordinator=owned,
    )


def _check_coordinator(table: OrderedTable, kind: bytes) -> None:
    """The pointers of two coordinators in one table would be taken for each other's."""
    if table.compare_and_set(COORDINATOR, None, kind):
        return
    found = table.get(COORDINATOR)
    if found != kind:
        raise BadRequest(
            f"this data was written with the coordinator {found!r}; it cannot be read "
            f"with another one, whose transactions it would confuse with those"
        )
