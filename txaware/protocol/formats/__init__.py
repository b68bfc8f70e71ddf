"""Bodies to values and back: JSON, `avro/binary`, and the msgpack of our client."""

import re

from txaware import errors
from txaware.model.requests import MAX_MESSAGES
from txaware.protocol.formats.avro_format import AVRO, schemas
from txaware.protocol.formats.columns import ColumnarPage, ColumnPiece
from txaware.protocol.formats.interfaces import Format, PageWriter
from txaware.protocol.formats.json_format import JSON
from txaware.protocol.formats.msgpack_format import (
    MSGPACK,
    ColumnarWriter,
    decode_columnar_page,
    decode_ids,
    decode_page,
    decode_publish_response,
    decode_receipt,
    encode_changes,
    encode_once,
    encode_poll,
    encode_publish,
    encode_rollback,
)
from txaware.protocol.formats.requests import (
    Listed,
    OnceRequest,
    PollRequest,
    PublishRequest,
)

# Begins the error of a type that is not known; a client of a later version reads it.
WRONG_TYPE = "the Content-Type is "
_FORMATS = (AVRO, MSGPACK)
_JSON = re.compile(
    rf'{re.escape(JSON.media_type)}\s*(?:;\s*charset\s*=\s*(?:utf-8|"utf-8")\s*)?',
    re.IGNORECASE | re.ASCII,
)
# Types that older clients sent, in versions.
_OLDER = re.compile(r"application/vnd\.txaware\b[a-z0-9.]*\+avro")


def format_of(content_type: str | None) -> Format:
    """Returns the format of a body; all but JSON are named exactly, no parameters."""
    for format_ in _FORMATS:
        if content_type == format_.media_type:
            return format_
    if content_type is not None and _JSON.fullmatch(content_type.strip()):
        return JSON
    if content_type is not None and _OLDER.fullmatch(content_type):
        raise errors.BadRequest(
            f"the client is older than this server, which no longer reads "
            f"{content_type}; upgrade the client, or send {JSON.media_type}"
        )
    raise errors.BadRequest(
        f"{WRONG_TYPE}{', '.join(one.media_type for one in _FORMATS)} or "
        f"{JSON.media_type}, not {_shown(content_type)}"
    )


def _shown(content_type: str | None) -> str:
    return "missing" if content_type is None else f"{content_type[:80]!r}"


__all__ = [
    "AVRO",
    "JSON",
    "MAX_MESSAGES",
    "MSGPACK",
    "WRONG_TYPE",
    "ColumnPiece",
    "ColumnarPage",
    "ColumnarWriter",
    "Format",
    "Listed",
    "OnceRequest",
    "PageWriter",
    "PollRequest",
    "PublishRequest",
    "decode_columnar_page",
    "decode_ids",
    "decode_page",
    "decode_publish_response",
    "decode_receipt",
    "encode_changes",
    "encode_once",
    "encode_poll",
    "encode_publish",
    "encode_rollback",
    "format_of",
    "schemas",
]
