"""Bodies to values and back: JSON, `avro/binary`, and two of Avro of ours."""

from txaware.http.formats.media_types import format_of
from txaware.http.wire.avro_format import AVRO, COLUMNS, OWN
from txaware.http.wire.columnar import (
    ColumnarPage,
    ColumnarWriter,
    Piece,
    decode_columnar_page,
)
from txaware.http.wire.interfaces import Format, PageWriter
from txaware.http.wire.json_format import JSON
from txaware.http.wire.own_client import (
    decode_page,
    decode_publish_response,
    decode_receipt,
    encode_poll,
    encode_publish,
    encode_rollback,
)
from txaware.http.wire.requests import MAX_MESSAGES, PollRequest, PublishRequest
from txaware.http.wire.schemas import schemas
from txaware.store.encoded import encode_item, long_bytes

__all__ = [
    "AVRO",
    "COLUMNS",
    "JSON",
    "MAX_MESSAGES",
    "OWN",
    "ColumnarPage",
    "ColumnarWriter",
    "Format",
    "PageWriter",
    "Piece",
    "PollRequest",
    "PublishRequest",
    "decode_columnar_page",
    "decode_page",
    "decode_publish_response",
    "decode_receipt",
    "encode_item",
    "encode_poll",
    "encode_publish",
    "encode_rollback",
    "format_of",
    "long_bytes",
    "schemas",
]
