"""The requests of a publish, a store and a poll, whatever the bytes they came as."""

import math
from collections.abc import Sequence
from typing import cast

import attrs

from coordinator.transaction import Transaction
from txaware.model.interfaces import UNCOMMITTED
from txaware.model.labels import Labels, is_any_said, part_of
from txaware.model.messages import Outgoing, Receipt
from txaware.model.requests import MAX_TIME_MS, Payload, Payloads, Start

Listed = list[Payload] | Payloads


@attrs.frozen
class PublishRequest:
    """The messages to publish or to store; no `receipts` and an empty list differ.

    `labels` are the keys and headers of all `messages`; those have none then.
    """

    pointer: int | None
    messages: list[Payload]
    receipts: list[Receipt] | None = attrs.field(default=None, kw_only=True)
    attempt: bytes | None = attrs.field(default=None, kw_only=True)
    labels: Labels | None = attrs.field(default=None, kw_only=True)

    @property
    def labelled(self) -> Listed:
        """The messages with their keys and headers, as a service takes them."""
        if self.labels is None:
            return self.messages
        payloads, expiries = cast(list[bytes], self.messages), None
        if not {*map(type, payloads)} <= {bytes}:
            after_s = [
                message.expire_after_s if isinstance(message, Outgoing) else None
                for message in self.messages
            ]
            payloads = [payload_of(message) for message in self.messages]
            expiries = after_s if is_any_said(after_s) else None
        size_bytes = sum(map(len, payloads)) + self.labels.size_bytes
        return Payloads(payloads, size_bytes, expiries, self.labels)

    def part(self, first: int, last: int) -> "PublishRequest":
        """Returns the request with some of the messages."""
        return attrs.evolve(
            self,
            messages=self.messages[first:last],
            labels=part_of(self.labels, first, last),
        )


@attrs.frozen(kw_only=True)
class PollRequest:
    """The messages to read; no `limit` is the server's cap.

    `page` and `payload_as` say what a JSON answer looks like, and nothing elsewhere.
    """

    start: Start = None
    inclusive: bool = True
    limit: int | None = None
    transaction: Transaction | None = None
    isolation: str = UNCOMMITTED
    wait_s: float = 0
    page: bool = False
    payload_as: str = "avro"


def expiring(payload: bytes, after_ms: int | None) -> Payload:
    """Returns a message as it is published; bytes where it does not expire."""
    return (
        payload
        if after_ms is None
        else Outgoing(payload, expire_after_s=seconds(after_ms))
    )


def payload_of(message: Payload) -> bytes:
    """Returns the payload of a message to publish."""
    return message.payload if isinstance(message, Outgoing) else message


def expiries(messages: Sequence[Payload]) -> list[int | None] | None:
    """Returns in how many ms each message expires, or None where none does."""
    if {*map(type, messages)} <= {bytes}:
        return None
    after_ms = [_after_ms(message) for message in messages]
    return None if after_ms.count(None) == len(after_ms) else after_ms


def _after_ms(message: Payload) -> int | None:
    after_s = message.expire_after_s if isinstance(message, Outgoing) else None
    return None if after_s is None else max(int(after_s * 1000), 1)


def seconds(time_ms: int) -> float:
    """Returns seconds that give these ms again when they are multiplied and cut off."""
    time_s = time_ms / 1000
    return time_s if int(time_s * 1000) >= time_ms else math.nextafter(time_s, math.inf)


def milliseconds(time_s: float) -> int:
    """Returns a time to wait in ms, rounded up; 0 for one below 0."""
    return math.ceil(max(0.0, min(time_s, MAX_TIME_MS / 2000)) * 1000)
