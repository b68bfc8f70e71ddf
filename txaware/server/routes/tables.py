"""Routes of users' tables: their rows as a snapshot sees them, and their changes."""

from functools import partial
from typing import Any

from coordinator.transaction import Transaction
from txaware.model.requests import MAX_TIME_MS
from txaware.model.rows import RowChange
from txaware.protocol.fields import (
    SNAPSHOT,
    Body,
    Field,
    Kind,
    array_of,
    long,
    plain,
)
from txaware.protocol.formats.row_changes import expire_after_s, read_changes
from txaware.protocol.formats.schemas import OWN_TYPE
from txaware.protocol.json_schema import BASE64
from txaware.protocol.json_values import Fields, from_base64, load, to_base64
from txaware.protocol.rights import on_table, to_list
from txaware.server.exchange import DONE, Reply, Request, json_reply
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext

TABLES = "/v1/namespaces/{namespace}/tables"
TABLE = TABLES + "/{table}"


_BYTES = Kind(from_base64, BASE64)
_SNAPSHOT = Field("transaction", SNAPSHOT.or_null(), default=None)
_POINTER = Field("transaction", plain(1))
_EXPIRY = Field("expireAfterMs", long(1, MAX_TIME_MS // 2).or_null(), default=None)
CHANGES = array_of(
    Body("a change", (Field("key", _BYTES), Field("value", _BYTES.or_null()), _EXPIRY))
)

GET = Body("the body", (Field("key", _BYTES), _SNAPSHOT))
SCAN = Body(
    "the body",
    (
        Field("prefix", _BYTES, default=b""),
        Field("start", _BYTES.or_null(), default=None),
        Field("stop", _BYTES.or_null(), default=None),
        Field("limit", plain().or_null(), default=None),
        _SNAPSHOT,
    ),
)
SAVE = Body("the body", (_POINTER, Field("changes", CHANGES)))
TAKE_BACK = Body("the body", (_POINTER, Field("keys", array_of(_BYTES))))


class TableRoutes:
    """Routes of tables; bytes are base64 in them."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._tables = server_context.tables

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        reads, writes = on_table("consume"), on_table("publish")
        return [
            Route("GET", TABLES, self._names, to_list),
            Route("POST", TABLE + "/get", self._get, reads),
            Route("POST", TABLE + "/scan", self._scan, reads),
            Route("POST", TABLE + "/save", self._save, writes, keyed=True),
            Route("POST", TABLE + "/take-back", self._take_back, writes, keyed=True),
        ]

    async def _names(self, request: Request) -> Reply:
        namespace, principal = request.params["namespace"], request.principal
        names = await self._server_context.in_thread(self._tables.tables, namespace)
        return json_reply(
            [name for name in names if principal.may_see_table(namespace, name)]
        )

    async def _get(self, request: Request) -> Reply:
        asked = GET.read(load(request.body))
        value = await self._look(partial(self._tables.get_row, _name(request)), asked)
        return json_reply({"value": None if value is None else to_base64(value)})

    async def _scan(self, request: Request) -> Reply:
        asked = SCAN.read(load(request.body))
        page = await self._look(partial(self._tables.scan_rows, _name(request)), asked)
        return json_reply(
            {
                "rows": [
                    [to_base64(key), to_base64(value)] for key, value in page.rows
                ],
                "next": None if page.next is None else to_base64(page.next),
            }
        )

    async def _look(self, look: Any, asked: Fields) -> Any:
        """Looks in a thread; a fresh snapshot is asked of the coordinator."""
        self._server_context.answers.require_room()
        if asked["transaction"] is None:
            return await self._server_context.in_coordinator_thread(look, **asked)
        return await self._server_context.in_thread(look, **asked)

    async def _save(self, request: Request) -> Reply:
        if request.content_type == OWN_TYPE:
            pointer, changes = read_changes(request.body)
        else:
            asked = SAVE.read(load(request.body))
            pointer, changes = (
                asked["transaction"],
                [*map(row_change, asked["changes"])],
            )
        return await self._write(self._tables.save_rows, request, pointer, changes)

    async def _take_back(self, request: Request) -> Reply:
        asked = TAKE_BACK.read(load(request.body))
        return await self._write(
            self._tables.take_back_rows, request, asked["transaction"], asked["keys"]
        )

    async def _write(
        self, write: Any, request: Request, pointer: int, rows: list[Any]
    ) -> Reply:
        self._server_context.owners.used((pointer,), request.principal)
        await self._server_context.in_thread(
            write, _name(request), rows, transaction=Transaction(pointer, 0)
        )
        return DONE


def row_change(fields: Fields) -> RowChange:
    """Returns one of `CHANGES` as a table takes it."""
    return RowChange(
        fields["key"], fields["value"], expire_after_s(fields["expireAfterMs"])
    )


def _name(request: Request) -> str:
    return f"{request.params['namespace']}:{request.params['table']}"
