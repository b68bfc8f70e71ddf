"""`txaware backup` and `restore`."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import PROGRAM, ended, error_of, run, run_json


@pytest.fixture(autouse=True)
def filled(here: Path) -> None:
    with txaware.connect("leveldb:data") as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"one", b"two"])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_there_and_back(here: Path) -> None:
    said = run("backup", "file").stdout
    assert said.startswith("file: ")
    assert " rows, " in said
    assert ", as of 20" in said
    assert (here / "file").stat().st_mode & 0o777 == 0o600
    assert run("restore", "file", "leveldb:new").stdout.startswith("new: ")
    assert run("--url", "leveldb:new", "check").stdout.endswith("clean\n")
    polled = run("poll", "t", "--raw", "--url", "leveldb:new").stdout
    assert polled == "one\ntwo\n"
    assert names(here) == ["data", "file", "new"]


def test_json_and_the_address_of_url() -> None:
    (made,) = run_json("backup", "file")
    (back,) = run_json("restore", "file", "--url", "leveldb:new")
    assert made["place"] == "file"
    assert back["place"] == "new"
    assert {**made, "place": ""} == {**back, "place": ""}
    assert made["rows"] > 3


def test_through_pipes(here: Path) -> None:
    made = subprocess.run(
        [*PROGRAM, "backup", "-"], capture_output=True, check=True, timeout=60
    )
    assert b"rows, " in made.stderr
    back = subprocess.run(
        [*PROGRAM, "restore", "-", "leveldb:new"],
        input=made.stdout,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert back.stdout.startswith(b"new: ")
    cut = run("restore", "-", "leveldb:other", stdin=made.stdout[:-1], code=1)
    assert "cut off" in cut.stderr
    assert names(here) == ["data", "new"]


def test_while_its_owner_uses_and_serves_it(here: Path) -> None:
    with txaware.connect("leveldb:data") as messaging, messaging.serve():
        run("backup", "file")
        messaging.publish("t", [b"later"])
    run("restore", "file", "leveldb:new")
    polled = run("--url", "leveldb:new", "poll", "t", "--raw").stdout
    assert polled == "one\ntwo\n"


def test_a_file_that_is_there_is_kept_unless_told_otherwise(here: Path) -> None:
    (here / "file").write_text("mine")
    assert "--overwrite replaces it" in error_of("backup", "file", code=2)
    assert (here / "file").read_text() == "mine"
    run("backup", "file", "--overwrite")
    run("restore", "file", "leveldb:new")


def test_a_damaged_file_is_one_sentence_and_leaves_nothing(here: Path) -> None:
    run("backup", "file")
    data = bytearray((here / "file").read_bytes())
    data[-50] ^= 1
    (here / "file").write_bytes(data)
    said = error_of("restore", "file", "leveldb:new", code=1)
    assert said.startswith("the backup is damaged before byte ")
    (here / "file").write_text("something else\n")
    said = error_of("restore", "file", "leveldb:new", code=2)
    assert said.startswith("this is no backup")
    assert names(here) == ["data", "file"]


def test_wrong_places_are_said(here: Path) -> None:
    run("backup", "file")
    assert "data is not empty" in error_of("restore", "file", "leveldb:data", code=2)
    assert "restored to leveldb:PATH" in error_of("restore", "file", "memory:", code=2)
    assert "No such file" in error_of("restore", "nothing", "leveldb:new", code=1)
    assert "no data" in error_of("--url", "leveldb:nowhere", "backup", "b", code=1)
    assert "cannot be written" in error_of("backup", "no/where", code=3)
    os.mkfifo(here / "pipe")
    for wrong in ("data", "pipe", "/dev/null"):
        said = error_of("backup", wrong, "--overwrite", code=2)
        assert said.startswith(f"{wrong} is there, and no file")
    (here / "pipe").unlink()
    assert "has no backup" in error_of("--url", "memory:", "backup", "b", code=2)
    assert names(here) == ["data", "file"]


PYTHON = PROGRAM[:1]
FULL = """
import resource, sys
from txaware.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
sys.argv = ["txaware", *{arguments!r}]
main()
"""


@pytest.mark.parametrize(
    "size",
    [0, *(pytest.param(n, marks=pytest.mark.long) for n in (100, 300, 5000)), 70_000],
)
def test_a_disk_that_is_full_leaves_nothing(here: Path, size: int) -> None:
    with txaware.connect("leveldb:data") as messaging:
        messaging.publish("t", [bytes(100_000)] * 3)
    run("backup", "file")
    arguments = ["restore", "file", "leveldb:new"]
    ran = ended("-c", FULL.format(size=size, arguments=arguments), program=PYTHON)
    assert (ran.returncode, ran.stdout) == (3, ""), ran.stderr
    assert "new cannot be" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert names(here) == ["data", "file"]


def test_a_file_on_a_disk_that_is_full_leaves_nothing(here: Path) -> None:
    with txaware.connect("leveldb:data") as messaging:
        messaging.publish("t", [bytes(100_000)] * 3)
    program = FULL.format(size=200_000, arguments=["backup", "file"])
    ran = ended("-c", program, program=PYTHON)
    assert ran.returncode == 3, ran.stderr
    assert "cannot be written" in ran.stderr
    assert names(here) == ["data"]


def test_json_is_one_line() -> None:
    result = run("backup", "file", "--json")
    assert list(json.loads(result.stdout)) == [
        "place",
        "rows",
        "size_bytes",
        "created_ms",
    ]
