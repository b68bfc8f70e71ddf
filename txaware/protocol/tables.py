"""The verbs of users' tables: their rows as a snapshot sees them, and their changes."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import attrs
from msgspec import Struct

from coordinator.transaction import Transaction
from txaware.model.requests import MAX_TIME_MS
from txaware.model.rows import (
    RowChange,
    Rows,
    checked_changes_of_rows,
    checked_key,
    checked_keys_of_rows,
    checked_row_limit,
)
from txaware.model.table_service import TableService
from txaware.protocol import places
from txaware.protocol.fields import (
    POINTER,
    SEEN_BY,
    Body,
    Field,
    Kind,
    array_of,
    by,
    long,
    plain,
)
from txaware.protocol.formats.msgpack_format import MSGPACK_TYPE, read_changes
from txaware.protocol.json_schema import BASE64, array, fields, or_null
from txaware.protocol.json_values import (
    expire_after_ms,
    expire_after_s,
    from_base64,
    load,
)
from txaware.protocol.rights import on_table, to_list
from txaware.protocol.shape import Binary
from txaware.protocol.values import structured
from txaware.protocol.verb import Form, In, Repeat, Verb, Work, verbs_in

TABLES = "/v1/namespaces/{namespace}/tables"
TABLE = TABLES + "/{table}"
TAG = "tables"

_BYTES = Kind(from_base64, BASE64, given=by(checked_key))
_EXPIRY = Field("expireAfterMs", long(1, MAX_TIME_MS // 2).or_null(), default=None)
_CHANGE = Body(
    "a change", (Field("key", _BYTES), Field("value", _BYTES.or_null()), _EXPIRY)
)


def _read_change(value: object, *, what: str) -> RowChange:
    sent = _CHANGE.read(value, what=what)
    return RowChange(sent["key"], sent["value"], expire_after_s(sent["expireAfterMs"]))


def change_fields(change: RowChange) -> dict[str, Any]:
    """Returns a change as a body has it."""
    return {
        "key": change.key,
        "value": change.value,
        "expireAfterMs": expire_after_ms(change.expire_after_s),
    }


def _read_saved(body: bytes) -> dict[str, Any]:
    pointer, changes = read_changes(body)
    return {"transaction": pointer, "changes": changes}


def _listed(check: Callable[[Any], list[Any]], kind: Kind) -> Kind:
    return attrs.evolve(array_of(kind), given=by(check))


CHANGES = _listed(
    checked_changes_of_rows, Kind(_read_change, _CHANGE.schema, write=change_fields)
)
_KEYS = _listed(checked_keys_of_rows, _BYTES)


def _shown_rows(page: Rows) -> dict[str, Any]:
    return {"rows": [[key, value] for key, value in page.rows], "next": page.next}


def _read_rows(_: Any, value: Any) -> Rows:
    sent = structured(dict[str, Any], value)
    rows = structured(list[list[bytes]], sent["rows"])
    return Rows(
        [(key, value) for key, value in rows],
        structured(bytes | None, sent["next"]),  # type: ignore[arg-type]
    )


_ROWS = Form(
    _shown_rows,
    _read_rows,
    fields(
        {
            "rows": array(array(BASE64, minItems=2, maxItems=2)),
            "next": or_null(BASE64),
        }
    ),
)


class OfTable(Struct, forbid_unknown_fields=True):
    """Names a table."""

    table: Annotated[str, places.TABLE]


class GetRow(OfTable, forbid_unknown_fields=True):
    """Names a row, and what sees it."""

    key: Annotated[bytes, _BYTES]
    transaction: Annotated[Transaction | None, SEEN_BY] = None


class ScanRows(OfTable, forbid_unknown_fields=True):
    """Says which rows, and what sees them."""

    prefix: Annotated[bytes, _BYTES] = b""
    start: Annotated[bytes | None, _BYTES.or_null()] = None
    stop: Annotated[bytes | None, _BYTES.or_null()] = None
    limit: Annotated[
        int | None, attrs.evolve(plain(), given=by(checked_row_limit)).or_null()
    ] = None
    transaction: Annotated[Transaction | None, SEEN_BY] = None


class SaveRows(OfTable, forbid_unknown_fields=True):
    """Says what a transaction changes."""

    transaction: Annotated[int, POINTER]
    changes: Annotated[Iterable[RowChange], CHANGES]


class TakeBackRows(OfTable, forbid_unknown_fields=True):
    """Says what a transaction takes back."""

    transaction: Annotated[int, POINTER]
    keys: Annotated[Iterable[bytes], _KEYS]


LIST_TABLES = Verb(
    does=TableService.tables,
    method="GET",
    path=TABLES,
    number=43,
    request=places.InNamespace,
    answer=list[str],
    right=to_list,
    summary="The tables of a namespace that have rows and that the caller may see.",
    tag=TAG,
    spaced=True,
)
GET_ROW = Verb(
    does=TableService.get_row,
    method="POST",
    path=TABLE + "/get",
    number=44,
    request=GetRow,
    answer=In("value", Annotated[bytes | None, or_null(BASE64)]),
    right=on_table("consume"),
    work=Work.SEEN,
    summary="The value of a key, as a transaction or a fresh snapshot sees it.",
    tag=TAG,
    example={"key": "YW5u"},
    load=load,
)
SCAN_ROWS = Verb(
    does=TableService.scan_rows,
    method="POST",
    path=TABLE + "/scan",
    number=45,
    request=ScanRows,
    needs_body=True,
    answer=_ROWS,
    right=on_table("consume"),
    work=Work.SEEN,
    summary="Rows in the order of keys, and the key where the next ones begin.",
    tag=TAG,
    example={"prefix": "YQ==", "limit": 10},
    load=load,
    spaced=True,
)
SAVE_ROWS = Verb(
    does=TableService.save_rows,
    method="POST",
    path=TABLE + "/save",
    number=46,
    request=SaveRows,
    binary=Binary(MSGPACK_TYPE, _read_saved, "RowChanges"),
    right=on_table("publish"),
    repeat=Repeat.KEYED,
    summary="Changes rows with the commit of a transaction; null deletes.",
    tag=TAG,
    example={"transaction": 5, "changes": [{"key": "YW5u", "value": "NQ=="}]},
    refuses=(409,),
    load=load,
)
TAKE_BACK_ROWS = Verb(
    does=TableService.take_back_rows,
    method="POST",
    path=TABLE + "/take-back",
    number=47,
    request=TakeBackRows,
    right=on_table("publish"),
    repeat=Repeat.KEYED,
    summary="Takes back what a transaction changed of these rows.",
    tag=TAG,
    example={"transaction": 5, "keys": ["YW5u"]},
    refuses=(409,),
    load=load,
)

VERBS = verbs_in(globals())
