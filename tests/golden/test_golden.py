"""The wire is as the golden files have it, byte for byte, and they have all of it."""

import difflib
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from tests.golden.golden_files import (
    NAMES,
    ROOT,
    ROUTES,
    asked_in,
    failures,
    path_of,
    recorded,
)
from tests.golden.good_requests import GOOD
from tests.golden.mutants import operations
from txaware.server.routes import all_routes

ANSWER = re.compile(r" -> 400 (.*)$", re.MULTILINE)
PYTHON = re.compile(r"None|True|False|Error(?! -3)|\bdict|\b(str|bool)\b|_[A-Z]")
# What Python says of its version, and from 3.13 on of a comma at the end.
VERSION = re.compile(r'python="[0-9.]+"')
BROKEN = re.compile(
    r"(?:Illegal trailing comma before end of (?:object|array)|Expecting value|"
    r"Expecting property name enclosed in double quotes)"
    r": line [0-9]+ column [0-9]+ [(]char [0-9]+[)]"
)
GOOD_ANSWER = re.compile(r"^-> ([0-9]+)", re.MULTILINE)


def in_any_python(text: str) -> str:
    """What is the same in each version of Python."""
    text = VERSION.sub('python=""', text)
    return BROKEN.sub("no JSON", text) if sys.version_info >= (3, 13) else text


@pytest.mark.parametrize("name", NAMES)
def test_the_wire_is_as_it_was(name: str) -> None:
    before = in_any_python(path_of(name).read_text())
    with ThreadPoolExecutor() as closing:
        now = in_any_python(recorded(name, closing))
    if now != before:
        differs = difflib.unified_diff(
            before.splitlines(), now.splitlines(), "before", "now", lineterm="", n=12
        )
        pytest.fail(
            f"{name} differs; if that is meant, write it anew with "
            f"`python -m tests.golden {name}`\n" + "\n".join(differs),
            pytrace=False,
        )


def test_every_route_is_in_the_golden_files() -> None:
    table = all_routes(Mock(), Mock(), Mock(), needs_tokens=True)
    assert {(route.method, route.path) for route in table} - asked_in(NAMES) == set()


def test_a_good_request_is_one_of_a_route() -> None:
    assert GOOD.keys() <= operations().keys()


# Only a store on disk does the first two, and the third is the way to frames.
REFUSED = {f"refusals/{name}" for name in ("GET-v1-admin-backup", "POST-v1-shards")} | {
    "refusals/GET-v1-frames"
}


@pytest.mark.parametrize("name", [name for name in ROUTES if name not in REFUSED])
def test_the_good_request_of_a_route_is_answered(name: str) -> None:
    assert GOOD_ANSWER.findall(path_of(name).read_text())[0] == "200"


@pytest.mark.parametrize("name", [name for name in NAMES if "refusals" in name])
def test_a_refusal_quotes_json_and_no_python(name: str) -> None:
    for message in ANSWER.findall(path_of(name).read_text()):
        assert not PYTHON.search(message), message


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_is_an_error_of_the_server(name: str) -> None:
    assert failures(path_of(name).read_text()) == []


def test_an_error_of_the_server_is_found_in_a_record() -> None:
    record = ["> GET /", "< 500", "limit = 500 -> 200", "a = 1 -> 500 Internal: x"]
    assert failures("\n".join(record)) == [record[1], record[3]]


def test_every_golden_file_is_made_by_something() -> None:
    assert {*ROOT.glob("*/*.txt")} == {*map(path_of, NAMES)}
