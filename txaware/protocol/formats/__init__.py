"""Bodies to values and back: JSON, `avro/binary`, and the Avro types of txaware."""

import re

from txaware import errors
from txaware.model.avro_items import encode_item, long_bytes
from txaware.model.requests import MAX_MESSAGES
from txaware.protocol.formats.avro_format import (
    AVRO,
    COLUMNS,
    LABELLED,
    LABELLED_COLUMNS,
    OWN,
    STABLE,
)
from txaware.protocol.formats.columnar import (
    ColumnarPage,
    ColumnarWriter,
    ColumnPiece,
    decode_columnar_page,
    decode_labelled_columns,
)
from txaware.protocol.formats.interfaces import Format, PageWriter
from txaware.protocol.formats.json_format import JSON
from txaware.protocol.formats.own_client import (
    decode_labelled_page,
    decode_page,
    decode_publish_response,
    decode_receipt,
    decode_stable_page,
    encode_poll,
    encode_publish,
    encode_rollback,
)
from txaware.protocol.formats.requests import (
    PollRequest,
    PublishRequest,
    payload_of,
)
from txaware.protocol.formats.schemas import schemas

# Begins the error of a type that is not known; a client of a later version reads it.
WRONG_TYPE = "the Content-Type is "
_AVRO = (AVRO, OWN, COLUMNS, LABELLED, STABLE, LABELLED_COLUMNS)
_JSON = re.compile(
    rf'{re.escape(JSON.media_type)}\s*(?:;\s*charset\s*=\s*(?:utf-8|"utf-8")\s*)?',
    re.IGNORECASE | re.ASCII,
)


def format_of(content_type: str | None) -> Format:
    """Returns the format of a body; Avro types are named exactly, no parameters."""
    for avro in _AVRO:
        if content_type == avro.media_type:
            return avro
    if content_type is not None and _JSON.fullmatch(content_type.strip()):
        return JSON
    raise errors.BadRequest(
        f"{WRONG_TYPE}{', '.join(avro.media_type for avro in _AVRO)} or "
        f"{JSON.media_type}, not {_shown(content_type)}"
    )


def _shown(content_type: str | None) -> str:
    return "missing" if content_type is None else f"{content_type[:80]!r}"


__all__ = [
    "AVRO",
    "COLUMNS",
    "JSON",
    "LABELLED",
    "LABELLED_COLUMNS",
    "MAX_MESSAGES",
    "OWN",
    "STABLE",
    "WRONG_TYPE",
    "ColumnPiece",
    "ColumnarPage",
    "ColumnarWriter",
    "Format",
    "PageWriter",
    "PollRequest",
    "PublishRequest",
    "decode_columnar_page",
    "decode_labelled_columns",
    "decode_labelled_page",
    "decode_page",
    "decode_publish_response",
    "decode_receipt",
    "decode_stable_page",
    "encode_item",
    "encode_poll",
    "encode_publish",
    "encode_rollback",
    "format_of",
    "long_bytes",
    "payload_of",
    "schemas",
]
