"""LevelDB's MANIFEST file, whose end is cut off if a power cut left it unusable.

LevelDB syncs each record of the file before it relies on it, so a power cut tears the
last record at most. LevelDB itself leaves out a record that is cut short, but not one
that is filled with zeros. It writes a record before it syncs the names of the table
files in it, so that a cut may also leave a record without its files. And it does not
sync the first MANIFEST of a new database.
"""

import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from coordinator.private_directory import sync_directory

log = logging.getLogger(__name__)

BLOCK_BYTES, HEADER_BYTES = 32_768, 7
# The kinds of physical records: a whole record, or a part of one that spans blocks.
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_HEADER = struct.Struct("<IHB")
# The fields of a record: each has a number in front.
_COMPARATOR, _LOG, _COMPACT, _DELETED, _NEW, _EARLIER_LOG = 1, 2, 5, 6, 7, 9
_NUMBERS = (_LOG, 3, 4, _EARLIER_LOG)


def cut_torn_end(directory: Path) -> bool:
    """Cuts off a last record that is damaged, or that names a table file not there.

    The file as it was is kept beside it. Answers False, and changes nothing, if the
    end is sound or a whole record follows the damage. The same if LevelDB already
    relied on that record: then the log that the earlier records name is gone.
    """
    try:
        name = (directory / "CURRENT").read_text().strip()
        path = directory / name
        data = path.read_bytes()
    except (OSError, UnicodeDecodeError):
        return False
    records = list(_records(data))
    end = records[-1][1] if records else 0
    if not end or _holds_record(data, end):
        return False
    try:
        if not any(data[end:]):
            if len(records) < 2 or not _lacks_table(records.pop()[0], directory):
                return False
            end = records[-1][1]
        number = _log_number([record for record, _ in records])
    except (IndexError, ValueError):
        return False
    if number and not (directory / f"{number:06}.log").exists():
        return False
    _replace(path, data, end)
    log.warning(
        "%s had an end of %s bytes, as a power cut leaves it, which was cut off; "
        "the file as it was is %s.torn",
        path,
        len(data) - end,
        name,
    )
    return True


def remove_unborn(directory: Path) -> bool:
    """Removes the name of a MANIFEST without a record, so that a new one is made.

    Answers False, and changes nothing, if the database may have had anything: a table
    file, or a log that is not empty.
    """
    try:
        name = (directory / "CURRENT").read_text().strip()
        if any(_records((directory / name).read_bytes())):
            return False
        paths = list(directory.iterdir())
    except (OSError, UnicodeDecodeError):
        return False
    if any(
        path.suffix in (".ldb", ".sst") or (path.suffix == ".log" and _size(path))
        for path in paths
    ):
        return False
    (directory / "CURRENT").unlink()
    log.warning("%s was about to be made when the power was cut, and had no row", name)
    return True


def _size(path: Path) -> int:
    return path.stat().st_size


def _replace(path: Path, data: bytes, end: int) -> None:
    for target, content in (
        (path.with_name(f"{path.name}.torn"), data),
        (path.with_name(f"{path.name}.cut"), data[:end]),
    ):
        with target.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    os.replace(path.with_name(f"{path.name}.cut"), path)
    sync_directory(path.parent)


def _records(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Reads whole records, with the end of each, from the start to the first damage."""
    at, parts = 0, b""
    while at + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        body = _body(data, at)
        if body is None:
            return
        kind, at = data[at + 6], at + HEADER_BYTES + len(body)
        if (kind in (FULL, FIRST)) == bool(parts):
            return
        parts += body
        if kind in (FULL, LAST):
            yield parts, at
            parts = b""


def _body(data: bytes, at: int) -> bytes | None:
    """Returns the bytes of the physical record at `at`; None if none is whole there."""
    check, size, kind = _HEADER.unpack_from(data, at)
    end = at + HEADER_BYTES + size
    if kind not in (FULL, FIRST, MIDDLE, LAST) or not size or end > len(data):
        return None
    if HEADER_BYTES + size > BLOCK_BYTES - at % BLOCK_BYTES:
        return None
    if _masked_crc(data, at + 6, end) != check:
        return None
    return data[at + HEADER_BYTES : end]


def _holds_record(data: bytes, start: int) -> bool:
    """Tells whether a whole physical record begins anywhere from `start` on."""
    last = len(data) - HEADER_BYTES
    return any(
        _body(data, at) is not None
        for at in range(start, last + 1)
        if data[at + 6] in (FULL, FIRST, MIDDLE, LAST)
    )


def _log_number(records: list[bytes]) -> int:
    """Returns the number of the oldest log still needed; 0 if none was named."""
    number = earlier = 0
    for record in records:
        for field, value in _fields(record):
            if field == _LOG:
                number = value
            elif field == _EARLIER_LOG:
                earlier = value
    return earlier or number


def _lacks_table(record: bytes, directory: Path) -> bool:
    """Tells whether a table file that a record adds is not there."""
    return any(
        not any((directory / f"{number:06}.{end}").exists() for end in ("ldb", "sst"))
        for field, number in _fields(record)
        if field == _NEW
    )


def _fields(record: bytes) -> Iterator[tuple[int, int]]:
    """Reads the numbers that a record sets, and those of the files that it adds."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = record[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text() -> None:
        nonlocal at
        size = number()
        at += size

    while at < len(record):
        field = number()
        if field in _NUMBERS:
            yield field, number()
        elif field == _COMPARATOR:
            text()
        elif field == _COMPACT:
            number()
            text()
        elif field == _DELETED:
            number()
            number()
        elif field == _NEW:
            number()
            yield field, number()
            number()
            text()
            text()
        else:
            raise ValueError(f"a field {field} is not known")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC = _table()


def _masked_crc(data: bytes, start: int, end: int) -> int:
    """Returns the CRC-32C of a range, as LevelDB writes it."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data[start:end]:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
