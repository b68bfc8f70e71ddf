"""A server to be killed, and clients that outlive it: each a process of its own.

    python -m tests.support.http_kill_load TOPICS serve DIRECTORY PORT
    python -m tests.support.http_kill_load TOPICS load URL LOG NAME

TOPICS is "three" or "partitions": what they publish to and read. A client goes on until
its standard input ends. What it was answered stands in the log, a line for each event,
with a time that all processes of a machine share.
"""

import faulthandler
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import attrs

import txaware
from coordinator import TransactionContext
from coordinator.transaction import Status, Transaction, monotonic_ms, system_clock_ms
from tests.support.checker import FAIL, OK, UNKNOWN
from txaware.errors import (
    ParticipantFailed,
    ProducerFenced,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.compression import CompressionName
from txaware.model.interfaces import Isolation
from txaware.model.messages import MessageId
from txaware.model.settings import Settings
from txaware.publish import Producer, Sender
from txaware.publish.producer_states import State
from txaware.publish.transactional_producer import TransactionalProducer

PARTITIONED = "orders"
SMALL_WRITE_BUFFER_BYTES = 1 << 16  # LevelDB takes no less; logs are switched often
SPILLS_ABOVE_BYTES = 60
# Some have timed out when the server is there again, others go on.
TIMEOUTS_S = (0.3, 60)
LONGEST_HOLD_S, NEVER_SHORTER_S = 2.5, 1.5
PRODUCERS, TRIES = ("p", "q"), 20
# What a client may be told while its server is killed again and again.
EXPECTED = (
    ParticipantFailed,
    ProducerFenced,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)

Sent = list[tuple[str, str]]
Moved = list[str] | None


class JumpingClock:
    """The system's clock, and as many ms more as a file says; a thread reads it."""

    def __init__(self, ahead: Path) -> None:
        self._ahead = ahead
        self._ahead_ms = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def __call__(self) -> int:
        return system_clock_ms() + self._ahead_ms

    def elapsed_ms(self) -> int:
        """The time that passes, which nobody sets."""
        return monotonic_ms()

    def _follow(self) -> None:
        while True:
            with suppress(OSError, ValueError):
                self._ahead_ms = int(self._ahead.read_text())
            time.sleep(0.02)


@attrs.frozen
class Topics:
    """What clients publish to and read: topics, or the partitions of one.

    With a `compression` senders publish there as well, in batches that have it.
    """

    name: str
    all: tuple[str, ...]
    partitions: int = 0
    compression: CompressionName | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Where clients publish to; a copy alone goes to the last one."""
        return self.all[:-1]

    @property
    def copies(self) -> dict[str, tuple[str, str]]:
        """A group, from where it copies and where to."""
        first, second, last = self.all[0], self.all[1], self.all[-1]
        return {"copiers": (first, second), "tellers": (second, last)}

    @property
    def command(self) -> list[str]:
        """Runs this module over them."""
        return [sys.executable, "-m", "tests.support.http_kill_load", self.name]

    @property
    def settings(self) -> str:
        """The topics that a server makes by its settings."""
        return "" if self.partitions else ", ".join(self.all)

    def make(self, messaging: Messaging) -> None:
        """Makes what settings cannot name, once."""
        if self.partitions:
            messaging.create_topic(
                PARTITIONED, partitions=self.partitions, exist_ok=True
            )


THREE = Topics("three", ("a", "b", "c"))
PARTITIONS = Topics(
    "partitions", tuple(f"{PARTITIONED}.{number}" for number in range(12)), 12, "gzip"
)


def serve(topics: Topics, directory: Path, port: int) -> None:
    """Serves until it is killed; the clock jumps where the file beside it says so."""
    settings = Settings(
        topics=topics.settings, write_buffer_bytes=SMALL_WRITE_BUFFER_BYTES
    )
    with (
        txaware.connect(
            f"leveldb:{directory}",
            settings=settings,
            clock_ms=JumpingClock(directory.with_name("ahead")),
        ) as messaging,
        messaging.serve(port=port) as server,
    ):
        topics.make(messaging)
        print(server.url, flush=True)
        threading.Event().wait()


class Notes:
    """The log of one process. Before an operation its beginning, after it its end."""

    def __init__(self, log: TextIO) -> None:
        self._log = log
        self._lock = threading.Lock()

    def add(self, *event: Any) -> None:
        """Writes one line, with the time."""
        with self._lock:
            self._log.write(json.dumps([time.monotonic_ns(), *event]) + "\n")


class _Asked:
    """Takes part last of all, and notes that the commit is asked for next."""

    transaction_aware_name = "notes"
    flushes_last = True

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def start_tx(self, tx: Transaction) -> None:
        pass

    def update_tx(self, tx: Transaction) -> None:
        pass

    def get_tx_changes(self) -> tuple[bytes, ...]:
        return ()

    def commit_tx(self) -> bool:
        self._note()
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        return True


class _ChangedItsMind(TransactionRefused):
    """The client does not commit."""


class Client:
    """One thread of a client process: does one thing after the other, by chance."""

    def __init__(
        self, messaging: Messaging, notes: Notes, name: str, topics: Topics = THREE
    ) -> None:
        self.chance = random.Random()
        self._topics = topics
        self._messaging, self._notes, self._name = messaging, notes, name
        self._count = 0
        self._looked: dict[str, MessageId | None] = {}
        self._idempotent: Producer | None = None
        self._fenced: TransactionalProducer | None = None
        self._sender: Sender | None = None

    def any(self) -> None:
        """A plain publish or a short transaction, perhaps of a producer."""
        steps = [self.plain, self.both, self.at_once, self.spilled, self.rolled_back]
        steps += [self.once, self.produced]
        self.chance.choice([*steps, self.sent] if self._topics.compression else steps)()

    def plain(self) -> None:
        """Some messages in one piece, without a transaction."""
        topic = self.chance.choice(self._topics.sources)
        sent = self._values(topic, 3)
        number = self._began(sent)
        try:
            self._messaging.publish(topic, _payloads(sent, topic))
        except TransactionRefused:
            outcome = FAIL
        except Unavailable:
            outcome = UNKNOWN
        else:
            outcome = OK
        self._notes.add("ended", number, outcome)

    def once(self) -> None:
        """The same by a producer, tried again as long as nobody knows how it ended."""
        topic = self.chance.choice(self._topics.sources)
        sent = self._values(topic, 3)
        number, outcome = self._began(sent), UNKNOWN
        for _ in range(TRIES):
            try:
                if self._idempotent is None:
                    self._idempotent = self._messaging.producer()
                self._idempotent.publish(topic, _payloads(sent, topic))
                outcome = OK
                break
            except Unavailable:
                time.sleep(self.chance.uniform(0, 0.2))
        self._notes.add("ended", number, outcome)

    def sent(self) -> None:
        """Messages of a sender, which come in batches, and each is tried until it is
        stored."""
        if self._sender is None:
            compression = self._topics.compression
            self._sender = self._messaging.sender(compression=compression)
        topic, futures = self.chance.choice(self._topics.sources), {}
        for to, value in self._values(topic, 20):
            number = self._began([(to, value)])
            futures[number] = self._sender.send(to, value.encode())
        for number, future in futures.items():
            future.result()
            self._notes.add("ended", number, OK)

    def produced(self) -> None:
        """Messages on two topics by a producer that other clients fence."""
        if self._fenced is None or self.chance.random() < 0.2:
            self._fenced = self._messaging.producer(self.chance.choice(PRODUCERS))
        first, second = self.chance.sample(self._topics.sources, 2)
        sent = [*self._values(first, 3), *self._values(second, 3)]
        context = self._fenced.transaction(timeout_s=self.chance.choice(TIMEOUTS_S))
        try:
            self._transact(sent, lambda _: self._publish(sent), context=context)
        finally:
            if self._fenced.state is State.FENCED:
                self._fenced = None

    def both(self) -> None:
        """Messages on two topics, in one transaction."""
        first, second = self.chance.sample(self._topics.sources, 2)
        sent = [*self._values(first, 3), *self._values(second, 3)]
        self._transact(sent, lambda _: self._publish(sent))

    def at_once(self) -> None:
        """The same by a block that nobody looks at before its commit begins it.

        Over several shards it is two calls; one topic is in one, and mostly one call.
        """
        chosen = self.chance.sample(self._topics.sources, self.chance.randint(1, 2))
        sent = [value for topic in chosen for value in self._values(topic, 3)]
        number = self._began(sent, transactional=True)
        context = self._messaging.transaction(
            timeout_s=self.chance.choice([None, *TIMEOUTS_S])
        )
        with suppress(*EXPECTED), context:
            self._publish(sent)
            self._notes.add("asked", number)
        self._notes.add("ended", number, _outcome(context))

    def spilled(self) -> None:
        """The same with so many that they are stored ahead of the commit."""
        first, second = self.chance.sample(self._topics.sources, 2)
        sent = [*self._values(first, 9), *self._values(second, 2)]
        self._transact(
            sent, lambda _: self._publish(sent, buffer_limit_bytes=SPILLS_ABOVE_BYTES)
        )

    def rolled_back(self) -> None:
        """The same, and then it changes its mind."""
        first, second = self.chance.sample(self._topics.sources, 2)
        sent = [*self._values(first, 9), *self._values(second, 2)]

        def write(_: TransactionContext) -> None:
            self._publish(sent, buffer_limit_bytes=SPILLS_ABOVE_BYTES)
            raise _ChangedItsMind

        self._transact(sent, write)

    def hold(self, *, at_least_s: float = 0) -> None:
        """A transaction that stays open, perhaps from one life of the server to the
        next, and writes in both."""
        first, second = self.chance.sample(self._topics.sources, 2)
        sent = [*self._values(first, 6), *self._values(second, 2)]
        half = len(sent) // 2

        def write(context: TransactionContext) -> None:
            if self.chance.random() < 0.5:  # rows, before which readers have to stop
                early = [(to, value) for to, value in sent[:half] if to == first]
                self._messaging.publish(
                    first, _payloads(early, first), transaction=context.transaction
                )
            else:  # payloads, where these are enough
                early = sent[:half]
                self._publish(early, buffer_limit_bytes=SPILLS_ABOVE_BYTES // 3)
            time.sleep(self.chance.uniform(at_least_s, LONGEST_HOLD_S))
            rest = sent[len(early) :]
            self._publish(rest, buffer_limit_bytes=SPILLS_ABOVE_BYTES // 3)

        self._transact(sent, write, timeout_s=max(TIMEOUTS_S))
        time.sleep(self.chance.uniform(0, 0.5))

    def copy(self, group: str) -> None:
        """Reads one topic, writes another and moves its group: all or nothing."""
        source, target = self._topics.copies[group]
        consumer = self._messaging.consumer(source, group=group)
        number, context = None, self._messaging.transaction()
        with suppress(*EXPECTED), context:
            start = consumer.position
            page = consumer.poll(limit=self.chance.choice([1, 5, 50]))
            if not page:  # the group may go on over rows that nobody sees
                raise _ChangedItsMind
            moved = [group, source, _hex(start), _hex(consumer.position)]
            mark = f">{self._next()}"
            values = [message.payload.decode() + mark for message in page]
            sent = [(target, value) for value in values]
            number = self._began(sent, transactional=True, moved=moved)
            self._publish(sent)
            self._note_asking(context, number)
        if number is not None:
            self._notes.add("ended", number, _outcome(context))
        time.sleep(self.chance.uniform(0, 0.05))

    def look_twice(self) -> None:
        """Polls some times in one transaction, which publishes, too."""
        topic = self.chance.choice(self._topics.all)
        sent = self._values(self.chance.choice(self._topics.sources), 2)

        def write(context: TransactionContext) -> None:
            self._publish(sent)
            at = self._looked.get(topic)
            for _ in range(self.chance.randint(1, 3)):
                at = self._look(context.transaction, topic, at, number)
            self._looked[topic] = at

        number = self._next()
        self._transact(sent, write, number=number)
        time.sleep(self.chance.uniform(0, 0.05))

    def _look(
        self, tx: Transaction, topic: str, start: MessageId | None, number: str
    ) -> MessageId:
        began_ns, limit = time.monotonic_ns(), self.chance.choice([2, 20])
        page = self._messaging.poll(
            topic, start=start, inclusive=start is None, limit=limit, transaction=tx
        )
        seen = [(message.id.hex(), message.payload.decode()) for message in page]
        self._notes.add(
            *("poll", number, topic, _hex(start), _hex(page.next), seen, True),
            *(page.blocked_by is None and len(page) < limit, began_ns),
            *(number, page.blocked_by is not None),
        )
        return MessageId(page.next)

    def _transact(
        self,
        sent: Sent,
        write: Callable[[TransactionContext], None],
        *,
        timeout_s: float | None = None,
        number: str | None = None,
        context: TransactionContext | None = None,
    ) -> None:
        timeout_s = timeout_s or self.chance.choice(TIMEOUTS_S)
        number = self._began(sent, transactional=True, number=number)
        context = context or self._messaging.transaction(timeout_s=timeout_s)
        with suppress(*EXPECTED), context:
            pointer = context.transaction.transaction_id
            self._notes.add("open", number, pointer)
            write(context)
            self._note_asking(context, number)
        self._notes.add("ended", number, _outcome(context))

    def _publish(self, sent: Sent, **options: Any) -> None:
        for topic in self._topics.all:
            payloads = _payloads(sent, topic)
            if payloads:
                self._messaging.publisher(topic, **options).publish_all(payloads)

    def _began(
        self,
        sent: Sent,
        *,
        transactional: bool = False,
        moved: Moved = None,
        number: str | None = None,
    ) -> str:
        number = number or self._next()
        self._notes.add("began", number, sent, transactional, moved)
        return number

    def _note_asking(self, context: TransactionContext, number: str) -> None:
        context.join(_Asked(lambda: self._notes.add("asked", number)))

    def _values(self, topic: str, most: int) -> Sent:
        """Values that nobody sent before."""
        return [(topic, self._next()) for _ in range(self.chance.randint(1, most))]

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"


class Reader:
    """Polls a topic from its beginning on, each time from where the last one ended."""

    def __init__(
        self,
        messaging: Messaging,
        notes: Notes,
        name: str,
        topic: str,
        isolation: Isolation,
    ) -> None:
        self._messaging, self._notes, self._name = messaging, notes, name
        self._topic, self._isolation = topic, isolation
        self._at: MessageId | None = None

    def poll(self, limit: int = 1000) -> int:
        """How many the next page has."""
        began_ns, start = time.monotonic_ns(), self._at
        page = self._messaging.poll(
            self._topic,
            start=start,
            inclusive=start is None,
            limit=limit,
            isolation=self._isolation,
        )
        seen = [(message.id.hex(), message.payload.decode()) for message in page]
        self._notes.add(
            *("poll", self._name, self._topic, _hex(start), _hex(page.next), seen),
            self._isolation == "committed",
            *(page.blocked_by is None and len(page) < limit, began_ns),
            *("", page.blocked_by is not None),
        )
        self._at = page.next
        return len(page)


def connected(url: str, name: str) -> Messaging:
    """A client in frames, and one in three by HTTP."""
    return txaware.connect(url, frames=int(name) % 3 != 2)


def load(topics: Topics, url: str, log: Path, name: str) -> None:
    """Nine threads of load, until standard input ends."""
    over = threading.Event()

    def for_ever(step: Callable[[], object]) -> None:
        while not over.is_set():
            with suppress(Unavailable):
                step()

    with log.open("w", buffering=1) as file, connected(url, name) as messaging:
        notes = Notes(file)

        def client(number: int) -> Client:
            return Client(messaging, notes, f"{name}.{number}", topics)

        readers = [
            Reader(messaging, notes, f"{name} {topic}", topic, "committed")
            for topic in topics.all
        ]

        def read() -> None:
            for reader in readers:
                reader.poll()
            time.sleep(0.02)

        steps: list[Callable[[], object]] = [
            partial(client(0).hold, at_least_s=NEVER_SHORTER_S if name == "0" else 0),
            client(1).any,
            client(2).any,
            client(3).any,
            client(6).plain,
            client(8).at_once,
            partial(client(4).copy, "copiers"),
            partial(client(5).copy, "tellers"),
            client(7).look_twice,
            read,
        ]
        with ThreadPoolExecutor(len(steps)) as threads:
            running = [threads.submit(for_ever, step) for step in steps]
            sys.stdin.read()
            over.set()
        for thread in running:
            thread.result()


def _outcome(context: TransactionContext) -> str:
    if context.status is Status.COMMITTED:
        return OK
    return UNKNOWN if context.status is Status.UNKNOWN else FAIL


def _payloads(sent: Sent, topic: str) -> list[bytes]:
    return [value.encode() for to, value in sent if to == topic]


def _hex(message_id: MessageId | None) -> str:
    return "" if message_id is None else message_id.hex()


def main() -> None:
    """Serves, or is a client; an abort tells what its threads do."""
    faulthandler.enable()
    topics = PARTITIONS if sys.argv[1] == PARTITIONS.name else THREE
    if sys.argv[2] == "serve":
        serve(topics, Path(sys.argv[3]), int(sys.argv[4]))
    else:
        load(topics, sys.argv[3], Path(sys.argv[4]), sys.argv[5])


if __name__ == "__main__":
    main()
