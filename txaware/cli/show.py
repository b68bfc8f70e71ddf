"""Printing: aligned columns, times in UTC, payloads as text, and JSON."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from txaware.model.message_fields import FIELDS, KEY
from txaware.model.messages import Message, MessageId, shown_value, text_or_base64
from txaware.model.start_places import BEGINNING

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTHING, GAP, ELLIPSIS = "-", "  ", "\N{HORIZONTAL ELLIPSIS}"
NARROWEST = 8
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def time_text(time_ms: int | None) -> str:
    """Formats `2026-01-31T12:00:00.000Z`; a time beyond the calendar stays in ms."""
    if time_ms is None:
        return NOTHING
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def place_time(position: MessageId | None) -> str | None:
    """Returns the time up to which a group has read; None at the beginning."""
    if position is None or position <= BEGINNING:
        return None
    return time_text(position.publish_time_ms)


def after_text(position: MessageId | None) -> str:
    """Says up to where a group has read."""
    time = place_time(position)
    return "the beginning" if time is None else f"after {time}"


def duration_text(seconds: float) -> str:
    """Formats the two largest units: `7d`, `3h 12m`, `0.4s`."""
    if seconds < 10:
        return f"{round(max(seconds, 0.0), 1):g}s"
    left, parts = int(seconds), []
    for unit, size_s in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size_s)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def size_text(size_bytes: int) -> str:
    """Formats `812 bytes`, `1.5 MiB`."""
    if size_bytes < 1024:
        return counted(size_bytes, "byte")
    power = min((size_bytes.bit_length() - 1) // 10, len(UNITS) - 1)
    return f"{size_bytes / 1024**power:.1f} {UNITS[power]}"


def counted(count: int, noun: str) -> str:
    """Formats `1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def payload_text(payload: bytes) -> str:
    """Formats for a terminal: escapes what is not printable, so one line stays one."""
    text = payload.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def message_json(message: Message) -> dict[str, object]:
    """Returns the fields `id`, `time` and `payload`, and the others that it has."""
    return {
        "id": str(message.id),
        "time": time_text(message.id.publish_time_ms),
        "payload": text_or_base64(message.payload),
        **labels_json(message),
    }


def labels_json(message: Any) -> dict[str, object]:
    """Returns the fields of a message, a row or an item, each where it is there."""
    found = {field.name: field.of(message) for field in FIELDS}
    return {
        name: shown_value(value)
        for name, value in found.items()
        if value is not None and value != {}
    }


def labels_text(message: Any) -> str:
    """Formats `[ann] {source: till 3}`, and `name=value`; nothing for no fields."""
    parts = []
    for field in FIELDS:
        value = field.of(message)
        if isinstance(value, Mapping):
            shown = [
                f"{payload_text(name.encode())}: {payload_text(data)}"
                for name, data in value.items()
            ]
            parts += [f"{{{', '.join(shown)}}}"] if shown else []
        elif value is not None:
            text = payload_text(value)
            parts.append(f"[{text}]" if field is KEY else f"{field.name}={text}")
    return " ".join(parts)


def echo_json(value: object) -> None:
    """Prints one JSON value on a line."""
    click.echo(json.dumps(value))


def echo_columns(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str
) -> None:
    """Prints rows below a header; a column of numbers is aligned on the right.

    In a terminal the widest texts are cut until a line fits; what is read by another
    program has them whole. Without rows it prints only a remark.
    """
    if not rows:
        note(empty)
        return
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [all(isinstance(row[at], int) for row in rows) for at in range(len(header))]
    if sys.stdout.isatty():
        most = shutil.get_terminal_size().columns
        widths = fitting_widths(widths, [*right], most - len(GAP) * (len(widths) - 1))
    for at, row in enumerate(texts):
        cells = [
            text.rjust(width) if numbers else cut(text, width).ljust(width)
            for text, width, numbers in zip(row, widths, right, strict=True)
        ]
        line = GAP.join(cells).rstrip()
        click.echo(line if at else click.style(line, bold=True))


def fitting_widths(widths: list[int], fixed: list[bool], most: int) -> list[int]:
    """Returns the widths of columns that fit together, cut from the widest on.

    Those that are `fixed` stay, and no other becomes narrower than `NARROWEST`.
    """
    fitting = list(widths)
    while sum(fitting) > most:
        widest = max(
            (at for at in range(len(fitting)) if not fixed[at]),
            key=fitting.__getitem__,
            default=None,
        )
        if widest is None or fitting[widest] <= NARROWEST:
            break
        fitting[widest] -= 1
    return fitting


def cut(text: str, width: int) -> str:
    """Returns a text that is no wider; one that was cut ends with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS


def echo_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Prints `name  value`, one below the other."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        click.echo(f"{name.ljust(width)}  {value}".rstrip())


def note(text: str) -> None:
    """Prints a remark on standard error, so that it is never taken for output."""
    click.echo(f"({text})", err=True)
