"""The parts of a `Messaging` whose data is behind a server."""

from collections.abc import Callable

import attrs

from coordinator import Coordinator
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
from txaware.errors import BadRequest
from txaware.messaging.named_coordinator import named_coordinator
from txaware.messaging.parts import Limits, Parts, Reach, known_once
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.settings import Settings
from txaware.publish.send_way import SendsBatches


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
        service=service,
        tables=HttpTables(transport, service.carrier),
        queues=HttpQueues(transport),
        groups=HttpGroups(transport),
        producers=service,
        coordinator=chosen,
        administration=HttpAdministration(transport, chosen),
        ask_limits=limits,
        clock_ms=clock_ms,
        close=close,
        way=way,
        reach=reach,
        begins=service if coordinator is None else None,
        unasked=Limits(settings, shares_journal=False),
        status=lambda: transport.status(service.info()),
    )


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
            commits_at_once=lambda timeout_s: info().may_begin_with_commit(timeout_s),
            instance=lambda: (transport.link.instance or b"").decode("latin-1"),
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
