"""The addresses by which a machine reaches itself."""

from functools import lru_cache
from ipaddress import ip_address

# The same few hosts come again and again, and parsing one takes 2 us.
KNOWN_HOSTS = 1000


@lru_cache(KNOWN_HOSTS)
def is_local(host: str) -> bool:
    """Tells whether a host names this machine, seen from itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
