"""The loop that reads a topic, transforms each message, and publishes to another."""

import threading
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Self

from coordinator.context import TransactionContext
from coordinator.interfaces import TransactionAware
from txaware.consume import Consumer, Inbox, Subscriber, SubscriberMetrics
from txaware.consume.batches import Handled, HandlesAtOnce
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
    """

    producer: TransactionalProducer
    _subscriber: Subscriber

    def __init__(self, function: Function, target: str) -> None:
        self._function = function
        self._target = target

    def of(self, subscriber: Subscriber, producer: TransactionalProducer) -> Self:
        """Makes it the loop of a subscriber, which calls `handle` and `begin`."""
        self._subscriber, self.producer = subscriber, producer
        return self

    def begin(
        self, *participants: TransactionAware, timeout_s: float
    ) -> TransactionContext:
        """Makes the transaction of a batch."""
        return self.producer.transaction(*participants, timeout_s=timeout_s)

    def handle(self, message: Any) -> None:
        """Publishes what the function makes of a message."""
        self.publish(self._function(message))

    def publish(self, made: object) -> None:
        """Publishes what the function made of a message."""
        payloads = _made(made)
        if payloads:
            self.producer.publish(self._target, payloads)

    def handle_at_once(
        self, at_once: HandlesAtOnce, messages: list[Any], is_late: Callable[[], bool]
    ) -> list[Handled]:
        """Publishes what the function makes of messages, in their order."""
        ends = at_once(messages, is_late)
        for end in takewhile(lambda end: end.error is None, ends):
            self.publish(end.answer)
        return ends

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
        self.producer.close()

    def __repr__(self) -> str:
        return f"<Processor of {self.consumer!r} by {self.producer!r}>"


class DecidedProcessor(Processor):
    """A loop whose batches a database decides.

    Its own commit moves the group and publishes by its outbox, once. So the count of
    the producer's commits stands; a fenced loop ends before its next batch.
    """

    def __init__(
        self,
        function: Function,
        target: str,
        *,
        begin: Callable[..., TransactionContext],
        publish: Publish,
    ) -> None:
        super().__init__(function, target)
        self._begin = begin
        self._publish = publish

    def begin(
        self, *participants: TransactionAware, timeout_s: float
    ) -> TransactionContext:
        """Makes the transaction of a batch; raises `ProducerFenced` for an old loop."""
        self.producer.require_newest()
        return self._begin(*participants, timeout_s=timeout_s)

    def publish(self, made: object) -> None:
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
