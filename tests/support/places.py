"""Where a directory is: in tests a copy stands for a crash, unless one says not."""

from collections.abc import Iterator

import pytest

from coordinator import directory_lock
from coordinator.embedded.lives import NO_PLACE

told = directory_lock.birth_of


@pytest.fixture(scope="session", autouse=True)
def copies_stand_for_crashes() -> Iterator[None]:
    """What is copied from a program that runs is what its crash would leave there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory_lock, "birth_of", lambda _: NO_PLACE)
        yield


@pytest.fixture
def copies_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a directory is one, as it is outside of tests."""
    monkeypatch.setattr(directory_lock, "birth_of", told)
