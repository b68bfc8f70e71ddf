"""The requests of a publish, a store and a poll, whatever the bytes they came as."""

import attrs

from coordinator.transaction import Transaction
from txaware.model.compression import Packed
from txaware.model.interfaces import UNCOMMITTED
from txaware.model.messages import Outgoing, Receipt
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payload, Payloads, Start
from txaware.protocol.json_values import seconds

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
