"""A real Tephra for tests; where it cannot run they are skipped, in CI they fail."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from coordinator.errors import MissingExtra, Unavailable
from coordinator.java.jars import cached_jars
from coordinator.java.process import find_java, py4j_jar
from coordinator.tephra import TephraCoordinator, ThriftCoordinator
from coordinator.tephra.local import TEPHRA_JARS
from coordinator.tephra.rules import TephraRules


def missing(reason: str) -> NoReturn:
    """Skips the test at home; in CI, where everything must be there, it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have everything: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def java() -> str:
    """A Java, with py4j and Tephra's jars."""
    for extra in ("py4j", "thriftpy2", "kazoo", "jgo"):
        try:
            __import__(extra)
        except ImportError as error:
            missing(f"the tephra extra is not installed: {error}")
    try:
        py4j_jar()
        cached_jars(TEPHRA_JARS)
        return find_java()
    except (MissingExtra, Unavailable) as error:
        missing(str(error))


@pytest.fixture(scope="session")
def javac(java: str) -> str:
    """A Java compiler."""
    return shutil.which("javac") or missing("there is no javac")


@pytest.fixture(scope="session")
def tephra(
    java: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TephraCoordinator]:
    """One Tephra over py4j for all tests that only need one."""
    directory: Path = tmp_path_factory.mktemp("tephra")
    with TephraCoordinator(directory) as coordinator:
        yield coordinator


@pytest.fixture(scope="session")
def tephra_thrift(tephra: TephraCoordinator) -> Iterator[ThriftCoordinator]:
    """The same Tephra through its Thrift service."""
    with ThriftCoordinator(*tephra.serve_thrift()) as coordinator:
        yield coordinator


@pytest.fixture(params=["py4j", "thrift"])
def either_tephra(request: pytest.FixtureRequest) -> TephraCoordinator:
    """The session's Tephra, over each way of calling it."""
    name = {"py4j": "tephra", "thrift": "tephra_thrift"}[request.param]
    coordinator: TephraCoordinator = request.getfixturevalue(name)
    return coordinator


@pytest.fixture(params=["py4j", "thrift"])
def fresh(request: pytest.FixtureRequest) -> Iterator[TephraRules]:
    """A Tephra for this test alone (`own`), over each way of calling it."""
    own: TephraCoordinator = request.getfixturevalue("own")
    if request.param == "py4j":
        yield own
        return
    with ThriftCoordinator(*own.serve_thrift()) as coordinator:
        yield coordinator


@pytest.fixture
def pyspark_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark hooks itself into py4j, for whatever JVM is called in its process."""
    import py4j.java_gateway
    from pyspark.errors.exceptions.captured import install_exception_handler

    found = py4j.java_gateway.get_return_value
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", found)
    install_exception_handler()
