"""Permissions beside the rights of a verb: what somebody sees, and foreign pages."""

from collections.abc import Mapping
from functools import lru_cache

from txaware.auth import Principal
from txaware.errors import NotAuthorized
from txaware.model.loopback import KNOWN_HOSTS, is_local
from txaware.model.topics import QueueName, TableName
from txaware.protocol.rights import parsed_topic
from txaware.service.monitor.overview import Sight


def sight(principal: Principal) -> Sight | None:
    """Returns what somebody may see; None if that is all."""
    if principal.is_operator:
        return None
    return Sight(
        lambda topic: principal.may_see(parsed_topic(topic)),
        lambda queue: principal.may_see_queue(QueueName.parse(queue)),
        lambda table: _may_see_table(principal, TableName.parse(table)),
    )


def _may_see_table(principal: Principal, table: TableName) -> bool:
    return principal.may_see_table(table.namespace, table.name)


# A browser says this of requests of the page itself, and of typed addresses.
# Another port of this machine is the "same-site", and a program of somebody else.
OWN_SITES = (b"same-origin", b"none")
FOREIGN = "pages of other sites may not use this server"


class ForeignOrigin(NotAuthorized):
    """The request comes from a page of another site."""


class Origins:
    """Checks the headers that a browser sends, and a page cannot change.

    `only_local` is for a server without tokens: its name must then be that of this
    machine, or a page whose own name was made to lead here would count as its own.
    """

    def __init__(self, *, only_local: bool) -> None:
        self._only_local = only_local

    def check(self, headers: Mapping[bytes, bytes], *, is_page: bool = False) -> None:
        """Raises where the request comes from elsewhere.

        A link of another site may open the page itself, and load nothing else: a
        browser adds no Origin to a GET for a link, an image or a frame.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if self._only_local and host and not _is_local(host):
            raise ForeignOrigin(f"this server is not called {host[:100]!r}")
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in OWN_SITES and not is_page:
            raise ForeignOrigin(FOREIGN)
        origin = headers.get(b"origin")
        if origin is not None:
            _, _, source = origin.decode("latin-1").partition("://")
            if source != host:
                raise ForeignOrigin(FOREIGN)


@lru_cache(KNOWN_HOSTS)
def _is_local(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return is_local(name if colon and port.isdigit() else host)
