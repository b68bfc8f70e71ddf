"""The headers of a dead letter, which say where it came from and what it died of."""

from collections.abc import Mapping

from txaware.model.labels import MAX_HEADERS_BYTES, packed_bytes

# The headers that say where a dead letter came from; they go when it goes back.
QUEUE, ID, DELIVERIES, ERROR = "queue", "id", "deliveries", "error"
ORIGIN = (QUEUE, ID, DELIVERIES, ERROR)
# This one only a letter has whose error came with one.
TRACEBACK = "error.traceback"
_OURS = (*ORIGIN, TRACEBACK)
# Headers that an item had under these names, as a letter that dies again has.
BEFORE = "before."


def with_origin(
    headers: Mapping[str, bytes], origin: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Adds where a letter comes from to the headers of the item.

    The error is cut to what has room, and its traceback left out where it has none.
    Headers that leave no room at all stay as they are: the letter has no way back then,
    but its queue goes on.
    """
    found = {
        BEFORE + name if name in _OURS or name.startswith(BEFORE) else name: value
        for name, value in headers.items()
    }
    if packed_bytes({**found, **origin}) <= MAX_HEADERS_BYTES:
        return {**found, **origin}
    origin = {name: origin[name] for name in ORIGIN}
    room = MAX_HEADERS_BYTES - packed_bytes({**found, **origin, ERROR: b""})
    return headers if room < 0 else {**found, **origin, ERROR: origin[ERROR][:room]}


def without_origin(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the headers that an item had before it died."""
    return {
        name.removeprefix(BEFORE): value
        for name, value in headers.items()
        if name not in _OURS
    }


def origin_in(headers: Mapping[str, bytes]) -> str | None:
    """Returns the queue that a dead letter came from; None for any other item."""
    if not all(name in headers for name in ORIGIN):
        return None
    return headers[QUEUE].decode(errors="replace")
