"""The page on which workflows are watched: static files, and a few answers in JSON.

It listens on this machine alone, and asks nobody who he is: whoever may open it may do
what the command line does.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

import txaware
from examples.workflow_scheduler.operations import Operations, Refused
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.runs import Run, WorkflowState
from examples.workflow_scheduler.triggers import DefinitionError
from examples.workflow_scheduler.worker import AWAY

logger = logging.getLogger(__name__)

MOST_RUNS = 1000
MOST_WORKFLOWS = 200
MOST_BODY_BYTES = 64 * 1024
# Nothing from elsewhere runs in the page, and texts of others are only set as text.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
FILES = ("page.css", "page.js", "drawings.js", "icon.svg")


class HeldPlace:
    """A place that stays open between requests, and is opened anew when it is away."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._messaging: txaware.Messaging | None = None

    @contextmanager
    def opened(self) -> Iterator[txaware.Messaging]:
        """Yields the data, which is open already but for the first time."""
        messaging = self._held()
        try:
            yield messaging
        except AWAY:
            self.close()
            raise

    def close(self) -> None:
        """Closes the data."""
        with self._lock:
            self._messaging = None
            self._open.close()

    def _held(self) -> txaware.Messaging:
        with self._lock:
            if self._messaging is None:
                self._messaging = self._open.enter_context(self._place.served())
            return self._messaging


class Answers:
    """What the page asks for."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._over: dict[str, list[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._states: list[WorkflowState] = []
        self._states_until_s = 0.0

    def workflows(self, search: str) -> dict[str, Any]:
        """Answers the workflows whose names have a text in them."""
        found = [
            state
            for state in self._all_states()
            if search.lower() in state.name.lower()
            and (state.fingerprint or state.is_left_out)
        ]
        shown = [_plain_state(state) for state in found[:MOST_WORKFLOWS]]
        return {"workflows": shown, "count": len(found)}

    def _all_states(self) -> list[WorkflowState]:
        """Reads all states; those of many workflows less often, for all who look."""
        with self._lock:
            began_s = time.monotonic()
            if began_s >= self._states_until_s:
                states = self._operations.states()
                self._states = sorted(states, key=lambda state: state.name)
                now_s = time.monotonic()
                self._states_until_s = now_s + 10 * (now_s - began_s)
            return self._states

    def workflow(self, name: str) -> dict[str, Any]:
        """Answers a workflow, and its last runs in short, the oldest first."""
        found = self._operations.workflow(name)
        if found is None:
            raise Refused(f"no workflow is called {name}")
        state, workflow = found
        definition = {} if workflow is None else workflow.plain
        return {
            **_plain_state(state),
            "definition": definition,
            "runs": self._runs(name)[-MOST_RUNS:],
        }

    def _runs(self, name: str) -> list[dict[str, Any]]:
        """Reads runs from the first on that was not over when they were read last."""
        with self._lock:
            over = self._over.get(name, [])
        first = over[-1]["number"] + 1 if over else 1
        runs = [_short(run) for run in self._operations.runs(name, first)]
        ended = 0
        while ended < len(runs) and runs[ended]["ended_ms"]:
            ended += 1
        with self._lock:
            self._over[name] = (over + runs[:ended])[-MOST_RUNS:]
        return over + runs

    def run(self, name: str) -> dict[str, Any]:
        """Answers a run: its steps with what they said, its triggers and token."""
        run = self._operations.run(name)
        workflow = self._operations.definition(run)
        logs = self._operations.logs(name)
        steps = []
        for step, of in run.steps.items():
            defined = None if workflow is None else workflow.steps.get(step)
            said = logs.get(f"{step}/{of.attempt}", "")
            after = [] if defined is None else list(defined.after)
            steps.append(
                {"name": step, "after": after, "log": said, **attrs.asdict(of)}
            )
        return {**attrs.asdict(run), "steps": steps}

    def act(self, kind: str, name: str, act: str) -> dict[str, Any]:
        """Does what a button says."""
        acts: dict[tuple[str, str], Callable[[str], object]] = {
            ("workflows", "trigger"): self._operations.trigger,
            ("workflows", "pause"): self._operations.pause,
            ("workflows", "resume"): self._operations.resume,
            ("runs", "cancel"): self._operations.cancel,
        }
        if (kind, act) not in acts:
            raise Refused(f"there is no {act} of {kind}")
        acts[kind, act](name)
        return {}


class PageServer(ThreadingHTTPServer):
    """A server of the page, at `url`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, place: Place, port: int) -> None:
        self.held = HeldPlace(place)
        self.answers = Answers(Operations(self.held))
        super().__init__(("127.0.0.1", port), _Request)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a browser that left before its answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            logger.exception("a request from %s failed", client_address)

    def server_close(self) -> None:
        """Closes the socket and the data."""
        super().server_close()
        self.held.close()


class _Request(BaseHTTPRequestHandler):
    """One connection of a browser."""

    protocol_version = "HTTP/1.1"
    server: PageServer
    timeout = 60

    def do_GET(self) -> None:
        answers = self.server.answers
        parts = urlsplit(self.path)
        match [unquote(part) for part in parts.path.strip("/").split("/")]:
            case ["" | "workflows" | "runs", *_]:
                self._file("index.html")
            case ["page", name] if name in FILES:
                self._file(name)
            case ["api", "workflows"]:
                search = unquote(parts.query.removeprefix("search="))
                self._json(lambda: answers.workflows(search))
            case ["api", "workflows", name]:
                self._json(lambda: answers.workflow(name))
            case ["api", "runs", name]:
                self._json(lambda: answers.run(name))
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BODY_BYTES:
            self.close_connection = True
            self._answer(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain", b"too large"
            )
            return
        self.rfile.read(length)
        match [
            unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")
        ]:
            case ["api", kind, name, act]:
                self._json(lambda: self.server.answers.act(kind, name, act))
            case _:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")

    def parse_request(self) -> bool:
        """Refuses what a page of somebody else has sent, by name or by script."""
        if not super().parse_request():
            return False
        host = self.headers.get("Host", "").rpartition(":")[0]
        origin = self.headers.get("Origin")
        is_ours = origin in (None, f"http://{self.headers.get('Host')}")
        is_told = self.command == "GET" or self.headers.get("Sec-Fetch-Site") in (
            None,
            "same-origin",
        )
        if host in ("127.0.0.1", "localhost") and is_ours and is_told:
            return True
        self.close_connection = True
        self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"not from there")
        return False

    def _json(self, answer: Callable[[], dict[str, Any]]) -> None:
        status = HTTPStatus.OK
        try:
            found = answer()
        except Refused as error:
            status, found = HTTPStatus.CONFLICT, {"error": str(error)}
        except (*AWAY, DefinitionError, txaware.TxAwareError) as error:
            status, found = HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
        self._answer(status, "application/json", json.dumps(found).encode())

    def _file(self, name: str) -> None:
        content = files(__name__).joinpath(name).read_bytes()
        self._answer(HTTPStatus.OK, TYPES[name.rpartition(".")[2]], content)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing of requests that went well."""
        logger.debug(format, *args)


def _plain_state(state: WorkflowState) -> dict[str, Any]:
    return {
        "name": state.name,
        "is_enabled": state.is_enabled,
        "is_paused": state.is_paused,
        "running": len(state.running),
        "pending": len(state.pending),
        "notes": [note.source for note in state.notes],
        "last_state": state.last_state,
        "last_launch_ms": state.last_launch_ms,
        "wake_ms": state.wake_ms,
        "problem": state.problem,
    }


def _short(run: Run) -> dict[str, Any]:
    return {
        "run": run.run,
        "number": run.number,
        "state": run.state,
        "created_ms": run.created_ms,
        "launched_ms": run.launched_ms,
        "ended_ms": run.ended_ms,
        "causes": run.first_causes,
        "reason": run.reason,
    }
