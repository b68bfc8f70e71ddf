"""A store with clients that publish, copy and poll, and write down what they saw."""

import json
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TextIO

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Cargo, JoinedCargo
from coordinator.resolve_outcome import settle
from coordinator.transaction import Transaction
from tests.support.checker import FAIL, NEVER, OK, UNKNOWN, Moved, Poll, Publish
from txaware.errors import TransactionRefused, TxAwareError, Unavailable
from txaware.model.clock import ClockMs
from txaware.model.messages import MessageId, PublishResponse
from txaware.model.requests import Payload
from txaware.model.settings import Settings
from txaware.service.local import LocalService
from txaware.service.store_context import StoreContext
from txaware.store.journaled_table import JournaledTable

TOPICS = ("a", "b")
GROUP = "copiers"
Sent = list[tuple[str, str]]
Event = list[Any]


class Notes:
    """What clients saw, in one order; each event is a line of a log where one is given.

    An operation is written down before it begins, and again when its answer came.
    """

    def __init__(self, log: TextIO | None = None) -> None:
        self.events: list[Event] = []
        self._log = log
        self._lock = threading.Lock()
        self._count = 0

    def add(self, *event: Any) -> int:
        """Answers its place."""
        with self._lock:
            place, self._count = self._count, self._count + 1
            if self._log is None:
                self.events.append(list(event))
            else:
                self._log.write(json.dumps(event) + "\n")
            return place

    @property
    def now(self) -> int:
        """Whatever has a lower place is over."""
        return self._count


class Store:
    """A service over a table and the coordinator that shares its journal.

    Or over one that is `elsewhere`, and goes on when the store does not.
    """

    def __init__(
        self,
        table: JournaledTable,
        clock_ms: ClockMs,
        *,
        timeout_s: float = 30,
        elsewhere: EmbeddedCoordinator | None = None,
    ) -> None:
        self.table = table
        self._shares = elsewhere is None
        try:
            self.coordinator = elsewhere or EmbeddedCoordinator(
                table.journal, clock_ms=clock_ms, timeout_s=timeout_s
            )
            barrier = self.coordinator.barrier if self._shares else None
            settings = Settings(topics="a, b")
            site = StoreContext(table, self.coordinator, barrier, settings, clock_ms)
            self.service = LocalService(site)
        except BaseException:
            table.close()
            raise
        if barrier is not None:
            barrier.on_end(self.service.ended)

    def close(self) -> None:
        """Closes all of it, also where the disk is gone."""
        self.service.close()
        if self._shares:
            with suppress(Unavailable):
                self.coordinator.close()
        self.table.close()


class Reader:
    """Polls a topic from its beginning on, each time from where the last one ended."""

    def __init__(
        self, store: Store, notes: Notes, name: str, topic: str, *, isolation: str
    ) -> None:
        self._store, self._notes = store, notes
        self._name, self._topic, self._isolation = name, topic, isolation
        self._at: MessageId | None = None

    def poll(self, limit: int = 10_000) -> list[str]:
        """The values of the next page."""
        began, start = self._notes.now, self._at
        page = self._store.service.poll(
            self._topic,
            start=start,
            inclusive=start is None,
            limit=limit,
            isolation=self._isolation,
        )
        seen = [(message.id.hex(), message.payload.decode()) for message in page]
        self._notes.add(
            *("poll", self._name, self._topic, start.hex() if start else ""),
            *(page.next.hex(), seen, self._isolation == "committed"),
            *(page.blocked_by is None and len(page) < limit, began),
        )
        self._at = page.next
        return [value for _, value in seen]


class _ChangedItsMind(TransactionRefused):
    """The client does not commit."""


class Client:
    """Does one thing after the other, by chance."""

    def __init__(self, store: Store, notes: Notes, name: str, seed: object) -> None:
        self.chance = random.Random(f"{seed} {name}")
        self._store, self._notes, self._name = store, notes, name
        self._service, self._coordinator = store.service, store.coordinator
        self._count = 0

    def values(self, topic: str, most: int = 3) -> Sent:
        """Values that nobody sent before."""
        sent = []
        for _ in range(self.chance.randint(1, most)):
            self._count += 1
            sent.append((topic, f"{self._name}-{self._count}"))
        return sent

    def plain(self) -> None:
        """Some messages in one piece, without a transaction."""
        topic = self.chance.choice(TOPICS)
        sent, notes = self.values(topic), self._notes
        number = notes.add("began", sent, False, None)
        outcome = FAIL
        try:
            self._service.publish(topic, encoded(sent))
            outcome = OK
        except TransactionRefused:
            pass
        except Unavailable:
            outcome = UNKNOWN
        notes.add("ended", number, outcome)

    def both(self) -> None:
        """Messages on two topics in one transaction; half the commits carry them."""
        sent = [(t, v) for topic in TOPICS for t, v in self.values(topic)]
        self.transact(
            sent,
            lambda tx: self._publish(tx, sent),
            carry=self._message_cargo if self.chance.random() < 0.5 else None,
        )

    def rolled_back(self) -> None:
        """The same, and then it changes its mind."""
        sent = [(t, v) for topic in TOPICS for t, v in self.values(topic)]
        self.transact(sent, lambda tx: self._publish(tx, sent), commits=False)

    def spilled(self) -> None:
        """Stores most of it, and publishes a reference."""
        stored, beside = self.values("a", 8), self.values("b", 1)

        def write(tx: Transaction) -> list[tuple[str, PublishResponse]]:
            half = len(stored) // 2
            receipts = [
                self._service.store("a", encoded(part), transaction=tx)
                for part in (stored[:half], stored[half:])
                if part
            ]
            response = self._service.publish("a", [], transaction=tx, receipts=receipts)
            assert response is not None
            return [("a", response), *self._publish(tx, beside)]

        self.transact([*stored, *beside], write)

    def copy(self, limit: int = 5) -> None:
        """Reads a, writes b and moves the position of its group, all or nothing."""
        try:
            tx = self._coordinator.start_short()
            start = self._service.position(GROUP, "a", transaction=tx)
            page = self._service.poll(
                "a",
                start=start,
                inclusive=start is None,
                limit=limit,
                transaction=tx,
            )
        except (Unavailable, TransactionRefused):
            return
        if not page:
            with suppress(TxAwareError):
                self._coordinator.abort(tx)
            return
        self._count += 1
        source = [message.payload.decode() for message in page]
        sent = [("b", f"{value}>{self._name}-{self._count}") for value in source]
        moved = [GROUP, "a", start.hex() if start else "", page.next.hex()]

        def write(tx: Transaction) -> list[tuple[str, PublishResponse]]:
            self._service.save_position(GROUP, "a", page.next, transaction=tx)
            return self._publish(tx, sent)

        def carry(tx: Transaction, sent: Sent) -> Cargo | None:
            messages = self._message_cargo(tx, sent)
            position = self._service.position_cargo(
                self._coordinator, tx, GROUP, "a", page.next
            )
            if messages is None or position is None:
                return None
            return JoinedCargo([position, messages])

        self.transact(
            sent,
            write,
            changes=[b"position"],
            tx=tx,
            moved=moved,
            carry=carry if self.chance.random() < 0.5 else None,
        )

    def transact(
        self,
        sent: Sent,
        write: Callable[[Transaction], list[tuple[str, PublishResponse]]],
        *,
        changes: Iterable[bytes] = (),
        commits: bool = True,
        tx: Transaction | None = None,
        moved: list[str] | None = None,
        carry: Callable[[Transaction, Sent], Cargo | None] | None = None,
    ) -> None:
        """One transaction, and what became of it as far as can be told.

        With `carry` its commit carries what it makes, and `write` is not called.
        """
        try:
            tx = tx or self._coordinator.start_short()
        except (Unavailable, TransactionRefused):
            return
        number = self._notes.add("began", sent, True, moved)
        responses: list[tuple[str, PublishResponse]] | None = None
        asked, outcome = False, FAIL
        try:
            cargo = None if carry is None else carry(tx, sent)
            responses = [] if cargo is not None else write(tx)
            if not commits:
                raise _ChangedItsMind
            self._coordinator.can_commit(tx, changes)
            asked = True
            self._notes.add("asked", number)
            if cargo is None:
                self._coordinator.commit(tx)
            else:
                self._coordinator.commit_with(tx, cargo)
            outcome = OK
        except TransactionRefused:
            self._undo(tx, responses)
        except Unavailable:
            if asked:
                outcome = self._settled(tx)
            else:
                self._undo(tx, None)
        self._notes.add("ended", number, outcome)

    def _message_cargo(self, tx: Transaction, sent: Sent) -> Cargo | None:
        """The same as rows for the commit; None where it cannot carry them."""
        parts: list[tuple[str, list[Payload]]] = [
            (topic, [value.encode() for to, value in sent if to == topic])
            for topic in TOPICS
        ]
        return self._service.cargo(
            self._coordinator, tx, [part for part in parts if part[1]]
        )

    def _publish(
        self, tx: Transaction, sent: Sent
    ) -> list[tuple[str, PublishResponse]]:
        responses = []
        for topic in TOPICS:
            part = [(to, value) for to, value in sent if to == topic]
            if part:
                response = self._service.publish(topic, encoded(part), transaction=tx)
                assert response is not None
                responses.append((topic, response))
        return responses

    def _undo(
        self, tx: Transaction, responses: list[tuple[str, PublishResponse]] | None
    ) -> None:
        """Aborts what it has undone altogether, and else invalidates."""
        try:
            if responses is None:
                raise Unavailable("a write without an answer")
            for topic, response in responses:
                self._service.rollback(topic, response)
            self._service.save_position(GROUP, "a", None, transaction=tx)
            self._coordinator.abort(tx)
        except (Unavailable, TransactionRefused):
            with suppress(Unavailable, TransactionRefused):
                self._coordinator.invalidate(tx)

    def _settled(self, tx: Transaction) -> str:
        try:
            committed = settle(
                self._coordinator, tx.transaction_id, open_for_s=lambda: 0
            )
        except TxAwareError:
            return UNKNOWN
        return OK if committed else FAIL


def carried(store: Store, tx: Transaction, messages: list[bytes]) -> Cargo:
    """Messages for topic a, as the commit carries them."""
    cargo = store.service.cargo(store.coordinator, tx, [("a", [*messages])])
    assert cargo is not None
    return cargo


def encoded(sent: Sent) -> list[bytes]:
    """What goes over the wire."""
    return [value.encode() for _, value in sent]


def history(*lives: list[Event]) -> tuple[list[Publish], list[Poll]]:
    """The operations of one life after the other."""
    publishes: list[Publish] = []
    polls: list[Poll] = []
    first = 0
    for events in lives:
        ends = {
            e[1]: (e[2], first + at) for at, e in enumerate(events) if _is(e, "ended")
        }
        asked = {e[1]: first + at for at, e in enumerate(events) if _is(e, "asked")}
        for at, event in enumerate(events):
            if _is(event, "began"):
                outcome, ended = ends.get(at, (UNKNOWN, NEVER))
                if outcome == UNKNOWN:
                    ended = NEVER
                publishes.append(
                    Publish(
                        sent=tuple((to, value) for to, value in event[1]),
                        outcome=outcome,
                        began=first + at,
                        ended=ended,
                        asked=asked.get(at, NEVER),
                        transactional=event[2],
                        moved=_moved(event[3]),
                    )
                )
            elif _is(event, "poll"):
                polls.append(_poll(event, first, first + at))
        first += len(events)
    return publishes, polls


def _is(event: Event, kind: str) -> bool:
    return bool(event[0] == kind)


def _moved(fields: list[str] | None) -> Moved | None:
    if fields is None:
        return None
    group, topic, start, end = fields
    return Moved(group, topic, bytes.fromhex(start), bytes.fromhex(end))


def _poll(event: Event, first: int, ended: int) -> Poll:
    _, reader, topic, start, end, seen, committed, at_end, began = event
    return Poll(
        reader=reader,
        topic=topic,
        start=bytes.fromhex(start),
        end=bytes.fromhex(end),
        seen=tuple((bytes.fromhex(i), value) for i, value in seen),
        committed=committed,
        at_end=at_end,
        began=first + began,
        ended=ended,
    )
