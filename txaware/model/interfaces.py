"""The ports: the services for programs and operators, and the table under them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import Cargo, Coordinator, OnWritten
from coordinator.transaction import Transaction
from txaware.model.clock import StoreClock
from txaware.model.keeper import Keeper, KeepsRows
from txaware.model.latest import LatestPage
from txaware.model.messages import (
    Bounds,
    Message,
    MessageId,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.model.metrics import Metrics
from txaware.model.reports import (
    CleanUp,
    OnProgress,
    OpenPlan,
    Peeked,
    Progress,
    Pruned,
    Report,
    SearchPage,
    TopicReport,
)
from txaware.model.requests import (
    COMMITTED,
    UNCOMMITTED,
    UNSAID,
    Isolation,
    OffsetsAt,
    Payload,
    Pointer,
    Start,
)
from txaware.model.shards import Shard, Shards
from txaware.model.signatures import PortVerb
from txaware.model.topics import Topic

# A row to write: its key, and its value or None for a deletion.
Write = tuple[bytes, bytes | None]
Row = tuple[bytes, bytes]


class MessagingService(Protocol):
    """The service that keeps topics, publishes to them and polls them.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. A topic is `name` or `namespace:name`. A call that raises `BadRequest`,
    `TopicNotFound` or `TransactionRefused` changed nothing.
    """

    @property
    def carrier(self) -> "CarriesMessages | None":
        """Makes cargoes of its rows; None where no commit carries any.

        What stands before another service has none: it may do something else in its
        `publish`, which a commit would not call.
        """

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
        shards: Shards = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted.

        One that is `compact` keeps the newest message of each key beyond its time to
        live, and a clean-up removes the others. Each of its `partitions` has an order
        of its own; there is one by default. They are spread evenly over `shards`, which
        are all by default; one that is made anew keeps its shards.

        One that exists is `TopicExists`. With `exist_ok` it is returned if it is as was
        named, and else the error says what differs; what was not named may differ.
        """

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str | None] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; None removes a property.

        Partitions are only added: a key may go to another one from then on.
        """

    def topic(self, topic: str) -> Topic:
        """Returns the topic as it is now."""

    def topics(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's topics, in the order of their keys."""

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction returns what `rollback` takes.

        An empty list in a transaction publishes the reference to stored payloads: those
        that `receipts` name, or else all whose receipts this service returned and that
        no reference has named yet.
        """

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all polls in a transaction."""

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Polls messages from `start`: an id, a time in ms, or None for the beginning.

        With a transaction the page stops at the first row that its snapshot cannot
        decide; `isolation="committed"` does the same with a fresh snapshot. `wait_s`
        waits for the first message; it is for polls without a transaction only.
        """

    def latest_page(
        self,
        topic: str,
        *,
        start: MessageId | None = None,
        transaction: Transaction | None = None,
    ) -> LatestPage:
        """Reads the newest message of each key in a piece of a topic, behind `start`.

        It stops at the first row that the transaction, or a fresh snapshot, cannot
        decide. Pieces that are put together in their order are as of the last one's
        snapshot.
        """

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Reads a group's position, as the transaction or a fresh snapshot sees it."""

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what the transaction saved."""

    def bounds(
        self, topic: str, *, start: Start = None, isolation: Isolation = UNCOMMITTED
    ) -> Bounds:
        """Reads the first and last id from `start` on, and the place of the next.

        `start` is an id, a time in ms, or None for the beginning: `first` is then the
        first message of that time or later. With `isolation="committed"` rows count as
        a committed reader gets them: `next` is at most the first row whose transaction
        is open, and `first` and `last` are committed and before it.
        """

    def offsets(
        self, topic: str, *, at: OffsetsAt = "last"
    ) -> dict[int, MessageId | None]:
        """Returns an id in each partition, by its number; None where there is none.

        That is the `"first"` or the `"last"` message, decided or not, or the greatest
        id up to which all is decided (`"stable"`), or the first message at a time or
        later.
        """

    def wait(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        timeout_s: float,
    ) -> bool:
        """Waits until there is a message to poll; returns False after the time-out."""


class MessageMethods:
    """The verbs of `MessagingService` that programs call, here and over HTTP."""

    create_topic = PortVerb(MessagingService.create_topic)
    update_topic = PortVerb(MessagingService.update_topic)
    topic = PortVerb(MessagingService.topic)
    topics = PortVerb(MessagingService.topics)
    delete_topic = PortVerb(MessagingService.delete_topic)
    publish = PortVerb(MessagingService.publish)
    store = PortVerb(MessagingService.store)
    rollback = PortVerb(MessagingService.rollback)
    poll = PortVerb(MessagingService.poll)
    position = PortVerb(MessagingService.position)
    save_position = PortVerb(MessagingService.save_position)
    bounds = PortVerb(MessagingService.bounds)
    latest_page = PortVerb(MessagingService.latest_page)
    offsets = PortVerb(MessagingService.offsets)
    wait = PortVerb(MessagingService.wait)


class OperatorService(Protocol):
    """The service that looks into a store, cleans it up and counts, for its operators.

    The calls are the same embedded and over HTTP, where no progress is told. Any number
    of threads may call. Reading or cleaning all of a large store takes a while.
    """

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Reads rows of a topic as they are, whatever became of their transactions."""

    def search(
        self,
        topic: str,
        *,
        start: Start = None,
        until: int | None = None,
        key: bytes | None = None,
        header: str | None = None,
        header_value: bytes | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> SearchPage:
        """Looks for rows with a key, a header and a text, published before `until`.

        A text is found in capitals or not. What a transaction stored ahead is looked
        at too. One call looks at 10,000 rows or 16 MiB at most, and its `next` is the
        `start` of the following one.
        """

    def namespaces(self) -> list[str]:
        """Returns all namespaces that have a topic, in order."""

    def topic_sizes(self, namespace: str = "default") -> dict[str, int]:
        """Returns about how many bytes the store has of each topic of a namespace.

        The store tells it without reading, so that what it wrote last may be missing.
        """

    def inspect(self, topic: str) -> TopicReport:
        """Reports counts, sizes, times and who blocks a topic; reads all rows of it."""

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Returns the ids that cut a range of a topic into parts to read at once.

        The ids rise and lie strictly between `start` and `stop`. Parts of about
        `part_bytes` begin at them: [start, first), [first, second), up to [last, stop).
        There are at most 10,000 ids, and none if all of the range fits one part. The
        sizes are estimates: no large topic is read for them, and rows that are not
        committed count too.
        """

    def first_undecided(
        self, topic: str, *, start: MessageId, stop: MessageId, snapshot: Transaction
    ) -> MessageId:
        """Returns the id where a reader with this snapshot stops, or `stop`."""

    def lag_ms(self, group: str, topic: str) -> int:
        """Returns how far a group is behind the last committed message of a topic."""

    def oldest_unread_ms(self, group: str, topic: str) -> int:
        """Returns the age of the oldest message a group may read; 0 if it has none."""

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant of the data, which stays in use meanwhile.

        `progress` is told how many rows were read, and what part of all rows that is.
        """

    def backup(self) -> Iterator[bytes]:
        """Yields all that is on disk at this moment, as the bytes of a backup."""

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes expired rows, and marks the rows that invalid transactions wrote."""

    def plan_clean_up(self, *, pieces: int = 1) -> OpenPlan:
        """Plans a clean-up that many processes share, each by some of its pieces."""

    def clean_piece(self, plan: str, piece: int) -> int:
        """Does a piece of a plan, named by its id; returns how many rows it changed."""

    def finish_clean_up(self, plan: str) -> CleanUp:
        """Ends a plan after all its pieces; returns what they did together."""

    def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs.

        A coordinator that others share is asked only with `exclusive`, which says that
        nobody has rows elsewhere but registered keepers. These are asked what they
        still need; `KeeperMissing` is raised if one does not answer.
        """

    def register_keeper(self, participant: KeepsRows) -> Keeper:
        """Makes `prune` keep what a participant with rows of its own still needs.

        The registration is durable under its `transaction_aware_name`, which stands for
        its rows. Its `smallest_pointer()` returns the least pointer that its rows may
        still hold, or None. In the process that owns the data, every `prune` and
        clean-up asks it, in their threads, and it has to be registered again after each
        start. In any other process it is asked once, during this call, and the answer
        holds until it registers again. It does so now and then to raise the pointer.
        """

    def report_keeper(self, name: str, smallest_pointer: int | None) -> Keeper:
        """Records the least pointer that a keeper in another process still needs."""

    def forget_keeper(self, name: str) -> None:
        """Forgets a keeper whose rows are gone; `prune` no longer asks for it."""

    def keepers(self) -> list[Keeper]:
        """Returns the participants that keep rows of their own, registered or not."""

    def shards(self) -> list[Shard]:
        """Returns the shards of the store that are here, by their numbers."""

    def add_shards(self, count: int) -> list[int]:
        """Makes so many shards more, and returns their numbers.

        They are used at once, unless they are the first ones beside the first shard:
        then once the data is opened again.
        """

    def give_shard(self, shard: int, server: str) -> None:
        """Has a shard go to a server of several, and stay there while that is there.

        The server is named by its id or its own address, as `GET /v1/servers` has them.
        """

    def metrics(self) -> Metrics:
        """Returns the counts of this process, and the state at this moment."""


class OperatorMethods:
    """The verbs of `OperatorService` that programs call, here and over HTTP."""

    peek = PortVerb(OperatorService.peek)
    search = PortVerb(OperatorService.search)
    namespaces = PortVerb(OperatorService.namespaces)
    topic_sizes = PortVerb(OperatorService.topic_sizes)
    inspect = PortVerb(OperatorService.inspect)
    splits = PortVerb(OperatorService.splits)
    lag_ms = PortVerb(OperatorService.lag_ms)
    oldest_unread_ms = PortVerb(OperatorService.oldest_unread_ms)
    prune = PortVerb(OperatorService.prune)
    metrics = PortVerb(OperatorService.metrics)
    forget_keeper = PortVerb(OperatorService.forget_keeper)
    keepers = PortVerb(OperatorService.keepers)
    shards = PortVerb(OperatorService.shards)
    add_shards = PortVerb(OperatorService.add_shards)
    give_shard = PortVerb(OperatorService.give_shard)


class Emptiness(Protocol):
    """An outline of the rows, which knows ranges without any."""

    def may_have(self, prefix: bytes, start: bytes, stop: bytes | None) -> bool:
        """Returns False if certainly no row lies from `start` on and before `stop`.

        `prefix` names a topic, with or without a generation.
        """


class CargoCounted(Cargo, Protocol):
    """A cargo that is counted once its commit has happened."""

    def count(self) -> None:
        """Counts what the commit has carried."""


class CarriesMessages(Protocol):
    """The part of a service whose messages and positions a commit carries."""

    def cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        messages: Iterable[tuple[str, Iterable[Payload]]],
    ) -> CargoCounted | None:
        """Returns messages for topics; None where they go before the commit."""

    def position_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        group: str,
        topic: str,
        position: MessageId | None,
    ) -> CargoCounted | None:
        """Returns a group's position; None where it goes before the commit.

        None for a position means that the group did not move.
        """


class OrderedTable(Protocol):
    """An ordered map from keys to values, which may or may not outlive the process.

    Any number of threads may call. The writes of one `submit` become readable together,
    at some moment before its wait returns.
    """

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if it has none."""

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        reverse: bool = False,
    ) -> list[Row]:
        """Reads the rows whose key begins with `prefix`, in order, without the prefix.

        They lie from `start` on and before `stop`. There are at most `limit`, and no
        more once they hold `max_bytes`. With `reverse` they come backwards from `stop`.
        All rows are of one consistent view.
        """

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        """Takes writes for the next batch; the wait it returns ends once they are kept.

        Batches keep the order of their submission. `on_written` is told how the batch
        ended, before any wait for it returns.
        """

    def hand_over(self, writes: Sequence[Write], on_written: OnWritten) -> None:
        """Takes writes for the next batch; any thread calls `on_written` with its end.

        It is for callers that must not wait, as an event loop. `on_written` takes no
        time, and raises nothing.
        """

    @property
    def clock(self) -> StoreClock:
        """The time of this table, for keys that rise."""

    @property
    def reads_wait(self) -> bool:
        """True when a read may wait for a network; an event loop then reads nothing."""

    def reserve_time(self) -> None:
        """Waits until no restart can give out again a time that was given out."""

    def newest_format(self) -> Sequence[Write]:
        """Returns what to write with rows that the version before does not know.

        It keeps that version away. Mostly it is there already, and this is empty.
        """

    def partitioned_format(self) -> Sequence[Write]:
        """Returns what to write before the first topic of several partitions.

        It keeps the version before away, as `newest_format` does.
        """

    def sharded_format(self) -> Sequence[Write]:
        """Returns what to write before the first further shard, and in each shard.

        It keeps the version before away, as `newest_format` does.
        """

    def packed_format(self) -> Sequence[Write]:
        """Returns what to write with a batch of compressed messages, in the same way.

        From then on the table `has_batches`.
        """

    @property
    def has_batches(self) -> bool:
        """True where a message row may hold many messages; who reads has to look."""

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Takes rows of an open transaction: readable at once, kept with its commit.

        If the transaction ends otherwise, they are kept with some later batch. Returns
        False and takes none if they are too many: the caller then submits them.
        """

    def replace_held(self, key: bytes, value: bytes) -> bool:
        """Changes a row that is held; returns False if it is not held, or no longer."""

    def compare_and_set(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Sets the value of a key if it is still `old`; returns once that is kept."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """Gives the space of deleted rows back to the disk."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Estimates how many bytes a range of whole keys takes; reads hardly anything.

        It is for plans only: rows count as they are kept, perhaps compressed; deleted
        rows count until their space is given back; the latest few MiB may be missing.
        """

    def outline(self, tag: bytes) -> Emptiness | None:
        """Finds the empty ranges of rows with that first byte, for all topics at once.

        It knows the rows from before the call. Returns None if looking into each range
        costs hardly more.
        """

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""

    def close(self) -> None:
        """Keeps what has to be kept, and releases all resources."""


__all__ = [
    "COMMITTED",
    "UNCOMMITTED",
    "UNSAID",
    "Isolation",
    "Message",
    "MessagingService",
    "OperatorService",
    "OrderedTable",
    "Payload",
    "Pointer",
    "Row",
    "Start",
    "Wait",
    "Write",
]
