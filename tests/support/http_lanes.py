"""The two ways of a request through a server: the direct lane, and the general way."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.background import Gate
from tests.support.http_raw import Response, Served, request, serving
from txaware.server.direct_lane import DirectRequest
from txaware.server.routing import Routes
from txaware.store.batch_writer import BatchWriter

JSON = "Content-Type: application/json"
DIFFERS = ("date", "txaware-instance")


@attrs.define
class Lanes:
    """Which way requests go from now on, and how many went directly."""

    monkeypatch: pytest.MonkeyPatch
    direct: int = 0

    def take(self, name: str) -> None:
        """Has servers that start later use the lane, or never."""
        if name == "general":
            self.monkeypatch.setattr(Routes, "direct", lambda *_: None)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Lanes:
    """Counts requests in the direct lane."""
    found, go_on = Lanes(monkeypatch), DirectRequest.go_on

    def counting(asked: DirectRequest) -> bool:
        is_through = go_on(asked)
        found.direct += is_through
        return is_through

    monkeypatch.setattr(DirectRequest, "go_on", counting)
    return found


def as_json(path: str, value: Any, *headers: str) -> bytes:
    """A POST of a value as JSON."""
    return request("POST", path, json.dumps(value).encode(), JSON, *headers)


def answered(here: Served, data: bytes, times: int = 1) -> Any:
    """What is compared of the answers on one connection, or that there was none."""
    answers = []
    with here.connect() as raw:
        is_head = data.startswith(b"HEAD")
        try:
            for _ in range(times):
                raw.send(data)
                answers.append(_compared(raw.response(to_head=is_head)))
        except (EOFError, ConnectionError):
            return [*answers, None]
        return [*answers, raw.half_close().has_ended()]


def _compared(answer: Response) -> tuple[Any, ...]:
    headers = [(k, v) for k, v in answer.headers.items() if k not in DIFFERS]
    return answer.status, headers, answer.body, answer.interim


def counts(here: Served) -> list[str]:
    """The metrics of requests, but for their times."""
    text = here.ask(request("GET", "/metrics")).body.decode()
    names = ("txaware_http_requests_total", "txaware_errors_total", "txaware_messages")
    return [line for line in text.splitlines() if line.startswith(names)]


@pytest.fixture(params=["direct", "general"])
def lane(request: pytest.FixtureRequest, lanes: Lanes) -> str:
    """Each of the two."""
    lanes.take(request.param)
    return str(request.param)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Nothing is written from the time on when it is told to hold."""
    gate, write = Gate(), BatchWriter._write

    def held(batches: BatchWriter, *args: Any) -> None:
        gate(lambda: write(batches, *args))

    with ExitStack() as stack:
        stack.callback(gate.open.set)
        monkeypatch.setattr(BatchWriter, "_write", held)
        yield gate


def on_disk(tmp_path: Path, **settings: Any) -> Any:
    return serving(f"leveldb:{tmp_path / 'data'}", **settings)
