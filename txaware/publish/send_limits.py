"""The settings of a sender: limits of batches and queue, and when one is sent again."""

from collections.abc import Callable
from typing import Any

import attrs

from txaware.errors import TopicNotFound, Unavailable
from txaware.model.chance import CHANCE
from txaware.model.compression import Compression
from txaware.publish.publisher import checked_setting

# The store knows the last five requests of a producer in a partition. A repeat of the
# first of six would not be found.
MOST_IN_FLIGHT = 5
NEVER_S = float("inf")


def _is_number(field: Any, _: object) -> bool:
    return bool(field.name != "compression")


@attrs.frozen(kw_only=True)
class SendLimits:
    """The limits of a batch, of the queue and of what is under way, and the times.

    `in_flight` counts batches of one partition. Once `most_under_way` are, of all
    partitions, the others wait for their turn, as topics do that are not counted yet.
    What is under way counts for the queue, too. A message alone is always let in,
    whatever its size. Batches go compressed where a `compression` is named.
    """

    in_flight: int = MOST_IN_FLIGHT
    # More at once are not answered sooner, and in their time-outs not at all.
    most_under_way: int = 64
    linger_s: float = 0.005
    batch_limit_bytes: int = 256 << 10
    batch_limit_messages: int = 10_000
    queue_limit_bytes: int = 32 << 20
    queue_limit_messages: float = NEVER_S
    give_up_after_s: float = 120
    compression: Compression | None = None

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self, filter=_is_number).items():
            is_time = name in ("linger_s", "give_up_after_s")
            checked_setting(name, value, least=0 if is_time else 1)


@attrs.frozen
class Retries:
    """The errors after which a batch is sent again, and the pauses before that.

    `most` bounds how often one is sent; None is until its time is over.
    """

    after: tuple[type[BaseException], ...] = (Unavailable, TopicNotFound)
    most: int | None = None
    first_s: float = 0.05
    longest_s: float = 5.0
    jitter: Callable[[float, float], float] = CHANCE.uniform

    def allow(self, error: BaseException, tries: int) -> bool:
        """Tells whether a batch that failed so often is sent again."""
        is_left = self.most is None or tries < self.most
        return is_left and isinstance(error, self.after)

    def pause_s(self, tries: int) -> float:
        """Returns the pause before the next try."""
        return self.jitter(0, min(self.longest_s, self.first_s * 2.0 ** min(tries, 32)))
