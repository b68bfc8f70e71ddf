"""The parts of a `Messaging`, wherever its data is."""

from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

import attrs

from coordinator import Coordinator
from txaware.errors import BadRequest
from txaware.model.clock import ClockMs
from txaware.model.group_service import GroupService
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.producers import BeginsTransactions, ProducerService
from txaware.model.queue_service import QueueService
from txaware.model.reports import MessagingStatus
from txaware.model.settings import Settings
from txaware.model.table_service import TableService
from txaware.publish.send_way import SendsBatches
from txaware.server.served import Served

# Stores that use the coordinator of another store have this name among the participants
# that keep rows.
ANOTHER_STORE = "(another store)"


@attrs.frozen
class Reach:
    """The address where other processes reach the same data, and the token for it.

    A `certificate` (PEM) is the only one to trust there; without it the name of the
    server is checked. `owner` is the process that serves the data, in words, if known.
    """

    url: str
    token: str | None = attrs.field(default=None, repr=False)
    certificate: str | None = attrs.field(default=None, repr=False)
    owner: str | None = None


@attrs.frozen
class Limits:
    """The settings that hold where the data is, and what comes from there.

    `largest_buffer_bytes` is set for a remote service: there a publisher's buffer goes
    out in one request. `longest_timeout_s` is set where transactions have a maximum.
    """

    settings: Settings
    shares_journal: bool
    largest_buffer_bytes: int | None = None
    largest_row_bytes: int | None = None
    longest_timeout_s: float | None = None
    takes_senders: bool = True

    def require_senders(self) -> None:
        """Raises `BadRequest` where the data is at a server that has no senders."""
        if not self.takes_senders:
            raise BadRequest(
                "the server is of a version before senders; update it, or use an "
                "async_publisher meanwhile"
            )


@attrs.frozen(kw_only=True)
class Parts:
    """The parts of a `Messaging`; `close` releases them, and `served` is for a server.

    `ask_limits` is called when they are first needed, as a server has to be asked for
    them. `begins` is set for one that begins the transactions itself.
    """

    service: MessagingService
    tables: TableService
    queues: QueueService
    groups: GroupService
    producers: ProducerService
    coordinator: Coordinator
    administration: OperatorService
    ask_limits: Callable[[], Limits]
    clock_ms: ClockMs
    close: Callable[[], None]
    # Makes the way of a sender to the data, in the event loop of that.
    way: Callable[[], SendsBatches]
    served: Served | None = None
    reach: Reach | None = None
    begins: BeginsTransactions | None = None
    # The limits that hold here, where others hold at a server that may be away.
    unasked: Limits | None = None
    status: Callable[[], MessagingStatus] = attrs.field(
        default=lambda: MessagingStatus("embedded", version("txaware"))
    )

    @property
    def settings(self) -> Settings:
        """The settings, with the limits that hold where the data is."""
        return self.ask_limits().settings

    @property
    def shares_journal(self) -> bool:
        """True when one batch has rows of the store and records of the coordinator."""
        return self.ask_limits().shares_journal


def is_http(url: object) -> bool:
    """Tells whether an address is that of a server."""
    return isinstance(url, str) and url.lower().startswith(("http://", "https://"))


T = TypeVar("T")


def known_once(ask: Callable[[], T]) -> Callable[[], T]:
    """Returns what asks at its first call, and again while that fails."""
    known: list[T] = []

    def answer() -> T:
        if not known:
            known.append(ask())
        return known[0]

    return answer
