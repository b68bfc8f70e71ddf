"""The way of a client's calls to each server: in frames, or by HTTP."""

import logging

import httpcore

from txaware.client.http_connection import NotGranted
from txaware.client.link import Link, ServerPlace

log = logging.getLogger(__name__)

FRAMES_BY_DEFAULT = False
FRAMES, HTTP = "frames", "http"
# A proxy says this of a server that is not there.
AWAY = (502, 503, 504)


class FrameChoice:
    """Remembers where calls go by HTTP, until a connection there is lost.

    The log says once of each server which way it is, and why.
    """

    def __init__(self, link: Link, *, can: bool) -> None:
        self._wants = can and link.settings.frames
        self._only_http: set[ServerPlace] = set()
        self._said: set[tuple[str, str, str]] = set()
        self.way = FRAMES if self._wants else HTTP

    def tries_frames(self, place: ServerPlace) -> bool:
        """Tells whether to ask a server for frames."""
        return self._wants and place not in self._only_http

    def not_made(self, place: ServerPlace, error: Exception) -> None:
        """Notes that a server, or what is in front of it, grants no frames.

        Raises what says that nothing was asked yet, where no server has answered.
        """
        if isinstance(error, NotGranted):
            if error.status in AWAY:
                said = f"the upgrade was answered {error.status}"
                raise httpcore.ConnectError(said) from error
            self._only_http.add(place)
            self._say(place, HTTP, f"it answered {error.status} to the upgrade")
        elif isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
            raise error
        elif isinstance(error, httpcore.TimeoutException):
            raise httpcore.ConnectTimeout(str(error)) from error
        else:
            raise httpcore.ConnectError(str(error)) from error

    def granted(self, place: ServerPlace, software: str) -> None:
        """Notes that a server grants frames."""
        self._say(place, FRAMES, f"it is {software}")

    def used(self, place: ServerPlace, way: str) -> None:
        """Notes the way of a call."""
        self.way = way
        if not self._wants:
            self._say(place, HTTP, "frames are not asked for")

    def lost(self, place: ServerPlace) -> None:
        """Asks anew at the next connection: another server may answer there."""
        self._only_http.discard(place)

    def _say(self, place: ServerPlace, way: str, why: str) -> None:
        said = (place.url, way, why)
        if said not in self._said:
            self._said.add(said)
            shown = "HTTP/1.1" if way == HTTP else "frames"
            log.info("calls go to %s by %s: %s", place.url, shown, why)
