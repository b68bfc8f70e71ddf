"""Lets requests in while there is room, and says how long to stay away otherwise."""

from txaware.config import Settings
from txaware.errors import Unavailable

RETRY_AFTER_S = 1


class Full(Unavailable):
    """There are too many requests in flight; come again in a moment."""


class TooManyOpen(Full):
    """A principal has as many transactions open as it may have."""


class Admission:
    """Counts requests and the bytes of their bodies; of one event loop only.

    Those that wait for messages cost little, and have a number of their own.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.limit = settings.body_memory_bytes
        self.in_flight = 0
        self.waiting = 0
        self.body_bytes = 0

    def entered(self, *, waits: bool, vital: bool = False) -> "Entered":
        """Counts a request while it is answered; `Full` where there are too many.

        A `vital` one is let in all the same.
        """
        limit = (
            self._settings.waiting_requests
            if waits
            else self._settings.in_flight_requests
        )
        now = self.waiting if waits else self.in_flight
        if now >= limit and not vital:
            what = "requests that wait" if waits else "requests in flight"
            raise Full(f"there are {now} {what}, as many as there may be")
        return Entered(self, waits)

    def count(self, change: int, *, waits: bool) -> None:
        """One more, or one less."""
        if waits:
            self.waiting += change
        else:
            self.in_flight += change


class Entered:
    """One request while it is answered. Not a generator: that takes twice the time."""

    __slots__ = ("_admission", "_waits")

    def __init__(self, admission: Admission, waits: bool) -> None:
        self._admission = admission
        self._waits = waits

    def __enter__(self) -> None:
        self._admission.count(1, waits=self._waits)

    def __exit__(self, *exc_info: object) -> None:
        self._admission.count(-1, waits=self._waits)


class Memory:
    """What the body of one request takes, until it is given back as a whole."""

    __slots__ = ("_admission", "_taken_bytes")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Takes as much more; `Full` where others have it."""
        others = self._admission.body_bytes - self._taken_bytes
        if others and self._admission.body_bytes + size_bytes > self._admission.limit:
            raise Full(f"request bodies of {others} bytes are in memory already")
        self._admission.body_bytes += size_bytes
        self._taken_bytes += size_bytes

    def give_back(self) -> None:
        """The request is answered."""
        self._admission.body_bytes -= self._taken_bytes
        self._taken_bytes = 0
