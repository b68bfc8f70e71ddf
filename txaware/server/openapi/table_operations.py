"""What is described of the routes of tables."""

from txaware.protocol.formats.schemas import OWN_TYPE
from txaware.protocol.json_schema import BASE64, TEXT, array, fields, or_null
from txaware.server.openapi.operation import Operation, in_avro, json_of
from txaware.server.routes.tables import GET, SAVE, SCAN, TABLE, TABLES, TAKE_BACK

_TAG = "tables"
_ROW = array(BASE64, minItems=2, maxItems=2)
_SET_ANN = {"key": "YW5u", "value": "NQ=="}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", TABLES): Operation(
        summary="The tables of a namespace that have rows and that the caller may see.",
        tag=_TAG,
        answer=json_of(array(TEXT)),
    ),
    ("POST", TABLE + "/get"): Operation(
        summary="The value of a key, as a transaction or a fresh snapshot sees it.",
        tag=_TAG,
        body=json_of(GET.schema, example={"key": "YW5u"}),
        answer=json_of(fields({"value": or_null(BASE64)})),
    ),
    ("POST", TABLE + "/scan"): Operation(
        summary="Rows in the order of keys, and the key where the next ones begin.",
        tag=_TAG,
        body=json_of(SCAN.schema, example={"prefix": "YQ==", "limit": 10}),
        answer=json_of(fields({"rows": array(_ROW), "next": or_null(BASE64)})),
    ),
    ("POST", TABLE + "/save"): Operation(
        summary="Changes rows with the commit of a transaction; null deletes.",
        tag=_TAG,
        body=json_of(SAVE.schema, example={"transaction": 5, "changes": [_SET_ANN]})
        | {OWN_TYPE: {"schema": in_avro(OWN_TYPE, "RowChanges")}},
        refuses=(409,),
    ),
    ("POST", TABLE + "/take-back"): Operation(
        summary="Takes back what a transaction changed of these rows.",
        tag=_TAG,
        body=json_of(TAKE_BACK.schema, example={"transaction": 5, "keys": ["YW5u"]}),
        refuses=(409,),
    ),
}
