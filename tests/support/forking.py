"""A process that forks Python programs: `python -m tests.support.forking DESCRIPTOR`.

By the socket of that number it is sent what to run, with the files for it, and answers
with the number of a process; how that ended it writes into the last of the files.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType

import attrs

from txaware.store.leveldb_binding import BINDING

LONGEST = 1 << 17
UNBUFFERED = "PYTHONUNBUFFERED"
WORD = 4  # bytes of a number
# Imported once for all: what takes long, and does nothing but being there.
IMPORTED = (
    *("txaware", "txaware.cli.root", "txaware.server.server", "txaware.testing"),
    *("asyncio", "httptools", "pymysql", "psycopg", "sqlalchemy.orm", "uvicorn"),
    *("aiosqlite", "asyncpg", "sqlalchemy.ext.asyncio"),
    *("encodings.idna", "faulthandler", BINDING, "pytest"),
)


@attrs.frozen
class Program:
    """What is run, and what `python` would have been told of it."""

    kind: str  # "-m" of a module, "-c" of its text, "" of a file
    name: str
    arguments: list[str]
    environment: dict[str, str]
    filters: str | None = None
    directory: str = "/"

    @classmethod
    def of(
        cls, command: Sequence[str], environment: Mapping[str, str]
    ) -> "Program | None":
        """Returns what Python would run; None where that cannot be forked."""
        filters = None
        match command:
            case [sys.executable, "-W", each, *words]:
                filters = each
            case [sys.executable, *words]:
                pass
            case ["txaware", *arguments]:
                words = ["-m", "txaware", *arguments]
            case _:
                return None
        match words:
            case ["-m" | "-c" as kind, name, *arguments]:
                return cls(kind, name, arguments, dict(environment), filters)
            case [name, *arguments] if name.endswith(".py"):
                return cls("", name, arguments, dict(environment), filters)
        return None

    def run(self) -> None:
        """Runs it as the main program of this process."""
        self._become()
        if self.kind == "-m":
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        elif self.kind == "-c":
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(self.name, vars(main))
        else:
            runpy.run_path(self.name, run_name="__main__")

    def _become(self) -> None:
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        first = {"-m": self.directory, "-c": "", "": os.path.dirname(self.name)}
        further = self.environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:1] = [first[self.kind], *(each for each in further if each)]
        sys.argv = [self.kind if self.kind == "-c" else self.name, *self.arguments]
        options = [] if self.filters is None else ["-W", self.filters]
        what = [self.kind, self.name] if self.kind else [self.name]
        # By this it begins once more, with `exec`.
        sys.orig_argv[:] = [sys.executable, *options, *what, *self.arguments]
        if self.environment.get(UNBUFFERED):
            for file in (sys.stdout, sys.stderr):
                file.reconfigure(write_through=True)  # type: ignore[union-attr]
        if self.filters is not None:
            sys.warnoptions.append(self.filters)
            warnings.simplefilter(self.filters)  # type: ignore[arg-type]


class Forker:
    """The other side: asks, from one thread at a time."""

    def __init__(self) -> None:
        self._asks, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        # With the same number there, though it is closed in programs that are begun.
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", __name__, str(asked.fileno())],
            {name: each for name, each in os.environ.items() if name != UNBUFFERED},
            file_actions=[(os.POSIX_SPAWN_DUP2, asked.fileno(), asked.fileno())],
        )
        asked.close()
        atexit.register(self._asks.close)  # by which the other side ends as well

    def fork(self, program: Program, files: Sequence[int]) -> int:
        """Starts it with these as standard files, and the last for how it ends."""
        told = json.dumps(attrs.asdict(program)).encode()
        with self._lock:
            socket.send_fds(self._asks, [told], files)
            answer = self._asks.recv(WORD)
        assert answer, "the process that forks has ended"
        return int.from_bytes(answer)


class _Forking:
    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._ends: dict[int, int] = {}
        self._woken, self._wakes = socket.socketpair()
        for each in (self._woken, self._wakes):
            each.setblocking(False)

    def until_forked(self) -> Program | None:
        """Returns in every process that it forks; None when nobody asks any more."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno())
        while True:
            ready, _, _ = select.select([self._asked, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(LONGEST)
                self._tell_ends()
            if self._asked not in ready:
                continue
            told, files, _, _ = socket.recv_fds(self._asked, LONGEST, 4)
            if not told:
                return None
            assert threading.active_count() == 1
            pid = os.fork()
            if pid == 0:
                self._leave(files)
                return Program(**json.loads(told))
            self._ends[pid] = files.pop()
            for file in files:
                os.close(file)
            self._asked.send(pid.to_bytes(WORD))

    def _tell_ends(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                file = self._ends.pop(pid)
                with suppress(BrokenPipeError):  # nobody waits for that one
                    os.write(file, status.to_bytes(WORD))
                os.close(file)

    def _leave(self, files: list[int]) -> None:
        """Has the files that it was sent, and nothing of the process it comes from."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for standard, file in enumerate(files[:3]):
            os.dup2(file, standard)
        for file in (*files, *self._ends.values()):
            os.close(file)
        for each in (self._asked, self._woken, self._wakes):
            each.close()


def main(descriptor: int) -> None:
    """Imports, forks, and in what it has forked runs what was asked for."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    program = _Forking(socket.socket(fileno=descriptor)).until_forked()
    if program is not None:
        program.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
