"""The requests of a publish, a store and a poll, whatever the bytes they came as."""

import math

import attrs

from coordinator.transaction import Transaction
from txaware.model.compression import Packed
from txaware.model.interfaces import UNCOMMITTED
from txaware.model.messages import Outgoing, Receipt
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import MAX_TIME_MS, Payload, Payloads, Start

Listed = list[Payload] | Payloads


@attrs.frozen
class PublishRequest:
    """The messages to publish or to store; no `receipts` and an empty list differ."""

    pointer: int | None
    messages: Listed
    receipts: list[Receipt] | None = attrs.field(default=None, kw_only=True)
    attempt: bytes | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class OnceRequest:
    """The messages that a producer publishes, from a sequence on."""

    producer: ProducerIdentity
    sequence: int
    messages: Listed | Packed


@attrs.frozen(kw_only=True)
class PollRequest:
    """The messages to read; no `limit` is the server's cap.

    `columns` asks for pieces of columns. Batches of these `compressions` may come as
    they are stored. `page` and `payload_as` say what a JSON answer looks like, and
    nothing elsewhere.
    """

    start: Start = None
    inclusive: bool = True
    limit: int | None = None
    transaction: Transaction | None = None
    isolation: str = UNCOMMITTED
    wait_s: float = 0
    columns: bool = False
    compressions: frozenset[str] = frozenset()
    page: bool = False
    payload_as: str = "avro"


def expiring(payload: bytes, after_ms: int | None) -> Payload:
    """Returns a message as it is published; bytes where it does not expire."""
    return (
        payload
        if after_ms is None
        else Outgoing(payload, expire_after_s=seconds(after_ms))
    )


def expire_after_ms(after_s: float | None) -> int | None:
    """Returns after how many ms something expires, at least 1; None for never."""
    return None if after_s is None else max(int(after_s * 1000), 1)


def expire_after_s(after_ms: int | None) -> float | None:
    """Returns these ms as a change of a row has them."""
    return None if after_ms is None else after_ms / 1000


def seconds(time_ms: int) -> float:
    """Returns seconds that give these ms again when they are multiplied and cut off."""
    time_s = time_ms / 1000
    return time_s if int(time_s * 1000) >= time_ms else math.nextafter(time_s, math.inf)


def milliseconds(time_s: float) -> int:
    """Returns a time to wait in ms, rounded up; 0 for one below 0."""
    return math.ceil(max(0.0, min(time_s, MAX_TIME_MS / 2000)) * 1000)
