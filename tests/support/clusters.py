"""Servers of one store as processes: `txaware serve --processes`, asked and killed."""

import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from tests.support.cli_runs import PROGRAM, start
from tests.support.concurrency import until

PATIENCE_S = 60
FIRST = "listening on "


@attrs.frozen
class Told:
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def owner(self) -> str | None:
        """The server that answered, where it was passed on."""
        return self.headers.get("txaware-owner")


def asked(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
) -> Told:
    """Asks one server, over a connection of its own."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    sent = {"Content-Type": "application/json", **(headers or {})}
    try:
        text = None if body is None else json.dumps(body)
        line.request(method, path, text, sent)
        answer = line.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Told(answer.status, found, answer.read())
    finally:
        line.close()


@attrs.define
class Cluster:
    """The processes of a parent, and where it said that they listen."""

    process: "subprocess.Popen[bytes]"
    url: str
    data: Path

    def ask(
        self, url: str, method: str, path: str, body: Any = None, **options: Any
    ) -> Told:
        """Asks one server, over a connection of its own."""
        return asked(url, method, path, body, **options)

    def servers(self, url: str | None = None) -> Any:
        """The answer of `GET /v1/servers`."""
        return self.ask(url or self.url, "GET", "/v1/servers").json()

    @property
    def own(self) -> list[str]:
        """The addresses of the servers, each alone."""
        return [one["own"] for one in self.servers()["servers"]]

    def owner_of(self, shard: int) -> str:
        """The address of the server that has a shard."""
        found = self.servers()
        own = {one["id"]: one["own"] for one in found["servers"]}
        [server] = [s["server"] for s in found["shards"] if s["number"] == shard]
        address: str = own[server]
        return address

    @property
    def is_whole(self) -> bool:
        """True when each shard has a server, as all of them know."""
        with suppress(OSError, ValueError, http.client.HTTPException):
            maps = [self.servers(own) for own in self.own]
            return all(one["server"] for each in maps for one in each["shards"])
        return False

    def pid_of(self, own: str) -> int:
        """The process that listens at an address of one server alone.

        All have the address of all; the parent has each one's, too.
        """
        port = urlsplit(own).port
        for pid in self.pids:
            if pid != self.process.pid and port in _ports_of(pid):
                return pid
        raise AssertionError(f"nobody listens at {own}")

    @property
    def pids(self) -> list[int]:
        """The processes that serve."""
        return children_of(self.process.pid)

    def kill(self, own: str, number: int = signal.SIGKILL) -> int:
        """Sends a signal to the process of one server; returns its number."""
        pid = self.pid_of(own)
        os.kill(pid, number)
        return pid

    def end(self) -> tuple[int, str]:
        """Ends all; returns the exit code, and what was said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err.decode()


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, in that order."""
    with suppress(FileNotFoundError):
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(one) for one in listed.split()]
    return []


def is_alive(pid: int) -> bool:
    """Tells whether a process runs, or a thread of it that holds its files still.

    One that has only to be waited for does not.
    """
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    return False


def _ports_of(pid: int) -> set[int]:
    inodes = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(one)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


@contextmanager
def clustered(
    data: Path,
    processes: int = 3,
    *more: str,
    before: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = PROGRAM,
) -> Iterator[Cluster]:
    """Servers of a directory, which are killed if they have not ended."""
    process = start(
        *(*before, "serve", "--data", str(data), "--processes", str(processes)),
        *("--port", "0", *more),
        env={**os.environ, **(env or {})},
        program=program,
    )
    with process:
        # Whoever ends them gets it from the pipe; nobody else has to read so much.
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line.startswith(FIRST):
                process.kill()
                raise AssertionError(process.communicate()[1].decode())
            yield Cluster(process, line.removeprefix(FIRST).strip(), data)
        finally:
            pids = children_of(process.pid)
            process.kill()
            until(lambda: not any(map(is_alive, pids)), timeout_s=PATIENCE_S)


def in_background(act: Any) -> threading.Thread:
    """Does something in a thread that ends with it."""
    thread = threading.Thread(target=act)
    thread.start()
    return thread
