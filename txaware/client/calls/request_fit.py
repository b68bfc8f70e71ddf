"""Requests in msgpack: whether they fit, and a server that does not know them."""

from collections.abc import Callable
from typing import TypeVar

from txaware.client.calls.call import Call, HttpAnswer
from txaware.client.server_info import ServerInfo
from txaware.errors import BadRequest, RequestTooLarge
from txaware.protocol.formats import MAX_MESSAGES, MSGPACK, WRONG_TYPE
from txaware.protocol.verb import Repeat

T = TypeVar("T")
_KIND = MSGPACK.media_type.encode()


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """Raises `RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )


def msgpack_call(
    path: str | Callable[[], str],
    body: bytes | Callable[[], bytes],
    read: Callable[[HttpAnswer], T],
    *,
    repeat: Repeat = Repeat.HARMLESS,
    longer_s: float = 0,
    framed: Callable[[], tuple[int, bytes]] | None = None,
    about: str = "",
) -> Call[T]:
    """Returns a call in msgpack, which says so where the server does not know that."""

    def read_or_tell(answer: HttpAnswer) -> T:
        try:
            return read(answer)
        except BadRequest as error:
            if not str(error).startswith(WRONG_TYPE):
                raise
            raise BadRequest(
                f"{answer.url}: the server is older than this client, and does not "
                f"know {MSGPACK.media_type}; upgrade the server, or take a client of "
                f"its version. It says: {error}"
            ) from error

    return Call(
        *("POST", path, read_or_tell, body, _KIND, _KIND, repeat, longer_s),
        framed=framed,
        about=about,
    )
