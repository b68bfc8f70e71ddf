"""The bytes of a backup: checked pieces, and a digest over all of them at the end.

A file is the magic line, a piece about the backup, pieces of rows, and the end.
Where the data cannot be read, a piece says so in place of the end; another kind says
that a part of it is away just now.
Every piece has a checksum of its own, so that damage is found where it is.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Protocol

from txaware.errors import BadRequest, StoreCorrupted, Unavailable
from txaware.model.interfaces import Row

MAGIC = b"txaware backup 1\n"
ABOUT, ROWS, END, FAILED, AWAY = b"a", b"r", b"e", b"f", b"w"

# The kind of the piece, its size, its checksum, and a checksum of these three.
_HEAD = struct.Struct(">cII")
_CHECK = struct.Struct(">I")
# About how many thousandths of the whole are done with this piece, and its rows; then
# the sizes of all keys and values come, and then those.
_PIECE = struct.Struct(">HI")
_END = struct.Struct(">Q32s")


class Readable(Protocol):
    """The source of a backup: a file, or a stream."""

    def read(self, size: int, /) -> bytes:
        """Returns so many bytes, or fewer; none at the end."""


class BackupWriting:
    """Makes the bytes of a backup, in the order in which they are to be written."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._rows = 0

    def begin(self, about: dict[str, Any]) -> bytes:
        """Returns the first bytes; `about` tells people what the file is."""
        text = json.dumps(about).encode()
        return self._counted(MAGIC + _piece(ABOUT, text))

    def rows(self, rows: Sequence[Row], *, part: float) -> bytes:
        """Returns the bytes of some rows; `part` of the whole is done with them."""
        flat = list(chain.from_iterable(rows))
        self._rows += len(rows)
        sizes = struct.pack(f">{len(flat)}I", *map(len, flat))
        head = _PIECE.pack(int(part * 1000), len(rows))
        return self._counted(_piece(ROWS, b"".join([head, sizes, *flat])))

    def end(self) -> bytes:
        """Returns the last bytes."""
        return _piece(END, _END.pack(self._rows, self._digest.digest()))

    def failed(self, sentence: str) -> bytes:
        """Returns the last bytes of a failed backup: they say why it ends."""
        return _piece(FAILED, sentence.encode())

    def away(self, sentence: str) -> bytes:
        """Returns the last bytes of a backup that may be whole the next time."""
        return _piece(AWAY, sentence.encode())

    def _counted(self, data: bytes) -> bytes:
        self._digest.update(data)
        return data


def _piece(kind: bytes, body: bytes) -> bytes:
    head = _HEAD.pack(kind, len(body), zlib.crc32(body))
    return head + _CHECK.pack(zlib.crc32(head)) + body


class BackupReading:
    """Reads a backup; it is whole when `pieces` ends without raising.

    Damage raises `StoreCorrupted`, a file that is no backup `BadRequest`, and one that
    was made while a part of the data was away, `Unavailable`.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.rows = 0
        self.size_bytes = 0
        self.part = 0.0
        magic = self._read(len(MAGIC))
        if magic != MAGIC:
            raise BadRequest(
                f"this is no backup that this version reads: it begins {magic!r}, not "
                f"{MAGIC!r}"
            )
        self._digest.update(magic)
        kind, body = self._next()
        self.about = self._about(kind, body)

    def pieces(self) -> Iterator[list[Row]]:
        """Yields all rows, some at a time."""
        for body in self.bodies():
            yield self._decoded(body)

    def bodies(self) -> Iterator[bytes]:
        """Yields the pieces as bytes: enough to verify that all is there."""
        while True:
            digest = self._digest.digest()
            kind, body = self._next()
            if kind == END:
                self._check_end(body, digest)
                return
            if kind == FAILED:
                raise StoreCorrupted(body.decode("utf-8", "replace"))
            if kind == AWAY:
                raise Unavailable(body.decode("utf-8", "replace"))
            if kind != ROWS or len(body) < _PIECE.size:
                raise self._damaged(f"a piece of kind {kind!r} is in the wrong place")
            thousandths, count = _PIECE.unpack_from(body)
            self.part, self.rows = thousandths / 1000, self.rows + count
            yield body

    def _next(self) -> tuple[bytes, bytes]:
        head = self._exactly(_HEAD.size + _CHECK.size)
        kind, size, check = _HEAD.unpack_from(head)
        if _CHECK.unpack_from(head, _HEAD.size) != (zlib.crc32(head[: _HEAD.size]),):
            raise self._damaged("the head of a piece is not what was written")
        body = self._exactly(size)
        if zlib.crc32(body) != check:
            raise self._damaged("a piece is not what was written")
        self._digest.update(head)
        self._digest.update(body)
        return kind, body

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise self._damaged("it is cut off")
        return data

    def _read(self, size: int) -> bytes:
        parts = []
        while size and (part := self._file.read(min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
            self.size_bytes += len(part)
        return b"".join(parts)

    def _about(self, kind: bytes, body: bytes) -> dict[str, Any]:
        if kind != ABOUT:
            raise self._damaged("it does not say what it is")
        try:
            about: dict[str, Any] = dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise self._damaged(
                f"what it says of itself is no JSON: {error}"
            ) from error
        return about

    def _decoded(self, body: bytes) -> list[Row]:
        (_, count), at = _PIECE.unpack_from(body), _PIECE.size
        try:
            sizes = struct.unpack_from(f">{2 * count}I", body, at)
        except struct.error as error:
            raise self._damaged("a piece has fewer rows than it says") from error
        places = list(accumulate(sizes, initial=at + 8 * count))
        if places[-1] != len(body):
            raise self._damaged("the rows of a piece are not as long as it says")
        fields = iter([body[start:stop] for start, stop in pairwise(places)])
        return list(zip(fields, fields, strict=True))

    def _check_end(self, body: bytes, digest: bytes) -> None:
        if len(body) != _END.size or _END.unpack(body) != (self.rows, digest):
            raise self._damaged("its digest does not fit what was read")
        if self._file.read(1):
            raise self._damaged("something follows its end")
        self.part = 1.0

    def _damaged(self, what: str) -> StoreCorrupted:
        return StoreCorrupted(
            f"the backup is damaged before byte {self.size_bytes:,}: {what}"
        )


class Chunks:
    """A stream of chunks to read from."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._left = b""

    def read(self, size: int, /) -> bytes:
        """Returns so many bytes, or fewer; none at the end."""
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._left = chunk
        data, self._left = self._left[:size], self._left[size:]
        return data
