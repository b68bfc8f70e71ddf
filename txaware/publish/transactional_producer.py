"""The transactional producer: one instance of an id at a time, in one transaction."""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, Self, Unpack, overload

from coordinator.brief_errors import briefly
from coordinator.callbacks import check_answer, check_function
from coordinator.fork_guard import guard
from coordinator.interfaces import TransactionAware
from coordinator.transaction import Status
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    ProducerFenced,
    PublisherClosed,
    TransactionNotInProgress,
)
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import MessageId, MessageOptions
from txaware.model.producers import BeginsTransactions, ProducerService, checked_key
from txaware.model.signatures import unpacked
from txaware.model.topics import checked_transactional_id
from txaware.publish.fenced_transaction import (
    CommitCount,
    FencedTransaction,
    ProducerInstance,
)
from txaware.publish.producer import Producer, one_or_many
from txaware.publish.producer_states import REFUSALS, State
from txaware.publish.publisher import Publisher, checked_many
from txaware.publish.tracked_calls import joined_by_hand


class SavesPosition(Protocol):
    """A consumer whose position a transaction can save."""

    def save_in(self, context: Any) -> None:
        """Saves what it polled outside transactions with the commit of `context`."""


class TransactionalProducer:
    """The newest instance of a transactional id; older ones are fenced.

    To open it fences every older instance and settles what those left open. Then it has
    one transaction at a time, by `transaction` or by the verbs of Kafka: `begin`,
    `publish`, `save_positions`, `commit`, `abort`. `REFUSALS` says what each state
    takes. Any number of threads may share it.
    """

    def __init__(
        self,
        service: ProducerService,
        transactional_id: str,
        *,
        make: Callable[..., FencedTransaction],
        publisher: Callable[[str], Publisher],
        saves: MessagingService,
        message_limit_bytes: int,
        shares_journal: bool,
        begins: BeginsTransactions | None = None,
    ) -> None:
        opened = service.open_producer(checked_transactional_id(transactional_id))
        self.transactional_id = transactional_id
        self._instance = ProducerInstance(
            service, transactional_id, opened.identity, shares_journal, begins
        )
        self._producer = Producer(
            service,
            message_limit_bytes=message_limit_bytes,
            opened=opened,
            partitions=lambda topic: saves.topic(topic).partitions,
        )
        self._make = make
        self._publisher = publisher
        self._saves = saves
        self._lock = threading.RLock()
        self._context: FencedTransaction | None = None
        self._is_over = True  # whoever runs the transaction has seen it end
        self._entered = self._closed = False
        guard(self)

    @property
    def producer_id(self) -> int:
        """The id by which the store knows this producer."""
        return self._instance.producer.producer_id

    @property
    def epoch(self) -> int:
        """The epoch of this instance; that of an older one is lower."""
        return self._instance.producer.epoch

    @property
    def commits(self) -> int:
        """The number of committed transactions of this id, of all its instances."""
        return self._instance.service.producer_commits(self.transactional_id)

    def require_newest(self) -> None:
        """Raises `ProducerFenced` if a newer instance of the id has been opened."""
        if self._instance.fenced is not None:
            raise ProducerFenced(str(self._instance.fenced))
        self._instance.require()

    @property
    def state(self) -> State:
        """The state between two calls."""
        if self._instance.fenced is not None:
            return State.FENCED
        if self._closed:
            return State.CLOSED
        status = None if self._context is None else self._context.status
        if status in (Status.ACTIVE, Status.ENDING):
            return State.OPEN
        if status is Status.UNKNOWN:
            return State.UNKNOWN
        return State.READY if self._is_over else State.ROLLED_BACK

    def transaction(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> FencedTransaction:
        """Begins a transaction: `with producer.transaction(table) as tx:`.

        It is a `messaging.transaction` that counts in `commits`, and that a fenced
        instance can neither begin nor commit: it raises `ProducerFenced`.
        """
        return self._made(participants, timeout_s, "transaction")

    @briefly
    def run_once(self, key: str, function: Callable[..., object]) -> bool:
        """Runs a function in a transaction, unless this id has committed that key.

        Returns True if it ran and committed now; False if that was before, or if it
        aborted. The key is saved with the commit. `function` gets the transaction if it
        takes an argument.
        """
        check_function(function)
        context = keyed(self, key)
        with context:
            if context.count.entered.is_done:
                give_up(context)
                return False
            check_answer(call(function, context))
        return context.status is Status.COMMITTED

    @briefly
    def begin(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> None:
        """Begins a transaction that `commit` or `abort` ends, from any thread."""
        with self._lock:
            self._made(participants, timeout_s, "begin").start()

    @unpacked
    @briefly
    def publish(
        self,
        topic: str,
        payloads: Payload | Iterable[Payload],
        sequence: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[MessageId]:
        """Publishes with the open transaction, or else at once and not twice.

        `payloads` are many, or one: the options are of one, as those of an `Outgoing`.
        In a transaction it returns an empty list, as ids are given with the commit, and
        the messages have no `sequence`. Without one it returns the ids; `sequence` is
        that of `Producer.publish`.
        """
        messages = one_or_many(payloads, options)
        with self._lock:
            context = self._require("publish")
            if context is None:
                return self._instance.ask(
                    lambda: self._producer.publish(topic, messages, sequence)
                )
            if sequence is not None:
                raise BadRequest(
                    "messages of a transaction have no sequence: its commit is what "
                    "happens once"
                )
            self._require_in_progress(context)
            many = checked_many(messages, call="publish")
            self._publisher(topic).publish_in(context, many)
            return []

    @overload
    def save_positions(self, *consumers: SavesPosition) -> None: ...

    @overload
    def save_positions(
        self, group: str, positions: Mapping[str, MessageId], /
    ) -> None: ...

    @briefly
    def save_positions(self, *consumers: Any) -> None:
        """Moves groups with the commit: of consumers, or one group by `{topic: id}`.

        Consumers have polled outside transactions, and have not committed; their groups
        go to where they have polled. If the transaction is rolled back, they go back to
        where their groups stand. An id is that of the last message that was handled.
        """
        with self._lock:
            context = self._require("save_positions")
            assert context is not None
            if len(consumers) == 2 and isinstance(consumers[0], str):
                group, positions = consumers
                joined_by_hand(
                    self._saves,
                    context,
                    shares_journal=self._instance.shares_journal,
                ).save_positions(group, positions, transaction=context.transaction)
                return
            for consumer in consumers:
                if not hasattr(consumer, "save_in"):
                    raise BadRequest(
                        f"save_positions takes consumers, which have a group, or a "
                        f"group and {{topic: id}}, not {consumer!r:.100}"
                    )
            for consumer in consumers:
                consumer.save_in(context)

    @briefly
    def commit(self) -> None:
        """Commits what `begin` began.

        After `TransactionOutcomeUnknown` it is called again, and finds out. After any
        other error everything is undone.
        """
        with self._lock:
            context = self._require("commit")
            assert context is not None
            self._is_over = False
            if context.status is Status.UNKNOWN:
                context.settle()
            else:
                context.finish()
            self._is_over = True

    @briefly
    def abort(self) -> None:
        """Undoes everything that was done since `begin`.

        After a commit that was refused there is nothing left to undo.
        """
        with self._lock:
            context = self._require("abort")
            self._is_over = True
            if context is not None and context.status is Status.ACTIVE:
                context.abort()

    def close(self) -> None:
        """Undoes what is open, and takes no more calls; a second close does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._producer.close()
            context = self._context
            if context is not None and context.status in (Status.ACTIVE, Status.ENDING):
                context.abort()

    def __enter__(self) -> Self:
        if self._entered or self._closed:
            raise MisusedTransaction(
                f"{self!r} was begun before; make a new one, which fences this one"
            )
        self._entered = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TransactionalProducer {self.transactional_id}, epoch {self.epoch}>"

    def _made(
        self,
        participants: Iterable[TransactionAware],
        timeout_s: float | None,
        verb: str,
        *,
        key: str | None = None,
    ) -> FencedTransaction:
        context = self._make(*participants, timeout_s=timeout_s)
        count = CommitCount(self._instance, key=key)
        context.fence(count, lambda: self._admitted(context, verb))
        return context

    @contextmanager
    def _admitted(self, context: FencedTransaction, verb: str) -> Iterator[None]:
        """Surrounds the beginning of a transaction, or refuses it.

        The service ends what was left unknown before: it knows one at a time.
        """
        with self._lock:
            self._require(verb)
            before = self._context, self._is_over
            self._context, self._is_over = context, True
            try:
                yield
            except BaseException:
                self._context, self._is_over = before
                raise

    def _require(self, call: str) -> FencedTransaction | None:
        """Returns the transaction that a call is for; refuses it in a wrong state."""
        if self._instance.fenced is not None:
            raise ProducerFenced(str(self._instance.fenced))
        state = self.state
        refusal = REFUSALS[state].get(call)
        if refusal is not None:
            kind = PublisherClosed if state is State.CLOSED else MisusedTransaction
            raise kind(f"{call}() of {self!r}: {state.value}; {refusal}")
        return self._context if state in (State.OPEN, State.UNKNOWN) else None

    def _require_in_progress(self, context: FencedTransaction) -> None:
        """Raises if the transaction has timed out, or was ended by a newer instance."""
        if not context.is_late:
            return
        late = TransactionNotInProgress(f"{context} timed out; abort() it")
        context.raise_if_fenced(late)
        raise late


def keyed(producer: TransactionalProducer, key: str) -> FencedTransaction:
    """Returns a transaction that commits a key, or finds out that it is committed."""
    return producer._made((), None, "transaction", key=checked_key(key))


def give_up(context: FencedTransaction) -> None:
    """Ends a transaction whose key is committed already.

    It has written nothing, so that it may time out where the service is away.
    """
    with suppress(ParticipantFailed):
        context.abort()


def call(function: Callable[..., Any], context: object) -> Any:
    """Calls a function, with the transaction if it takes an argument."""
    given: tuple[object, ...] = (context,)
    try:
        inspect.signature(function).bind(context)
    except (TypeError, ValueError):  # not every callable has a signature
        given = ()
    return function(*given)
