"""The verbs about users' tables as calls: pure, for a transport that waits."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from coordinator.transaction import Transaction
from txaware.http.client.calls.call import (
    Call,
    Repeat,
    Steps,
    done,
    encoded_transaction,
    json_body,
    reading,
    reading_field,
    reading_json,
)
from txaware.http.wire.values import read_json
from txaware.interfaces import Pointer
from txaware.requests import checked_pointer
from txaware.rows import (
    RowChange,
    Rows,
    checked_key,
    checked_range,
    checked_row_limit,
)
from txaware.topics import TableName, checked_namespace

_names = reading_json(list[str])


class TableCalls:
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

        A repeat writes the same versions again.
        """
        pointer = checked_pointer(transaction)
        body = json_body(
            transaction=pointer,
            changes=[*map(change_fields, changes)],
        )
        yield Call("POST", _path(table) + "/save", done, body, repeat=Repeat.KEYED)

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
        "expireAfterMs": _ms(change.expire_after_s),
    }


def _path(table: str) -> str:
    name = TableName.parse(table)
    return f"/v1/namespaces/{name.namespace}/tables/{name.name}"


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _text_or_none(data: bytes | None) -> str | None:
    return None if data is None else _text(data)


def _ms(after_s: float | None) -> int | None:
    return None if after_s is None else max(1, int(after_s * 1000))


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
