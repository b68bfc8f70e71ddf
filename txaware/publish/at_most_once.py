"""Publishes in the background what may be lost: nobody waits, and nobody is told."""

import time
from collections.abc import Callable
from typing import Self

import tenacity

from txaware.errors import NotWritten
from txaware.interfaces import MessagingService, Payload
from txaware.publish.background import Background
from txaware.publish.payloads import checked_setting, checked_size_bytes
from txaware.publish.send_queue import Limits
from txaware.topics import TopicName

TRIES = 3
PAUSE_S = 0.1


class AtMostOncePublisher:
    """Publishes at most once, where performance tops reliability.

    Nothing of an outage reaches the caller: what finds no room in the queue, and what
    could not be published, is dropped and counted. Only a definite no is tried again,
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
        self.topic = str(TopicName.parse(topic))
        self._message_limit_bytes = message_limit_bytes
        self._background = Background(
            service,
            self.topic,
            limits=Limits(
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
        """How many messages it dropped so far."""
        return self._background.dropped_messages

    def publish(self, payload: Payload) -> None:
        """Takes a message, or drops it; raises only for what is no message."""
        size_bytes = checked_size_bytes(payload, self._message_limit_bytes)
        self._background.put(payload, size_bytes, waits=False)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or dropped.

        False when that took longer than `timeout_s`.
        """
        return self._background.flush(timeout_s)

    def close(self) -> None:
        """Flushes, and takes nothing more; a second close does nothing."""
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


def _a_little(sleep: Callable[[float], None]) -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(NotWritten),
        wait=tenacity.wait_random_exponential(PAUSE_S),
        stop=tenacity.stop_after_attempt(TRIES),
        sleep=sleep,
        reraise=True,
    )
