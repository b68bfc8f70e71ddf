"""Durations as people write them: `90`, `15m`, `12h`."""

import re

from txaware.errors import BadRequest

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")


def seconds_of(text: str) -> float:
    """Reads seconds, or a number with a unit: `90`, `15m`, `12h`, `7d`, `2w`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise BadRequest(f"{text!r} is no duration; 90, 15m, 12h and 7d are")
    seconds = float(found[1]) * UNITS_S[found[2] or "s"]
    return int(seconds) if seconds.is_integer() else seconds
