"""The fields that a message may have beside its id and its payload, each declared once.

JSON, msgpack, rows, the descriptions, Spark's columns and the command line go through
this list. A key and headers have columns of rows of their own. Any other field has a
`tag`, by which its value lies among the packed headers, in rows and on the way.
"""

from typing import Any

import attrs

from txaware.errors import BadRequest


@attrs.frozen
class MessageField:
    """A field of bytes, or of bytes by name where `is_map`."""

    name: str
    is_map: bool = attrs.field(default=False, kw_only=True)
    tag: bytes | None = attrs.field(default=None, kw_only=True)

    def of(self, message: Any) -> Any:
        """Returns its value in a message; None, or an empty dict, where it has none."""
        if self.tag is None:
            return getattr(message, self.name)
        return getattr(message, "more", {}).get(self.name)


KEY = MessageField("key")
HEADERS = MessageField("headers", is_map=True)
FIELDS: list[MessageField] = [KEY, HEADERS]


def tagged_fields() -> list[MessageField]:
    """Returns the fields that lie among the packed headers."""
    return [field for field in FIELDS if field.tag is not None]


def check_names(values: Any) -> None:
    """Raises `BadRequest` unless these are names of fields with a tag."""
    known = [field.name for field in tagged_fields()]
    for name in values:
        if name not in known:
            raise BadRequest(
                f"messages have no field {name!r:.100}; they have "
                f"{', '.join(field.name for field in FIELDS)}"
            )
