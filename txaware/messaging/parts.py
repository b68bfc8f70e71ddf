"""The parts of a `Messaging`, wherever its data is, and those of a remote one."""

import logging
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar

import attrs

from coordinator import Coordinator
from coordinator.address import open_coordinator
from coordinator.remote.client import RemoteCoordinator
from txaware.auth import token_to_send
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpGroups,
    HttpQueues,
    HttpService,
    HttpTables,
    Link,
    ServerInfo,
    Transport,
    within_limits,
)
from txaware.errors import BadRequest, NotAuthorized, Unavailable
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.group_service import GroupService
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.producers import BeginsTransactions, ProducerService
from txaware.model.queue_service import QueueService
from txaware.model.reports import MessagingStatus
from txaware.model.settings import Settings
from txaware.model.table_service import TableService
from txaware.publish.send_way import SendsBatches
from txaware.server.served import Served


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


@attrs.frozen
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


T = TypeVar("T")

log = logging.getLogger(__name__)

# Stores that use the coordinator of another store have this name among the participants
# that keep rows.
ANOTHER_STORE = "(another store)"


def is_http(url: object) -> bool:
    """Tells whether an address is that of a server."""
    return isinstance(url, str) and url.lower().startswith(("http://", "https://"))


def open_remote(
    reach: Reach,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    *,
    coordinator_token: str | None,
    frames: bool = True,
) -> Parts:
    """Opens a server's service, and its coordinator unless another one is named.

    The server is asked nothing before its first call, unless another coordinator has to
    fit it. `coordinator_token` is for that one. Calls go in `frames` where the server
    grants them, unless that or the setting is False.
    """
    reach = attrs.evolve(reach, token=token_to_send(reach.token))
    client_settings = ClientSettings(
        certificate=reach.certificate,
        call_timeout_s=settings.call_timeout_s,
        answer_limit_bytes=settings.answer_limit_bytes,
        frames=frames and settings.frames,
    )
    link = Link(reach.url, token=reach.token, settings=client_settings)
    return parts_over(
        Transport(link),
        coordinator,
        settings,
        clock_ms,
        reach=reach,
        token=coordinator_token,
    )


def parts_over(
    transport: Transport,
    coordinator: str | Coordinator | None = None,
    settings: Settings | None = None,
    clock_ms: ClockMs = system_clock_ms,
    *,
    reach: Reach | None = None,
    token: str | None = None,
) -> Parts:
    """Makes the parts behind a connection; `token` is for another coordinator."""
    service = HttpService(transport)
    settings = settings or Settings()

    @known_once
    def info() -> ServerInfo:
        return service.info()

    @known_once
    def limits() -> Limits:
        found = info()
        limited = within_limits(settings, found)
        return Limits(
            limited,
            coordinator is None and found.shares_journal,
            largest_buffer_bytes=limited.buffer_limit_bytes,
            largest_row_bytes=found.largest_row_bytes,
            longest_timeout_s=(
                found.max_transaction_timeout_s if coordinator is None else None
            ),
            takes_senders=found.takes_senders,
        )

    try:
        chosen = _coordinator_of(coordinator, transport, settings, info, token=token)
    except BaseException:
        transport.close()
        raise

    if coordinator is None:
        service.carrier.coordinator = chosen

    def close() -> None:
        try:
            if isinstance(coordinator, str):
                chosen.close()
        finally:
            transport.close()

    def way() -> SendsBatches:
        # Most programs have no sender, and its loop takes long to import.
        from txaware.client.aio.remote_way import RemoteWay

        return RemoteWay.by(transport.link)

    return Parts(
        service,
        HttpTables(transport, service.carrier),
        HttpQueues(transport),
        HttpGroups(transport),
        service,
        chosen,
        HttpAdministration(transport, chosen),
        limits,
        clock_ms,
        close,
        way,
        reach=reach,
        begins=service if coordinator is None else None,
        unasked=Limits(settings, shares_journal=False),
        status=lambda: transport.status(service.info()),
    )


def known_once(ask: Callable[[], T]) -> Callable[[], T]:
    """Returns what asks at its first call, and again while that fails."""
    known: list[T] = []

    def asked() -> T:
        if not known:
            known.append(ask())
        return known[0]

    return asked


def _coordinator_of(
    coordinator: str | Coordinator | None,
    transport: Transport,
    settings: Settings,
    info: Callable[[], ServerInfo],
    *,
    token: str | None,
) -> Coordinator:
    if coordinator is None:
        send = CoordinatorSend(transport)
        return RemoteCoordinator(
            send,
            settle_grace_s=lambda: info().settle_grace_s,
            takes_writers=lambda: info().takes_writers,
        )
    if coordinator == "embedded":
        raise BadRequest(
            "a server has a coordinator of its own; an embedded one would end with "
            "this process, and what it has committed would not be known there"
        )
    shares_journal = info().shares_journal
    chosen = named_coordinator(coordinator, settings, token=token)
    if shares_journal and not getattr(chosen, "is_at_server", False):
        raise BadRequest(
            f"{transport.link.url} has its own embedded coordinator; another one would "
            f"confuse its transactions with those"
        )
    return chosen


def named_coordinator(
    coordinator: str | Coordinator, settings: Settings, *, token: str | None
) -> Coordinator:
    """Opens the coordinator at an address, or returns the caller's own."""
    if is_http(coordinator):
        hosted = HostedCoordinator(str(coordinator), token_to_send(token))
        try:
            hosted.introduce()
        except Unavailable as error:
            log.warning(
                "the coordinator is away, and no transactions until it is back: %s",
                error,
            )
        except BaseException:
            hosted.close()
            raise
        return hosted
    if isinstance(coordinator, str):
        timeout_s = settings.coordinator_timeout_s
        return open_coordinator(coordinator, answer_timeout_s=timeout_s)
    if not hasattr(coordinator, "start_short"):
        raise BadRequest(f"{coordinator!r} is no coordinator and no address of one")
    return coordinator


class HostedCoordinator(RemoteCoordinator):
    """The coordinator of a server, over connections of its own.

    The server may be away as a store is opened with it: no call but `status` goes out
    before it was introduced, and until then calls are `Unavailable` without a wait.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._transport = Transport(Link(url, token=token))
        # For a look at whether the server is there, which waits for next to nothing.
        at_once = ClientSettings(
            connect_timeout_s=1, answer_timeout_s=5, retry_for_s=0.5
        )
        self._look = Transport(Link(url, token=token, settings=at_once))
        self._info: ServerInfo | None = None
        self._lock = threading.Lock()
        self._to_server = CoordinatorSend(self._transport)
        super().__init__(self._sent, takes_writers=self._may_name_writers)

    def introduce(self) -> None:
        """Learns what server this is, and tells it that its pointers are shared."""
        with self._lock:
            if self._info is not None:
                return
            info = HttpService(self._look).info()
            self._settle_grace_s = lambda: info.settle_grace_s
            if info.takes_writers:
                self._say_that_rows_are_elsewhere()
            self._info = info

    def _say_that_rows_are_elsewhere(self) -> None:
        """Tells the server that its pointers are written to another store, too.

        The server then forgets nothing that these rows may need, unless somebody tells
        it to.
        """
        there = RemoteCoordinator(
            CoordinatorSend(self._look), takes_writers=lambda: True
        )
        try:
            tx = there.start_short()
            try:
                there.note_writers(tx, [ANOTHER_STORE])
                there.persist(tx)
            finally:
                there.abort(tx)
        except NotAuthorized as error:  # a caller that may begin transactions tells it
            log.debug("%r is not told that rows are elsewhere: %s", self, error)

    def _sent(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._info is None:
            self.introduce()
        return self._to_server(method, path, body)

    def _may_name_writers(self) -> bool:
        return self._info is not None and self._info.takes_writers

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong; waits for no repeats."""
        return RemoteCoordinator(CoordinatorSend(self._look)).status()

    def close(self) -> None:
        """Closes the connections."""
        self._look.close()
        self._transport.close()
