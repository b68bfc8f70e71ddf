"""Runs the command line: in this process, and in one of its own."""

import fcntl
import json
import subprocess
import sys
import termios
import time
from typing import Any

from click.testing import CliRunner, Result

from txaware.cli.root import command
from txaware.messaging import Messaging

PATIENCE_S = 60
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
    until_s = time.monotonic() + PATIENCE_S
    while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))):
        assert time.monotonic() < until_s, "nobody reads"
        time.sleep(0.01)


def start(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """A process of its own."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*PROGRAM, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, **options
    )
