"""Which format a Content-Type names."""

import re

from txaware.errors import BadRequest
from txaware.http.wire.avro_format import AVRO, COLUMNS, OWN
from txaware.http.wire.interfaces import Format
from txaware.http.wire.json_format import JSON

_JSON = re.compile(
    rf'{re.escape(JSON.media_type)}\s*(?:;\s*charset\s*=\s*(?:utf-8|"utf-8")\s*)?',
    re.IGNORECASE | re.ASCII,
)


def format_of(content_type: str | None) -> Format:
    """The format of a body; those of Avro are named exactly, without parameters."""
    for avro in (AVRO, OWN, COLUMNS):
        if content_type == avro.media_type:
            return avro
    if content_type is not None and _JSON.fullmatch(content_type.strip()):
        return JSON
    raise BadRequest(
        f"the Content-Type is {AVRO.media_type}, {OWN.media_type}, "
        f"{COLUMNS.media_type} or {JSON.media_type}, not {_shown(content_type)}"
    )


def _shown(content_type: str | None) -> str:
    return "missing" if content_type is None else f"{content_type[:80]!r}"
