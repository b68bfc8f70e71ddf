"""Publishers that work in the background: exactly once, and at most once."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Literal, Self, get_args

import tenacity

from coordinator.threads import SafeFuture
from txaware.errors import BadRequest, NotWritten, QueueFull, Unavailable
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import outgoing
from txaware.model.partitions import full_name
from txaware.publish.background import Background
from txaware.publish.publisher import checked_setting, checked_size_bytes
from txaware.publish.repeated_publish import PublishesOnce, RepeatedPublish
from txaware.publish.send_queue import QueueLimits

WhenFull = Literal["wait", "raise", "drop"]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0


class AsyncPublisher:
    """A publisher that publishes in the background and in order, each message once.

    It never publishes in a transaction.

    A batch goes out when it is full, or `linger_ms` after its first message; while one
    is under way the next is collected. After `Unavailable` a batch is tried again until
    `give_up_after_s` after its last message was taken. However often it is tried, it is
    stored once. A batch that is given up may be stored all the same. Any other error
    fails the futures of its batch at once.

    Once `queue_limit_bytes` or `queue_limit_messages` are waiting or under way,
    `publish` waits for room, raises `QueueFull`, or drops the message and fails its
    future with `QueueFull`, as `when_full` says: `wait`, `raise` or `drop`.

    In asyncio: `await asyncio.wrap_future(publisher.publish(b"..."))`, with `raise` or
    `drop`, since waiting would stop the loop. A future that is cancelled before its
    batch goes out takes its message back.
    """

    def __init__(
        self,
        service: PublishesOnce | MessagingService,
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        checked_setting("message_limit_bytes", message_limit_bytes)
        checked_setting("linger_ms", linger_ms, least=0)
        checked_setting("give_up_after_s", give_up_after_s, least=0)
        if when_full not in get_args(WhenFull):
            raise BadRequest(
                f"when_full is one of {', '.join(get_args(WhenFull))}, "
                f"not {when_full!r}"
            )
        self.topic = full_name(topic)
        self._message_limit_bytes = message_limit_bytes
        self._when_full = when_full
        self._background = Background(
            RepeatedPublish(service, self.topic).publish,
            self.topic,
            limits=QueueLimits(
                batch_limit_bytes=batch_limit_bytes,
                batch_limit_messages=batch_limit_messages,
                queue_limit_bytes=queue_limit_bytes,
                queue_limit_messages=queue_limit_messages,
                linger_s=linger_ms / 1000,
            ),
            retrying=_until(give_up_after_s, clock_s, sleep),
            clock_s=clock_s,
        )

    def publish(
        self,
        payload: Payload,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> Future[None]:
        """Takes a message; its future is done when the message is on disk, or lost.

        `key`, `headers` and `expire_after_s` are those of an `Outgoing`, which ages
        from its publish on, not while it waits.
        """
        payload = outgoing(payload, key, headers, expire_after_s)
        size_bytes = checked_size_bytes(payload, self._message_limit_bytes)
        future: Future[None] = SafeFuture()
        waits = self._when_full == "wait"
        if not self._background.put(payload, size_bytes, future=future, waits=waits):
            full = QueueFull(f"{len(self._background)} messages wait for {self.topic}")
            if self._when_full != "drop":
                raise full
            future.set_exception(full)
        return future

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or lost.

        False when that took longer than `timeout_s`.
        """
        return self._background.flush(timeout_s)

    def close(self) -> None:
        """Flushes, and takes no more messages; a second close does nothing.

        In an outage this takes until `give_up_after_s` after the last message taken.
        """
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AsyncPublisher of {self.topic}, {len(self._background)} waiting>"


def _until(
    give_up_after_s: float,
    clock_s: Callable[[], float],
    sleep: Callable[[float], None],
) -> Callable[[float], tenacity.Retrying]:
    """Makes retries that end `give_up_after_s` after a batch was taken."""

    def retrying(taken_s: float) -> tenacity.Retrying:
        give_up_s = taken_s + give_up_after_s
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unavailable),
            wait=tenacity.wait_random_exponential(FIRST_PAUSE_S, LONGEST_PAUSE_S),
            stop=lambda state: clock_s() + state.upcoming_sleep >= give_up_s,
            sleep=sleep,
            reraise=True,
        )

    return retrying


TRIES = 3
PAUSE_S = 0.1


class AtMostOncePublisher:
    """A publisher that publishes at most once, where speed matters more than loss.

    The caller notices nothing of an outage: a message that finds no room in the queue,
    or cannot be published, is dropped and counted. Only a definite no is tried again,
    `TRIES` times in all, because a repeat after any other error could publish twice.
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        checked_setting("message_limit_bytes", message_limit_bytes)
        checked_setting("linger_ms", linger_ms, least=0)
        self.topic = full_name(topic)
        self._message_limit_bytes = message_limit_bytes
        self._background = Background(
            partial(_publish, service, self.topic),
            self.topic,
            limits=QueueLimits(
                batch_limit_bytes=batch_limit_bytes,
                batch_limit_messages=batch_limit_messages,
                queue_limit_bytes=queue_limit_bytes,
                queue_limit_messages=queue_limit_messages,
                linger_s=linger_ms / 1000,
            ),
            retrying=lambda _: _a_little(sleep),
            clock_s=clock_s,
        )

    @property
    def dropped(self) -> int:
        """The number of messages dropped so far."""
        return self._background.dropped_messages

    def publish(
        self,
        payload: Payload,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> None:
        """Takes a message, or drops it; raises only for what is no message.

        `key`, `headers` and `expire_after_s` are those of an `Outgoing`.
        """
        payload = outgoing(payload, key, headers, expire_after_s)
        size_bytes = checked_size_bytes(payload, self._message_limit_bytes)
        self._background.put(payload, size_bytes, waits=False)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or dropped.

        False when that took longer than `timeout_s`.
        """
        return self._background.flush(timeout_s)

    def close(self) -> None:
        """Flushes, and takes no more messages; a second close does nothing."""
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<AtMostOncePublisher of {self.topic}, {len(self._background)} waiting, "
            f"{self.dropped} dropped>"
        )


def _publish(
    service: MessagingService,
    topic: str,
    messages: list[Payload],
    retrying: tenacity.Retrying,
) -> None:
    retrying(service.publish, topic, messages)


def _a_little(sleep: Callable[[float], None]) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(NotWritten),
        wait=tenacity.wait_random_exponential(PAUSE_S),
        stop=tenacity.stop_after_attempt(TRIES),
        sleep=sleep,
        reraise=True,
    )
