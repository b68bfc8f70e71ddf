"""A standalone Spark of separate processes: a master and two workers on this machine.

Spark never starts a second attempt of a task on the host of the first one, and goes by
addresses there: so the workers have 127.0.0.2 and 127.0.0.3, which Linux answers to.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from tests.support.cli_runs import PROGRAM
from tests.support.concurrency import until
from tests.support.short_run import QUICK_JVM

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
WORKERS = ("127.0.0.2", "127.0.0.3")
STARTS_S, ENDS_S, ANSWERS_S = 240, 60, 300
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "JAVA_TOOL_OPTIONS": QUICK_JVM,
}


@contextmanager
def running(
    command: list[str], log: Path, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process with a group of its own, all of which is gone after the block."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stderr=file,
            text=True,
            cwd=log.parent,
            env={**os.environ, **ENVIRONMENT, **options.pop("env", {})},
            start_new_session=True,
            **options,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # What it has left behind: its group had no other member before it.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """The address of `txaware serve`, in a process of its own."""
    serve = [*PROGRAM, "serve", "--data", str(directory / "data"), "--port", "0"]
    pipe = subprocess.PIPE
    with running(serve, directory / "serve.log", stdout=pipe) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """The address of a master who has two workers of one core each."""
    with ExitStack() as stack:

        def start(part: str, host: str, *arguments: str) -> Callable[[], str]:
            log = directory / f"{part}-{host}.log"
            command = [str(SPARK_CLASS), f"{DEPLOY}.{part.lower()}.{part}"]
            where = ["--host", host, "--port", "0", "--webui-port", "0"]
            env = {"SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}
            stack.enter_context(running([*command, *where, *arguments], log, env=env))
            return log.read_text

        said = start("Master", "127.0.0.1")
        started = re.compile(r"Starting Spark master at (spark://\S+)")
        found = until(lambda: started.search(said()), timeout_s=STARTS_S)
        assert found, "there is no master"
        master = found[1]
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory), master)
        for said in [start("Worker", host, *size) for host in WORKERS]:
            assert until(
                lambda said=said: "Successfully registered" in said(),  # type: ignore[misc]
                timeout_s=STARTS_S,
            ), "there is no worker"
        yield master


class Driver:
    """A program with a session of its own, which does what it is told, by lines."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log
        self._unanswered = 0

    def begin(self, what: str, **arguments: object) -> None:
        """Has it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        self._unanswered += 1

    def answer(self) -> Any:
        """What it has to say when it is done; raises what was raised there."""
        self._unanswered -= 1
        stdout = self._process.stdout
        assert stdout is not None
        assert select.select([stdout], (), (), ANSWERS_S)[0], "the driver hangs"
        line = stdout.readline()
        assert line, f"the driver has ended: {self._log.read_text()[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["value"]

    def ask(self, what: str, **arguments: object) -> Any:
        """Has it do something, and waits for that."""
        self.begin(what, **arguments)
        return self.answer()

    def finish(self) -> None:
        """Waits for what a test that failed did not wait for."""
        while self._unanswered > 0:
            with suppress(DriverError):
                self.answer()


class DriverError(Exception):
    """What the user of that session would see."""


@contextmanager
def driver(
    log: Path,
    master: str,
    *,
    conf: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Driver]:
    """A process with a session of its own on a master."""
    settings = {name: str(value) for name, value in (conf or {}).items()}
    command = [sys.executable, "-m", "tests.support.spark_jobs.driver"]
    pipe = subprocess.PIPE
    with running(
        [*command, master, json.dumps(settings)],
        log,
        env=env or {},
        stdin=pipe,
        stdout=pipe,
    ) as process:
        found = Driver(process, log)
        found.ask("java")  # it has begun
        yield found
        assert process.stdin is not None
        process.stdin.close()
        process.wait(ENDS_S)
