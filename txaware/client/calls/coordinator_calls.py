"""The calls of a `RemoteCoordinator`, and which of them may be made again."""

import json
import re
from collections.abc import Callable

from coordinator import errors
from coordinator.remote.calls import COMMIT, ENDS, SNAPSHOT, START, RemoteCall, calls_at
from coordinator.remote.client import BYTES, JSON
from txaware.client.calls.call import Call, HttpAnswer, error_of
from txaware.client.transport import Transport
from txaware.protocol.verb import Repeat

# A commit that is marked as a repeat, which is answered truly however often it comes.
# What it carries comes behind, and may be large.
_REPEAT = re.compile(
    rb'\{"type": ?"[a-z]+", ?("checkpoints": ?\[[0-9, ]*\], ?)?"repeat": ?true[,}]'
)


def coordinator_call(method: str, path: str, body: bytes) -> Call[tuple[int, bytes]]:
    """Returns one of these calls; status and body are for the coordinator to read."""
    call = calls_at(path.partition("?")[0])[0][method]
    is_again = call.harmless or (call in _BY_BODY and _BY_BODY[call](body))
    repeat = Repeat.HARMLESS if is_again else Repeat.NEVER
    accept = BYTES if call in (START, SNAPSHOT) else JSON
    return Call(
        method,
        path,
        _status_and_body,
        body,
        repeat=repeat,
        accept=accept.encode(),
        longer_s=json.loads(body)["waitMs"] / 1000 if call is ENDS else 0,
    )


class CoordinatorSend:
    """The function that a `RemoteCoordinator` sends with, over a client's connections.

    A call that got no answer is `Unavailable`, as everywhere.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return self._transport.perform(coordinator_call(method, path, body))

    def __repr__(self) -> str:
        return f"<CoordinatorSend by {self._transport!r}>"


def _status_and_body(answer: HttpAnswer) -> tuple[int, bytes]:
    if answer.status >= 400:
        error = error_of(answer)
        if not hasattr(errors, type(error).__name__):  # no coordinator raises it
            raise error
    return answer.status, answer.body


# Those that may be made twice where their body says so. A short transaction that nobody
# knows of ends by itself, and has written nothing.
_BY_BODY: dict[RemoteCall, Callable[[bytes], bool]] = {
    COMMIT: lambda body: _REPEAT.match(body) is not None,
    START: lambda body: json.loads(body or b"{}").get("type") == "short",
}
