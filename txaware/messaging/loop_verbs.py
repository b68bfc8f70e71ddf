"""The verbs of a `Messaging` that make loops: subscribers and processors."""

import os
import platform
import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property, partial
from typing import (
    Any,
    Literal,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakSet

from coordinator.callbacks import check_function
from coordinator.context import TransactionContext
from coordinator.interfaces import TransactionAware
from txaware.consume import Subscriber, subscribe
from txaware.consume.batches import HandlesAtOnce
from txaware.consume.loop_plan import deciding
from txaware.consume.subscribe_options import TIMEOUT_S
from txaware.errors import BadRequest
from txaware.messaging.parts import Parts
from txaware.messaging.processor import DecidedProcessor, Function, Made, Processor
from txaware.model.clock import ClockMs
from txaware.model.encoding import Decode
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import Message
from txaware.model.partitions import named_partition
from txaware.model.queues import checked_count
from txaware.model.start_places import StartAt
from txaware.model.topics import checked_transactional_id
from txaware.publish import Publisher
from txaware.publish.transactional_producer import TransactionalProducer


class LoopOptions(TypedDict, total=False):
    """The options that all loops over a topic take, for type checkers."""

    start: StartAt
    inclusive: bool
    participants: Iterable[TransactionAware]
    alone: Callable[[Any], bool] | None
    messages_per_transaction: int
    timeout_s: float
    tries: int | None
    dead_letter_topic: str | None
    tells_origins: bool
    after_commit: Callable[[list[Any]], object] | None
    first_pause_s: float
    longest_pause_s: float
    idle_wait_s: float
    session_s: float | None


def client_name() -> str:
    """Names this process, for those who look at the members of a group."""
    return f"{platform.node()}:{os.getpid()}"


class Closes(Protocol):
    """A thing that has to be closed before the parts that it works on."""

    def close(self) -> None:
        """Ends its work."""


C = TypeVar("C", bound=Closes)
V = TypeVar("V")


class KeptOnce:
    """Keeps things once for a `Messaging`, by key, and closes them with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, Closes] = {}

    def get(self, key: Hashable, make: Callable[[], C]) -> C:
        """Returns what is kept for a key; makes it first."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            return cast(C, self._kept[key])

    def has(self, key: Hashable) -> bool:
        """Tells whether something is kept for a key; that waits for nobody."""
        return key in self._kept

    def close(self) -> None:
        """Closes all that is kept."""
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
        for one in kept:
            one.close()


class LoopVerbs:
    """Loops over topics; closed with the `Messaging` that makes them."""

    _service: MessagingService
    _parts: Parts
    _to_close: WeakSet[Closes]

    @cached_property
    def _kept_once(self) -> KeptOnce:
        return KeptOnce()

    def kept_once(self, key: Hashable, make: Callable[[], C]) -> C:
        """Returns what this process keeps for a key, made once and closed with this.

        It is for participants, which have their relay or recovery in the background.
        """
        return self._kept_once.get(key, make)

    def is_kept(self, key: Hashable) -> bool:
        """Tells whether `kept_once` has made what it keeps for a key."""
        return self._kept_once.has(key)

    @property
    def clock_ms(self) -> ClockMs:
        """The clock, in ms since 1970, for participants."""
        return self._parts.clock_ms

    @property
    def message_limit_bytes(self) -> int:
        """The size of the largest message, for participants."""
        return self._parts.settings.message_limit_bytes

    @abstractmethod
    def _transactional(self, transactional_id: str) -> TransactionalProducer:
        """Opens the newest instance of a transactional id."""

    @abstractmethod
    def transaction(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> TransactionContext:
        """Makes a transaction."""

    @abstractmethod
    def publisher(self, topic: str) -> Publisher:
        """Returns a publisher to the open transaction."""

    def _publish_within(self, topic: str, payloads: list[Payload]) -> None:
        self.publisher(topic).publish_all(payloads)

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[Message], object],
        *,
        group: str | None = None,
        decode: None = None,
        together: Literal[False] = False,
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[Message[V]], object],
        *,
        group: str | None = None,
        decode: Decode[V],
        together: Literal[False] = False,
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[list[Message]], object],
        *,
        group: str | None = None,
        decode: None = None,
        together: Literal[True],
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[list[Message[V]]], object],
        *,
        group: str | None = None,
        decode: Decode[V],
        together: Literal[True],
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    def subscribe(
        self,
        topic: str,
        handler: Callable[..., object],
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        participants: Iterable[TransactionAware] = (),
        decode: Decode[Any] | None = None,
        alone: Callable[[Any], bool] | None = None,
        together: bool = False,
        messages_per_transaction: int = 100,
        timeout_s: float = TIMEOUT_S,
        tries: int | None = None,
        dead_letter_topic: str | None = None,
        tells_origins: bool = True,
        after_commit: Callable[[list[Any]], object] | None = None,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 5,
        idle_wait_s: float = 0.5,
        session_s: float | None = None,
        concurrency: int = 1,
    ) -> Subscriber:
        """Returns a loop that calls `handler(message)` in transactions; `run` runs it.

        Each call has a transaction, which also moves the position. Whatever joins that
        transaction commits with it, and `participants` join each. Without a `group`
        the position ends with the process. `Delivery` explains the options from
        `decode` on.

        Loops of one group that run share the topic by its partitions, in any number of
        processes; who has none stands by. Where a process dies, others have its
        partitions after a session (`session_s`, 10). Up to `concurrency` partitions
        are handled at once, in threads.
        """
        return self._subscribed(
            topic,
            handler,
            group=group,
            start=start,
            inclusive=inclusive,
            participants=participants,
            decode=decode,
            alone=alone,
            together=together,
            messages_per_transaction=messages_per_transaction,
            timeout_s=timeout_s,
            tries=tries,
            dead_letter_topic=dead_letter_topic,
            tells_origins=tells_origins,
            after_commit=after_commit,
            first_pause_s=first_pause_s,
            longest_pause_s=longest_pause_s,
            idle_wait_s=idle_wait_s,
            session_s=session_s,
            concurrency=checked_count("concurrency", concurrency),
        )

    @overload
    def process(
        self,
        source: str,
        target: str,
        function: Callable[[Message], Made],
        *,
        group: str,
        producer: str,
        decode: None = None,
        **options: Unpack[LoopOptions],
    ) -> Processor: ...

    @overload
    def process(
        self,
        source: str,
        target: str,
        function: Callable[[Message[V]], Made],
        *,
        group: str,
        producer: str,
        decode: Decode[V],
        **options: Unpack[LoopOptions],
    ) -> Processor: ...

    def process(
        self,
        source: str,
        target: str,
        function: Function,
        *,
        group: str,
        producer: str,
        start: StartAt = None,
        inclusive: bool = True,
        participants: Iterable[TransactionAware] = (),
        decode: Decode[Any] | None = None,
        alone: Callable[[Any], bool] | None = None,
        messages_per_transaction: int = 100,
        timeout_s: float = TIMEOUT_S,
        tries: int | None = None,
        dead_letter_topic: str | None = None,
        tells_origins: bool = True,
        after_commit: Callable[[list[Any]], object] | None = None,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 5,
        idle_wait_s: float = 0.5,
        session_s: float | None = None,
        concurrency: int = 1,
    ) -> Processor:
        """Returns a loop from a topic to another, each message once; `run` runs it.

        `function(message)` returns bytes, an `Outgoing`, a list of them, or None. What
        it returns is published to `target` in the transaction that moves the `group`,
        one for each batch. `producer` is the transactional id: when this returns, an
        older loop of that id is fenced, and this one goes on behind its last commit.
        The options are those of `subscribe`, without `together`.

        Loops of one group share a source of several partitions, as those of `subscribe`
        do, with one id or several: then each partition has a producer of its own.
        """
        return self._process(
            source,
            target,
            function,
            group=group,
            producer=producer,
            start=start,
            inclusive=inclusive,
            participants=participants,
            decode=decode,
            alone=alone,
            messages_per_transaction=messages_per_transaction,
            timeout_s=timeout_s,
            tries=tries,
            dead_letter_topic=dead_letter_topic,
            tells_origins=tells_origins,
            after_commit=after_commit,
            first_pause_s=first_pause_s,
            longest_pause_s=longest_pause_s,
            idle_wait_s=idle_wait_s,
            session_s=session_s,
            concurrency=checked_count("concurrency", concurrency),
        )

    def _process(
        self,
        source: str,
        target: str,
        function: Function,
        *,
        group: str,
        producer: str,
        participants: Iterable[TransactionAware] = (),
        at_once: HandlesAtOnce | None = None,
        **options: Any,
    ) -> Processor:
        """Makes the loop of `process`; `at_once` calls its function for several."""
        check_function(function, what="function")
        if group is None:  # or the next loop would begin anew
            raise BadRequest("a loop that publishes each message once has a group")
        checked_transactional_id(producer)
        found = [self._service.topic(one) for one in (source, target)]
        if found[0].topic == found[1].topic:
            raise BadRequest(f"what is made of {source} would come back to it for ever")
        participants = tuple(participants)

        def opened(number: int) -> TransactionalProducer:
            return self._transactional(f"{producer}.{number}" if number else producer)

        if deciding(participants) is None:
            processor = Processor(function, target, opened)
        else:
            processor = DecidedProcessor(
                function,
                target,
                opened,
                begin=self.transaction,
                publish=self._publish_within,
            )
        is_alone = found[0].partitions == 1 or named_partition(source)[1] is not None
        by = processor.handling(at_once)
        subscriber = self._subscribed(
            source,
            by.handler,
            begin=by.begin,
            target=target,
            group=group,
            participants=participants,
            at_once=by.at_once,
            in_partition=partial(processor.opened, at_once),
            static=producer if is_alone else None,
            require_newest=processor.require_newest,
            **options,
        )
        processor.of(subscriber)
        if is_alone:
            processor.be_newest()  # it comes last, as it fences an older loop
        self._to_close.add(processor)
        return processor

    def _subscribed(
        self, topic: str, handler: Callable[..., object], **options: Any
    ) -> Subscriber:
        options.setdefault("begin", self.transaction)
        subscriber = subscribe(
            self._service,
            self._parts.coordinator,
            topic,
            handler,
            publish=self._publish_within,
            shares_journal=self._parts.shares_journal,
            clock_ms=self._parts.clock_ms,
            message_limit_bytes=self.message_limit_bytes,
            groups=self._parts.groups,
            client=client_name(),
            **options,
        )
        self._to_close.add(subscriber)
        return subscriber
