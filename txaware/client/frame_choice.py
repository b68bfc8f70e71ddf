"""The way of a client's calls to each server: in frames, or by HTTP."""

import logging
from typing import NoReturn

import httpcore

from txaware.client.http11 import CallTimeout
from txaware.client.link import Link, ServerPlace

log = logging.getLogger(__name__)

FRAMES, HTTP = "frames", "http"
# A proxy says this of a server that is not there.
AWAY = (502, 503, 504)
# The instance of a place that is asked for frames with the next call.
_ASKED_NEXT = b""


def raise_not_asked(error: Exception) -> NoReturn:
    """Raises what says that a call was not sent: the upgrade before it failed."""
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout | CallTimeout):
        raise error
    why = str(error) or type(error).__name__
    if isinstance(error, httpcore.TimeoutException):
        why = "the upgrade got no answer in time"
    raise httpcore.ConnectError(why) from error


def once_more(error: Exception) -> Exception:
    """Returns the error of an attempt for another one that waited for it."""
    if isinstance(error, CallTimeout):  # which had less time
        return httpcore.ConnectTimeout()
    other = type(error)(*error.args)
    other.__cause__ = error.__cause__
    return other


class FrameChoice:
    """Remembers where calls go by HTTP, until another server may be there.

    The log says once of each server which way it is, and why.
    """

    def __init__(self, link: Link, *, can: bool) -> None:
        self._wants = can and link.settings.frames
        # The instance that goes by HTTP there, once it is known.
        self._only_http: dict[ServerPlace, bytes | None] = {}
        self._said: set[tuple[str, str, str]] = set()
        self.way = FRAMES if self._wants else HTTP

    def tries_frames(self, place: ServerPlace) -> bool:
        """Tells whether to ask a server for frames."""
        if not self._wants:
            return False
        instance = self._only_http.get(place, _ASKED_NEXT)
        if instance is None and place.instance is not None:
            self._only_http[place] = place.instance
        elif instance not in (_ASKED_NEXT, place.instance):
            self.lost(place)  # another server, which may grant them
            instance = _ASKED_NEXT
        return instance is _ASKED_NEXT

    def refused(self, place: ServerPlace, status: int) -> None:
        """Notes that a server, or what is in front of it, grants no frames.

        Raises what says that nothing was asked yet, where a proxy has no server.
        """
        if status in AWAY:
            raise httpcore.ConnectError(f"the upgrade was answered {status}")
        self._only_http[place] = place.instance
        self._say(place, HTTP, f"it answered {status} to the upgrade")

    def granted(self, place: ServerPlace, software: str) -> None:
        """Notes that a server grants frames."""
        self._say(place, FRAMES, f"it is {software}")

    def used(self, place: ServerPlace, way: str) -> None:
        """Notes the way of a call."""
        self.way = way
        if not self._wants:
            self._say(place, HTTP, "frames are not asked for")

    def lost(self, place: ServerPlace) -> None:
        """Asks anew with the next call, as a connection was lost."""
        self._only_http.pop(place, None)

    def _say(self, place: ServerPlace, way: str, why: str) -> None:
        said = (place.url, way, why)
        if said not in self._said:
            self._said.add(said)
            shown = "HTTP/1.1" if way == HTTP else "frames"
            log.info("calls go to %s by %s: %s", place.url, shown, why)
