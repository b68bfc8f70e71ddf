"""The file format of the journal: checked frames, one for each synced batch."""

import struct
import zlib

import attrs

from coordinator.errors import JournalCorrupted

HEADER = b"txaware journal 1\n"
_MARK = b"\xf5txB"
# The mark, a number that counts the frames of the file, the size and a checksum over
# all but the mark.
_FRAME = struct.Struct(">4sQII")
_CHECKED = struct.Struct(">QI")


def frame(number: int, payload: bytes) -> bytes:
    """The payload with all that is needed to tell a whole frame from a torn one."""
    check = _checksum(number, payload)
    return _FRAME.pack(_MARK, number, len(payload), check) + payload


@attrs.frozen
class Frames:
    """The whole frames of a file, and where the last of them ends."""

    payloads: tuple[bytes, ...]
    end: int


def read_frames(data: bytes, name: str) -> Frames:
    """Reads up to the end or to a torn last frame, which no sync ever acknowledged.

    Raises `JournalCorrupted` where a whole frame follows a broken one: then something
    that was acknowledged is lost.
    """
    if not data.startswith(HEADER):
        raise JournalCorrupted(f"{name} is not a journal: it begins {data[:18]!r}")
    payloads: list[bytes] = []
    at = len(HEADER)
    while at < len(data):
        payload = _whole(data, at, len(payloads))
        if payload is None:
            _check_torn(data, at, len(payloads), name)
            break
        payloads.append(payload)
        at += _FRAME.size + len(payload)
    return Frames(tuple(payloads), at)


def _whole(data: bytes, at: int, number: int | None) -> bytes | None:
    """The payload of the frame at `at`, where that is whole and has this number."""
    if len(data) - at < _FRAME.size:
        return None
    mark, found, size, check = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + size]
    if mark != _MARK or len(payload) < size or number not in (None, found):
        return None
    return payload if check == _checksum(found, payload) else None


def _check_torn(data: bytes, at: int, number: int, name: str) -> None:
    later = data.find(_MARK, at + 1)
    while later >= 0:
        if _whole(data, later, None) is not None:
            raise JournalCorrupted(
                f"{name} is damaged at byte {at}, in batch {number}, and whole again "
                f"at byte {later}; restore it from a backup"
            )
        later = data.find(_MARK, later + 1)


def _checksum(number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(number, len(payload))))
