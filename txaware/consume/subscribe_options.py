"""The options of a subscriber, and the figures that it counts."""

import threading
from collections.abc import Callable
from typing import Any

import attrs

from coordinator.callbacks import check_function
from txaware.model.encoding import decoder
from txaware.model.queues import MAX_DELAY_S, checked_count, checked_seconds
from txaware.model.requests import checked_flag

TIMEOUT_S = 30
# The rest of a transaction's time is for its commit.
SHARE_OF_TIMEOUT = 0.9


def _above_zero(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if value is None and field.default is None:
        return
    if field.name.endswith("_s"):
        checked_seconds(field.name, value, most=MAX_DELAY_S)
    else:
        checked_count(field.name, value)


def _flag(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    checked_flag(field.name, value)


def _function(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None:
        check_function(value, what=field.name)


def number_above_zero(default: float | None) -> Any:
    """Makes an option that is a number above 0, or None where that is the default.

    It is a number of seconds where its name says so, and else a whole number.
    """
    return attrs.field(default=default, validator=_above_zero)


def flag(*, default: bool) -> Any:
    """Makes an option that is True or False."""
    return attrs.field(default=default, validator=_flag)


@attrs.frozen(kw_only=True)
class Delivery:
    """The options of `subscribe`."""

    decode: Callable[[bytes], Any] | None = attrs.field(
        default=None, converter=attrs.converters.optional(decoder)
    )
    """Decodes a payload, or the class to read it as (`from_json_as`); the handler finds
    the result in `message.payload`. If this raises, the message is skipped with a
    warning or dead-lettered, not handled."""
    alone: Callable[[Any], bool] | None = attrs.field(default=None, validator=_function)
    """Tells whether a (decoded) message needs a transaction of its own."""
    together: bool = flag(default=False)
    """True when the handler takes the list of a transaction's messages at once."""
    messages_per_transaction: int = number_above_zero(100)
    """The most messages of a transaction; it takes fewer before a message that has to
    be alone, and when time runs out."""
    timeout_s: float = number_above_zero(TIMEOUT_S)
    """The time-out of each transaction; messages that it has not begun to handle after
    nine tenths of it are left for the next one."""
    tries: int | None = number_above_zero(None)
    """The number of tries after which a message is given up: skipped with a warning, or
    dead-lettered. None tries it for ever. A try that raises `Unavailable` does not
    count, nor does a transaction that somebody else ended. In a group, tries are
    counted across the end of the process: a try in which the process ended is one."""
    dead_letter_topic: str | None = None
    """The topic for payloads that are given up; they are published in the transaction
    that moves past them."""
    tells_origins: bool = flag(default=True)
    """True when the topic `<dead_letter_topic>-origins` gets a message of JSON for each
    dead letter: its topic, id, group, tries and error, in the same transaction."""
    after_commit: Callable[[list[Any]], object] | None = attrs.field(
        default=None, validator=_function
    )
    """The function that is called with the messages handled, once they are committed;
    at most once. What it raises is logged."""
    first_pause_s: float = number_above_zero(0.1)
    """The pause after a failure; each further failure in a row doubles it."""
    longest_pause_s: float = number_above_zero(5)
    """The longest pause after a failure."""
    idle_wait_s: float = number_above_zero(0.5)
    """The time that `run` waits for messages before it looks whether it is to stop."""


@attrs.frozen
class SubscriberMetrics:
    """Figures of a subscriber; messages count once their transaction has ended."""

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
    """The time from the publish of the last message to the end of its transaction."""

    def plus(self, **numbers: float) -> "SubscriberMetrics":
        """Returns metrics with these numbers added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + n for name, n in numbers.items()}
        )


class SubscriberCounts:
    """The figures of one subscriber, which all its batches count in."""

    def __init__(self) -> None:
        self.metrics = SubscriberMetrics()
        self._lock = threading.Lock()

    def count(self, **numbers: float) -> None:
        """Adds numbers."""
        with self._lock:
            self.metrics = self.metrics.plus(**numbers)

    def delay(self, delay_s: float) -> None:
        """Notes the delay of the last message."""
        with self._lock:
            self.metrics = attrs.evolve(self.metrics, delay_s=delay_s)
