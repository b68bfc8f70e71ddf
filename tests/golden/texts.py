"""Requests and answers as text: whole, byte for byte, and easy to read."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tests.support.http_raw import Response

WIDTH = 88
NOT_RECORDED = frozenset(
    # What varies, or says nothing that the body does not.
    ("date", "txaware-instance", "content-length", "transfer-encoding")
)
COMPACT, SPACED = (",", ":"), (", ", ": ")


def request_lines(
    method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> Iterator[str]:
    """Yields the lines of a request."""
    yield f"> {method} {path}"
    for name, value in headers.items():
        yield f"> {name}: {value}"
    if body is not None:
        yield from _body("> ", body)


def answer_lines(answer: Response) -> Iterator[str]:
    """Yields the lines of an answer."""
    yield f"< {answer.status}"
    for name, value in answer.headers.items():
        if name not in NOT_RECORDED:
            yield f"< {name}: {value}"
    if answer.body:
        yield from _body("< ", answer.body)


def one_line(answer: Response) -> str:
    """Writes an answer in a line; a refusal as its name and sentence."""
    extra = "".join(
        f" [{name}: {value}]"
        for name, value in answer.headers.items()
        if name not in NOT_RECORDED
        and (name, value) != ("content-type", "application/json")
    )
    return f"{answer.status}{extra}{_said(answer)}"


def _said(answer: Response) -> str:
    if not answer.body:
        return ""
    text = _readable(answer.body)
    if text is None:
        return f" hex {answer.body.hex()}"
    try:
        error, message = json.loads(text).values()
    except (ValueError, AttributeError):
        return f" {text}"
    if json.dumps({"error": error, "message": message}) != text:
        return f" {text}"
    return f" {error}: {message.encode('unicode_escape').decode()}"


def _body(mark: str, body: bytes) -> Iterator[str]:
    text = _readable(body)
    if text is None:
        yield f"{mark}(hex)"
        digits = body.hex()
        for place in range(0, len(digits), WIDTH - 8):
            yield mark + digits[place : place + WIDTH - 8]
        return
    if len(text) <= WIDTH:
        yield mark.rstrip()
        yield mark + text
        return
    laid_out = _laid_out(text)
    if laid_out is None:
        yield mark.rstrip()
        yield mark + text
        return
    says, lines = laid_out
    yield f"{mark}({says})"
    for line in lines:
        yield mark + line


def _readable(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _laid_out(text: str) -> tuple[str, Iterator[str]] | None:
    """Lays JSON out in lines; None where it would not be the same bytes again."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for says, separators in (("one line", SPACED), ("no spaces", COMPACT)):
        for ascii_only in (True, False):
            write = partial(json.dumps, separators=separators, ensure_ascii=ascii_only)
            if write(value) == text:
                return says, _lines(value, "", "", write, separators[1])
    return None


def _lines(
    value: Any, indent: str, before: str, write: Callable[[Any], str], colon: str
) -> Iterator[str]:
    """Yields lines that are the text again when they are joined without indentation."""
    line = write(value)
    if len(indent) + len(before) + len(line) < WIDTH or not (
        value and isinstance(value, dict | list)
    ):
        yield f"{indent}{before}{line}"
        return
    pairs = (
        [(write(name) + colon, each) for name, each in value.items()]
        if isinstance(value, dict)
        else [("", each) for each in value]
    )
    yield f"{indent}{before}{line[0]}"
    for place, (name, each) in enumerate(pairs, 1):
        *first, last = _lines(each, indent + "  ", name, write, colon)
        yield from first
        yield last + ("," if place < len(pairs) else "")
    yield indent + line[-1]
