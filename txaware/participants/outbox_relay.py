"""Carries messages and items over from a user's database, each once and in order."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Generic, TypeVar

import attrs

from coordinator import tracing
from coordinator.fork_guard import guard
from txaware.errors import (
    BadRequest,
    NotAuthenticated,
    NotAuthorized,
    QueueNotFound,
    TopicNotFound,
    TransactionConflict,
    TxAwareError,
)
from txaware.messaging import Messaging
from txaware.model.labels import unpacked
from txaware.model.reports import OutboxReport, SetAsideFor
from txaware.participants.background_work import LOOK_S, BackgroundWork
from txaware.participants.outbox_load import OutboxLoad
from txaware.participants.outbox_progress import Mark, Progress, Refused, mark_of
from txaware.participants.outbox_row import (
    OutboxBatch,
    OutboxDestination,
    OutboxRows,
    Row,
    SetAside,
    payload_of,
)
from txaware.publish.publisher import checked_size_bytes
from txaware.tables import Table

log = logging.getLogger(__name__)

Rows = TypeVar("Rows", bound=OutboxRows, covariant=True)

# The table in the store that says what was carried over last.
PROGRESS = OutboxReport.TABLE
# How often a relay says that it looked, at least.
REPORT_MS = 60_000
# A report of what nobody looks at any more is forgotten.
REPORT_TTL_S = 7 * 86_400
# How many topics and queues it names, and how much of the reason of each.
MOST_NAMED, REASON_CHARACTERS = 20, 200
# What a batch costs is mostly syncs, of both sides.
BATCH_ROWS = 40_000
TICK_S = 0.1
# What can never be carried over as it is: it is set aside.
REFUSALS = (TopicNotFound, QueueNotFound, BadRequest, NotAuthorized)


@attrs.frozen
class Chosen:
    """The rows of a batch to carry over, and those to set aside."""

    rows: Sequence[Row] = ()
    refused: Sequence[Refused] = ()
    is_whole: bool = False


@attrs.frozen
class Attempt:
    """One transaction of a relay: how many it carried over of what, or why none."""

    chosen: Chosen
    count: int = 0
    refusal: TxAwareError | None = None
    report: OutboxReport | None = None


class OutboxRelay(Generic[Rows]):
    """The relay of one outbox, in a thread of its own once it has been started.

    One transaction publishes and pushes a batch, and writes in a row of the store which
    rows these were. Before the next batch they are removed from the outbox. So a crash
    at any moment neither loses a message nor doubles one, and any number of relays may
    work on one outbox: two at once conflict.

    What can never be carried over is written in that row as well, and set aside with
    the removal.
    """

    def __init__(
        self, messaging: Messaging, rows: Rows, *, batch_rows: int = BATCH_ROWS
    ) -> None:
        self.rows = rows
        self.messaging = messaging
        self._reported: OutboxReport | None = None
        self._key = f"outbox:{rows.outbox_id}".encode()
        self._batch_rows = batch_rows
        self._lock = threading.Lock()
        self._is_closed = False
        self._background = BackgroundWork(
            self.carry_over, name=repr(self), wait=self._wait
        )
        guard(self)

    @cached_property
    def _progress(self) -> Table:
        return self.messaging.table(PROGRESS)

    @cached_property
    def _reports(self) -> Table:
        """Nobody's transaction is refused for a report."""
        return self.messaging.table(PROGRESS, conflicts="none")

    def carry_over(self) -> int:
        """Carries over all that waits, and returns how many messages these were."""
        count = 0
        with self._lock:
            while not self._is_closed and self.rows.has_rows():
                try:
                    count += self._carry_batch()
                except TransactionConflict as error:
                    log.debug("another relay works on %r: %s", self, error)
            if not self._is_closed:
                self._report_sometimes()
        return count

    def report(self) -> None:
        """Writes down how the outbox stands, for metrics."""
        with self.messaging.transaction():
            report = self._report(self.rows.waiting(), self.rows.set_aside_count())
        self._reported = report

    def require(self, to: OutboxDestination) -> None:
        """Raises why nothing can be carried over to a topic or queue, if so."""
        if to.is_queue:
            self.messaging.queue(to.name).descriptor  # noqa: B018  # which is asked for
        elif self.messaging.topic(to.name).publishing == "plain":
            raise BadRequest(f"{to} takes no messages of transactions")

    def start(self) -> None:
        """Works in the background from now on; a second call does nothing."""
        self._background.start()

    def wake(self) -> None:
        """Has the thread look now; without one this does nothing."""
        self._background.wake()

    def close(self) -> None:
        """Carries over what waits, if it works in the background, and ends."""
        was_running = self._background.is_running
        self._background.close()
        if was_running:
            try:
                self.carry_over()
            except Exception as error:
                log.warning("messages stay in %r: %s", self, error)
        with self._lock:
            self._is_closed = True
            self.rows.close()

    def __repr__(self) -> str:
        return f"<OutboxRelay of {self.rows!r}>"

    def _wait(self, event: threading.Event) -> None:
        """Waits until it is woken, others may have written rows, or a second is over.

        A wait for rows is short: who closes the relay waits for its end.
        """
        until_s = time.monotonic() + LOOK_S
        while not event.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if self.rows.wait(min(left_s, TICK_S), pause=event.wait):
                return

    def _carry_batch(self) -> int:
        """Carries a batch over: whole, or without what is known to be refused.

        Where neither is taken, the topics and queues go one by one, so that it shows
        which of them is refused.
        """
        attempt = self._attempt(_everything)
        if attempt.refusal is not None:
            attempt = self._attempt(self._examined)
        if attempt.refusal is None:
            return attempt.count
        topics: dict[str, int] = {}
        for row in attempt.chosen.rows:
            topics[row.topic] = topics.get(row.topic, 0) + 1
        return sum([self._carry_apart(*one) for one in topics.items()])

    def _carry_apart(self, topic: str, most: int) -> int:
        """Carries over what is there for one topic, up to so many rows.

        What is refused alone is set aside; of a bad request that may be any of its
        rows, and of all other refusals it is all of them.
        """
        carried, size = 0, most
        while most > 0:
            attempt = self._attempt(partial(_first_of, topic, size))
            rows, refusal = attempt.chosen.rows, attempt.refusal
            if not rows:
                break  # another relay took them
            if refusal is not None and isinstance(refusal, BadRequest) and rows[1:]:
                size = len(rows) // 2
                continue
            if refusal is not None:
                marks = {mark_of(row) for row in rows}
                refuse = partial(self._refused, topic, marks, str(refusal))
                attempt = self._attempt(refuse)
                if attempt.refusal is not None:  # it is not about what it carries
                    raise attempt.refusal
            carried += attempt.count
            most -= len(rows)
            size = most
        return carried

    def _attempt(self, choose: Callable[[OutboxBatch], Chosen]) -> Attempt:
        """Carries over, in a transaction, what is chosen of the next batch."""
        chosen, operation = None, tracing.begin_operation()
        try:
            with self.messaging.transaction():
                progress = self._progress.get(self._key) or b""
                batch = self.rows.take(progress, limit=self._batch_rows)
                self._warn(batch)
                chosen = choose(batch)
                attempt = self._carried(batch, chosen)
        except REFUSALS as error:
            if chosen is None or isinstance(error, NotAuthenticated):
                raise  # it is not about what is carried
            log.debug("%r cannot carry over all at once: %s", self, error)
            return Attempt(chosen, refusal=error)
        self._reported = attempt.report or self._reported
        if operation is not None and chosen.rows:
            headers = [unpacked(row.headers) for row in chosen.rows if row.headers]
            operation.settled("relay", headers=headers, count=attempt.count)
        return attempt

    def _carried(self, batch: OutboxBatch, chosen: Chosen) -> Attempt:
        if not chosen.rows and not chosen.refused:
            return Attempt(chosen)
        load = OutboxLoad(chosen.rows, now_ms=self.messaging.clock_ms())
        active = tracing.active()
        with nullcontext() if active is None else active.quiet():
            load.publish(self.messaging, pusher=f"outbox {self.rows.outbox_id}")
        progress = Progress.of(
            chosen.rows,
            chosen.refused,
            is_piece=chosen.is_whole and self.rows.tells_pieces,
        )
        self._progress.put(self._key, progress.to_bytes())
        refused = sum([len(one.marks) for one in chosen.refused])
        waiting = batch.rest + len(batch.rows) - len(chosen.rows) - refused
        set_aside, last = self.rows.set_aside_count() + refused, self._reported
        report = None
        if last is None or (last.waiting, last.set_aside) != (waiting, set_aside):
            report = self._report(waiting, set_aside, chosen.refused)
        return Attempt(chosen, load.count, report=report)

    def _report(
        self, waiting: int, set_aside: int, refused: Sequence[Refused] = ()
    ) -> OutboxReport:
        report = OutboxReport(
            outbox=self.rows.outbox_id,
            database=self.rows.name,
            waiting=waiting,
            set_aside=set_aside,
            looked_ms=self.messaging.clock_ms(),
            aside=told_of(self.rows.set_aside(), refused) if set_aside else (),
        )
        self._reports.put(report.key, report.to_bytes(), ttl_s=REPORT_TTL_S)
        return report

    def _report_sometimes(self) -> None:
        """Says that there is a relay, where it has not said anything lately."""
        last = self._reported
        if last and self.messaging.clock_ms() < last.looked_ms + REPORT_MS:
            return
        try:
            self.report()
        except TxAwareError as error:  # nothing waits for it
            log.debug("%r cannot say how it stands: %s", self, error)

    def _warn(self, batch: OutboxBatch) -> None:
        for one in batch.newly:
            log.warning(
                "%s: what is for %s is set aside, and the rest goes on: %s; "
                "txaware outbox list shows it",
                self.rows.name,
                one.destination,
                one.reason,
            )

    def _examined(self, batch: OutboxBatch) -> Chosen:
        """Chooses all but what is sure to be refused."""
        reasons: dict[str, str | None] = {}
        rows: list[Row] = []
        refused: dict[tuple[str, str], list[Mark]] = {}
        now_ms = self.messaging.clock_ms()
        for row in batch.rows:
            topic = row.topic
            if topic not in reasons:
                reasons[topic] = self._refusal_of(topic)
            reason = reasons[topic] or self._refusal_of_row(row, now_ms)
            if reason is None:
                rows.append(row)
            else:
                refused.setdefault((topic, reason), []).append(mark_of(row))
        return Chosen(
            rows,
            [
                Refused(topic, marks, reason, now_ms)
                for (topic, reason), marks in refused.items()
            ],
        )

    def _refusal_of(self, topic: str) -> str | None:
        """Returns why nothing can be carried over to a topic or queue, if so."""
        try:
            self.require(OutboxDestination.of(topic))
        except NotAuthenticated:
            raise
        except REFUSALS as error:
            return str(error)
        return None

    def _refusal_of_row(self, row: Row, now_ms: int) -> str | None:
        try:
            payload = payload_of(row, now_ms=now_ms)
            if payload is not None:
                checked_size_bytes(payload, self.messaging.message_limit_bytes)
        except BadRequest as error:
            return str(error)
        return None

    def _refused(
        self, topic: str, marks: Collection[Mark], reason: str, batch: OutboxBatch
    ) -> Chosen:
        """Chooses rows to be set aside, as far as they are there."""
        there = [mark for row in batch.rows if (mark := mark_of(row)) in marks]
        if not there:
            return Chosen()
        now_ms = self.messaging.clock_ms()
        return Chosen(refused=[Refused(topic, there, reason, now_ms)])


def _everything(batch: OutboxBatch) -> Chosen:
    return Chosen(batch.rows, is_whole=True)


def _first_of(topic: str, most: int, batch: OutboxBatch) -> Chosen:
    """Chooses the first rows for one topic."""
    return Chosen([row for row in batch.rows if row.topic == topic][:most])


def told_of(
    entries: Iterable[SetAside], refused: Iterable[Refused]
) -> list[SetAsideFor]:
    """Returns what a report says is set aside, with what is about to be."""
    found = {
        str(one.destination): SetAsideFor(
            str(one.destination),
            one.count,
            one.reason[:REASON_CHARACTERS],
            round(one.since.timestamp() * 1000),
        )
        for one in entries
    }
    for each in refused:
        name = str(OutboxDestination.of(each.topic))
        before = found.get(name) or SetAsideFor(
            name, 0, each.reason[:REASON_CHARACTERS], each.since_ms
        )
        found[name] = attrs.evolve(before, count=before.count + len(each.marks))
    return [*found.values()][:MOST_NAMED]
