"""The conditions of a search for messages, and their checks."""

from collections.abc import Mapping
from typing import Self

import attrs

from txaware.errors import BadRequest
from txaware.model.requests import MAX_TIME_MS

# One call finds so many messages at most.
MOST_FOUND = 10_000


@attrs.frozen
class Search:
    """The conditions that a message has to meet; None is no condition.

    `header` names one that it has, with `header_value` if that is said; that alone is
    the value of any. `text` stands somewhere in its payload, letters of A to Z as
    capitals or not. It was published before `until`, a time in ms.
    """

    key: bytes | None = None
    header: str | None = None
    header_value: bytes | None = None
    text: str | None = None
    until: int | None = None
    _folded: bytes | None = attrs.field(init=False)

    @_folded.default
    def _fold(self) -> bytes | None:
        return None if self.text is None else self.text.encode().lower()

    @classmethod
    def checked(
        cls,
        key: object,
        header: object,
        header_value: object,
        text: object,
        until: object,
    ) -> Self:
        """Returns a search for these; raises `BadRequest` for what cannot be."""
        return cls(
            checked_sought_bytes("key", key),
            checked_sought_text("header", header),
            checked_sought_bytes("header_value", header_value),
            checked_sought_text("text", text),
            checked_until(until),
        )

    def fits(
        self, key: bytes | None, headers: Mapping[str, bytes], payload: bytes
    ) -> bool:
        """Tells whether a message meets all but `until`, which is about its time."""
        if self.key is not None and key != self.key:
            return False
        if not self._fits_headers(headers):
            return False
        return self._folded is None or self._folded in payload.lower()

    def _fits_headers(self, headers: Mapping[str, bytes]) -> bool:
        if self.header is not None:
            value = headers.get(self.header)
            return value is not None and self.header_value in (None, value)
        return self.header_value is None or self.header_value in headers.values()


def checked_sought_bytes(name: str, value: object) -> bytes | None:
    """Returns bytes that are searched for, or None; else a `BadRequest`."""
    if value is not None and not isinstance(value, bytes):
        raise BadRequest(f"{name} is bytes, not {value!r:.100}")
    return value


def checked_sought_text(name: str, value: object) -> str | None:
    """Returns a text that is searched for, or None; else a `BadRequest`."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} is a text, not {value!r:.100}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} is no text: {value!r:.100}") from error
    return value


def checked_until(until: object) -> int | None:
    """Returns the time in ms before which a search ends, or None."""
    if until is None:
        return None
    if isinstance(until, bool) or not isinstance(until, int):
        raise BadRequest(f"until is a time in ms, not {until!r:.100}")
    if not 0 <= until <= MAX_TIME_MS:
        raise BadRequest(f"until is a time from 0 to {MAX_TIME_MS} ms, not {until}")
    return until
