"""What a publish, a store and a poll ask for, whatever the bytes they came as."""

import attrs

from coordinator.transaction import Transaction
from txaware.interfaces import UNCOMMITTED
from txaware.messages import Receipt
from txaware.requests import Payload, Start

# A message costs about 400 bytes as objects and rows, however short it is, and takes
# one byte of a body: without a bound, a body of 10 MiB would ask for 4 GB.
MAX_MESSAGES = 250_000


@attrs.frozen
class PublishRequest:
    """What to publish or to store; no `receipts` and an empty list of them differ."""

    pointer: int | None
    messages: list[Payload]
    receipts: list[Receipt] | None = attrs.field(default=None, kw_only=True)
    attempt: bytes | None = attrs.field(default=None, kw_only=True)


@attrs.frozen(kw_only=True)
class PollRequest:
    """What to read; no `limit` is the server's cap.

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
