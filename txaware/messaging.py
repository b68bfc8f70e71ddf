"""What a program holds: `connect` and what it answers."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self
from weakref import WeakSet

from coordinator import (
    Coordinator,
    Transaction,
    TransactionAware,
    TransactionContext,
)
from txaware.auth import Tokens
from txaware.clock import ClockMs, system_clock_ms
from txaware.config import Settings
from txaware.consume import Consumer, Subscriber, subscribe
from txaware.consume.places import StartAt
from txaware.errors import Unavailable
from txaware.http.client import HttpAdministration
from txaware.http.server import Access, HttpServer
from txaware.interfaces import COMMITTED
from txaware.messages import MessageId, PublishResponse, Receipt
from txaware.metrics import Metrics
from txaware.opening import open_parts, served_already
from txaware.parts import Parts, Reach
from txaware.publish import (
    AsyncPublisher,
    AtMostOncePublisher,
    DirectPublisher,
    KnownTopics,
    Publisher,
    TransactionPublisher,
    WrittenByHand,
    publisher_key,
    written_by_hand,
)
from txaware.requests import Payload, Pointer, Start
from txaware.service.administration import Administration
from txaware.service.backup import Backup, save
from txaware.service.check_report import Report
from txaware.service.check_scan import Progress
from txaware.service.inspection import Peeked, TopicReport
from txaware.service.retention import CleanUp, OnProgress, Pruned
from txaware.verbs import Verbs


class Closes(Protocol):
    """What has to be closed before the parts that it works on."""

    def close(self) -> None:
        """Ends it."""


# One serves all who ask for it, as any number of threads may share it.
KNOWN_PUBLISHERS = 10_000


class Messaging(Verbs):
    """What a program holds: topics, transactions, and all that takes part in them.

    A context manager. Any number of threads may share it.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.service)
        self._parts = parts
        self._administration = parts.administration
        self._known_topics = KnownTopics(parts.service)
        self._publishers: dict[str, Publisher] = {}
        self._to_close: WeakSet[Closes] = WeakSet()

    @property
    def coordinator(self) -> Coordinator:
        """Who decides what commits."""
        return self._parts.coordinator

    @property
    def administration(self) -> Administration | HttpAdministration:
        """What operators ask, with the steps of a clean-up that processes share."""
        return self._administration

    def transaction(
        self,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
        begun: Transaction | None = None,
    ) -> "MessagingTransaction":
        """`with messaging.transaction(table) as tx:` commits at the end of the block.

        Or it undoes everything, when the block raises or the commit is refused. A long
        transaction may run for a day, and has no time-out of its own. `begun` is one
        that was begun in another process, and is ended by this block.
        """
        return MessagingTransaction(
            self, *participants, timeout_s=timeout_s, long=long, begun=begun
        )

    def reach(self) -> Reach:
        """Where other processes reach this data: its server's address and a token."""
        if self._parts.reach is not None:
            return self._parts.reach
        for server in list(self._to_close):
            file = server.for_others if isinstance(server, HttpServer) else None
            if file is not None:
                return Reach(file.url, file.token, file.certificate)
        raise Unavailable(
            "other processes cannot reach this data while nobody serves it; do so "
            "meanwhile: with messaging.serve(): ..."
        )

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece, at once; see `Verbs.publish`.

        Where `transaction` is that of a `with` block of this thread or task, the block
        takes it back when it fails. By whoever else holds one, `rollback` has to.
        """
        by_hand = transaction is not None and self._by_hand(transaction)
        publish = by_hand.publish if by_hand else super().publish
        return publish(topic, messages, transaction=transaction, receipts=receipts)

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; a `with` block takes it back when it fails."""
        by_hand = self._by_hand(transaction)
        save = by_hand.save_position if by_hand else super().save_position
        save(group, topic, position, transaction=transaction)

    def _by_hand(self, transaction: Pointer) -> WrittenByHand | None:
        return written_by_hand(
            self._service,
            self._parts.coordinator,
            transaction,
            shares_journal=self._parts.shares_journal,
        )

    def publisher(
        self, topic: str, *, buffer_limit_bytes: int | None = None
    ) -> Publisher:
        """Publishes in the open transaction of this thread or task, or at once.

        Above `buffer_limit_bytes` (8 MiB) it stores ahead of the commit.
        """
        if buffer_limit_bytes is None and isinstance(topic, str):
            found = self._publishers.get(topic)
            if found is not None:
                return found
        publisher = self._publisher(topic, buffer_limit_bytes)
        if buffer_limit_bytes is None and len(self._publishers) < KNOWN_PUBLISHERS:
            self._publishers[topic] = publisher
        return publisher

    def _publisher(self, topic: str, buffer_limit_bytes: int | None) -> Publisher:
        settings, largest = self._parts.settings, self._parts.largest_buffer_bytes
        if buffer_limit_bytes is None:
            buffer_limit_bytes = settings.buffer_limit_bytes
        elif largest is not None and isinstance(buffer_limit_bytes, int):
            buffer_limit_bytes = min(buffer_limit_bytes, largest)
        return Publisher(
            self._service,
            self._parts.coordinator,
            topic,
            buffer_limit_bytes=buffer_limit_bytes,
            message_limit_bytes=settings.message_limit_bytes,
            shares_journal=self._parts.shares_journal,
            known_topics=self._known_topics,
        )

    def direct_publisher(self, topic: str) -> DirectPublisher:
        """Publishes at once, whatever transaction is open; on disk when it returns."""
        limit_bytes = self._parts.settings.message_limit_bytes
        return DirectPublisher(self._service, topic, message_limit_bytes=limit_bytes)

    def async_publisher(self, topic: str, **options: Any) -> AsyncPublisher:
        """Publishes in the background and answers futures; see `AsyncPublisher`."""
        limit_bytes = self._parts.settings.message_limit_bytes
        publisher = AsyncPublisher(
            self._service, topic, message_limit_bytes=limit_bytes, **options
        )
        self._to_close.add(publisher)
        return publisher

    def at_most_once_publisher(self, topic: str, **options: Any) -> AtMostOncePublisher:
        """Publishes in the background and drops what fails, where speed is worth it."""
        limit_bytes = self._parts.settings.message_limit_bytes
        publisher = AtMostOncePublisher(
            self._service, topic, message_limit_bytes=limit_bytes, **options
        )
        self._to_close.add(publisher)
        return publisher

    def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: str = COMMITTED,
    ) -> Consumer:
        """Reads a topic in order; a `group` has one position, kept with the commit.

        `start` counts where the group has no position yet, and always without a group:
        an id, a time in ms, `"first"`, `"last"`, `"next"`, or None for the beginning.
        """
        return Consumer(
            self._service,
            self._parts.coordinator,
            topic,
            group=group,
            start=start,
            inclusive=inclusive,
            isolation=isolation,
            shares_journal=self._parts.shares_journal,
            clock_ms=self._parts.clock_ms,
        )

    def subscribe(
        self, topic: str, handler: Callable[..., object], **options: Any
    ) -> Subscriber:
        """A loop that calls `handler(message)` in transactions; see `subscribe`."""
        subscriber = subscribe(
            self._service,
            self._parts.coordinator,
            topic,
            handler,
            shares_journal=self._parts.shares_journal,
            clock_ms=self._parts.clock_ms,
            **options,
        )
        self._to_close.add(subscriber)
        return subscriber

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Rows of a topic as they stand, whatever became of their transactions."""
        return self._administration.peek(topic, start=start, limit=limit)

    def namespaces(self) -> list[str]:
        """All namespaces that have a topic, in order."""
        return self._administration.namespaces()

    def inspect(self, topic: str) -> TopicReport:
        """Counts, sizes, times and who blocks a topic; reads all of it."""
        return self._administration.inspect(topic)

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Where to cut a range of a topic, for several to read it at once.

        The ids strictly between `start` and `stop`, rising, at which parts of about
        `part_bytes` begin: [start, first), [first, second), up to [last, stop). At most
        10,000 of them, and none where all of it fits one part. It is about balance: no
        large topic is read for it, and what is not committed counts too.
        """
        return self._administration.splits(
            topic, start=start, stop=stop, part_bytes=part_bytes
        )

    def lag_ms(self, group: str, topic: str) -> int:
        """How far a group is behind the newest message of a topic."""
        return self._administration.lag_ms(group, topic)

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant of the data, which stays in use meanwhile.

        `progress` is told how many rows were read, and which part of all that is.
        """
        return self._administration.check(progress)

    def backup(self, file: BinaryIO, *, progress: Progress | None = None) -> Backup:
        """Copies everything that is committed now to a file; nobody has to stop.

        `txaware restore` makes a data directory of it. `progress` is told how many rows
        were copied, and about which part of all that is.
        """
        return save(self._administration.backup(), file, progress=progress)

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes what has expired, and marks what invalid transactions wrote."""
        return self._administration.clean_up(on_progress)

    def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs.

        One that others share is asked only when you say that it is `exclusive`.
        """
        return self._administration.prune(exclusive=exclusive)

    def metrics(self) -> Metrics:
        """What was counted in this process, and how things stand."""
        return self._administration.metrics()

    def serve(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: str | Path | Tokens | None = None,
        insecure: bool = False,
        **options: Any,
    ) -> HttpServer:
        """Serves this data to other processes until the end of the `with` block.

        `with messaging.serve() as server:` listens at `server.url`, by default on a
        free port of loopback. `tokens` is a file of tokens; without one an address
        that others reach is refused, unless it is `insecure`. Further `options` are
        those of `Access`: `audit`, `certificate`, `key`.
        """
        if self._parts.served is None:
            raise served_already(self.reach())
        access = Access(
            host=host,
            port=port,
            tokens=Tokens.load(tokens) if isinstance(tokens, str | Path) else tokens,
            is_insecure=insecure,
            **options,
        )
        server = HttpServer(self._parts.served, access)
        self._to_close.add(server)
        return server

    def close(self) -> None:
        """Closes what came from here first: servers, publishers, subscribers.

        They lose nothing. A coordinator of the caller's stays open.
        """
        for open_one in list(self._to_close):
            open_one.close()
        self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class MessagingTransaction(TransactionContext):
    """A transaction of a `Messaging`, which it knows."""

    def __init__(
        self, messaging: Messaging, *participants: TransactionAware, **options: Any
    ) -> None:
        super().__init__(messaging.coordinator, *participants, **options)
        self.messaging = messaging

    def store_held(self) -> None:
        """Stores what publishers hold, so that it comes before what others store."""
        held = self._known.get(publisher_key(self.messaging._service))
        if isinstance(held, TransactionPublisher):
            held.store_held()


def connect(
    url: str,
    *,
    coordinator: str | Coordinator | None = None,
    token: str | None = None,
    settings: Settings | None = None,
    clock_ms: ClockMs = system_clock_ms,
) -> Messaging:
    """Connects to `memory:`, `leveldb:PATH`, or a server at `http://HOST:PORT`.

    What is in memory ends with the process. A directory has one owner; where that one
    serves it, others of its user are led there. Of several servers with commas between
    them (`http://one:11015,http://two:11015`) the one that has the data is asked.

    `coordinator` is `embedded` (durable beside the data), the address of a Tephra
    (`tephra:DIR` in a JVM of its own, `tephra://HOST:PORT`, `tephra+zk://HOSTS`) or of
    a server (`http://HOST:PORT`), or a `Coordinator` of the caller's. By default it is
    the embedded one, or the server's own. `token` is what a server may ask for; by
    default it comes from `TXAWARE_TOKEN` or the file that `TXAWARE_TOKEN_FILE` names.
    `settings` are read from the environment by default.
    """
    settings = Settings.load() if settings is None else settings
    return Messaging(open_parts(url, coordinator, settings, clock_ms, token))
