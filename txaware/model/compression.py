"""How batches of messages are compressed, and a batch that is."""

import zlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import attrs

from coordinator.errors import install_with
from txaware.errors import BadRequest, MissingExtra

CompressionName = Literal["gzip", "zstd"]

# A batch is no larger than this once it is unpacked: what a reader needs memory for.
MOST_UNPACKED_BYTES = 16 << 20
# All messages of a batch are of one millisecond, which has no more sequences.
MOST_PACKED_MESSAGES = 1 << 16

# zlib counts a header and an end as those of gzip from here on.
_GZIP_BITS = 16 + zlib.MAX_WBITS
# LevelDB compresses too, if less: with the fastest level of gzip a directory would
# still take a third of its bytes. Higher levels than these gain a few hundredths.
_GZIP_LEVEL, _ZSTD_LEVEL = 5, 1


@attrs.frozen
class Compression:
    """One way to compress: its name, and the number that rows have for it.

    `expand` returns no more than so many bytes, one more where there are more, and
    raises whatever it likes for what is damaged.
    """

    name: str
    number: int
    compress: Callable[[bytes], bytes]
    expand: Callable[[bytes, int], bytes]


@attrs.frozen
class Packed:
    """Messages of one batch, compressed: their number, and their size unpacked.

    Unpacked, `data` is the size of each message in 4 bytes, and then the messages, as
    rows have them.
    """

    compression: str
    count: int
    size_bytes: int
    data: bytes

    def __len__(self) -> int:
        return self.count

    def unpacked(self) -> bytes:
        """Returns the bytes before compression; `BadRequest` for what is damaged.

        It makes no more of them than were told, and these are bounded.
        """
        if not 0 < self.count <= MOST_PACKED_MESSAGES:
            raise BadRequest(
                f"a compressed batch has 1 to {MOST_PACKED_MESSAGES} messages, not "
                f"{self.count}"
            )
        if not 0 < self.size_bytes <= MOST_UNPACKED_BYTES:
            raise BadRequest(
                f"a compressed batch has up to {MOST_UNPACKED_BYTES} bytes unpacked, "
                f"not {self.size_bytes}"
            )
        expand = compression_of(self.compression).expand
        try:
            data = expand(self.data, self.size_bytes)
        except Exception as error:
            raise BadRequest(
                f"a compressed batch cannot be unpacked by {self.compression}: {error}"
            ) from error
        if len(data) != self.size_bytes:
            raise BadRequest(
                f"a compressed batch is said to have {self.size_bytes} bytes unpacked, "
                f"and has {'more' if len(data) > self.size_bytes else len(data)}"
            )
        return data


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    return packer.compress(data) + packer.flush()


def _gunzip(data: bytes, most_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_BITS)
    found = unpacker.decompress(data, most_bytes + 1)
    if len(found) <= most_bytes and not unpacker.eof:
        raise ValueError("it is cut off")
    if unpacker.unused_data:
        raise ValueError("bytes follow its end")
    return found


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(
            f"compression zstd needs the package zstandard: {install_with('zstd')}"
        ) from error
    return zstandard


def _zstd(data: bytes) -> bytes:
    packed: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    return packed


def _unzstd(data: bytes, most_bytes: int) -> bytes:
    unpacker = _zstandard().ZstdDecompressor(max_window_size=MOST_UNPACKED_BYTES)
    with unpacker.stream_reader(data) as reader:
        found: bytes = reader.read(most_bytes + 1)
    return found


COMPRESSIONS = (
    Compression("gzip", 1, _gzip, _gunzip),
    Compression("zstd", 2, _zstd, _unzstd),
)
_BY_NAME = {one.name: one for one in COMPRESSIONS}
_BY_NUMBER = {one.number: one for one in COMPRESSIONS}


def compression_of(name: object) -> Compression:
    """Returns a compression by its name, which can be used here.

    `BadRequest` for one that is not known, `MissingExtra` where its package is missing.
    """
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        names = ", ".join(one.name for one in COMPRESSIONS)
        raise BadRequest(f"compression is one of {names}, or None, not {name!r:.100}")
    if found.name == "zstd":
        _zstandard()
    return found


def compression_at(number: int) -> str:
    """Returns the name of a compression by its number; `KeyError` for none."""
    return _BY_NUMBER[number].name


def number_of_compression(name: str) -> int:
    """Returns the number of a compression by its name."""
    return compression_of(name).number


@cache
def usable_compressions() -> tuple[str, ...]:
    """Returns the names of those that can be used here; loads none of them."""
    has_zstandard = find_spec("zstandard") is not None
    return ("gzip", "zstd") if has_zstandard else ("gzip",)
