"""Markers: positions that say what is done, and are those of no group.

Spark's saves and streams are known by their names. The tries that a subscriber counts
are known by the position, which is too far ahead for any message. The commits of a
transactional id, and the keys of what it did once, are known by a character that no
name of a group has.
"""

import hashlib
import re

from txaware.errors import BadRequest
from txaware.model.messages import MessageId
from txaware.model.topics import TopicName, checked_group, checked_transactional_id

# Positions that count tries are later than this: in the year 6429.
TRIES_MS = 1 << 47
# All markers of Spark begin with this; groups of readers may, too.
MARKERS = "spark-"
# The markers of a transactional id begin with this, behind all groups.
PRODUCERS = "~"
COMMITTED = TopicName("commits", PRODUCERS)
_SAVE = f"{MARKERS}save-"
# Ends the marker for the extent of the rows; no other name may end with it.
_EXTENT = "..rows"
_PLACE = re.compile(r"commits|once-[0-9a-f]{64}")
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
    return (
        is_save_marker(group)
        or is_producer_marker(group)
        or _QUERY.fullmatch(group) is not None
    )


def producer_marker(transactional_id: str) -> str:
    """Returns the marker of a transactional id."""
    return PRODUCERS + transactional_id


def producer_change(transactional_id: str) -> bytes:
    """Returns the key on which all transactions of a transactional id conflict."""
    return b"producer:" + transactional_id.encode("ascii")


def is_producer_marker(group: str) -> bool:
    """Tells whether a group is the marker of a transactional id."""
    return group.startswith(PRODUCERS)


def once_marker(key: str) -> TopicName:
    """Returns what stands in place of the topic for a key of `run_once`."""
    return TopicName("once-" + hashlib.sha256(key.encode()).hexdigest(), PRODUCERS)


def checked_producer_marker(group: str, place: TopicName) -> TopicName:
    """Returns the place of a marker; `BadRequest` if no transactional id has it."""
    checked_transactional_id(group.removeprefix(PRODUCERS))
    if place.namespace != PRODUCERS or not _PLACE.fullmatch(place.name):
        raise BadRequest(f"{place} is no place of the marker {group}")
    return place


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
