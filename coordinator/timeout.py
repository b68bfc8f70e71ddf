"""Which time-outs a transaction may have."""

from coordinator.errors import BadRequest

LONGEST_TIMEOUT_S = 2**31 - 1


def checked_timeout_s(timeout_s: float) -> float:
    """The time-out as it is, where it is above 0 and not too long."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise BadRequest(f"a time-out is a number of seconds, not {timeout_s!r}")
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise BadRequest(
            f"a time-out of {timeout_s} s is not above 0 and at most "
            f"{LONGEST_TIMEOUT_S} s"
        )
    return timeout_s
