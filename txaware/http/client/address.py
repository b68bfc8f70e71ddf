"""Where a server is: its URL, taken apart once."""

from typing import Self
from urllib.parse import urlsplit

import attrs

from txaware.errors import BadRequest

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
            raise BadRequest(f"that is no URL of a server: {error}") from error
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
        """Host and port, as the header Host has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"
