"""Takes the messages of a topic through a handler, one transaction a batch."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Any

import attrs

from coordinator.callbacks import check_answer
from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.tracing import active
from coordinator.transaction import Status
from txaware.consume.consumer import Consumer
from txaware.consume.cursors import Group
from txaware.consume.durable_tries import DurableTries, GroupMarks, InboxMarks
from txaware.consume.inbox import Inbox, KeepsPositions
from txaware.consume.loop_member import PartitionReader
from txaware.consume.poison import (
    CarriedLetters,
    DeadLetters,
    DecodedMessage,
    HandlingStep,
    Origin,
    Publish,
    Suspects,
    letter_of,
    made_origins_topic,
    origins_topic,
)
from txaware.consume.subscribe_options import (
    SHARE_OF_TIMEOUT,
    Delivery,
    SubscriberCounts,
)
from txaware.errors import (
    MemberFenced,
    MisusedTransaction,
    ProducerFenced,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    Unavailable,
    error_text,
)
from txaware.model.clock import ClockMs
from txaware.model.interfaces import MessagingService
from txaware.model.start_places import of_one

logger = logging.getLogger(__name__)

Handler = Callable[[Any], object]

# The limit of a message where nobody says another.
MOST_BYTES = 2**62


@attrs.frozen
class Handled:
    """The end of a handler: its error, or its answer."""

    error: BaseException | None = None
    answer: Any = None


# Handles messages at once, until the function says that it is late; returns the ends of
# those that were begun, in their order: one at least.
HandlesAtOnce = Callable[[list[Any], Callable[[], bool]], list[Handled]]


class MessageBatches:
    """The batches of a subscriber; each is one transaction that polls and handles."""

    def __init__(
        self,
        consumer: Consumer | Inbox | PartitionReader,
        handler: Handler,
        delivery: Delivery,
        *,
        counts: SubscriberCounts,
        topic: str,
        service: MessagingService,
        coordinator: Coordinator,
        participants: Iterable[TransactionAware],
        shares_journal: bool,
        clock_s: Callable[[], float],
        clock_ms: ClockMs,
        group: Group | None = None,
        begin: Callable[..., TransactionContext] | None = None,
        target: str | None = None,
        database: KeepsPositions | None = None,
        publish: Publish | None = None,
        at_once: HandlesAtOnce | None = None,
        message_limit_bytes: int = MOST_BYTES,
    ) -> None:
        # True when the last batch has left messages, or may have.
        self.has_more = True
        self._counts = counts
        self._consumer = consumer
        self._handler = handler
        self._delivery = delivery
        self._service = service
        self._begin = begin or partial(TransactionContext, coordinator)
        self._participants = tuple(participants)
        self._shares_journal = shares_journal
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._suspects = Suspects(delivery.tries)
        self._group = group
        self._durable: DurableTries | None = None
        if group is not None and delivery.tries is not None:
            marks: GroupMarks | InboxMarks = GroupMarks(group, coordinator)
            if database is not None:
                marks = InboxMarks(database, group.name, topic)
            self._durable = DurableTries(marks, self._suspects)
        self._database = database
        self._publish = publish
        self._at_once = at_once
        self._message_limit_bytes = message_limit_bytes
        self._topic = topic
        self._target = target
        self._origins: str | None = None
        self._began_s = 0.0
        # What becomes of the messages of the last failure, once the loop goes on.
        self.fate = "again"

    def one(self) -> int:
        """Runs one transaction; answers how many messages it went past."""
        step, self.fate, self.has_more = HandlingStep(), "again", True
        if isinstance(self._consumer, Inbox):
            self._mark_ahead(self._consumer)
        timeout_s = self._delivery.timeout_s
        context = self._begin(*self._participants, timeout_s=timeout_s)
        self._began_s = self._clock_s()
        late_s = self._began_s + SHARE_OF_TIMEOUT * timeout_s
        try:
            with context:
                self._work(step, context, late_s)
        except BaseException as error:
            if context.status is Status.COMMITTED:  # somebody's post_tx_commit failed
                self._passed(step)
                self.fate = "its messages are committed, and the loop goes on"
            else:
                self._failed(step, error)
            raise
        self._passed(step)
        return len(step.done)

    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; False after the time-out."""
        if isinstance(self._consumer, PartitionReader):
            raise MisusedTransaction(f"{self._consumer!r} waits with all partitions")
        return self._consumer.wait(timeout_s)

    def _mark_ahead(self, inbox: Inbox) -> None:
        """Marks the next batch, before its block has the database to itself."""
        if self._durable is None or not self._durable.has_to_look:
            return
        page = inbox.peek(self._delivery.messages_per_transaction)
        self._durable.look(page)
        group = HandlingStep().choose(page, self._delivery, self._suspects)
        self._durable.begin([item.message.id for item in group], 0)

    def _work(
        self, step: HandlingStep, context: TransactionContext, late_s: float
    ) -> None:
        most = self._delivery.messages_per_transaction
        page = self._consumer.poll(most)
        of_one(page.next, self._topic)
        self._count(fetched=len(page))
        durable = None if isinstance(self._consumer, Inbox) else self._durable
        if durable is not None:
            durable.look(page)
        group = step.choose(page, self._delivery, self._suspects)
        if durable is not None:
            chosen = [item.message.id for item in group]
            durable.begin(chosen, context.transaction.transaction_id)
        began_s = self._clock_s()
        try:
            if self._delivery.together:
                self._handle_together(step, group, context)
            elif self._at_once is not None:
                self._handle_at_once(self._at_once, step, group, context, late_s)
            else:
                self._handle_each(step, group, context, late_s)
        finally:
            self._count(processing_s=self._clock_s() - began_s)
        if context.status is not Status.ACTIVE:
            raise MisusedTransaction(
                f"the handler ended {context}, which its subscriber ends; raise instead"
            )
        self.has_more = len(step.done) < len(page) or len(page) >= most
        if len(step.done) < len(page):
            self._consumer.seek(step.done[-1].message.id, inclusive=False)

    def _handle_each(
        self,
        step: HandlingStep,
        group: list[DecodedMessage],
        context: TransactionContext,
        late_s: float,
    ) -> None:
        for item in group:
            if step.done and self._clock_s() >= late_s:
                break
            step.trying = item
            if not self._gave_up(step, item, context):
                self._call([item], item.value)
                step.handled.append(item.value)
            step.done.append(item)
        step.trying = None

    def _handle_at_once(
        self,
        at_once: HandlesAtOnce,
        step: HandlingStep,
        group: list[DecodedMessage],
        context: TransactionContext,
        late_s: float,
    ) -> None:
        """Handles what lies between two messages that are given up at once."""

        def is_late() -> bool:
            return self._clock_s() >= late_s

        rest = group
        while rest and not (step.done and is_late()):
            ready = [*takewhile(self._may_be_tried, rest)]
            if not ready:
                step.trying = rest[0]
                self._gave_up(step, rest[0], context)
                step.done.append(rest[0])
            else:
                ends = at_once([item.value for item in ready], is_late)
                for item, end in zip(ready, ends, strict=False):
                    step.trying = item
                    if end.error is not None:
                        raise end.error
                    step.handled.append(item.value)
                    step.done.append(item)
            rest = group[len(step.done) :]
        step.trying = None

    def _handle_together(
        self,
        step: HandlingStep,
        group: list[DecodedMessage],
        context: TransactionContext,
    ) -> None:
        step.done = group
        tried = [item for item in group if not self._gave_up(step, item, context)]
        step.handled = [item.value for item in tried]
        if step.handled:
            self._call(tried, step.handled)

    def _call(self, items: list[DecodedMessage], given: Any) -> None:
        """Calls the handler, in a span where somebody traces it."""
        tracing = active()
        if tracing is None:
            check_answer(self._handler(given))
            return
        headers = [item.message.headers for item in items]
        group = None if self._group is None else self._group.name
        with tracing.processing(self._topic, headers, group=group):
            check_answer(self._handler(given))

    def _gave_up(
        self, step: HandlingStep, item: DecodedMessage, context: TransactionContext
    ) -> bool:
        """Gives up a message that cannot be handled; False where it can be tried.

        The message goes to the dead letter topic, where there is one.
        """
        if self._may_be_tried(item):
            return False
        message = item.message
        step.given_up.append(item)
        topic = self._delivery.dead_letter_topic
        if topic is not None:
            letters = self._dead_letters(context, topic)
            letter = letter_of(message, item.unreadable, self._message_limit_bytes)
            letters.add(letter, self._origin(item))
        return True

    def _may_be_tried(self, item: DecodedMessage) -> bool:
        is_poison = self._suspects.is_poison(item.message.id)
        return item.unreadable is None and not is_poison

    def _origin(self, item: DecodedMessage) -> Origin | None:
        message_id = item.message.id
        if item.unreadable is not None:
            error = error_text(item.unreadable)
        else:
            error = self._suspects.error(message_id)
        if self._origins is None:
            return None
        return Origin(
            self._topic,
            message_id,
            None if self._group is None else self._group.name,
            self._suspects.failures(message_id),
            error,
        )

    def _dead_letters(
        self, context: TransactionContext, topic: str
    ) -> DeadLetters | CarriedLetters:
        tells = self._delivery.tells_origins and self._topic != origins_topic(topic)
        if tells and self._origins is None:
            self._origins = made_origins_topic(self._service, topic)
        if self._database is not None and self._publish is not None:
            return CarriedLetters(self._publish, topic, self._origins)
        return context.joined(
            (DeadLetters, id(self)),
            lambda: DeadLetters(
                self._service,
                topic,
                origins=self._origins,
                shares_journal=self._shares_journal,
            ),
        )

    def _failed(self, step: HandlingStep, error: BaseException) -> None:
        self.fate = "all comes again"
        if isinstance(error, TransactionConflict | MemberFenced):
            self._count(conflicts=1)
            return
        if isinstance(error, Exception):
            self._count(failures=1)
        if self._is_messages_fault(error):
            step.blame(self._suspects, error_text(error))
            self.fate = self._fate(step)
        elif self._durable is not None:
            self._durable.take_back()

    def _fate(self, step: HandlingStep) -> str:
        """Says what becomes of the messages that made a transaction fail."""
        blamed = [step.trying] if step.trying is not None else step.done
        if len(blamed) != 1:
            return (
                f"its {len(blamed)} messages come again, each alone,"
                if blamed
                else ("all comes again")
            )
        message_id, tries = blamed[0].message.id, self._delivery.tries
        if tries is None:
            return f"message {message_id} comes again"
        count = f"try {self._suspects.failures(message_id)} of {tries}"
        if not self._suspects.is_poison(message_id):
            return f"that was {count} of message {message_id}, which comes again"
        topic = self._delivery.dead_letter_topic
        way = f"goes to {topic}" if topic else "is skipped"
        return f"that was {count} of message {message_id}, which {way}"

    def _is_messages_fault(self, error: BaseException) -> bool:
        """Tells whether the messages of the batch may have caused an error.

        An interrupt, a service that is away, a target that was deleted, a newer
        instance of a producer and a transaction that somebody else ended are not their
        fault. A transaction that timed out is: the handler took too long.
        """
        if isinstance(error, TransactionNotInProgress):
            return self._clock_s() - self._began_s >= self._delivery.timeout_s
        if isinstance(error, TopicNotFound) and self._lacks_target():
            return False
        if self._database is not None and self._database.is_away(error):
            return False
        away = (Unavailable, TransactionOutcomeUnknown, ProducerFenced)
        return isinstance(error, Exception) and not isinstance(error, away)

    def _lacks_target(self) -> bool:
        """Tells whether the topic that the loop publishes to is not there now."""
        try:
            if self._target is not None:
                self._service.topic(self._target)
        except (TopicNotFound, Unavailable):
            return True
        return False

    def _passed(self, step: HandlingStep) -> None:
        if not step.done:
            return
        last = step.done[-1].message.id
        given_up = [(item, self._why(item)) for item in step.given_up]
        self._suspects.passed(last)
        if self._durable is not None:
            self._durable.passed()
        self._count(batches=1, processed=len(step.handled))
        for item, why in given_up:
            self._tell_given_up(item, why)
        delay_s = (self._clock_ms() - last.publish_time_ms) / 1000
        self._counts.delay(delay_s)
        if self._delivery.after_commit is not None and step.handled:
            self._announce(self._delivery.after_commit, step.handled)

    def _why(self, item: DecodedMessage) -> str:
        if item.unreadable is not None:
            return str(item.unreadable)
        failures = self._suspects.failures(item.message.id)
        return f"it failed {failures} times, {self._suspects.error(item.message.id)}"

    def _tell_given_up(self, item: DecodedMessage, why: str) -> None:
        topic = self._delivery.dead_letter_topic
        self._count(**{"dead_lettered" if topic else "skipped": 1})
        logger.warning(
            "%r: message %s %s: %s",
            self._consumer,
            item.message.id,
            f"went to {topic}" if topic else "was skipped",
            why,
        )

    def _announce(
        self, after_commit: Callable[[list[Any]], object], handled: list[Any]
    ) -> None:
        try:
            after_commit(handled)
        except Exception:
            logger.exception(
                "%r: after_commit failed; it stays committed", self._consumer
            )

    def _count(self, **numbers: float) -> None:
        self._counts.count(**numbers)
