"""Fetches the jars we need, each pinned by its checksum, and keeps them for later."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from coordinator.errors import MissingExtra, Unavailable, install_with

FOLDER_VARIABLE = "TXAWARE_JARS"
FETCH_TIMEOUT_S = 30


@attrs.frozen
class Jar:
    """A jar file: `group:name:version` or `group:name:version:classifier`."""

    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file in the cache folder."""
        return "-".join(self.coordinates.split(":")[1:]) + ".jar"


Fetch = Callable[[Jar, Path], Path]


def locked_jars(lock: Path) -> tuple[Jar, ...]:
    """Reads a lock file: coordinates and SHA-256 in each line, and comments with #."""
    lines = lock.read_text().splitlines()
    return tuple(Jar(*line.split()) for line in lines if not line.startswith("#"))


def caches_folder() -> Path:
    """Returns our folder within the user's cache folder."""
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "txaware"


def jars_folder() -> Path:
    """Returns the folder of the jars: `TXAWARE_JARS`, else one in the user's cache."""
    if FOLDER_VARIABLE in os.environ:
        return Path(os.environ[FOLDER_VARIABLE])
    return caches_folder() / "jars"


def fetch_from_repository(jar: Jar, folder: Path) -> Path:
    """Downloads one jar below `folder` and returns its path."""
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingExtra(
            f"jars are fetched with the package jgo: {install_with('tephra')}"
        ) from error
    group, name, version, *classifier = jar.coordinates.split(":")
    repository = MavenContext(repo_cache=folder, timeout=FETCH_TIMEOUT_S)
    component = repository.project(group, name).at_version(version)
    return Path(component.artifact(*classifier, packaging="jar").resolve())


def cached_jars(
    jars: Iterable[Jar],
    *,
    folder: Path | None = None,
    fetch: Fetch = fetch_from_repository,
) -> list[Path]:
    """Returns the paths of the jars, in their order, and fetches missing ones first.

    A file without its pinned checksum is never returned. Raises `Unavailable` for a jar
    that is missing and cannot be fetched.
    """
    kept_in = jars_folder() if folder is None else folder
    return [_cached(jar, kept_in, fetch) for jar in jars]


def _cached(jar: Jar, folder: Path, fetch: Fetch) -> Path:
    place = folder / jar.file_name
    if not (place.exists() and _sum_of(place) == jar.sha256):
        folder.mkdir(parents=True, exist_ok=True)
        # Fetched beside the place and renamed into it: nobody sees half a file. Two
        # processes that fetch at once both put the same bytes there.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as aside:
            os.replace(_fetched(jar, Path(aside), folder, fetch), place)
    return place


def _fetched(jar: Jar, aside: Path, folder: Path, fetch: Fetch) -> Path:
    try:
        path = fetch(jar, aside)
    except MissingExtra:
        raise
    except Exception as error:
        raise Unavailable(
            f"{jar.coordinates} is not in {folder} and could not be fetched ({error}). "
            f"Run this once with a network, or copy {folder} from a machine where it "
            f"ran; {FOLDER_VARIABLE} names another folder"
        ) from error
    found = _sum_of(path)
    if found != jar.sha256:
        raise Unavailable(
            f"{jar.coordinates} came with SHA-256 {found} instead of {jar.sha256}, and "
            f"is not used; find out who changed it, then try again"
        )
    return path


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
