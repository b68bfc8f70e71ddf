"""`txaware table`: rows on the command line."""

from pathlib import Path

import pytest

from tests.support.cli_runs import error_of, run, run_json


@pytest.fixture(autouse=True)
def filled(here: Path) -> None:
    run("topic", "create", "t")


def test_what_was_put_is_got_scanned_and_deleted() -> None:
    for key, value in (("bob", "7"), ("ann", "5"), ("bea", "é\n")):
        run("table", "put", "accounts", key, value)
    assert run("table", "get", "accounts", "ann").stdout == "5\n"
    assert run("table", "get", "accounts", "bea", "--raw").stdout == "é\n"
    assert run("table", "scan", "accounts", "--prefix", "b").stdout.splitlines() == [
        "bea  é\\n",
        "bob  7",
    ]
    assert run_json("table", "scan", "accounts", "--limit", "1") == [
        {"key": "ann", "value": "5"}
    ]
    run("table", "delete", "accounts", "ann")
    assert error_of("table", "get", "accounts", "ann") == (
        "table accounts has no row 'ann'"
    )
    assert [one["key"] for one in run_json("table", "scan", "accounts")] == [
        "bea",
        "bob",
    ]


def test_tables_are_listed_with_their_namespace() -> None:
    assert "no tables" in run("table", "list").stderr
    run("table", "put", "ns:b", "k", "v")
    run("table", "put", "a", "k", "v")
    assert run("table", "list").stdout.splitlines() == ["TABLE", "a"]
    assert run_json("table", "list", "--namespace", "ns") == [{"table": "ns:b"}]


def test_a_row_begins_a_store_and_a_wrong_name_makes_none() -> None:
    new = ("--url", "leveldb:new", "table")
    assert "no table name" in error_of(*new, "put", "a!", "k", "v", code=2)
    assert not Path("new").exists()
    run(*new, "put", "a", "k", "v")
    assert run(*new, "get", "a", "k").stdout == "v\n"


def test_half_a_character_is_one_sentence() -> None:
    assert error_of("table", "put", "a", "\udcff", "v", code=2) == (
        "'\\udcff' is no text in UTF-8"
    )
