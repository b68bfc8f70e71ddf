"""Shards: the stores that the partitions of topics lie in, and who gets which."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from txaware.errors import BadRequest

# Numbers of shards, as a caller names them.
Shards = Sequence[int] | str | None
# The first store, as it was before there were shards, which has the coordinator and
# everything that is no message.
HOME = 0
MOST_SHARDS = 1024
# The id of a server that has all shards.
ALONE = "1"
# The further ones of a store in a directory are in this one within, by their numbers.
DIRECTORY = "shards"


@attrs.frozen
class Shard:
    """A shard as it is: how many partitions lie in it, and about how large it is.

    `status` is `OK`, or a sentence about what is wrong with it, or that it is at
    another server, which knows its size.
    """

    number: int
    partitions: int
    size_bytes: int | None
    status: str


def checked_more(count: object) -> int:
    """Returns a number of shards to add, or raises `BadRequest`."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise BadRequest(f"a number of shards is whole, not {count!r:.100}")
    if not 1 <= count < MOST_SHARDS:
        raise BadRequest(f"from 1 to {MOST_SHARDS - 1} shards are added, not {count}")
    return count


def checked_shards(shards: object) -> tuple[int, ...] | None:
    """Reads numbers of shards from a list, or from text as `1,2`; None stays."""
    if shards is None:
        return None
    listed = shards.split(",") if isinstance(shards, str) else shards
    if isinstance(listed, bytes) or not isinstance(listed, Iterable):
        raise BadRequest(f"shards are a list of numbers, not {shards!r:.100}")
    found = tuple(map(checked_shard, listed))
    if not found:
        raise BadRequest("shards are a list of numbers, and this one is empty")
    return found


def checked_shard(number: object) -> int:
    """Reads the number of a shard from a whole number or its text."""
    text = number.strip() if isinstance(number, str) else ""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_SHARDS)):
        number = int(text)
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadRequest(f"a shard is a whole number, not {number!r:.100}")
    if not 0 <= number < MOST_SHARDS:
        raise BadRequest(f"a shard is a number from 0 to {MOST_SHARDS - 1}")
    return number


def checked_server(server: object) -> str:
    """Returns the id or the address of a server, or raises `BadRequest`."""
    if not isinstance(server, str) or not server.strip():
        raise BadRequest(f"a server is named by its id or its url, not {server!r:.100}")
    return server


def shards_text(shards: Iterable[int]) -> str:
    """Returns shards as the row of a topic has them, by partition."""
    return ",".join(map(str, shards))


def placed(
    partitions: int,
    among: Sequence[int],
    *,
    kept: Sequence[int] = (),
    loads: Mapping[int, int],
) -> tuple[int, ...]:
    """Returns the shard of each partition, spread evenly over some.

    Those of `kept` stay where they are. Each other one goes to the shard that has the
    fewest partitions of the topic; of these to the one that has the fewest of all,
    as `loads` says; of these to the one that is named first.
    """
    found = list(kept)
    own = Counter(kept)
    while len(found) < partitions:
        best = min(among, key=lambda one: (own[one], loads.get(one, 0) + own[one]))
        own[best] += 1
        found.append(best)
    return tuple(found)
