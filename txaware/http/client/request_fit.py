"""The limits of a request: how many messages the server takes, and how large ones."""

from txaware.errors import RequestTooLarge
from txaware.http.client.server_info import ServerInfo
from txaware.http.wire import MAX_MESSAGES


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """Raises `RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )
