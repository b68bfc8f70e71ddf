"""The entry of a program: `connect`, and the `Messaging` that it returns."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from weakref import WeakSet

from coordinator import (
    Coordinator,
    Participant,
    Transaction,
    TransactionAware,
    TransactionContext,
)
from coordinator.brief_errors import briefly
from coordinator.context import current_transaction
from coordinator.fork_guard import guard, refusing_class
from coordinator.optional_ports import begins_later, starts_with_commit
from txaware.auth import AuditLog, Tokens
from txaware.consume import Consumer, Member, consumer_of
from txaware.consume.member import OnPartitions, Strategy, To
from txaware.errors import BadRequest, MisusedTransaction, Unavailable, closed
from txaware.messaging.addresses import open_parts, served_already
from txaware.messaging.broadcast import (
    LEASE_S,
    BroadcastConsumer,
    Instance,
    Instances,
)
from txaware.messaging.loop_verbs import Closes, LoopVerbs, client_name
from txaware.messaging.parts import Limits, Parts, Reach
from txaware.messaging.typed_topic import TopicVerbs
from txaware.messaging.verbs import (
    GroupVerbs,
    OperatorVerbs,
    PreparedVerbs,
    QueueVerbs,
    Verbs,
)
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.encoding import Decode, Encode
from txaware.model.groups import Assignment
from txaware.model.interfaces import COMMITTED, Isolation
from txaware.model.messages import T
from txaware.model.partitions import checked_partition
from txaware.model.reports import MessagingStatus
from txaware.model.requests import checked_flag
from txaware.model.settings import Settings
from txaware.model.signatures import showing
from txaware.model.start_places import StartAt
from txaware.model.topics import QueueName
from txaware.publish import (
    AsyncPublisher,
    AtMostOncePublisher,
    DirectPublisher,
    EncodingPublisher,
    KnownTopics,
    Producer,
    Publisher,
    Sender,
    SenderOptions,
    TransactionPublisher,
    publisher_key,
)
from txaware.publish.background_publishers import WhenFull
from txaware.publish.fenced_transaction import FencedTransaction
from txaware.publish.send_way import SendsBatches
from txaware.publish.sender import SenderLimits
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.queue import Queue
from txaware.queue.handled_items import handled_key
from txaware.queue.popped_jobs import PoppedJobs
from txaware.queue.queue_access import DueTimes, QueueAccess
from txaware.server.server_file import ServerFile
from txaware.tables import Table
from txaware.tables.table_changes import Conflicts

if TYPE_CHECKING:
    from txaware.server.server import HttpServer

V = TypeVar("V")

# A publisher is kept for all who ask for it, as any number of threads may share it.
KNOWN_PUBLISHERS = 10_000


class Messaging(
    TopicVerbs,
    Verbs,
    PreparedVerbs,
    QueueVerbs,
    GroupVerbs,
    OperatorVerbs,
    LoopVerbs,
):
    """The object that a program holds: its topics, transactions and participants.

    It is a context manager. Any number of threads may share it. A forked child connects
    again and makes one of its own.
    """

    def __init__(self, parts: Parts) -> None:
        Verbs.__init__(self, parts.service, parts.coordinator)
        self._parts = parts
        QueueVerbs.__init__(self, parts.queues)
        GroupVerbs.__init__(self, parts.groups)
        OperatorVerbs.__init__(self, parts.administration, parts.producers)
        self._publishes_once = parts.producers
        self._known_topics = KnownTopics(parts.service)
        self._publishers: dict[str, Publisher] = {}
        self._known_queues: dict[str, Queue] = {}
        self._to_close: WeakSet[Closes] = WeakSet()
        # Makes transactions that begin with their commits, where those ask a server.
        self._start_with_commit = starts_with_commit(parts.coordinator)
        self._is_closed = False
        guard(self, parts.service, parts.coordinator, parts.administration)

    @property
    def shares_journal(self) -> bool:
        """True when one batch has rows of the store and records of the coordinator."""
        return self._parts.shares_journal

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that decides what commits."""
        return self._parts.coordinator

    def transaction(
        self,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
        begun: Transaction | None = None,
    ) -> "MessagingTransaction":
        """Begins a transaction: `with messaging.transaction(table) as tx:`.

        The end of the block commits it. If the block raises or the commit is refused,
        everything is undone. A long transaction may run for a day, and has no time-out
        of its own. `begun` is a transaction that another process began, and that this
        block ends.
        """
        if long is not False:  # one call less for nearly all
            checked_flag("long", long)
        is_short = begun is None and not long
        if is_short and participants and any(map(decides, participants)):
            begun = begins_later(self._parts.coordinator, timeout_s)
        context = MessagingTransaction(
            self._parts.coordinator,
            *participants,
            timeout_s=timeout_s,
            long=long,
            begun=begun,
        )
        context.messaging = self
        context.start_with_commit = self._start_with_commit
        return context

    @overload
    def producer(self) -> Producer: ...

    @overload
    def producer(self, transactional_id: str) -> TransactionalProducer: ...

    def producer(
        self, transactional_id: str | None = None
    ) -> Producer | TransactionalProducer:
        """Opens a producer, whose repeated publishes store nothing twice.

        With a `transactional_id` it has transactions, and is the one instance of that
        id: when this returns, every older instance is fenced, and what these left open
        has ended.
        """
        if transactional_id is not None:
            return self._transactional(transactional_id)
        limit_bytes = self._parts.settings.message_limit_bytes
        producer = Producer(
            self._producers,
            message_limit_bytes=limit_bytes,
            partitions=self.partitions,
        )
        self._to_close.add(producer)
        return producer

    def _transactional(self, transactional_id: str) -> TransactionalProducer:
        return TransactionalProducer(
            self._producers,
            transactional_id,
            make=self._fenced,
            publisher=self.publisher,
            saves=self._service,
            message_limit_bytes=self._parts.settings.message_limit_bytes,
            shares_journal=self._parts.shares_journal,
            begins=self._parts.begins,
        )

    def _fenced(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> "ProducerTransaction":
        context = ProducerTransaction(
            self._parts.coordinator, *participants, timeout_s=timeout_s
        )
        context.messaging = self
        return context

    def status(self) -> MessagingStatus:
        """Tells how this program reaches the data: here, in frames or by HTTP."""
        return self._parts.status()

    @property
    def needs_server(self) -> bool:
        """True when the data is at a server, which may be away."""
        return self._parts.unasked is not None

    def _limits(self) -> Limits:
        """Returns the limits; in a block that a database decides no server's are asked.

        What they refuse there is told by the relay.
        """
        unasked = self._parts.unasked
        if unasked is not None and self._is_decided_elsewhere():
            return unasked
        return self._parts.ask_limits()

    def _is_decided_elsewhere(self) -> bool:
        """Tells whether a database decides the open block, beside a server's data."""
        if self._parts.unasked is None:
            return False
        context = current_transaction(self._parts.coordinator)
        return context is not None and context.is_decided

    @property
    def longest_timeout_s(self) -> float | None:
        """The longest time-out of a short transaction; None where there is no maximum.

        A server has one. The program that has the data open has none.
        """
        return self._parts.ask_limits().longest_timeout_s

    @property
    def is_owner(self) -> bool:
        """True where this process has the data, and can serve it to others."""
        return self._parts.served is not None

    def reach(self) -> Reach:
        """Tells where other processes reach this data: a server's address and token."""
        if self._parts.reach is not None:
            return self._parts.reach
        for server in list(self._to_close):
            file: ServerFile | None = getattr(server, "for_others", None)
            if file is not None:
                return Reach(file.url, file.token, file.certificate)
        raise Unavailable(
            "other processes cannot reach this data while nobody serves it; do so "
            "meanwhile: with messaging.serve(): ..."
        )

    @overload
    def publisher(
        self,
        topic: str,
        *,
        buffer_limit_bytes: int | None = None,
        encode: None = None,
    ) -> Publisher: ...

    @overload
    def publisher(
        self, topic: str, *, buffer_limit_bytes: int | None = None, encode: Encode[V]
    ) -> EncodingPublisher[V]: ...

    def publisher(
        self,
        topic: str,
        *,
        buffer_limit_bytes: int | None = None,
        encode: Encode[V] | None = None,
    ) -> Publisher | EncodingPublisher[V]:
        """Returns a publisher to the open transaction of this thread or task.

        Without an open transaction it publishes at once. Above `buffer_limit_bytes`
        (8 MiB) it stores messages ahead of the commit. It takes bytes, or any values
        with an `encode` that makes bytes of them, as `txaware.to_json` does.
        """
        if encode is not None:
            plain = self.publisher(topic, buffer_limit_bytes=buffer_limit_bytes)
            return EncodingPublisher(plain, encode)
        if buffer_limit_bytes is None and isinstance(topic, str):
            found = self._publishers.get(topic)
            if found is not None:
                return found
        publisher = self._publisher(topic, buffer_limit_bytes)
        is_usual = buffer_limit_bytes is None and not self._is_decided_elsewhere()
        if is_usual and len(self._publishers) < KNOWN_PUBLISHERS:
            self._publishers[topic] = publisher
        return publisher

    def _publisher(self, topic: str, buffer_limit_bytes: int | None) -> Publisher:
        limits = self._limits()
        settings, largest = limits.settings, limits.largest_buffer_bytes
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
            shares_journal=limits.shares_journal,
            known_topics=self._known_topics,
        )

    def table(
        self,
        name: str,
        *,
        encode: Encode[T] | None = None,
        decode: Decode[T] | None = None,
        conflicts: Conflicts = "row",
    ) -> Table[T]:
        """Returns a table of yours, whose rows commit with the messages beside them.

        Keys and values are bytes, unless `encode` makes bytes of values and `decode`
        reads them. Two transactions that change one row at the same time conflict; with
        `conflicts="none"` the later one counts. The table is there with its first row.
        """
        return Table(
            self._parts.tables,
            self._parts.coordinator,
            name,
            encode=encode,
            decode=decode,
            conflicts=conflicts,
            shares_journal=self._parts.shares_journal,
            value_limit_bytes=self._parts.settings.message_limit_bytes,
            request_bytes=self._parts.ask_limits().largest_row_bytes,
        )

    def tables(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's tables that have rows, in order."""
        return self._parts.tables.tables(namespace)

    @overload
    def queue(
        self, name: str, *, encode: Encode[Any], decode: None = None
    ) -> Queue[Any]: ...

    @overload
    def queue(
        self,
        name: str,
        *,
        encode: Encode[T] | None = None,
        decode: Decode[T] | None = None,
    ) -> Queue[T]: ...

    def queue(
        self,
        name: str,
        *,
        encode: Encode[Any] | None = None,
        decode: Decode[Any] | None = None,
    ) -> Queue[Any]:
        """Returns a queue, to push to and to pop from.

        Payloads are bytes, unless `encode` makes bytes of what is pushed and `decode`
        makes values of what is popped. A job whose payload cannot be decoded has
        failed: a worker gives it back with the reason, and too often is a dead letter.
        """
        queue = self._queue(name)
        if encode is None and decode is None:
            return queue
        return queue.typed(encode=encode, decode=decode)

    def _queue(self, name: str) -> Queue:
        known = self._known_queues.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        limits = self._limits()
        settings, largest = limits.settings, limits.largest_buffer_bytes
        access = QueueAccess(
            queues=self._queue_service,
            service=self._service,
            coordinator=self._parts.coordinator,
            shares_journal=limits.shares_journal,
            buffer_limit_bytes=min(
                settings.buffer_limit_bytes, largest or settings.buffer_limit_bytes
            ),
            message_limit_bytes=settings.message_limit_bytes,
            begin=self.transaction,
            opened=self._to_close.add,
            clock_ms=self.clock_ms,
            due_times=DueTimes(self.table, self.clock_ms),
        )
        queue: Queue = Queue(access, str(QueueName.parse(name)))
        is_usual = not self._is_decided_elsewhere()
        if is_usual and len(self._known_queues) < KNOWN_PUBLISHERS:
            self._known_queues.setdefault(name, queue)
        return queue

    def direct_publisher(self, topic: str) -> DirectPublisher:
        """Returns a publisher that joins no transaction; a call ends once on disk."""
        limit_bytes = self._parts.settings.message_limit_bytes
        return DirectPublisher(self._service, topic, message_limit_bytes=limit_bytes)

    @overload
    def sender(
        self, *, encode: None = None, **options: Unpack[SenderLimits]
    ) -> Sender: ...

    @overload
    def sender(
        self, *, encode: Encode[V], **options: Unpack[SenderLimits]
    ) -> Sender[V]: ...

    @showing(SenderOptions)
    def sender(
        self, *, encode: Encode[V] | None = None, **options: Unpack[SenderLimits]
    ) -> Sender | Sender[V]:
        """Returns a sender to any topics, which keeps the line full; see `Sender`.

        The options are those of `SenderOptions`. With a `compression`, `"gzip"` or
        `"zstd"`, whole batches go and are stored compressed. Readers see single
        messages as ever. With `encode`, such as `txaware.to_json`, it takes any values.
        """
        self._require_open()
        limits = self._parts.ask_limits()
        limits.require_senders()
        sender: Sender[Any] = Sender(
            self._parts.way,
            SenderOptions(encode=encode, **options),
            message_limit_bytes=limits.settings.message_limit_bytes,
            request_bytes=limits.largest_buffer_bytes,
        )
        self._to_close.add(sender)
        return sender

    def _way(self) -> Callable[[], SendsBatches] | None:
        """Returns the way of a sender; None at a server of a version before them."""
        return self._parts.way if self._parts.ask_limits().takes_senders else None

    def async_publisher(
        self,
        topic: str,
        *,
        when_full: WhenFull = "wait",
        linger_ms: float = 5,
        batch_limit_bytes: int = 1 << 20,
        batch_limit_messages: int = 1_000,
        queue_limit_bytes: int = 32 << 20,
        queue_limit_messages: int = 100_000,
        give_up_after_s: float = 120,
    ) -> AsyncPublisher:
        """Returns a publisher that works in the background; see `AsyncPublisher`."""
        self._require_open()
        publisher = AsyncPublisher(
            self._publishes_once,
            topic,
            way=self._way(),
            message_limit_bytes=self._parts.settings.message_limit_bytes,
            when_full=when_full,
            linger_ms=linger_ms,
            batch_limit_bytes=batch_limit_bytes,
            batch_limit_messages=batch_limit_messages,
            queue_limit_bytes=queue_limit_bytes,
            queue_limit_messages=queue_limit_messages,
            give_up_after_s=give_up_after_s,
        )
        self._to_close.add(publisher)
        return publisher

    def at_most_once_publisher(
        self,
        topic: str,
        *,
        linger_ms: float = 5,
        batch_limit_bytes: int = 1 << 20,
        batch_limit_messages: int = 1_000,
        queue_limit_bytes: int = 32 << 20,
        queue_limit_messages: int = 100_000,
    ) -> AtMostOncePublisher:
        """Returns a fast publisher in the background, which drops what fails."""
        self._require_open()
        publisher = AtMostOncePublisher(
            self._service,
            topic,
            way=self._way(),
            message_limit_bytes=self._parts.settings.message_limit_bytes,
            linger_ms=linger_ms,
            batch_limit_bytes=batch_limit_bytes,
            batch_limit_messages=batch_limit_messages,
            queue_limit_bytes=queue_limit_bytes,
            queue_limit_messages=queue_limit_messages,
        )
        self._to_close.add(publisher)
        return publisher

    @briefly
    def consumer(
        self,
        topic: str,
        *,
        partition: int | None = None,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        decode: Decode[T] | None = None,
    ) -> Consumer[T]:
        """Returns a reader of a topic; a `group` has one position, saved by the commit.

        `start` counts if the group has no position yet, and always without a group. It
        is an id, a time in ms, `"first"`, `"last"`, `"next"`, or None for the
        beginning. With `decode` (`txaware.from_json`) they hold what it makes. With a
        `partition` it reads that one alone.
        """
        return consumer_of(
            decode,
            self._service,
            self._parts.coordinator,
            topic if partition is None else checked_partition(topic, partition),
            group=group,
            start=start,
            inclusive=inclusive,
            isolation=isolation,
            shares_journal=self._parts.shares_journal,
            clock_ms=self._parts.clock_ms,
        )

    @briefly
    def member(
        self,
        group: str,
        *,
        topics: Iterable[str] = (),
        start: To | None = None,
        session_s: float | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        static: str | None = None,
        autocommit: bool = False,
        assignment: Assignment | Strategy | None = None,
        poll_interval_s: float = 300,
    ) -> Member:
        """Returns a member of a group: `with messaging.member("billing", ...) as m:`.

        The block joins the group, and `m.poll()` returns messages of its share of the
        partitions of `topics`. What the group has never read begins at `start`. Others
        get its partitions where it is not heard for `session_s` (10), or does not poll
        for `poll_interval_s`. `on_assigned` and `on_revoked` are told what it got and
        lost. A `static` name keeps its partitions through a restart within the session.
        """
        member = Member(
            self._service,
            self._group_service,
            self._parts.coordinator,
            group,
            topics=topics,
            start=start,
            session_s=session_s,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            static=static,
            autocommit=autocommit,
            assignment=assignment,
            poll_interval_s=poll_interval_s,
            client=client_name(),
            shares_journal=self._parts.shares_journal,
        )
        self._to_close.add(member)
        return member

    def broadcast(
        self,
        topic: str,
        *,
        instance: str,
        lease_s: float = LEASE_S,
        decode: Decode[T] | None = None,
    ) -> BroadcastConsumer[T]:
        """Returns a reader of every message, for one instance of a program.

        It begins with the newest message of each key. Others see how far it has come by
        `instances`, until it is closed, or `lease_s` after its last call.
        """
        return BroadcastConsumer(
            self,
            topic,
            instance,
            lease_s=lease_s,
            decode=decode,
            in_block=lambda: current_transaction(self._parts.coordinator) is not None,
        )

    def instances(self, topic: str) -> dict[str, Instance]:
        """Returns the instances that get all messages of a topic, by their names."""
        return Instances(self).of(topic)

    def serve(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: str | Path | Tokens | None = None,
        insecure: bool = False,
        audit: AuditLog | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        allow_plain_tokens: bool = False,
    ) -> "HttpServer":
        """Serves this data to other processes until the end of the `with` block.

        `with messaging.serve() as server:` listens at `server.url`, by default on a
        free port of loopback. `tokens` is a file of tokens; without it an address that
        other machines reach is refused, unless `insecure` is true. `audit` logs the
        calls that were refused. `certificate` and `key` are files (PEM) to speak TLS
        with; without them tokens from other machines are refused, unless
        `allow_plain_tokens` is true.
        """
        # A server takes long to import, and most programs have none.
        from txaware.server.server import Access, HttpServer

        self._require_open()
        if self._parts.served is None:
            raise served_already(self.reach())
        access = Access(
            host=host,
            port=port,
            tokens=Tokens.load(tokens) if isinstance(tokens, str | Path) else tokens,
            is_insecure=insecure,
            audit=audit,
            certificate=certificate,
            key=key,
            allow_plain_tokens=allow_plain_tokens,
        )
        server = HttpServer(self._parts.served, access)
        self._to_close.add(server)
        return server

    def close(self) -> None:
        """Closes its servers, publishers and subscribers, and then the data.

        They lose nothing. A coordinator that the caller passed in stays open.
        """
        self._is_closed = True
        for open_one in [self._kept_once, *self._to_close]:
            open_one.close()
        self._parts.close()
        refuse_closed(self)

    def _require_open(self) -> None:
        """Raises `Unavailable` once it is closed: nothing would write what is taken."""
        if self._is_closed:
            raise closed()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


# What a closed one still has: its coordinator may be the caller's own.
STILL_THERE = ("close", "coordinator")


def refuse_closed(messaging: object) -> None:
    """Makes every call of a `Messaging` that has been closed say so."""
    kind = type(messaging)
    refusing = refusing_class(
        kind,
        closed(),
        shown=f"<{kind.__name__}, closed>",
        allows=lambda name: name.startswith("_") or name in STILL_THERE,
    )
    object.__setattr__(messaging, "__class__", refusing)


def decides(participant: object) -> bool:
    """Tells whether a participant decides its blocks."""
    return isinstance(participant, Participant) and participant.decides is True


def checked_messaging(
    messaging: object,
    *,
    taker: str,
    in_asyncio: str = "blocks of asyncio take connections for asyncio",
) -> Messaging:
    """Returns a `Messaging`; for anything else `BadRequest` says what to use."""
    if isinstance(messaging, Messaging):
        return messaging
    raise BadRequest(
        f"{taker} joins blocks (with messaging.transaction(...): ...) of the Messaging "
        f"of txaware.connect, whose calls block, not {messaging!r:.100}; {in_asyncio}"
    )


class MessagingTransaction(TransactionContext):
    """A transaction that knows the `Messaging` it belongs to."""

    messaging: Messaging

    def store_held(self) -> None:
        """Stores what publishers buffer, so that it comes before what others store."""
        held = self._known.get(publisher_key(self.messaging._service))
        if isinstance(held, TransactionPublisher):
            held.store_held()

    def publish_by(self, publisher: Any) -> None:
        """Has all that is published in the block taken by this one."""
        self.stand_in(publisher_key(self.messaging._service), publisher)

    def note_pops_in(self, inbox: Any) -> None:
        """Has all that is popped in the block noted in the inbox of its database."""
        for popped in self._known.values():
            if isinstance(popped, PoppedJobs):
                raise MisusedTransaction(
                    f"{popped.transaction_aware_name} were popped in the block before "
                    f"the participant joined that decides it; begin with that one"
                )
        self.stand_in(handled_key(self.messaging._queue_service), inbox)


class ProducerTransaction(FencedTransaction, MessagingTransaction):
    """A transaction of a `Messaging` that counts for a producer."""


@briefly
def connect(
    url: str,
    *,
    coordinator: str | Coordinator | None = None,
    token: str | None = None,
    settings: Settings | None = None,
    clock_ms: ClockMs = system_clock_ms,
    frames: bool = True,
) -> Messaging:
    """Opens `memory:`, `leveldb:PATH`, `hbase://HOST:PORT/PREFIX` or `http://HOST:PORT`.

    Data in memory ends with the process. A directory, or a prefix in HBase (behind its
    Thrift server), has one owner. If the owner serves it, other processes are led
    there; for a directory, only those of the same user. `http://` and `https://` are
    addresses of a server. Several servers are named with commas between them
    (`http://one:11015,http://two:11015`), and the one that has the data is asked.

    `coordinator` is `embedded` (durable beside the data), the address of a Tephra
    (`tephra:DIR` in a JVM of its own, `tephra://HOST:PORT`, `tephra+zk://HOSTS`) or of
    a server (`http://HOST:PORT`), or a `Coordinator` of the caller's. By default it is
    the embedded one, or the server's own. `token` is sent to a server; by default it
    comes from `TXAWARE_TOKEN` or the file that `TXAWARE_TOKEN_FILE` names. `settings`
    are read from the environment by default. All calls to a server go over one
    connection of frames, where it and what is in front of it grant that, and by
    HTTP/1.1 where not, or where `frames` is False.
    """
    settings = Settings.load() if settings is None else settings
    if not isinstance(settings, Settings):
        raise BadRequest(f"settings are a txaware.Settings, not {settings!r:.100}")
    parts = open_parts(url, coordinator, settings, clock_ms, token, frames=frames)
    return Messaging(parts)
