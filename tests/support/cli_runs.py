"""Runs the command line: in this process, and in one of its own."""

import fcntl
import http.client
import json
import os
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from click.testing import CliRunner, Result

from tests.support.concurrency import until
from tests.support.python_process import PythonProcess
from txaware.cli.root import command
from txaware.messaging import Messaging

PATIENCE_S = 60
ANSWERS_WITHIN_S = 60
PROGRAM = [sys.executable, "-W", "error", "-m", "txaware"]


def run(
    *arguments: str,
    code: int = 0,
    obj: Messaging | None = None,
    stdin: bytes | None = None,
) -> Result:
    """A command that ends with `code`, on ./data or on the messaging it is given."""
    runner = CliRunner()
    result = runner.invoke(
        command, list(arguments), obj=obj, input=stdin, prog_name="txaware"
    )
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def run_json(*arguments: str, obj: Messaging | None = None) -> list[Any]:
    """The JSON values that a command prints, one a line."""
    result = run(*arguments, "--json", obj=obj)
    return [json.loads(line) for line in result.stdout.splitlines()]


def error_of(*arguments: str, code: int = 1, obj: Messaging | None = None) -> str:
    """The one sentence on standard error; nothing is on standard output."""
    result = run(*arguments, code=code, obj=obj)
    assert not result.stdout
    *usage, error = result.stderr.strip().splitlines()
    assert error.startswith("Error: ")
    assert not usage or usage[0].startswith("Usage: ")
    return error.removeprefix("Error: ")


def wait_until_taken(pipe: int) -> None:
    """Until a pipe's reader has taken all that was written."""
    assert until(
        lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))),
        timeout_s=PATIENCE_S,
    ), "nobody reads"


def start(
    *arguments: str, program: Sequence[str] = PROGRAM, **options: Any
) -> "subprocess.Popen[bytes]":
    """A process of its own."""
    pipe = subprocess.PIPE
    options = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}
    return PythonProcess([*program, *arguments], **options)


def ended(
    *arguments: str, program: Sequence[str] = PROGRAM
) -> "subprocess.CompletedProcess[str]":
    """A process of its own that has ended, and what it printed."""
    return subprocess.run(
        [*program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@attrs.frozen
class Serving:
    """A server in a process of its own, and where it said that it listens."""

    process: "subprocess.Popen[bytes]"
    url: str

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.partition("://")[2].rsplit(":", 1)
        return host, int(port)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=ANSWERS_WITHIN_S)

    def get(self, path: str, token: str | None = None) -> int:
        connection = self.connection()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def ended(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=ANSWERS_WITHIN_S)
        return self.process.returncode, out, err

    def is_listening(self) -> bool:
        try:
            socket.create_connection(self.address, ANSWERS_WITHIN_S).close()
        except OSError:
            return False
        return True


@contextmanager
def serving(
    *arguments: str, before: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> Iterator[Serving]:
    """`txaware serve` on ./data and a free port, killed if it has not ended."""
    process = start(
        *(*before, "serve", "--data", "data", "--port", "0", *arguments),
        env={**os.environ, **(env or {})},
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("listening on "), _left(process)
            yield Serving(process, line.removeprefix("listening on ").strip())
        finally:
            process.kill()


def _left(process: "subprocess.Popen[bytes]") -> bytes:
    process.kill()
    return process.communicate()[1]
