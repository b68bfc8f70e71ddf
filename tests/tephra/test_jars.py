"""Jars are fetched once, checked by their sums, and never half-written."""

import hashlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.errors import MissingExtra, Unavailable
from coordinator.java.jars import Jar, cached_jars, fetch_from_repository, jars_folder

CONTENT = b"PK what a jar begins with"
JAR = Jar("org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest())

FETCH_SLOWLY = """
import sys
from pathlib import Path
from coordinator.java.jars import Jar, cached_jars

def fetch(jar, aside):
    print("fetching", flush=True)
    sys.stdin.readline()
    (aside / "jar").write_bytes(sys.argv[3].encode())
    return aside / "jar"

print(*cached_jars([Jar("org.example:thing:1.0", sys.argv[2])],
                   folder=Path(sys.argv[1]), fetch=fetch))
"""


class Repository:
    """Counts what is fetched from it."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.fetched: list[Jar] = []

    def __call__(self, jar: Jar, aside: Path) -> Path:
        self.fetched.append(jar)
        path = aside / "downloaded"
        path.write_bytes(self.content)
        return path


def no_network(jar: Jar, aside: Path) -> Path:
    raise ConnectionError("no route to host")


def test_a_jar_is_fetched_once_and_then_kept(tmp_path: Path) -> None:
    repository = Repository()
    first = cached_jars([JAR], folder=tmp_path / "new", fetch=repository)
    assert first == cached_jars([JAR], folder=tmp_path / "new", fetch=no_network)
    assert first == [tmp_path / "new" / "thing-1.0.jar"]
    assert repository.fetched == [JAR]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["thing-1.0.jar"]


def test_a_kept_jar_that_was_damaged_is_fetched_again(tmp_path: Path) -> None:
    (path,) = cached_jars([JAR], folder=tmp_path, fetch=Repository())
    path.write_bytes(CONTENT[:-1])
    cached_jars([JAR], folder=tmp_path, fetch=Repository())
    assert path.read_bytes() == CONTENT


def test_a_fetched_jar_with_another_sum_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"org\.example:thing:1\.0 came with SHA-256"):
        cached_jars([JAR], folder=tmp_path, fetch=Repository(b"something else"))
    assert not list(tmp_path.iterdir())


def test_without_a_network_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="Run this once with a network") as raised:
        cached_jars([JAR], folder=tmp_path, fetch=no_network)
    assert str(tmp_path) in str(raised.value)
    assert "TXAWARE_JARS" in str(raised.value)
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[tephra\]' in a checkout"):
        cached_jars([JAR], folder=tmp_path)


def test_the_folder_is_the_variables_or_else_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXAWARE_JARS", str(tmp_path / "mine"))
    assert jars_folder() == tmp_path / "mine"
    monkeypatch.delenv("TXAWARE_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert jars_folder() == tmp_path / "cache" / "txaware" / "jars"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jars_folder() == Path.home() / "Library" / "Caches" / "txaware" / "jars"


def test_threads_that_fetch_at_once_all_succeed(tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=20)

    def fetch(jar: Jar, aside: Path) -> Path:
        together.wait()
        return Repository()(jar, aside)

    with ThreadPoolExecutor(4) as pool:
        found = [
            pool.submit(cached_jars, [JAR], folder=tmp_path, fetch=fetch)
            for _ in range(4)
        ]
    assert {tuple(one.result()) for one in found} == {(tmp_path / "thing-1.0.jar",)}


def test_two_processes_that_fetch_at_once_both_succeed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FETCH_SLOWLY, str(tmp_path), JAR.sha256]
    both = [
        subprocess.Popen(
            [*argv, CONTENT.decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "fetching\n"
        for process in both:
            answer, _ = process.communicate("go on\n", timeout=30)
            assert answer == f"{tmp_path / 'thing-1.0.jar'}\n"
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert (tmp_path / "thing-1.0.jar").read_bytes() == CONTENT


@pytest.mark.tephra
def test_a_real_jar_comes_with_its_pinned_sum(tmp_path: Path, java: str) -> None:
    small = Jar(
        "org.slf4j:slf4j-nop:1.7.5",
        "fa62326cf97f6e06bcdd8f83d3dd756eb62c87e245d39bf6ef78fa4bc7dd601c",
    )
    (path,) = cached_jars([small], folder=tmp_path, fetch=fetch_from_repository)
    assert path.name == "slf4j-nop-1.7.5.jar"
