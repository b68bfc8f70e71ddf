"""The address at which clients and the other servers reach this one alone."""

import socket

from txaware.errors import Unavailable
from txaware.model.settings import Settings
from txaware.server.server import LOOPBACK

REACHED_WITHIN_S = 5.0


def own_url(host: str, port: int, settings: Settings, *, is_tls: bool) -> str:
    """Returns the URL of a port of this server, as others see it."""
    name = _name_for_others(host, settings)
    shown = f"[{name}]" if ":" in name else name
    return f"{'https' if is_tls else 'http'}://{shown}:{port}"


def require_reached(host: str, port: int, settings: Settings) -> None:
    """Raises `Unavailable` where nobody is reached by the name that others are told.

    Something has to listen at the port. A server that nobody reaches would be given
    shards all the same, and each request for them would wait.
    """
    if not is_named_otherwise(host, settings):
        return
    name = _name_for_others(host, settings)
    try:
        socket.create_connection((name, port), timeout=REACHED_WITHIN_S).close()
    except OSError as error:
        raise Unavailable(
            f"this server is not reached at {name}:{port}, where clients and other "
            f"servers are to find it ({error}): set advertise to a name of this machine"
        ) from error


def is_named_otherwise(host: str, settings: Settings) -> bool:
    """Tells whether others are told another name than the one that this one takes."""
    return _name_for_others(host, settings) != host


def _name_for_others(host: str, settings: Settings) -> str:
    return settings.advertise or (socket.gethostname() if host in LOOPBACK else host)
