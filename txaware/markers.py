"""Names of markers: positions by which Spark's saves and streams know what is done.

They are kept as those of groups are, and nobody reads a topic for them.
"""

import re

from txaware.errors import BadRequest
from txaware.topics import checked_group

# What all of them begin with; groups of readers may, too.
MARKERS = "spark-"
_SAVE = f"{MARKERS}save-"
# Of the rows that went with a marker; no name of anybody else's ends with it.
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
    """Returns the marker of a stream; each of its names has one."""
    return MARKERS + query_id + ("" if name is None else f"-{_checked(name)}")


def extent_marker(marker: str) -> str:
    """Returns where it stands how many rows went with a marker, and their digest."""
    return marker + _EXTENT


def is_marker(group: str) -> bool:
    """Returns whether that is no group of readers."""
    return is_save_marker(group) or _QUERY.fullmatch(group) is not None


def is_save_marker(group: str) -> bool:
    """Returns whether it marks a save, not a stream."""
    return group.startswith(_SAVE)


def _checked(name: str) -> str:
    if name.endswith(_EXTENT):
        raise BadRequest(f"a name does not end with {_EXTENT}, as that of {name!r}")
    return checked_group(name)
