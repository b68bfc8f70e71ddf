"""The sender: it keeps the line to the store full, and stores each message once."""

import time
from collections.abc import Callable, Mapping
from sys import modules
from typing import Any, Generic, Literal, Self, TypedDict, get_args

import attrs

from coordinator.callbacks import check_function
from coordinator.tracing import API, active
from txaware.errors import BadRequest, QueueFull, RequestTooLarge
from txaware.model.compression import CompressionName, compression_of
from txaware.model.encoding import Encode, encoded, encoder
from txaware.model.interfaces import Payload
from txaware.model.labels import MAX_KEY_BYTES, packed_fields
from txaware.model.messages import MessageOptions, Outgoing, T, outgoing
from txaware.model.partitions import named_partition
from txaware.model.requests import checked_payloads
from txaware.model.traced_messages import carrying
from txaware.publish.background import Background
from txaware.publish.publisher import OVERHEAD_BYTES, checked_setting
from txaware.publish.send_batch import Extra, OnDone, SentFuture
from txaware.publish.send_limits import MOST_IN_FLIGHT, Retries, SendLimits
from txaware.publish.send_machine import SendMachine
from txaware.publish.send_way import SendsBatches

# A sender remembers so many names that it has checked.
MOST_NAMES = 10_000

WhenSenderFull = Literal["wait", "raise", "drop_oldest"]


class SenderLimits(TypedDict, total=False):
    """The options of a sender but `encode`, for type checkers; see `SenderOptions`."""

    in_flight: int
    linger_ms: float
    batch_limit_bytes: int
    queue_limit_bytes: int
    when_full: WhenSenderFull
    compression: CompressionName | None
    give_up_after_s: float


@attrs.frozen(kw_only=True)
class SenderOptions:
    """The settings of a sender: how it collects, how much it holds, and when it ends.

    `in_flight` counts the batches of one partition that are under way, up to 5. Whole
    batches are compressed, and stored so, where `compression` names how. `encode` makes
    bytes of values.
    """

    in_flight: int = MOST_IN_FLIGHT
    linger_ms: float = 5
    batch_limit_bytes: int = 256 << 10
    queue_limit_bytes: int = 32 << 20
    when_full: WhenSenderFull = "wait"
    compression: CompressionName | None = None
    give_up_after_s: float = 120
    encode: Encode[Any] | None = None

    def __attrs_post_init__(self) -> None:
        if self.encode is not None:
            encoder(self.encode)
        if self.compression is not None:
            compression_of(self.compression)
        checked_setting("linger_ms", self.linger_ms, least=0)
        checked_setting("in_flight", self.in_flight)
        if not isinstance(self.in_flight, int) or self.in_flight > MOST_IN_FLIGHT:
            raise BadRequest(
                f"in_flight is a whole number from 1 to {MOST_IN_FLIGHT}, not "
                f"{self.in_flight}: the store knows the repeat of so many batches"
            )
        if self.when_full not in get_args(WhenSenderFull):
            raise BadRequest(
                f"when_full is one of {', '.join(get_args(WhenSenderFull))}, "
                f"not {self.when_full!r}"
            )

    def limits(self, request_bytes: int | None = None) -> SendLimits:
        """Returns the limits, with batches that fit into one request."""
        batch_bytes, compression = self.batch_limit_bytes, None
        checked_setting("batch_limit_bytes", batch_bytes)
        if self.compression is not None:
            compression = compression_of(self.compression)
        if request_bytes is not None:
            batch_bytes = min(batch_bytes, max(1, request_bytes))
        return SendLimits(
            in_flight=self.in_flight,
            linger_s=self.linger_ms / 1000,
            batch_limit_bytes=batch_bytes,
            queue_limit_bytes=self.queue_limit_bytes,
            give_up_after_s=self.give_up_after_s,
            compression=compression,
        )


@attrs.frozen
class SenderMetrics:
    """The counts of a sender since it was made, and what it holds now.

    `waiting_messages` are not acknowledged yet; they and `waiting_bytes` have what is
    under way, too. `dropped_messages` found no room, or gave theirs to newer ones.
    """

    sent_messages: int
    given_up_messages: int
    dropped_messages: int
    retried_batches: int
    waiting_messages: int
    waiting_bytes: int
    topics: int
    failing_topics: int

    @classmethod
    def of(cls, machine: SendMachine) -> Self:
        """Counts what a machine has done."""
        with machine.lock:
            counts = machine.counts
            return cls(
                counts["messages"],
                counts["given_up"],
                counts["dropped"] + counts["refused"],
                counts["retries"],
                machine.waiting,
                machine.held_bytes,
                len(machine.topics),
                sum(1 for one in machine.topics.values() if one.failing),
            )


def no_room(waiting: int, topic: str) -> QueueFull:
    """Returns the error of a message that the queue of a sender has no room for."""
    return QueueFull(
        f"{waiting} messages wait, and there is no room for one more to {topic}"
    )


class Checked:
    """Checks what a sender is given, each topic's name once."""

    def __init__(self, message_limit_bytes: int) -> None:
        checked_setting("message_limit_bytes", message_limit_bytes)
        self._limit_bytes = message_limit_bytes
        self.names: dict[str, tuple[str, int | None]] = {}

    def name(self, topic: str) -> tuple[str, int | None]:
        """Returns the name of a topic, and the partition if one is named, as `t.3`."""
        name, number = named_partition(topic)
        if len(self.names) >= MOST_NAMES:
            self.names.clear()
        checked = self.names[topic] = str(name), number
        return checked

    def message(
        self,
        name: str,
        payload: Payload,
        options: MessageOptions,
    ) -> tuple[bytes, bytes | None, int, Extra | None]:
        """Returns payload, key, size in memory, and what few messages have beside it.

        Where somebody traces it, it has the context of a span. `BadRequest` for what is
        no message, `RequestTooLarge` above the limit.
        """
        extra: Extra | None = None
        tracing, key = active(), options.get("key")
        is_usual = (
            tracing is None
            and payload.__class__ is bytes
            and len(options) == (key is not None)
            and (key is None or (key.__class__ is bytes and len(key) <= MAX_KEY_BYTES))
        )
        if not is_usual:
            said = outgoing(payload, options)
            checked_payloads([said], limit_bytes=self._limit_bytes)
            if tracing is not None:
                said = carrying(said, tracing.created("publish", name))
            if isinstance(said, Outgoing):
                payload, key = said.payload, said.key
                packed = packed_fields(said.headers, said.more)
                if packed or said.expire_after_s is not None:
                    extra = Extra(packed, said.expire_after_s)
        data: Any = payload
        size_bytes = len(data)
        if key is not None:
            size_bytes += len(key)
        if extra is not None:
            size_bytes += len(extra.headers)
        if size_bytes > self._limit_bytes:
            raise RequestTooLarge(
                f"a message of {size_bytes} bytes is above the limit of "
                f"{self._limit_bytes} bytes"
            )
        return data, key, size_bytes + OVERHEAD_BYTES, extra


class Sender(Generic[T]):
    """A sender of messages to any topics, each stored once, in order by partition.

    Messages with a key go to the partition of the key, and others in whole batches to
    one that takes some. One thread sends for all topics. Several batches of a partition
    are under way; one is sent again until it is stored, or until `give_up_after_s`
    after its last message was taken. A batch that is given up may be stored all the
    same. Any number of threads may share a sender. It joins no transaction.
    """

    def __init__(
        self,
        way: Callable[[], SendsBatches],
        options: SenderOptions,
        *,
        message_limit_bytes: int,
        request_bytes: int | None = None,
        retries: Retries | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = options.limits(request_bytes)
        self._checked = Checked(message_limit_bytes)
        self._limit_bytes = message_limit_bytes
        self._names = self._checked.names
        self._when_full = options.when_full
        self._encode = options.encode
        self._clock_s = clock_s
        self._background = Background(
            "any topic", way, limits, retries or Retries(), clock_s=clock_s
        )
        self._put = self._background.put

    # The options are written out: a dict of them is 0.2 us of the 3.6 that a message
    # takes in all.
    def send(
        self,
        topic: str,
        payload: T | Outgoing[T],
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
        on_done: OnDone | None = None,
    ) -> SentFuture:
        """Takes a message; its future is a `Sent` when it is on disk.

        The options are those of an `Outgoing`, which ages from its publish on, not
        while it waits. `on_done` is called with the `Sent`, or with the error, in the
        order of the partition and in the thread of the sender; what it raises is
        logged.

        With `encode` it is any value. The topic need not exist yet. What is wrong with
        the message itself is raised here, as what `encode` raises is. In a full queue
        this waits for room, raises `QueueFull`, or drops the oldest message of the
        topic, whose future gets `QueueFull`.
        """
        if on_done is not None:
            check_function(on_done, what="on_done")
        data: Any = payload
        if self._encode is not None:
            data = encoded(payload, self._encode)
        names = self._names
        name, number = names.get(topic) or self._checked.name(topic)
        extra: Extra | None = None
        # Most messages are so, and the whole check takes half as long as all the rest.
        if (
            data.__class__ is bytes
            and key.__class__ is bytes
            and headers is None
            and expire_after_s is None
            and (key_bytes := len(key)) <= MAX_KEY_BYTES
            and (size_bytes := len(data) + key_bytes) <= self._limit_bytes
            and (API not in modules or active() is None)
        ):
            size_bytes += OVERHEAD_BYTES
        else:
            options: MessageOptions = {} if key is None else {"key": key}
            if headers is not None:
                options["headers"] = headers
            if expire_after_s is not None:
                options["expire_after_s"] = expire_after_s
            data, key, size_bytes, extra = self._checked.message(name, data, options)
        now_s, when_full = self._clock_s(), self._when_full
        future = self._put(
            name, data, key, size_bytes, now_s, extra, on_done, number, when_full
        )
        if future is None:
            raise no_room(self.waiting, name)
        return future

    @property
    def waiting(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return self._background.machine.waiting

    def metrics(self) -> SenderMetrics:
        """Returns what was sent and lost so far, and what waits now."""
        return SenderMetrics.of(self._background.machine)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or lost, and `on_done` told.

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
        return f"<Sender, {self.waiting} waiting>"
