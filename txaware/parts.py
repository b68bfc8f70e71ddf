"""What a `Messaging` is put together from, wherever its data is."""

from collections.abc import Callable

import attrs

from coordinator import Coordinator
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.http.client import HttpAdministration
from txaware.http.server.served import Served
from txaware.interfaces import MessagingService
from txaware.service.administration import Administration


@attrs.frozen
class Reach:
    """Where other processes reach the same data, and what they have to show there.

    A `certificate` (PEM) is the only one to trust there; without it a name is checked.
    `owner` is the process that serves it, in words, where that is known.
    """

    url: str
    token: str | None = attrs.field(default=None, repr=False)
    certificate: str | None = attrs.field(default=None, repr=False)
    owner: str | None = None


@attrs.frozen
class Parts:
    """All parts, and how to give them back; `served` is what others may be served.

    A publisher's buffer goes out in one request, where there are requests.
    """

    service: MessagingService
    coordinator: Coordinator
    administration: Administration | HttpAdministration
    settings: Settings
    clock_ms: ClockMs
    shares_journal: bool
    close: Callable[[], None]
    served: Served | None = None
    largest_buffer_bytes: int | None = None
    reach: Reach | None = None
