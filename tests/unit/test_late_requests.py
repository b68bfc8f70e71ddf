"""A request whose body may be large: only its path is read before it is needed."""

import json
from base64 import b64encode
from typing import Any

import pytest

from txaware.errors import BadRequest, TxAwareError
from txaware.protocol.commits import COMMIT
from txaware.protocol.shape import LateRequest
from txaware.protocol.verb import Verb
from txaware.protocol.verbs import VERBS

PATH = {"transaction": "5"}
# What our client sends, with bytes where JSON has base64, and what it means.
GOOD: list[dict[str, Any]] = [
    {},
    {"type": "long", "checkpoints": [7, 9], "repeat": True},
    {"check": True, "changes": [b"k", b"\xff"]},
    {"positions": [{"group": "g", "topic": "t", "position": "0" * 40}]},
    {"tables": [{"table": "t", "changes": [{"key": b"k", "value": b"\xff"}]}]},
    {"publishes": [], "repeat": None},
]
WRONG: list[dict[str, Any]] = [
    {"type": "x"},
    {"checkpoints": [-1]},
    {"changes": "x"},
    {"repeat": 5},
    {"publishes": [{"topic": 5, "messages": []}]},
    {"tables": [{"table": "t"}]},
    {"unknown": 1},
]


def in_a_frame(sent: dict[str, Any]) -> LateRequest:
    late, words = COMMIT.shape.unpacked(COMMIT.shape.packed_sent(5, sent))
    assert words == PATH
    assert isinstance(late, LateRequest)
    return late


def in_json(sent: dict[str, Any]) -> LateRequest:
    body = json.dumps(sent, default=lambda data: b64encode(data).decode()).encode()
    late = COMMIT.shape.read(PATH, dict, body)
    assert isinstance(late, LateRequest)
    return late


@pytest.mark.parametrize("sent", GOOD, ids=str)
def test_a_commit_is_the_same_in_a_frame_and_in_json(sent: dict[str, Any]) -> None:
    read = in_a_frame(sent).read()
    assert read == in_json(sent).read()
    assert (read.transaction, read.carried.keys()) == (
        5,
        sent.keys() & {"publishes", "positions", "tables", "producers"},
    )


@pytest.mark.parametrize("sent", WRONG, ids=str)
def test_a_wrong_body_is_refused_when_it_is_read(sent: dict[str, Any]) -> None:
    said = []
    for late in (in_a_frame(sent), in_json(sent)):
        assert late.found == {"transaction": 5}
        with pytest.raises(BadRequest) as refused:
            late.read()
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_a_missing_body_is_a_plain_commit() -> None:
    assert COMMIT.shape.read(PATH, dict, b"").read() == in_json({}).read()


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91", b"\x80", b"\x98" + b"\x05" * 8]
)
def test_what_is_no_array_of_its_fields_is_refused_at_once(body: bytes) -> None:
    with pytest.raises(BadRequest):
        COMMIT.shape.unpacked(body)


@pytest.mark.parametrize(
    "verb",
    [verb for verb in VERBS if verb.number is not None and not verb.shape.formatted],
    ids=lambda verb: verb.name,
)
def test_fields_of_a_frame_mean_the_same_as_those_of_a_body(
    verb: Verb[..., Any],
) -> None:
    """They are read one by one, which takes half of the steps."""
    shape = verb.shape
    example = dict(verb.example) if isinstance(verb.example, dict) else {}
    in_python = {part.name: name for name, part in shape._in_body.items()}
    sent = {
        in_python[name]: example.pop(name) for name in [*example] if name in in_python
    }
    sent |= dict.fromkeys(shape.others, example)
    wrong = [{**sent, name: value} for name in sent for value in (None, {"x": 1})]
    for fields in (sent, {}, *wrong):
        said = []
        for read in (shape._read_sent, shape._read_as_body):
            try:
                said.append(repr(read(fields)))
            except TxAwareError as error:
                said.append(f"{type(error).__name__}: {error}")
        assert said[0] == said[1]
