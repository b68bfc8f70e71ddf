"""The coordinator that a caller names, by an address or as an object."""

import logging

from coordinator import Coordinator
from coordinator.address import open_coordinator
from txaware.auth import token_to_send
from txaware.errors import BadRequest, Unavailable
from txaware.messaging.parts import is_http
from txaware.model.settings import Settings

log = logging.getLogger(__name__)


def named_coordinator(
    coordinator: str | Coordinator, settings: Settings, *, token: str | None
) -> Coordinator:
    """Opens the coordinator at an address, or returns the caller's own."""
    if is_http(coordinator):
        from txaware.messaging.hosted_coordinator import HostedCoordinator

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
