"""Damage in the files of LevelDB: its place, and the way out of it."""

import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from txaware.errors import NotWritten, StoreCorrupted, Unavailable
from txaware.store.leveldb_binding import is_of_leveldb, leveldb
from txaware.store.manifest import cut_torn_end, remove_unborn

log = logging.getLogger(__name__)

# A line of LevelDB's property about its table files: number, first and last key.
_TABLE = re.compile(
    rb" *(\d+):\d+\['(.*)' @ \d+ : \d+ \.\. '(.*)' @ \d+ : \d+\]", re.DOTALL
)
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
# The most files that are looked at to find a damaged one.
MOST_FILES = 64


class DamagedRange(NamedTuple):
    """The range that was read when something went wrong, by the ends of whole keys."""

    first: bytes
    last: bytes
    reverse: bool = False


class Damaged(StoreCorrupted, Unavailable):
    """Nobody knows whether it was written: LevelDB met damage, and writes no more."""


class DamagedNotWritten(Damaged, NotWritten):
    """It was not written, and never will be: LevelDB met damage before."""


def is_damage(error: BaseException) -> bool:
    """Tells whether LevelDB found something that it did not write."""
    return is_of_leveldb(error) and type(error).__name__ == "CorruptionError"


def said(error: BaseException) -> str:
    """Returns the text of an error, which for LevelDB's is in bytes."""
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(error)


def corrupted(name: str, error: BaseException, place: str | None = None) -> Exception:
    """Makes an error that names what is damaged, and the commands that help."""
    return StoreCorrupted(f"{name}: {damage_text(name, error, place)}")


def damage_text(name: str, error: BaseException, place: str | None = None) -> str:
    """Writes two sentences: what is damaged, and what helps."""
    return (
        f"{place or 'a file of it'} is damaged and cannot be read ({said(error)}). "
        f"{way_out(name)}"
    )


def way_out(name: str) -> str:
    """Writes what helps, whatever is damaged in a directory."""
    return (
        f"Restore a backup: txaware restore FILE leveldb:NEW. Without one, stop "
        f"whoever has it open, keep a copy of it, and open it once with the setting "
        f"accept_damage: TXAWARE_ACCEPT_DAMAGE=true txaware --url leveldb:{name} topic "
        f"list. What cannot be read is then set aside and the rest kept, which txaware "
        f"--url leveldb:{name} check verifies"
    )


def damaged_file(
    db: Any, directory: Path, damaged_range: DamagedRange, *, known: dict[Path, bool]
) -> str | None:
    """Finds the damaged table file with a key of a range; None if there is none.

    LevelDB does not say which file it was reading. Each file is looked at once, and
    `known` remembers the result, since damaged rows may be read again and again.
    """
    binding = leveldb()
    tables = [
        found
        for found in _tables(db)
        if found[0] <= damaged_range.last and found[1] >= damaged_range.first
    ]
    tables.sort(reverse=damaged_range.reverse)
    for _, _, number in tables[:MOST_FILES]:
        for suffix in (".ldb", ".sst"):
            path = directory / f"{number:06}{suffix}"
            try:
                if path not in known and path.exists():
                    known[path] = _is_damaged(path)
            except (OSError, binding.Error) as error:
                log.warning("%s cannot be looked at: %s", path, error)
            if known.get(path):
                return str(path)
    return None


def _tables(db: Any) -> Iterator[tuple[bytes, bytes, int]]:
    """Lists the first and last key, and the number, of every table file."""
    for line in (db.get_property(b"leveldb.sstables") or b"").split(b"]\n"):
        found = _TABLE.search(line + b"]")
        if found is not None:
            number, first, last = found.groups()
            yield _unescaped(first), _unescaped(last), int(number)


def _unescaped(key: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), key)


def _is_damaged(path: Path) -> bool:
    """Has LevelDB repair a copy of a file, and looks whether it was set aside."""
    with tempfile.TemporaryDirectory(prefix="txaware-damage-") as place:
        shutil.copyfile(path, Path(place) / path.name)
        leveldb().repair_db(place, paranoid_checks=True)
        return (Path(place) / "lost" / path.name).exists()


def untorn(directory: Path, open_database: Callable[[], Any]) -> Any:
    """Opens a database; undoes what a power cut left half done, and tries once more."""
    try:
        return open_database()
    except Exception as error:
        if not is_damage(error):
            raise
        if not (cut_torn_end(directory) or remove_unborn(directory)):
            raise
    return open_database()


def repair(directory: Path, **options: Any) -> None:
    """Sets aside what cannot be read, in `lost/` beside the rest."""
    log.warning("%s is damaged: what cannot be read goes to lost/ in it", directory)
    leveldb().repair_db(str(directory), paranoid_checks=True, **options)
