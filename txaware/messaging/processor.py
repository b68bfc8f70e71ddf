"""The loop that reads a topic, transforms each message, and publishes to another."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, Self

from coordinator.context import TransactionContext
from coordinator.interfaces import TransactionAware
from txaware.consume import Consumer, Inbox, Subscriber, SubscriberMetrics
from txaware.consume.batches import Handled, HandlesAtOnce
from txaware.consume.loop_plan import PartitionHandler
from txaware.consume.poison import Publish
from txaware.errors import BadRequest
from txaware.model.interfaces import Payload
from txaware.model.messages import Outgoing
from txaware.publish.transactional_producer import TransactionalProducer

Made = Payload | list[Payload] | list[bytes] | list[Outgoing] | None
Function = Callable[[Any], Made]


class Processor:
    """The loop of `messaging.process`: each batch is one transaction of a producer.

    The position of its group, and what the function made of the messages, commit
    together and once. A newer instance of the producer fences it: `run` then raises
    `ProducerFenced`, and the newer one goes on behind the last commit.

    Of a topic of several partitions, each partition has a producer of its own, whose
    id ends with its number: so loops that share the topic do not fence each other.
    """

    _subscriber: Subscriber

    def __init__(
        self,
        function: Function,
        target: str,
        open_producer: Callable[[int], TransactionalProducer],
    ) -> None:
        self._function = function
        self._target = target
        self._open_producer = open_producer
        self._producers: dict[int, TransactionalProducer] = {}
        self._is_newest = False

    def of(self, subscriber: Subscriber) -> Self:
        """Makes it the loop of a subscriber."""
        self._subscriber = subscriber
        return self

    def be_newest(self) -> None:
        """Fences an older loop of the same id, of a topic of one partition."""
        self.producer_of(0)
        self._is_newest = True

    def handling(
        self, at_once: HandlesAtOnce | None, number: int = 0
    ) -> PartitionHandler:
        """Returns what handles the messages of a partition."""
        return PartitionHandler(
            lambda message: self.publish(number, self._function(message)),
            partial(self.begin, number),
            at_once and partial(self._handle_at_once, at_once, number),
            partial(self._let_go, number),
        )

    def opened(self, at_once: HandlesAtOnce | None, number: int) -> PartitionHandler:
        """Does so once it has fenced who had the partition before."""
        self.producer_of(number)
        return self.handling(at_once, number)

    def begin(
        self, number: int, *participants: TransactionAware, timeout_s: float
    ) -> TransactionContext:
        """Makes the transaction of a batch."""
        return self.producer_of(number).transaction(*participants, timeout_s=timeout_s)

    def publish(self, number: int, made: object) -> None:
        """Publishes what the function made of a message."""
        payloads = _made(made)
        if payloads:
            self.producer_of(number).publish(self._target, payloads)

    def _handle_at_once(
        self,
        at_once: HandlesAtOnce,
        number: int,
        messages: list[Any],
        is_late: Callable[[], bool],
    ) -> list[Handled]:
        """Publishes what the function makes of messages, in their order."""
        ends = at_once(messages, is_late)
        for end in takewhile(lambda end: end.error is None, ends):
            self.publish(number, end.answer)
        return ends

    @property
    def producer(self) -> TransactionalProducer:
        """The producer by which it publishes, of the first partition."""
        return self.producer_of(0)

    def producer_of(self, number: int) -> TransactionalProducer:
        """Returns the producer of a partition; opens it, which fences an older one."""
        if number not in self._producers:
            self._producers[number] = self._open_producer(number)
        return self._producers[number]

    def require_newest(self) -> None:
        """Raises `ProducerFenced` where a newer loop of the same id was made."""
        if self._is_newest:
            self._producers[0].require_newest()

    @property
    def consumer(self) -> Consumer | Inbox:
        """The consumer that reads the source."""
        return self._subscriber.consumer

    def run(self, stop: threading.Event | None = None) -> None:
        """Processes messages until `stop` is set or `close` is called.

        With nothing to do it waits for messages. After a failure it pauses, longer each
        time, and tries again. It raises `ProducerFenced` once a newer instance of its
        producer works.
        """
        self._subscriber.run(stop)

    def run_once(self) -> int:
        """Runs one transaction, and returns how many messages it went past."""
        return self._subscriber.run_once()

    def metrics(self) -> SubscriberMetrics:
        """Returns what it has counted so far."""
        return self._subscriber.metrics()

    def close(self) -> None:
        """Ends every `run`; when it returns, the function is not at work."""
        self._subscriber.close()
        for producer in self._producers.values():
            producer.close()

    def _let_go(self, number: int) -> None:
        """Closes the producer of a partition that others may have now."""
        if number in self._producers and not (self._is_newest and number == 0):
            self._producers.pop(number).close()

    def __repr__(self) -> str:
        by = ", ".join(repr(one) for one in self._producers.values())
        return f"<Processor of {self.consumer!r} by {by or 'no producer yet'}>"


class DecidedProcessor(Processor):
    """A loop whose batches a database decides.

    Its own commit moves the group and publishes by its outbox, once. So the count of
    the producer's commits stands; a fenced loop ends before its next batch.
    """

    def __init__(
        self,
        function: Function,
        target: str,
        open_producer: Callable[[int], TransactionalProducer],
        *,
        begin: Callable[..., TransactionContext],
        publish: Publish,
    ) -> None:
        super().__init__(function, target, open_producer)
        self._begin = begin
        self._publish = publish

    def begin(
        self, number: int, *participants: TransactionAware, timeout_s: float
    ) -> TransactionContext:
        """Makes the transaction of a batch; raises `ProducerFenced` for an old loop."""
        self.producer_of(number).require_newest()
        return self._begin(*participants, timeout_s=timeout_s)

    def publish(self, number: int, made: object) -> None:
        """Publishes what the function made of a message, with the block."""
        payloads = _made(made)
        if payloads:
            self._publish(self._target, payloads)


def _made(answer: object) -> list[Payload]:
    if answer is None:
        return []
    if isinstance(answer, bytes | Outgoing):
        return [answer]
    if isinstance(answer, list):
        return answer
    raise BadRequest(
        f"the function answers bytes, an Outgoing, a list of them, or None, not "
        f"{answer!r:.100}"
    )
