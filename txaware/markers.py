"""Markers: positions that say what is done, and are those of no group.

Spark's saves and streams are known by their names. The tries that a subscriber counts
are known by the position, which is too far ahead for any message.
"""

import re

from txaware.errors import BadRequest
from txaware.messages import MessageId
from txaware.topics import checked_group

# Positions that count tries are later than this: in the year 6429.
TRIES_MS = 1 << 47
# All markers of Spark begin with this; groups of readers may, too.
MARKERS = "spark-"
_SAVE = f"{MARKERS}save-"
# Ends the marker for the extent of the rows; no other name may end with it.
_EXTENT = "..rows"
_QUERY = re.compile(MARKERS + r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}([-.].+)?")


def save_marker(save_id: str) -> str:
    """Returns the marker of a save."""
    try:
        return _SAVE + _checked(save_id)
    except BadRequest as error:
        raise BadRequest(
            f"{save_id!r} is no save_id; letters, digits, - _ and . make one, which "
            f"does not end with {_EXTENT}"
        ) from error


def query_marker(query_id: str, name: str | None = None) -> str:
    """Returns the marker of a stream, or of one named part of it."""
    return MARKERS + query_id + ("" if name is None else f"-{_checked(name)}")


def extent_marker(marker: str) -> str:
    """Returns the marker that keeps the number and the digest of another one's rows."""
    return marker + _EXTENT


def is_marker(group: str) -> bool:
    """Tells whether a group is a marker, and no group of readers."""
    return is_save_marker(group) or _QUERY.fullmatch(group) is not None


def counts_tries(position: MessageId) -> bool:
    """Tells whether a position counts tries, and is that of no group of readers."""
    return position.publish_time_ms >= TRIES_MS


def is_save_marker(group: str) -> bool:
    """Tells whether a group marks a save, not a stream."""
    return group.startswith(_SAVE)


def _checked(name: str) -> str:
    if name.endswith(_EXTENT):
        raise BadRequest(f"a name does not end with {_EXTENT}, as that of {name!r}")
    return checked_group(name)
