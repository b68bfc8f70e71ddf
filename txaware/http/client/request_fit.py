"""The messages of a request, and whether the server takes so many."""

from txaware.errors import RequestTooLarge
from txaware.http.client.server_info import ServerInfo
from txaware.http.wire import MAX_MESSAGES
from txaware.messages import Outgoing
from txaware.requests import Payload, Payloads


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """Raises `RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )


def messages_of(payloads: Payloads) -> list[Payload]:
    """Returns payloads as messages again, as a request has them."""
    if payloads.expire_after_s is None:
        return list(payloads.payloads)
    pairs = zip(payloads.payloads, payloads.expire_after_s, strict=True)
    return [p if after_s is None else Outgoing(p, after_s) for p, after_s in pairs]
