"""The verbs about users' tables as calls: pure, for a transport that waits."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from coordinator.transaction import Transaction
from txaware.client.calls.call import (
    Call,
    Steps,
    done,
    json_body,
    reading,
    reading_field,
    reading_json,
)
from txaware.client.calls.server_calls import ServerCalls
from txaware.errors import RequestTooLarge
from txaware.model.interfaces import Pointer
from txaware.model.requests import checked_pointer
from txaware.model.rows import (
    RowChange,
    Rows,
    checked_key,
    checked_range,
    checked_row_limit,
)
from txaware.model.topics import TableName, checked_namespace
from txaware.protocol.fields import encoded_transaction
from txaware.protocol.formats import MAX_MESSAGES
from txaware.protocol.formats.row_changes import encode_changes, expire_after_ms
from txaware.protocol.formats.schemas import OWN_TYPE
from txaware.protocol.values import read_json
from txaware.protocol.verb import Repeat

_names = reading_json(list[str])


# A change of a row has about so many bytes in JSON beside its key and its value.
CHANGE_BYTES = 100
# What is no change in a body of JSON.
_BESIDE_BYTES = 100


def json_bytes(change: RowChange) -> int:
    """Returns the most bytes that a change has in JSON."""
    size_bytes = len(change.key) + len(change.value or b"")
    return CHANGE_BYTES + size_bytes + size_bytes // 3


def _pieces(
    changes: Iterable[RowChange], limit_bytes: int
) -> Iterator[list[RowChange]]:
    """Yields changes in pieces below a limit, unless for a single large one."""
    piece, room_bytes = list[RowChange](), limit_bytes
    for change in changes:
        size_bytes = json_bytes(change)
        if piece and (size_bytes > room_bytes or len(piece) == _MOST_ROWS):
            yield piece
            piece, room_bytes = [], limit_bytes
        piece.append(change)
        room_bytes -= size_bytes
    if piece:
        yield piece


_MOST_ROWS = MAX_MESSAGES // 2


class TableCalls(ServerCalls):
    """Verbs that yield their calls."""

    def tables(self, namespace: str = "default") -> Steps[list[str]]:
        """Asks for the names of a namespace's tables that have rows."""
        path = f"/v1/namespaces/{checked_namespace(namespace)}/tables"
        found: list[str] = yield Call("GET", path, _names)
        return found

    def get_row(
        self, table: str, key: bytes, *, transaction: Transaction | None = None
    ) -> Steps[bytes | None]:
        """Asks for the value of a key."""
        body = json_body(key=_text(checked_key(key)), **_seen_by(transaction))
        found: bytes | None = yield Call("POST", _path(table) + "/get", _value, body)
        return found

    def scan_rows(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        stop: bytes | None = None,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> Steps[Rows]:
        """Asks for some rows in the order of keys."""
        keys = checked_range(prefix, start, stop)
        body = json_body(
            prefix=_text(keys.prefix),
            start=_text_or_none(keys.start),
            stop=_text_or_none(keys.stop),
            limit=checked_row_limit(limit),
            **_seen_by(transaction),
        )
        found: Rows = yield Call("POST", _path(table) + "/scan", _rows, body)
        return found

    def save_rows(
        self, table: str, changes: Iterable[RowChange], *, transaction: Pointer
    ) -> Steps[None]:
        """Writes changes that become visible with the commit of the transaction.

        A repeat writes the same versions again. They go in one request, all or none:
        more than that takes are refused, and `cut_rows` makes several calls of them.
        """
        pointer, listed = checked_pointer(transaction), list(changes)
        info = yield from self.info()
        kind = b"application/json"
        if _BESIDE_BYTES + sum(map(json_bytes, listed)) <= info.request_bytes:
            body = json_body(transaction=pointer, changes=[*map(change_fields, listed)])
        else:
            kind = OWN_TYPE.encode()
            body = encode_changes(pointer, listed)
        if len(body) > info.request_bytes or len(listed) > MAX_MESSAGES:
            raise RequestTooLarge(
                f"{len(listed)} changes of rows in a request of {len(body)} bytes are "
                f"above the limit of {MAX_MESSAGES} changes and {info.request_bytes} "
                f"bytes; cut_rows() makes several of them"
            )
        path = _path(table) + "/save"
        yield Call("POST", path, done, body, kind, repeat=Repeat.KEYED)

    def cut_rows(self, changes: Iterable[RowChange]) -> Steps[list[list[RowChange]]]:
        """Returns changes in pieces that each fit into a request.

        They have half of what the server takes at most, as those of messages.
        """
        info = yield from self.info()
        return [*_pieces(changes, info.request_bytes // 2)]

    def take_back_rows(
        self, table: str, keys: Iterable[bytes], *, transaction: Pointer
    ) -> Steps[None]:
        """Takes back what the transaction wrote of these keys."""
        body = json_body(
            transaction=checked_pointer(transaction),
            keys=[_text(checked_key(key)) for key in keys],
        )
        yield Call("POST", _path(table) + "/take-back", done, body, repeat=Repeat.KEYED)


def change_fields(change: RowChange) -> dict[str, Any]:
    """Returns a change as a body has it."""
    return {
        "key": _text(change.key),
        "value": _text_or_none(change.value),
        "expireAfterMs": expire_after_ms(change),
    }


def _path(table: str) -> str:
    name = TableName.parse(table)
    return f"/v1/namespaces/{name.namespace}/tables/{name.name}"


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _text_or_none(data: bytes | None) -> str | None:
    return None if data is None else _text(data)


def _bytes(text: Any) -> bytes:
    return b64decode(text, validate=True)


def _seen_by(transaction: Transaction | None) -> dict[str, str]:
    if transaction is None:
        return {}
    return {"transaction": encoded_transaction(transaction)}


_value = reading_field("value", lambda text: None if text is None else _bytes(text))


def _rows_of(body: bytes) -> Rows:
    answered = read_json(body)
    rows = [(_bytes(key), _bytes(value)) for key, value in answered["rows"]]
    following = answered["next"]
    return Rows(rows, None if following is None else _bytes(following))


_rows = reading(_rows_of)
