"""Load on a server from another process: by wrk where there is one, else by our own."""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from txaware.protocol.formats import MSGPACK

WRK = shutil.which("wrk")
WRK_LEAST_S = 1  # it takes whole seconds
# On a busy machine nothing may be answered in a short time: then it is a longer one.
LONGEST_S = 30.0
SENDER = "txaware.bench.sender"

_SCRIPT = """\
local requests, at = {}, 0
init = function()
  local bodies = {%(bodies)s}
  local headers = {["Content-Type"] = "%(type)s"}
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "%(path)s", headers, body)
  end
end
request = function()
  at = at %% #requests + 1
  return requests[at]
end
"""
# Ends each script; `by_wrk` reads what it writes.
_DONE = """done = function(summary)
  local e = summary.errors
  local failed = e.status + e.connect + e.read + e.write + e.timeout
  io.write(string.format("RESULT %d %d %d\\n",
    summary.requests, failed, summary.duration))
end
"""


@attrs.frozen
class Answered:
    """Counts the requests that were answered, and the time that it took."""

    count: int
    took_s: float

    @property
    def per_second(self) -> float:
        """Divides the count by the time."""
        return self.count / self.took_s


@attrs.frozen
class Load:
    """POST requests to one path, with these bodies in turn, over some connections."""

    path: str
    bodies: list[bytes]
    connections: int = 16

    def per_second(self, url: str, *, for_s: float) -> float:
        """Returns how many are answered in a second."""
        return self.answered(url, for_s=for_s).per_second

    def answered(self, url: str, *, for_s: float) -> Answered:
        """Returns how many are answered in that time, or one that is long enough."""
        while True:
            if uses_wrk(for_s):
                found = self._by_wrk(url, max(WRK_LEAST_S, round(for_s)))
            else:
                found = self._by_ours(url, for_s)
            if found.count:
                return found
            if for_s >= LONGEST_S:
                raise RuntimeError(f"nothing was answered in {for_s:g} s")
            for_s = min(2 * for_s, LONGEST_S)

    def each_once(self, url: str) -> float:
        """Returns how many are answered in a second, until each was sent once."""
        return self._by_ours(url, None).per_second

    def _by_wrk(self, url: str, for_s: int) -> Answered:
        bodies = ",".join(f'"{_lua(body)}"' for body in self.bodies)
        request = {"bodies": bodies, "type": MSGPACK.media_type, "path": self.path}
        return by_wrk(_SCRIPT % request, url, connections=self.connections, for_s=for_s)

    def _by_ours(self, url: str, for_s: float | None) -> Answered:
        address = urlsplit(url)
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Content-Type: {MSGPACK.media_type}\r\nContent-Length: "
        )
        requests = [
            b"%s%d\r\n\r\n%s" % (head.encode(), len(body), body) for body in self.bodies
        ]
        request = {
            "host": address.hostname,
            "port": address.port,
            "connections": self.connections,
            "for_s": for_s,
            "requests": [base64.b64encode(one).decode() for one in requests],
        }
        found: dict[str, Any] = json.loads(
            _said([sys.executable, "-m", SENDER], said=json.dumps(request))
        )
        return _answered(found["answered"], found["failed"], found["took_s"])


def by_wrk(
    script: str, url: str, *, connections: int, for_s: int, threads: int = 1
) -> Answered:
    """Has wrk send what a script of its makes; raises where a request failed."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script + _DONE)
        file.flush()
        command = (
            f"wrk -t {threads} -c {connections} -d {for_s}s "
            f"--timeout {LONGEST_S:.0f}s -s {file.name}"
        )
        said = _said([*command.split(), url])
    result = next(line for line in said.splitlines() if "RESULT" in line)
    answered, failed, took_us = map(int, result.split()[-3:])
    return _answered(answered, failed, took_us / 1e6)


def uses_wrk(for_s: float) -> bool:
    """Tells whether wrk is there, and can measure for so short a time."""
    return WRK is not None and for_s >= WRK_LEAST_S


def by(for_s: float) -> str:
    """Names the sender, for the name of a figure."""
    return "load by wrk" if uses_wrk(for_s) else "load by Python"


def _answered(count: int, failed: int, took_s: float) -> Answered:
    if failed:
        raise RuntimeError(f"{failed} requests failed, and {count} were answered")
    return Answered(count, took_s)


def _said(command: list[str], *, said: str | None = None) -> str:
    run = subprocess.run(
        command, input=said, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {run.stderr[-2000:]}")
    return run.stdout


def _lua(body: bytes) -> str:
    return "".join(f"\\{byte:03d}" for byte in body)
