"""Reads JSON strictly: whole numbers, no field twice, none unknown.

Only `BadRequest` comes out, and a body costs a few times its own size at most.
"""

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, NoReturn, TypeVar

import msgspec

from coordinator.remote.wire import shown
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.requests import MAX_MESSAGES, MAX_TIME_MS

# Commas and opening brackets; a message that expires has three of them.
MAX_MARKS = 4 * MAX_MESSAGES
_NEXT_MARK = re.compile(
    # Outside strings, each of which ends somewhere, so that no byte is seen twice.
    rb'[^",{\[]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)[^",{\[]*+)*+(?:([,{\[])|\Z)',
    re.DOTALL,
)
_MOST_DIGITS = 20
LONG_BITS, INT_BITS = 64, 32
_BITS = {"int": INT_BITS, "long": LONG_BITS}

Fields = dict[str, Any]
T = TypeVar("T")


def load(body: bytes) -> object:
    """Returns the one value that the body is."""
    check_marks(body)
    try:
        text = body.decode()
        if text.startswith("\ufeff"):
            raise BadRequest("the body is not JSON in UTF-8: it has a BOM")
        found: object = _DECODER.decode(text)
        return found
    except BadRequest:
        raise
    except RecursionError as error:
        raise BadRequest("the body is nested too deep") from error
    except ValueError as error:
        raise BadRequest(f"the body is not JSON in UTF-8: {error}") from error


_decode = msgspec.json.Decoder().decode


def read_quickly(body: bytes, read: Callable[[object], T]) -> T:
    """Reads the value that a body is: by msgspec, and anew in our words if refused.

    Of a field that stands there twice the last one counts.
    """
    check_marks(body)
    try:
        return read(_decode(body))
    except (msgspec.MsgspecError, ValueError, RecursionError, BadRequest):
        return read(load(body))


def check_marks(body: bytes) -> None:
    """Refuses a body of more values than any needs."""
    rough = body.count(b",") + body.count(b"{") + body.count(b"[")
    if rough > MAX_MARKS and has_marks(body, more_than=MAX_MARKS):
        raise RequestTooLarge(
            f"the body has more than {MAX_MARKS} values; send less at once"
        )


def has_marks(body: bytes, *, more_than: int) -> bool:
    """Tells whether more commas and opening brackets stand outside strings."""
    found = islice(_NEXT_MARK.finditer(body), more_than, None)
    mark = next(found, None)
    return mark is not None and mark[1] is not None


def _object(pairs: list[tuple[str, Any]]) -> Fields:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise BadRequest(
            f"a field stands there twice: {shown(max(counts, key=counts.__getitem__))}"
        )
    return fields


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise BadRequest(f"no number has {len(text)} digits here")
    return int(text)


def _no_fraction(text: str) -> NoReturn:
    raise BadRequest(f"numbers are whole here, not {text:.40}")


# A new one for each body would take as long as the body itself.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_whole,
    parse_float=_no_fraction,
    parse_constant=_no_fraction,
)


def checked_object(value: object, *, what: str) -> Fields:
    """Returns an object."""
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is an object, not {shown(value)}")
    return value


def checked_fields(value: object, *, what: str, known: Collection[str]) -> Fields:
    """Returns an object whose fields are all known."""
    value = checked_object(value, what=what)
    unknown = [field for field in value if field not in known]
    if unknown:
        raise BadRequest(
            f"{what} has a field {shown(unknown[0])}, which is none of "
            f"{', '.join(known)}"
        )
    return value


def untagged(value: object, *, tag: str) -> object:
    """Returns the value of a union, plain or from {tag: value}; null stays null."""
    if isinstance(value, dict) and value.keys() == {tag}:
        if value[tag] is None:
            raise BadRequest(f"null is written plainly, not as a {tag}")
        return value[tag]
    return value


def number(value: object, *, what: str, kind: str = "long") -> int:
    """Returns a whole number of 64 or 32 bits, plain or tagged."""
    whole = untagged(value, tag=kind)
    if isinstance(whole, bool) or not isinstance(whole, int):
        raise BadRequest(f"{what} is a whole number, not {shown(whole)}")
    if not fits(whole, bits=_BITS[kind]):
        raise BadRequest(
            f"{what} is a number of {_BITS[kind]} bits, not {shown(whole)}"
        )
    return whole


def fits(number: int, *, bits: int) -> bool:
    """Tells whether a number fits into that many bits."""
    return -(1 << bits - 1) <= number < 1 << bits - 1


def number_or_none(value: object, *, what: str, kind: str = "long") -> int | None:
    """Returns the same, or None for null."""
    return None if value is None else number(value, what=what, kind=kind)


def flag(value: object, *, what: str) -> bool:
    """Returns a boolean."""
    if not isinstance(value, bool):
        raise BadRequest(f"{what} is true or false, not {shown(value)}")
    return value


def items(value: object, *, what: str) -> list[Any]:
    """Returns an array of no more than MAX_MESSAGES."""
    if not isinstance(value, list):
        raise BadRequest(f"{what} is an array, not {shown(value)}")
    if len(value) > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{what} is an array of {len(value)}, above the limit of {MAX_MESSAGES}; "
            f"send less at once"
        )
    return value


def by_avro_rule(value: object, *, what: str) -> bytes:
    """Reads one byte from each character, up to U+00FF."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string, not {shown(value)}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{what} has one character for each byte, up to U+00FF, and not "
            f'{value[error.start]!a}; write {{"utf8": "..."}} for text, or '
            f'{{"base64": "..."}} for any bytes'
        ) from error


def from_base64(value: object, *, what: str) -> bytes:
    """Reads base64 of the usual alphabet, with its padding and nothing else.

    Of msgpack it takes the bytes themselves.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string of base64, not {shown(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise BadRequest(f"{what} is not base64: {error}") from error


def base64_or_tagged(value: object, *, what: str) -> bytes:
    """Reads base64, or {"bytes": a string by Avro's rule}."""
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return by_avro_rule(value["bytes"], what=what)
    return from_base64(value, what=what)


def from_utf8(value: object, *, what: str) -> bytes:
    """Returns the UTF-8 of a string."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string, not {shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{what} has half of a surrogate pair at character {error.start}"
        ) from error


def camel(name: str) -> str:
    """Returns the name of a field as it travels."""
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def expire_after_ms(after_s: float | None) -> int | None:
    """Returns after how many ms something expires, at least 1; None for never."""
    return None if after_s is None else max(int(after_s * 1000), 1)


def expire_after_s(after_ms: int | None) -> float | None:
    """Returns these ms as a change of a row has them."""
    return None if after_ms is None else after_ms / 1000


def seconds(time_ms: int) -> float:
    """Returns seconds that give these ms again when they are multiplied and cut off."""
    time_s = time_ms / 1000
    return time_s if int(time_s * 1000) >= time_ms else math.nextafter(time_s, math.inf)


def milliseconds(time_s: float) -> int:
    """Returns a time to wait in ms, rounded up; 0 for one below 0."""
    return math.ceil(max(0.0, min(time_s, MAX_TIME_MS / 2000)) * 1000)
