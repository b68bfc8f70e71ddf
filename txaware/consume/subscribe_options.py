"""How a subscriber hands messages to its handler."""

from collections.abc import Callable
from typing import Any

import attrs

from txaware.errors import BadRequest

TIMEOUT_S = 30
# The rest of a transaction's time is for its commit.
SHARE_OF_TIMEOUT = 0.9


def _above_zero(_: object, field: "attrs.Attribute[Any]", value: float | None) -> None:
    if value is not None and value <= 0:
        raise BadRequest(f"{field.name} is above 0, not {value!r}")


def _number(default: float | None) -> Any:
    return attrs.field(default=default, validator=_above_zero)


@attrs.frozen(kw_only=True)
class Delivery:
    """The options of `subscribe`."""

    decode: Callable[[bytes], Any] | None = None
    """Makes of a payload what the handler finds in `message.payload`. What it raises on
    is never handled, but skipped with a warning, or dead-lettered."""
    alone: Callable[[Any], bool] | None = None
    """Says which (decoded) message needs a transaction of its own."""
    together: bool = False
    """The handler takes the list of a transaction's messages instead of each one."""
    messages_per_transaction: int = _number(100)
    """At most so many; fewer before one that is alone, and when time runs out."""
    timeout_s: float = _number(TIMEOUT_S)
    """Of each transaction; after nine tenths of it, the rest is left for the next."""
    tries: int | None = _number(None)
    """A message that failed so often is given up: skipped with a warning, or dead-
    lettered. None tries it for ever. What raises `Unavailable` is not counted, nor a
    transaction that somebody else ended. In a group, tries are counted across the end
    of the process: what it began and did not come to an end of is one."""
    dead_letter_topic: str | None = None
    """Where payloads go that are given up, in the transaction that moves past them."""
    tells_origins: bool = True
    """Whether the topic `<dead_letter_topic>-origins` gets a message of JSON for each:
    its topic, id, group, tries and error, in the same transaction."""
    after_commit: Callable[[list[Any]], object] | None = None
    """Called with the messages handled, once they are committed; at most once. What it
    raises is logged."""
    first_pause_s: float = _number(0.1)
    """After a failure; each further one in a row doubles it."""
    longest_pause_s: float = _number(5)
    """The pause grows no longer than this."""
    idle_wait_s: float = _number(0.5)
    """How long `run` waits for messages before it looks whether it is to stop."""


@attrs.frozen
class SubscriberMetrics:
    """Counted since the subscriber was made; messages once their transaction ended."""

    fetched: int = 0
    """Messages that were polled, again for each further try."""
    processed: int = 0
    """Messages whose handler's transaction committed."""
    skipped: int = 0
    """Messages that were given up, or not decoded, and are kept nowhere else."""
    dead_lettered: int = 0
    """Messages that were given up, or not decoded, and went to the other topic."""
    failures: int = 0
    """Transactions that failed, conflicts left out."""
    conflicts: int = 0
    """Transactions that met a conflict."""
    batches: int = 0
    """Transactions that committed and went past at least one message."""
    processing_s: float = 0
    """Time spent in handlers."""
    delay_s: float = 0
    """From the publishing of the last message to the end of its transaction."""

    def plus(self, **numbers: float) -> "SubscriberMetrics":
        """With these numbers added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + n for name, n in numbers.items()}
        )
