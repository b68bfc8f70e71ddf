"""What the command line does for people: names are completed, tables fit."""

import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import txaware
from txaware.cli.root import command
from txaware.cli.show import cut, echo_columns, fitting_widths


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(address) as messaging:
        messaging.create_topic("orders")
        messaging.create_topic("other")
        messaging.create_queue("mail")
        messaging.create_group("billing")
        with messaging.transaction():
            messaging.consumer("orders", group="audit").poll()
        messaging.publish("orders", [b"a"])
        with messaging.transaction():
            messaging.consumer("orders", group="audit").poll()
    return address


def completed(url: str, *words: str) -> list[str]:
    """The names that a shell offers for the last word."""
    *before, incomplete = words
    complete = ShellComplete(command, {}, "txaware", "_TXAWARE_COMPLETE")
    given = ["--url", url, *before]
    return [one.value for one in complete.get_completions(given, incomplete)]


def test_names_are_completed(url: str) -> None:
    assert completed(url, "topic", "show", "o") == ["orders", "other"]
    assert completed(url, "poll", "or") == ["orders"]
    assert completed(url, "queue", "stats", "") == ["mail"]
    assert completed(url, "group", "show", "") == ["audit", "billing"]
    assert completed(url, "group", "reset", "audit", "ot") == ["other"]
    assert completed(url, "topic", "create", "o") == []


def test_a_server_is_asked_for_names(url: str) -> None:
    with txaware.connect(url) as owner, owner.serve() as server:
        assert completed(server.url, "topic", "delete", "orders", "o") == [
            "orders",
            "other",
        ]


def test_data_that_is_not_there_completes_nothing_and_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(f"leveldb:{tmp_path / 'none'}", "topic", "show", "") == []
    assert completed("http://127.0.0.1:1", "topic", "show", "") == []
    assert not (tmp_path / "none").exists()
    assert capsys.readouterr() == ("", "")


def test_a_table_is_cut_to_the_terminal_from_the_widest_column_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = ("NAME", "COUNT", "REASON")
    rows = [("orders", 1_000_000, "x" * 100), ("n" * 30, 2, "short")]
    echo_columns(header, rows, empty="none")
    assert "x" * 100 in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    echo_columns(header, rows, empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 for line in lines)  # with the codes of the header
    assert lines[1].endswith("…")
    assert "1000000" in lines[1]


def test_what_cannot_be_cut_stays_as_it_is() -> None:
    assert fitting_widths([5, 40, 30], [True, False, False], 40) == [5, 17, 18]
    assert fitting_widths([30, 40], [True, True], 10) == [30, 40]
    assert fitting_widths([30, 40], [True, False], 10) == [30, 8]
    assert fitting_widths([3, 4], [True, False], 80) == [3, 4]
    assert (cut("orders", 6), cut("orders", 5)) == ("orders", "orde…")
