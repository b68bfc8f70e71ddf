"""Equal servers of one store in HBase, each a process, which is ended or killed."""

import http.client
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from tests.support.cli_runs import PROGRAM, start
from tests.support.clusters import PATIENCE_S, asked
from tests.support.concurrency import until
from tests.support.ports import free_port

# A shard is three tables, and a busy HBase takes seconds for each.
SETTLES_S = 3 * PATIENCE_S


@attrs.define
class ShardServer:
    """A process, the address that it listens at, and where it says what it does."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path
    begin: Callable[[], "subprocess.Popen[bytes]"]

    @property
    def said(self) -> str:
        """What it said on both outputs."""
        return self.log.read_text()


class ShardServers:
    """The servers of one store.

    Clients and the others know each by the host that it advertises. A `program` with
    faults is told of them beside the directory of the logs.
    """

    def __init__(
        self,
        data: str,
        *,
        shards: int,
        directory: Path,
        host: str = "127.0.0.1",
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.data = data
        self._shards = shards
        self._host, self._program = host, program
        self._directory = directory
        self.servers: list[ShardServer] = []

    def start(self, *more: str, port: int | None = None) -> ShardServer:
        """Starts one more server, on a free port if on none that is given."""
        port = port or free_port()
        log = self._directory / f"server-{len(self.servers)}-{port}"
        command = (
            *("--set", f"shards={self._shards}", "--log-level", "info"),
            *("--set", f"advertise={self._host}", *more),
            *("serve", "--data", self.data, "--port", str(port)),
        )
        begin = partial(self._begun, command, log)
        made = ShardServer(begin(), f"http://{self._host}:{port}", log, begin)
        self.servers.append(made)
        return made

    def _begun(self, command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("ab") as out:
            return start(
                *command,
                program=self._program,
                env={**os.environ, "BESIDE": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def start_anew(self, server: ShardServer) -> None:
        """Kills a process, and starts it at the same address."""
        server.process.kill()
        server.process.wait()
        server.process = server.begin()

    def begin_ended(self) -> None:
        """Starts those anew that have ended by themselves, as a supervisor does it.

        One that begins while HBase is away ends, and says so.
        """
        for one in self.servers:
            if one.process.poll() is not None:
                one.process = one.begin()

    def map_of(self, server: ShardServer) -> Any:
        """What a server answers at /v1/servers; None while it does not."""
        with suppress(OSError, ValueError, http.client.HTTPException):
            return asked(server.url, "GET", "/v1/servers", timeout_s=5).json()
        return None

    def owners(self, server: ShardServer) -> dict[int, str]:
        """The address of the server that has each shard, as a server tells."""
        found = self.map_of(server) or {"servers": [], "shards": []}
        own = {one["id"]: one["own"] for one in found["servers"]}
        return {one["number"]: own.get(one["server"], "") for one in found["shards"]}

    def id_of(self, server: ShardServer) -> str | None:
        """The id that a server has in its present process; None while nobody tells."""
        found = self.map_of(server) or {"servers": []}
        ids = {one["own"]: one["id"] for one in found["servers"]}
        return ids.get(server.url)

    def is_settled(self) -> bool:
        """True when all servers know the same: each has its part of all shards."""
        living = [one for one in self.servers if one.process.poll() is None]
        maps = [self.owners(one) for one in living]
        if any(found != maps[0] or len(found) < self._shards for found in maps):
            return False
        owners = [*maps[0].values()]
        counts = [owners.count(one.url) for one in living]
        return sum(counts) == len(owners) and max(counts) - min(counts) <= 1

    def settle(self) -> None:
        """Waits until that is so."""
        assert until(self.is_settled, timeout_s=SETTLES_S)

    def at(self, url: str) -> ShardServer:
        """The server that listens at an address."""
        return next(one for one in self.servers if one.url == url)

    def kill(self, server: ShardServer) -> None:
        """Kills a process, and forgets it."""
        server.process.kill()
        server.process.wait()
        self.servers.remove(server)

    def end(self, server: ShardServer) -> int:
        """Ends a process as an operator does; returns its exit code."""
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(timeout=PATIENCE_S)
        self.servers.remove(server)
        return code


@contextmanager
def shard_servers(data: str, servers: int, *, shards: int) -> Iterator[ShardServers]:
    """Servers of a store whose tables are there; killed at the end."""
    with tempfile.TemporaryDirectory() as directory:
        made = ShardServers(data, shards=shards, directory=Path(directory))
        try:
            for _ in range(servers):
                made.start()
            made.settle()
            yield made
        except BaseException:
            for one in made.servers:
                print(f"---- {one.url}\n{one.said}")
            raise
        finally:
            for one in made.servers:
                one.process.kill()
                one.process.wait()
