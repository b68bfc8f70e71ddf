"""Opens what is elsewhere: a server's service, and coordinators by their addresses."""

import os

from coordinator import Coordinator
from coordinator.address import open_coordinator
from coordinator.remote import RemoteCoordinator
from txaware.auth import token_from_environment
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.errors import BadRequest
from txaware.http.client import (
    CoordinatorSend,
    HttpAdministration,
    HttpService,
    Link,
    ServerInfo,
    Transport,
    within_limits,
)
from txaware.parts import Parts, Reach


def is_http(url: object) -> bool:
    """Whether an address is that of a server."""
    return isinstance(url, str) and url.lower().startswith(("http://", "https://"))


def open_remote(
    url: str,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    token: str | None,
    *,
    coordinator_token: str | None,
) -> Parts:
    """A server's service, and its coordinator unless another one is named.

    `coordinator_token` is for that other one.
    """
    token = token_from_environment(os.environ) if token is None else token
    transport = _transport(url, token)
    try:
        service = HttpService(transport)
        info = service.info()
        chosen = _coordinator_of(coordinator, transport, coordinator_token, info)
    except BaseException:
        transport.close()
        raise

    limited = within_limits(settings, info)

    def close() -> None:
        try:
            if isinstance(coordinator, str):
                chosen.close()
        finally:
            transport.close()

    return Parts(
        service,
        chosen,
        HttpAdministration(transport),
        limited,
        clock_ms,
        coordinator is None and info.shares_journal,
        close,
        largest_buffer_bytes=limited.buffer_limit_bytes,
        reach=Reach(url, token),
    )


def _transport(url: str, token: str | None) -> Transport:
    token = token_from_environment(os.environ) if token is None else token
    return Transport(Link(url, token=token))


def _coordinator_of(
    coordinator: str | Coordinator | None,
    transport: Transport,
    token: str | None,
    info: ServerInfo,
) -> Coordinator:
    if coordinator is None:
        send = CoordinatorSend(transport)
        return RemoteCoordinator(send, settle_grace_s=info.settle_grace_s)
    if coordinator == "embedded":
        raise BadRequest(
            "a server has a coordinator of its own; an embedded one would end with "
            "this process, and what it has committed would not be known there"
        )
    chosen = named_coordinator(coordinator, token)
    if info.shares_journal and not isinstance(chosen, RemoteCoordinator):
        raise BadRequest(
            f"{transport.link.url} has its own embedded coordinator; another one would "
            f"confuse its transactions with those"
        )
    return chosen


def named_coordinator(coordinator: str | Coordinator, token: str | None) -> Coordinator:
    """The coordinator at an address, or one of the caller's."""
    if is_http(coordinator):
        return HostedCoordinator(_transport(str(coordinator), token))
    if isinstance(coordinator, str):
        return open_coordinator(coordinator)
    if not hasattr(coordinator, "start_short"):
        raise BadRequest(f"{coordinator!r} is no coordinator and no address of one")
    return coordinator


class HostedCoordinator(RemoteCoordinator):
    """The coordinator of a server, over connections of its own."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(
            CoordinatorSend(transport),
            settle_grace_s=HttpService(transport).info().settle_grace_s,
        )
        self._transport = transport

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()
