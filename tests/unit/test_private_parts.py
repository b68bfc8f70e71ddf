"""What we use of the private parts of uvicorn is where it was.

pyproject.toml bounds it to the minor versions that were tried. Name another one in
TRIED after this test, tests/http/test_http_framing.py and
tests/http/test_http_connections.py have passed with it.
"""

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from txaware.server.connection import Connection
from txaware.server.request_parser import Feeding
from txaware.server.sink import Flow

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TRIED = ("0.53", "0.54")
OVERRIDDEN = {
    Feeding: {
        "on_message_begin": "(self)",
        "on_header": "(self, name, value)",
        "on_headers_complete": "(self)",
        "on_body": "(self, body)",
        "on_message_complete": "(self)",
    },
    Connection: {
        "connection_made": "(self, transport)",
        "connection_lost": "(self, exc)",
        "data_received": "(self, data)",
        "eof_received": "(self)",
        "pause_writing": "(self)",
        "resume_writing": "(self)",
        "on_headers_complete": "(self)",
        "on_message_complete": "(self)",
        "on_response_complete": "(self)",
        "timeout_keep_alive_handler": "(self)",
        "shutdown": "(self)",
        "_start_asgi_task": "(self, cycle, app)",
    },
    Flow: {"resume_reading": "(self)"},
}
# Attributes that are set by them, and read or set by us.
PROTOCOL = (
    *("access_log", "access_logger", "app", "app_state", "client", "connections"),
    *("cycle", "expect_100_continue", "flow", "headers", "logger", "loop", "parser"),
    *("pipeline", "scheme", "scope", "server_state", "tasks", "timeout_keep_alive"),
    *("timeout_keep_alive_task", "transport", "url"),
)
CYCLE = (
    *("disconnected", "keep_alive", "message_event", "response_complete"),
    *("response_started", "transport", "waiting_for_100_continue"),
)


def test_it_is_bounded_to_the_minor_versions_that_were_tried() -> None:
    needed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    [found] = [one for one in needed if re.split(r"[\[>]", one)[0] == "uvicorn"]
    major, minor = TRIED[-1].split(".")
    assert found == f"uvicorn>={TRIED[0]},<{major}.{int(minor) + 1}"
    assert ".".join(version("uvicorn").split(".")[:2]) in TRIED


@pytest.mark.parametrize("ours", OVERRIDDEN)
def test_what_we_override_is_called_as_before(ours: type) -> None:
    theirs: Any = FlowControl if ours is Flow else HttpToolsProtocol
    found = {
        name: f"({', '.join(inspect.signature(getattr(theirs, name)).parameters)})"
        for name, value in vars(ours).items()
        if inspect.isfunction(value)
        and not name.startswith("__")
        and hasattr(theirs, name)
    }
    assert found == OVERRIDDEN[ours]


@pytest.mark.parametrize(
    ("theirs", "names"),
    [(HttpToolsProtocol, PROTOCOL), (RequestResponseCycle, CYCLE)],
)
def test_what_we_look_at_is_there(theirs: type, names: tuple[str, ...]) -> None:
    functions = filter(inspect.isfunction, vars(theirs).values())
    source = "".join(map(inspect.getsource, functions))
    assert [name for name in names if f"self.{name}" not in source] == []


def test_the_keep_alive_timer_is_still_ended_by_uvicorn() -> None:
    found = inspect.signature(HttpToolsProtocol._unset_keepalive_if_required)
    assert [*found.parameters] == ["self"]
