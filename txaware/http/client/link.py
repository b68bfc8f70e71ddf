"""What all calls to one server share: where it is, who asks, and what it last said."""

import logging
import os
import random
import time
from collections.abc import Callable
from functools import lru_cache

import httpcore

from txaware.errors import BadRequest
from txaware.http.client.address import Address
from txaware.http.client.settings import ClientSettings
from txaware.loopback import KNOWN_HOSTS, is_local

log = logging.getLogger(__name__)


class Link:
    """The token is kept in a header only, and shown nowhere."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: ClientSettings | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.address = Address.parse(url)
        self.url = str(self.address)
        self.settings = settings or ClientSettings()
        self.clock_s = clock_s
        self.jitter = jitter
        # Of the server's present life, as its last answer had it.
        self.instance: bytes | None = None
        self.origin = httpcore.Origin(
            self.address.scheme.encode(), self.address.host.encode(), self.address.port
        )
        self._headers = [(b"Host", self.address.authority.encode())]
        if token is not None:
            self._headers.append((b"Authorization", b"Bearer " + _checked(token)))
            is_plain = self.address.scheme == "http"
            is_told = is_plain and not is_local(self.address.host)
            if is_told and not self.settings.allow_plain_tokens:
                _warn_of_plain_token(self.address.authority)
        self._timeouts = self._timeout(0)

    def new_key(self) -> bytes:
        """Names a request that may have to be repeated."""
        return os.urandom(16).hex().encode()

    def request(
        self,
        method: str,
        path: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        *,
        longer_s: float,
    ) -> httpcore.Request:
        """A request as it goes out."""
        target = (self.address.path + path).encode("ascii")
        return httpcore.Request(
            method,
            httpcore.URL(
                scheme=self.origin.scheme,
                host=self.origin.host,
                port=self.origin.port,
                target=target,
            ),
            headers=self._headers + headers,
            content=body,
            extensions=self._timeout(longer_s) if longer_s else self._timeouts,
        )

    def _timeout(self, longer_s: float) -> dict[str, dict[str, float]]:
        answer_s = self.settings.answer_timeout_s
        return {
            "timeout": {
                "connect": self.settings.connect_timeout_s,
                "write": answer_s,
                "read": answer_s + longer_s,
            }
        }

    def __repr__(self) -> str:
        return f"<Link to {self.url}>"


@lru_cache(KNOWN_HOSTS)
def _warn_of_plain_token(where: str) -> None:
    """Says it once of an address, however many connect to it."""
    log.warning(
        "a token goes to %s without TLS, where whoever is on the way reads it: connect "
        "to https://%s, or, where a proxy beside this program speaks TLS or nobody "
        "listens on that network, set TXAWARE_ALLOW_PLAIN_TOKENS=true",
        where,
        where,
    )


def _checked(token: object) -> bytes:
    if isinstance(token, str):
        token = token.strip()
        if token and token.isascii() and token.isprintable() and " " not in token:
            return token.encode()
    raise BadRequest("the token is not one: it has visible ASCII characters only")
