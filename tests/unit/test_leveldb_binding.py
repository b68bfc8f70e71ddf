"""The binding of LevelDB is the one that this version of Python was given."""

from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from txaware.store.leveldb_binding import BINDING, is_of_leveldb, leveldb


def given(**environment: str) -> list[str]:
    """The bindings that are installed in an environment: this one, if none is named."""
    wanted = [Requirement(text) for text in requires("txaware") or ()]
    return [
        one.name
        for one in wanted
        if one.name.startswith("plyvel")
        and one.marker is not None
        # Of an extra no marker holds without its name.
        and one.marker.evaluate({"extra": "", **environment})
    ]


def test_what_is_imported_is_what_was_installed() -> None:
    assert packages_distributions()[BINDING] == given()


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_each_version_of_python_is_given_one(version: str) -> None:
    assert len(given(python_version=version)) == 1


def test_an_error_of_leveldb_is_known_by_its_class(tmp_path: Path) -> None:
    with pytest.raises(leveldb().Error) as error:
        leveldb().DB(str(tmp_path / "none" / "rows"))
    assert is_of_leveldb(error.value)
    assert not is_of_leveldb(OSError())
