"""The parts that all calls of a client share: addresses, the token, the way to each."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NoReturn, Self
from urllib.parse import urlsplit

import attrs
import httpcore

from txaware.client.calls.call import CallTimeout, Deadline
from txaware.client.http11 import HttpRequest
from txaware.client.settings import ClientSettings
from txaware.errors import BadRequest
from txaware.model.chance import CHANCE
from txaware.model.loopback import KNOWN_HOSTS, is_local
from txaware.protocol.frames import SERVER

PORTS = {"http": 80, "https": 443}


@attrs.frozen
class Address:
    """The address of a server; `str` is its URL. A path of it comes before all routes.

    A name and a password in it are refused: they would show wherever it is shown.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, url: object) -> Self:
        """Reads `http://HOST[:PORT]` or `https://...`; `BadRequest` for others."""
        if not isinstance(url, str):
            raise BadRequest(f"a server is named by its URL, not {url!r}")
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname or ""
            host.encode("ascii")
        except ValueError as error:
            raise BadRequest(
                f"that is no URL of a server: {error}; http://HOST:PORT or "
                f"https://HOST is, and of several each begins like that"
            ) from error
        if parts.username is not None or parts.password is not None:
            raise BadRequest(
                "the URL of a server has no name and no password; give it a token"
            )
        is_address = parts.scheme in PORTS and bool(host) and "," not in host
        wrong = not is_address or parts.query or parts.fragment
        if wrong or not url.isascii() or not url.isprintable() or " " in url:
            raise BadRequest(
                f"{url!r} is no URL of a server; http://HOST:PORT or https://HOST is"
            )
        if port == 0:
            raise BadRequest(f"{url!r} names no port that can be connected to")
        path = parts.path.rstrip("/")
        return cls(parts.scheme, host, port or PORTS[parts.scheme], path)

    @property
    def authority(self) -> str:
        """The host and port, as the header Host has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


log = logging.getLogger(__name__)

# A path may have a comma, so the next address with one begins with its scheme.
_NEXT = re.compile(r"\s*,\s*(?=https?://)", re.IGNORECASE)
# A server that was named as an owner and cannot be reached is left for so long.
_LEFT_S = 60.0
# Names that were followed to their owners; more of them are asked for anew.
_MOST_FOLLOWED = 100_000


class ServerPlace:
    """One server of those that may have the data, and its instance that answered."""

    def __init__(self, url: str) -> None:
        address = self.address = Address.parse(url)
        self.url = str(address)
        self.instance: bytes | None = None
        self.host = (b"Host", address.authority.encode())

    def __repr__(self) -> str:
        return f"<Place {self.url}>"


class Link:
    """Servers of the same data, of which one owns it at a time: `place`, as it seems.

    The token is for all of them; it is kept in a header only, and shown nowhere. A
    `seal` says that a server of the data asks.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: ClientSettings | None = None,
        seal: bytes | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = CHANCE.uniform,
    ) -> None:
        self.places = _places(url)
        self.place = self.places[0]
        # Other servers of the data, by their URLs, and by what each of them owns.
        self._others: dict[str, ServerPlace] = {}
        self._owners: dict[str, ServerPlace] = {}
        self._left_until_s: dict[ServerPlace, float] = {}
        self.url = ",".join(place.url for place in self.places)
        self.settings = settings or ClientSettings()
        self.clock_s = clock_s
        self.jitter = jitter
        self._headers: list[tuple[bytes, bytes]] = []
        if seal is not None:
            self._headers.append((SERVER, seal))
        if token is not None:
            self._headers.append((b"Authorization", b"Bearer " + _checked(token)))
            if not self.settings.allow_plain_tokens:
                _warn_of_plain_tokens(self.places)

    @property
    def instance(self) -> bytes | None:
        """The instance that answered last at the place that is asked now."""
        return self.place.instance

    def place_of(self, about: str) -> ServerPlace:
        """Returns the server to ask about something: its owner, where that is known."""
        owner = self._owners.get(about)
        if owner is None:
            return self.place
        until_s = self._left_until_s.get(owner)
        if until_s is not None and self.clock_s() < until_s:
            return self.place
        return owner

    def follow(self, about: str, url: str, place: ServerPlace) -> None:
        """Asks the owner of something next time, which an answer has named.

        A server elsewhere does not lead to this machine, nor one with TLS to one
        without it: the token goes there.
        """
        owner = self._others.get(url)
        if owner is None:
            try:
                owner = ServerPlace(url)
            except BadRequest:
                log.warning("%s names an owner that has no address: %r", place.url, url)
                return
            there, here = owner.address, place.address
            is_here = is_local(there.host) and not is_local(here.host)
            if is_here or there.scheme != here.scheme:
                return
            self._others[url] = owner
        if len(self._owners) >= _MOST_FOLLOWED:
            self._owners.clear()
        owner.instance = owner.instance or place.instance
        self._owners[about] = owner

    def leave(self, place: ServerPlace) -> None:
        """Asks the next place from now on, unless another thread has left this one.

        An owner that was followed is left for a minute.
        """
        if place not in self.places:
            self._left_until_s[place] = self.clock_s() + _LEFT_S
        elif self.place is place:
            at = self.places.index(place) + 1
            self.place = self.places[at % len(self.places)]

    def new_key(self) -> bytes:
        """Returns a new name for a request that may have to be repeated."""
        return os.urandom(16).hex().encode()

    def request(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        *,
        longer_s: float,
        deadline: Deadline,
        place: ServerPlace | None = None,
    ) -> HttpRequest:
        """Returns a request as it goes out, to the place asked now or another one."""
        place, answer_s = place or self.place, self.settings.answer_timeout_s
        return HttpRequest(
            method,
            place.address.path + path,
            [place.host, *self._headers, *headers],
            body,
            answer_s + longer_s,
            answer_s,
            deadline,
            self.settings.answer_limit_bytes,
        )

    def __repr__(self) -> str:
        return f"<Link to {self.url}>"


def _warn_of_plain_tokens(places: tuple[ServerPlace, ...]) -> None:
    for place in places:
        if place.address.scheme == "http" and not is_local(place.address.host):
            _warn_of_plain_token(place.address.authority)


@lru_cache(KNOWN_HOSTS)
def _warn_of_plain_token(where: str) -> None:
    """Warns once of an address, however many connect to it."""
    log.warning(
        "a token goes to %s without TLS, where whoever is on the way reads it: connect "
        "to https://%s, or, where a proxy beside this program speaks TLS or nobody "
        "listens on that network, set TXAWARE_ALLOW_PLAIN_TOKENS=true",
        where,
        where,
    )


def _places(url: object) -> tuple[ServerPlace, ...]:
    """Returns the places that an address names, with commas between them."""
    if not isinstance(url, str):
        raise BadRequest(f"a server is named by its URL, not {url!r}")
    places = map(ServerPlace, _addresses(url))
    return tuple({place.url: place for place in places}.values())


def _addresses(urls: str) -> Iterator[str]:
    """Yields the addresses of a list; hosts may share the scheme before them."""
    for url in _NEXT.split(urls.strip()):
        scheme, colon, hosts = url.partition("://")
        if "/" in hosts:
            yield url
        else:
            for host in hosts.split(","):
                yield f"{scheme}{colon}{host.strip()}"


def _checked(token: object) -> bytes:
    if isinstance(token, str):
        token = token.strip()
        if token and token.isascii() and token.isprintable() and " " not in token:
            return token.encode()
    raise BadRequest("the token is not one: it has visible ASCII characters only")


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
