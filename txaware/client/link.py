"""The parts that all calls of a client share: addresses of servers, and the token."""

import logging
import os
import random
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

import attrs

from txaware.client.http11 import Deadline, HttpRequest
from txaware.client.settings import ClientSettings
from txaware.errors import BadRequest
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

# A path may have a comma, so the next address begins with its scheme.
_NEXT = re.compile(r"\s*,\s*(?=https?://)", re.IGNORECASE)


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
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.places = _places(url)
        self.place = self.places[0]
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

    def leave(self, place: ServerPlace) -> None:
        """Asks the next place from now on, unless another thread has left this one."""
        if self.place is place:
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
    return tuple(
        {
            place.url: place for place in map(ServerPlace, _NEXT.split(url.strip()))
        }.values()
    )


def _checked(token: object) -> bytes:
    if isinstance(token, str):
        token = token.strip()
        if token and token.isascii() and token.isprintable() and " " not in token:
            return token.encode()
    raise BadRequest("the token is not one: it has visible ASCII characters only")
