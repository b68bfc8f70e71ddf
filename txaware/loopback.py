"""Which addresses are those of this machine, seen from itself."""

from functools import lru_cache
from ipaddress import ip_address

# The same few come again and again, and one takes 2 us to be read.
KNOWN_HOSTS = 1000


@lru_cache(KNOWN_HOSTS)
def is_local(host: str) -> bool:
    """Whether a host is this machine, seen from itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
