"""The calls of a coordinator over HTTP, each declared once, for both of its ends."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import attrs

from coordinator.remote.wire import BYTES, JSON, Fields, to_base64

ROOT = "/v1/transactions"
_PATH = re.compile(
    rf"{ROOT}(?:/(?P<pointer>[0-9]{{1,19}})(?:/(?P<one>[a-z-]*))?"
    rf"|/(?P<all>[a-z-]*)/?)?",
    re.ASCII,
)


@attrs.frozen
class RemoteCall:
    """A call: the end of its path, and the fields that it knows.

    One `of_one` has a transaction's pointer in its path. The fields stand in the body,
    and those of a GET in its query. What is `harmless` may be made again where nobody
    knows whether it was answered. Others are not, unless a field has the value that
    makes them so, `harmless_with`. An answer `in_bytes` is a transaction.
    """

    name: str
    fields: tuple[str, ...] = ()
    method: str = attrs.field(default="POST", kw_only=True)
    of_one: bool = attrs.field(default=False, kw_only=True)
    harmless: bool = attrs.field(default=False, kw_only=True)
    harmless_with: tuple[str, Any] | None = attrs.field(default=None, kw_only=True)
    in_bytes: bool = attrs.field(default=False, kw_only=True)

    def path(self, pointer: object = None) -> str:
        """Returns its path, with a pointer where it has one."""
        words = (ROOT, str(pointer), self.name) if self.of_one else (ROOT, self.name)
        return "/".join(filter(None, words))


@attrs.frozen
class CallRequest:
    """A call that is made: of which transaction, and its fields by their names.

    Bytes among the fields are base64 in JSON.
    """

    call: RemoteCall
    pointer: int | None = None
    fields: Fields = attrs.field(factory=dict)

    @property
    def path(self) -> str:
        """The path, with the query of a GET."""
        path = self.call.path(self.pointer)
        has_query = self.call.method == "GET" and self.fields
        return f"{path}?{urlencode(self.fields)}" if has_query else path

    @property
    def body(self) -> bytes:
        """The body; a GET has none."""
        if self.call.method == "GET":
            return b""
        return json.dumps(self.fields, default=to_base64).encode()

    @property
    def accept(self) -> str:
        """The type of the answer."""
        return BYTES if self.call.in_bytes else JSON

    @property
    def is_harmless(self) -> bool:
        """True where it may be made again, though nobody knows whether it was."""
        name, value = self.call.harmless_with or ("", None)
        return self.call.harmless or (bool(name) and self.fields.get(name) == value)

    def read(self, body: bytes) -> Any:
        """Reads an answer: JSON, or the bytes of a transaction."""
        return body if self.call.in_bytes else json.loads(body or b"{}")


def _look(name: str, *query: str, of_one: bool = False) -> RemoteCall:
    return RemoteCall(name, query, method="GET", of_one=of_one, harmless=True)


def _of_one(name: str, *fields: str, **options: Any) -> RemoteCall:
    named = ("type", "checkpoints", *fields)
    return RemoteCall(name, named, of_one=True, **options)


# A short transaction that nobody knows of ends by itself, and has written nothing.
START = RemoteCall(
    "", ("type", "timeoutS"), harmless_with=("type", "short"), in_bytes=True
)
LIST = _look("", "state")
SNAPSHOT = RemoteCall("snapshot", harmless=True, in_bytes=True)
STATUS, STATE = _look("status"), _look("state")
INVALID_SIZE, FIND_HANGING = _look("invalid-size"), _look("find-hanging", "olderThanS")
TRUNCATE = RemoteCall("truncate", ("beforeMs", "pointers"))
# `transactionId` tells a prepared transaction from a later one of that name.
PREPARED = _look("prepared")
COMMIT_PREPARED = RemoteCall(
    "commit-prepared", ("name", "transactionId"), harmless=True
)
ROLLBACK_PREPARED = attrs.evolve(COMMIT_PREPARED, name="rollback-prepared")
DESCRIBE, OUTCOME = _look("", of_one=True), _look("outcome", "life", of_one=True)
DECIDE = RemoteCall("decide", ("outcome", "life"), of_one=True)
CAN_COMMIT = _of_one("can-commit", "changes", harmless=True)
PERSIST = _of_one("persist", "participants", harmless=True)
# One that is marked as a repeat is answered truly, however often it comes.
COMMIT = _of_one("commit", "check", "changes", "repeat", harmless_with=("repeat", True))
# A commit that begins its transaction, in a slot of the client; and what became of it.
COMMIT_AT_ONCE = RemoteCall(
    "commit",
    ("client", "slot", "number", "life", "repeat", "timeoutS", "openMs"),
    harmless_with=("repeat", True),
)
SETTLE = RemoteCall("settle", ("client", "slot", "number"), harmless=True)
ABORT = _of_one("abort")
# After a second one, the settling of an outcome finds what the first one did.
INVALIDATE = _of_one("invalidate", harmless=True)
CHECKPOINT = _of_one("checkpoint")
PREPARE = _of_one("prepare", "name", harmless=True)
# The barrier of writes at another store. A `writer` is one opening of it, and a `write`
# one of its writes, which it leaves by its number, however often it entered. The shards
# of a store say HELLO once nothing that entered at an earlier server is under way.
ENTER = RemoteCall(
    "enter", ("writer", "write", "principal"), of_one=True, harmless=True
)
HELLO = RemoteCall("hello", ("writer", "shards"), harmless=True)
LEAVE = RemoteCall("leave", ("writer", "writes"), harmless=True)
ENDS = RemoteCall("ends", ("writer", "since", "after", "waitMs"), harmless=True)

CALLS = tuple(one for one in globals().values() if isinstance(one, RemoteCall))


_AT: dict[tuple[bool, str], dict[str, RemoteCall]] = {}
for _one in CALLS:
    _AT.setdefault((_one.of_one, _one.name), {})[_one.method] = _one


def calls_at(path: str) -> tuple[Mapping[str, RemoteCall], int]:
    """Returns the calls at a path by their methods, and the pointer in it, if any."""
    found = _PATH.fullmatch(path)
    if found is None:
        return {}, 0
    pointer, name = found["pointer"], found["one"] or found["all"] or ""
    return _AT.get((pointer is not None, name), {}), int(pointer or 0)
