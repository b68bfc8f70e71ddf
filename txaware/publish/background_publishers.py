"""Publishers to one topic by a sender of their own: exactly once, and at most once."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, Self, Unpack, get_args

from coordinator.threads import SafeFuture
from txaware.errors import BadRequest, NotWritten, QueueFull, Unavailable
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import MessageOptions
from txaware.model.partitions import full_name
from txaware.model.signatures import unpacked
from txaware.publish.background import Background
from txaware.publish.publisher import checked_setting
from txaware.publish.repeated_publish import KnowsRepeats
from txaware.publish.send_batch import Sent, SentFuture
from txaware.publish.send_limits import MOST_IN_FLIGHT, NEVER_S, Retries, SendLimits
from txaware.publish.send_way import Pause, PlainWay, SendsBatches
from txaware.publish.sender import Checked

WhenFull = Literal["wait", "raise", "drop"]
AsyncWay = Callable[[], SendsBatches]

TRIES = 3
PAUSE_S = 0.1


class _TopicSender:
    """A publisher to one topic, by a sender with the settings of its own."""

    def __init__(
        self,
        way: AsyncWay,
        topic: str,
        *,
        message_limit_bytes: int,
        limits: SendLimits,
        retries: Retries,
        clock_s: Callable[[], float],
        pause: Pause | None,
    ) -> None:
        self.topic = full_name(topic)
        self._checked = Checked(message_limit_bytes)
        self._name, self._number = self._checked.name(topic)
        self._clock_s = clock_s
        self._background = Background(
            self.topic, way, limits, retries, clock_s=clock_s, pause=pause
        )

    def _take(
        self,
        payload: Payload,
        options: MessageOptions,
        *,
        when_full: str,
    ) -> SentFuture | None:
        data, key, size_bytes, extra = self._checked.message(
            self._name, payload, options
        )
        return self._background.put(
            *(self._name, data, key, size_bytes, self._clock_s(), extra),
            number=self._number,
            when_full=when_full,
        )

    @property
    def _waiting(self) -> int:
        return self._background.machine.waiting

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or lost.

        False when that took longer than `timeout_s`.
        """
        return self._background.flush(timeout_s)

    def close(self) -> None:
        """Flushes, and takes no more messages; a second close does nothing.

        In an outage this takes until what was taken is given up.
        """
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncPublisher(_TopicSender):
    """A publisher that publishes in the background and in order, each message once.

    It never publishes in a transaction. It is a `Sender` of one topic, with a thread
    of its own.

    A batch goes out when it is full, or `linger_ms` after its first message; while some
    are under way the next is collected. After `Unavailable` a batch is tried again
    until `give_up_after_s` after its last message was taken. However often it is tried,
    it is stored once. A batch that is given up may be stored all the same. Any other
    error fails the futures of its batch at once.

    Once `queue_limit_bytes` or `queue_limit_messages` are waiting or under way,
    `publish` waits for room, raises `QueueFull`, or drops the message and fails its
    future with `QueueFull`, as `when_full` says: `wait`, `raise` or `drop`.

    In asyncio: `await publisher.publish(b"...")`, with `raise` or `drop`, since waiting
    would stop the loop. A future that is cancelled before its batch goes out takes its
    message back.
    """

    def __init__(
        self,
        service: KnowsRepeats | MessagingService,
        topic: str,
        *,
        message_limit_bytes: int,
        when_full: WhenFull = "wait",
        linger_ms: float = 5,
        batch_limit_bytes: int = 1 << 20,
        batch_limit_messages: int = 1_000,
        queue_limit_bytes: int = 32 << 20,
        queue_limit_messages: int = 100_000,
        give_up_after_s: float = 120,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Pause | None = None,
        way: AsyncWay | None = None,
    ) -> None:
        if when_full not in get_args(WhenFull):
            raise BadRequest(
                f"when_full is one of {', '.join(get_args(WhenFull))}, "
                f"not {when_full!r}"
            )
        self._when_full = when_full
        super().__init__(
            way or partial(PlainWay, service, once=True),
            topic,
            message_limit_bytes=message_limit_bytes,
            limits=_limits(
                linger_ms,
                in_flight=1 if way is None else MOST_IN_FLIGHT,
                batch_limit_bytes=batch_limit_bytes,
                batch_limit_messages=batch_limit_messages,
                queue_limit_bytes=queue_limit_bytes,
                queue_limit_messages=queue_limit_messages,
                give_up_after_s=give_up_after_s,
            ),
            retries=Retries(after=(Unavailable,)),
            clock_s=clock_s,
            pause=pause,
        )

    @unpacked
    def publish(
        self, payload: Payload, **options: Unpack[MessageOptions]
    ) -> Future[Sent]:
        """Takes a message; its future is done when the message is on disk, or lost.

        The options are those of an `Outgoing`, which ages from its publish on, not
        while it waits.
        """
        taken = self._take(payload, options, when_full=self._when_full)
        if taken is not None:
            return taken
        full = QueueFull(f"{self._waiting} messages wait for {self.topic}")
        if self._when_full != "drop":
            raise full
        dropped: Future[Sent] = SafeFuture()
        dropped.set_exception(full)
        return dropped

    def __repr__(self) -> str:
        return f"<AsyncPublisher of {self.topic}, {self._waiting} waiting>"


class AtMostOncePublisher(_TopicSender):
    """A publisher that publishes at most once, where speed matters more than loss.

    The caller notices nothing of an outage: a message that finds no room in the queue,
    or cannot be published, is dropped and counted. Only a definite no is tried again,
    `TRIES` times in all.
    """

    def __init__(
        self,
        service: MessagingService,
        topic: str,
        *,
        message_limit_bytes: int,
        linger_ms: float = 5,
        batch_limit_bytes: int = 1 << 20,
        batch_limit_messages: int = 1_000,
        queue_limit_bytes: int = 32 << 20,
        queue_limit_messages: int = 100_000,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Pause | None = None,
        way: AsyncWay | None = None,
    ) -> None:
        super().__init__(
            way or partial(PlainWay, service, once=False),
            topic,
            message_limit_bytes=message_limit_bytes,
            limits=_limits(
                linger_ms,
                in_flight=1 if way is None else MOST_IN_FLIGHT,
                batch_limit_bytes=batch_limit_bytes,
                batch_limit_messages=batch_limit_messages,
                queue_limit_bytes=queue_limit_bytes,
                queue_limit_messages=queue_limit_messages,
                give_up_after_s=NEVER_S,
            ),
            retries=Retries(after=(NotWritten,), most=TRIES, first_s=PAUSE_S),
            clock_s=clock_s,
            pause=pause,
        )

    @property
    def dropped(self) -> int:
        """The number of messages dropped so far."""
        counts = self._background.machine.counts
        return counts["refused"] + counts["given_up"]

    @unpacked
    def publish(self, payload: Payload, **options: Unpack[MessageOptions]) -> None:
        """Takes a message, or drops it; raises only for what is no message.

        The options are those of an `Outgoing`.
        """
        self._take(payload, options, when_full="drop")

    def __repr__(self) -> str:
        return (
            f"<AtMostOncePublisher of {self.topic}, {self._waiting} waiting, "
            f"{self.dropped} dropped>"
        )


def _limits(linger_ms: float, **limits: Any) -> SendLimits:
    checked_setting("linger_ms", linger_ms, least=0)
    return SendLimits(linger_s=linger_ms / 1000, **limits)
