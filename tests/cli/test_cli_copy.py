"""`txaware copy`."""

import json
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run, run_json


@pytest.fixture(autouse=True)
def filled(here: Path) -> None:
    with txaware.connect("leveldb:data") as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"one", b"two"])


def test_it_is_copied_once_and_then_recognised() -> None:
    said = run("copy", "leveldb:data", "leveldb:new")
    assert said.stdout.startswith("leveldb:new: 3 rows, as of 20")
    assert len(said.stdout.split("digest ")[1].strip()) == 64
    assert not said.stderr
    assert run("--url", "leveldb:new", "check").stdout.endswith("clean\n")
    polled = run("poll", "t", "--raw", "--url", "leveldb:new").stdout
    assert polled == "one\ntwo\n"
    again = run("copy", "leveldb:data", "leveldb:new")
    assert again.stdout == said.stdout
    assert "complete already" in again.stderr


def test_what_is_left_out_is_told() -> None:
    with txaware.connect("leveldb:data") as messaging:
        tx = messaging.coordinator.start_short(outlives_process=True)
        messaging.publish("t", [b"half"], transaction=tx)
    said = run("copy", "leveldb:data", "leveldb:new").stderr
    assert said.startswith("(1 row left out, newer than that or of transactions in")
    assert str(tx.transaction_id) in said
    (done,) = run_json("copy", "leveldb:data", "leveldb:new")
    assert done["undecided"] == [tx.transaction_id]


def test_json_is_one_line() -> None:
    result = run("copy", "leveldb:data", "leveldb:new", "--json")
    assert list(json.loads(result.stdout)) == [
        "source",
        "target",
        "rows",
        "rolled_back_rows",
        "left_out_rows",
        "undecided",
        "digest",
        "as_of_ms",
        "was_complete",
    ]


def test_the_coordinators_are_those_that_are_named(here: Path) -> None:
    wrong = error_of(
        "copy", "leveldb:data", "leveldb:new", "--coordinator", "?", code=2
    )
    assert "names no coordinator" in wrong
    before = ("--coordinator", "?", "copy", "leveldb:data", "leveldb:new")
    assert "names no coordinator" in error_of(*before, code=2)
    target = ("--target-coordinator", "?")
    said = error_of("copy", "leveldb:data", "leveldb:new", *target, code=2)
    assert "names no coordinator" in said
    named = ("--coordinator", "embedded", "--target-coordinator", "embedded")
    run("copy", "leveldb:data", "leveldb:new", *named)


def test_wrong_places_are_said(here: Path) -> None:
    assert "to itself" in error_of("copy", "leveldb:data", "leveldb:data", code=2)
    assert "no data at" in error_of("copy", "leveldb:no", "leveldb:new", code=2)
    assert "is a server" in error_of("copy", "leveldb:data", "http://h:1", code=2)
    with txaware.connect("leveldb:other") as messaging:
        messaging.create_topic("t")
    assert "of its own" in error_of("copy", "leveldb:data", "leveldb:other", code=2)
    with txaware.connect("leveldb:data"):
        in_use = error_of("copy", "leveldb:data", "leveldb:new", code=3)
    assert "in use by process" in in_use
    assert sorted(path.name for path in here.iterdir()) == ["data", "other"]
