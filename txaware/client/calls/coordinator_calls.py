"""The calls of a `RemoteCoordinator`, and which of them may be made again."""

import json
import re

from coordinator import errors
from coordinator.remote.client import BYTES, JSON, ROOT
from txaware.client.calls.call import Call, HttpAnswer, error_of
from txaware.client.transport import Transport
from txaware.protocol.verb import Repeat

# These calls may be made twice. A second `invalidate` answers False, after which the
# settling of an outcome looks at a snapshot, and finds what the first one did.
_HARMLESS = re.compile(
    ROOT + r"/(snapshot|status|invalid-size|state|(commit|rollback)-prepared"
    r"|\d+/(can-commit|persist|prepare|invalidate))"
)
# A commit that is marked as a repeat, which is answered truly however often it comes.
# What it carries comes behind, and may be large.
_REPEAT = re.compile(
    rb'\{"type": ?"[a-z]+", ?("checkpoints": ?\[[0-9, ]*\], ?)?"repeat": ?true[,}]'
)
# These answer a transaction, which travels as bytes.
_TRANSACTIONS = (ROOT, ROOT + "/snapshot")


def coordinator_call(method: str, path: str, body: bytes) -> Call[tuple[int, bytes]]:
    """Returns one of these calls; status and body are for the coordinator to read."""
    repeat = Repeat.HARMLESS if _is_harmless(method, path, body) else Repeat.NEVER
    accept = BYTES if path in _TRANSACTIONS and method == "POST" else JSON
    return Call(
        method, path, _status_and_body, body, repeat=repeat, accept=accept.encode()
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


def _is_harmless(method: str, path: str, body: bytes) -> bool:
    if method == "GET" or _HARMLESS.fullmatch(path):
        return True
    if path.endswith("/commit"):
        return _REPEAT.match(body) is not None
    # A short transaction that nobody knows of ends by itself, and has written nothing.
    return path == ROOT and json.loads(body or b"{}").get("type") == "short"
