"""The settings of a client, and the TLS context that follows from them."""

import os
import ssl
from typing import Any

import attrs
import httpcore

from txaware.errors import BadRequest

# The server remembers the answer to a request that may be repeated for a minute.
LONGEST_RETRY_S = 50


def _number(most: float, *, least: float = 0) -> Any:
    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        kinds = int if field.type is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            kind = "whole number" if field.type is int else "number"
            raise BadRequest(f"{field.name} is a {kind}, not {value!r}")
        if not least <= value <= most:  # nor is NaN
            raise BadRequest(f"{field.name} is from {least:g} to {most:g}, not {value}")

    return check


@attrs.frozen(kw_only=True)
class ClientSettings:
    """The settings of a client: every wait has an end, and names say in what unit."""

    connect_timeout_s: float = attrs.field(
        default=5, validator=_number(3600, least=0.001)
    )
    """The wait for a connection, and for a free one where all are in use."""
    answer_timeout_s: float = attrs.field(
        default=30, validator=_number(86_400, least=0.001)
    )
    """The wait between two signs of life of a server that has been asked.

    The time that the server is asked to wait comes on top.
    """
    call_timeout_s: float = attrs.field(
        default=60, validator=_number(86_400, least=0.001)
    )
    """The time of a call in all, from its beginning to the end of its answer, with all
    that is tried again; `Unavailable` after it.

    The time that the server is asked to wait comes on top.
    """
    answer_limit_bytes: int = attrs.field(
        default=256 << 20, validator=_number(1e12, least=1)
    )
    """The most bytes of an answer, as announced and as they come; `Unavailable` above
    it. A backup, which is written as it comes, may have any number."""
    retry_for_s: float = attrs.field(default=10, validator=_number(LONGEST_RETRY_S))
    """The time after its beginning in which a call is tried again; 0 for one try."""
    frames: bool = attrs.field(
        default=True, validator=attrs.validators.instance_of(bool)
    )
    """Goes on in frames where the server grants it: one connection for all calls."""
    pool_connections: int = attrs.field(default=64, validator=_number(100_000, least=1))
    """The number of calls that are made at once."""
    waiting_connections: int = attrs.field(
        default=5_000, validator=_number(100_000, least=1)
    )
    """The number of calls more that wait at the server for something to come."""
    ca_file: str | None = attrs.field(
        factory=lambda: os.environ.get("TXAWARE_CA_FILE"),
        validator=attrs.validators.optional(attrs.validators.instance_of(str)),
    )
    """The authorities to trust, instead of those that the system and certifi know."""
    certificate: str | None = attrs.field(
        default=None,
        repr=False,
        validator=attrs.validators.optional(attrs.validators.instance_of(str)),
    )
    """The server's own (PEM), where it is known: no other is trusted, whatever the name
    in it."""

    allow_plain_tokens: bool = attrs.field(
        factory=lambda: os.environ.get("TXAWARE_ALLOW_PLAIN_TOKENS") == "true",
        validator=attrs.validators.instance_of(bool),
    )
    """Sends a token to another machine without TLS, and does not warn of it."""

    def limit(self, *, waits: bool) -> int:
        """Returns the most connections for calls that wait, or for others."""
        return self.waiting_connections if waits else self.pool_connections

    def ssl_context(self) -> ssl.SSLContext:
        """Makes a context that checks the server's certificate and name."""
        if self.certificate is not None:
            return _trusting_only(self.certificate)
        if not self.ca_file:
            return httpcore.default_ssl_context()
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise BadRequest(
                f"{self.ca_file} holds no certificates: {error}"
            ) from error


def _trusting_only(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificate)
    except (OSError, ValueError) as error:
        raise BadRequest(f"that is no certificate: {error}") from error
    return context
