"""A reader of the documents, who types in all that a page says, in its order.

Python blocks go to one session of Python; those with a title are files instead.
Lines of a shell go to one shell. A `text` block is what the block before it prints; a
shell block with prompts shows its output itself. What goes on until it is stopped, as a
server does, goes on in a terminal of its own to the end of the page.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.concurrency import until
from tests.support.forked_commands import forked_commands
from tests.support.ports import free_port
from tests.support.python_process import PythonProcess

# Language, the name of the file where the page asks for one, and the text.
BLOCK = re.compile(
    r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
)
SHELL = ("console", "sh")
# Ports that the pages name; a reader here takes free ones in their place.
PORTS = ("11015", "9090", "2181", "8000", "8001")
# A checkout has been set up by these, and its tests run by them.
SET_UP = ("python3 -m venv ", ".venv/bin/python -m pytest ")
# What a server says once it can be used.
READY = {
    "txaware serve": r"^listening on",
    "txaware hbase run": r"^zookeeper",
    "uvicorn": r"Application startup complete",
    "gunicorn": r"Booting worker",
}
PATIENCE_S = 120


class Reader:
    """Someone at a terminal, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {port: str(free_port()) for port in PORTS}
        self._environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("TXAWARE_")
            },
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
        }
        self._ends = ExitStack()
        commands = forked_commands(directory / ".commands", self._environment)
        self._environment = self._ends.enter_context(commands)
        self._python: subprocess.Popen[str] | None = None
        self._shell: subprocess.Popen[str] | None = None

    def read(self, page: str) -> None:
        """Follows a page from its first line to its last."""
        printed = said = ""
        for language, title, text in BLOCK.findall(self._with_ports(page)):
            if title:
                (self._directory / title).write_text(text)
            elif language == "python":
                assert not printed, f"the page does not show {printed!r}"
                printed = self._run_python(text)
            elif language in SHELL:
                assert not printed, f"the page does not show {printed!r}"
                said = self._run_shell(text)
            elif language == "text":
                assert (printed or said) == text
                printed = said = ""
        assert not printed, f"the page does not show {printed!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._ends:
            python, self._python = self._python, None
            if python is not None:
                _, complaints = python.communicate(timeout=PATIENCE_S)
                assert kind is not None or not complaints, complaints

    def _with_ports(self, page: str) -> str:
        for port, free in self._ports.items():
            page = page.replace(f":{port}", f":{free}").replace(f" {port}", f" {free}")
        return page

    def _run_python(self, text: str) -> str:
        if self._python is None:
            self._python = self._started([sys.executable, "-W", "error", "-c", SESSION])
        answer = json.loads(_asked(self._python, json.dumps(text)))
        assert not answer["error"], answer["error"]
        printed: str = answer["printed"]
        return printed

    def _run_shell(self, text: str) -> str:
        said = ""
        for command, shown in commands_of(text):
            if command.startswith(SET_UP):
                continue
            ready = next((READY[one] for one in READY if command.startswith(one)), "")
            if ready:
                self._ends.enter_context(self._going_on(command, ready))
            elif " --follow" in command:
                with self._going_on(command, ".", signal.SIGINT):
                    pass
            else:
                printed, code = self._run_command(command)
                assert code == 0, f"{command}\nends with {code}: {printed}"
                assert shown is None or printed == shown, command
                said += printed
        return said

    def _run_command(self, command: str) -> tuple[str, int]:
        if self._shell is None:
            self._shell = self._started(["bash"], stderr=subprocess.STDOUT)
            self._ends.callback(self._shell.communicate, timeout=PATIENCE_S)
        end = uuid.uuid4().hex
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{{ {command}\n}} < /dev/null\necho {end} $?\n")
        self._shell.stdin.flush()
        printed = ""
        for line in _lines(self._shell.stdout):
            before, found, code = line.partition(end)
            printed += before
            if found:
                return printed, int(code)
        raise AssertionError(f"{command}\nends the shell: {printed}")

    @contextmanager
    def _going_on(
        self, command: str, ready: str, end: int = signal.SIGTERM
    ) -> Iterator[None]:
        """Starts what ends when it is told to, and waits until it is of use."""
        words = shlex.split(command, comments=True)
        if words[1] == "serve" and "--port" not in words:
            words += ["--port", self._ports["11015"]]
        output = self._directory / f"terminal-{uuid.uuid4().hex}.txt"

        def is_ready() -> bool:
            return re.search(ready, output.read_text(), re.MULTILINE) is not None

        with output.open("w") as terminal:
            process = PythonProcess(
                words,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=terminal,
                stderr=subprocess.STDOUT,
            )
        try:
            assert until(
                lambda: is_ready() or process.poll() is not None, timeout_s=PATIENCE_S
            ), f"{command}\nis not ready: {output.read_text()}"
            assert is_ready(), f"{command}\nended: {output.read_text()}"
            yield
            process.send_signal(end)
            code = process.wait(PATIENCE_S)
            # uvicorn ends in order, and then by the signal that it was sent.
            assert code in (0, 130, -end), f"{command}\nends with {code}"
        finally:
            process.kill()
            process.wait()
            output.unlink()

    def _started(
        self, arguments: list[str], stderr: int = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        process = PythonProcess(
            arguments,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        return process


def commands_of(text: str) -> Iterator[tuple[str, str | None]]:
    """Yields the commands of a shell block, each with the output that it shows.

    Without prompts a line is a command, whose output is not shown.
    """
    if not text.startswith("$ "):
        for line in text.splitlines():
            if line and not line.startswith("#"):
                yield line, None
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        more = [line for line in lines[1:] if line.startswith("> ")]
        shown = lines[1 + len(more) :]
        yield (
            lines[0] + "".join(line.removeprefix("> ") for line in more),
            "".join(shown),
        )


def _asked(process: "subprocess.Popen[str]", line: str) -> str:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    for answer in _lines(process.stdout):
        return answer
    _, complaints = process.communicate(timeout=PATIENCE_S)
    raise AssertionError(f"Python ended: {complaints}")


def _lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    return iter(stream.readline, "")


# Runs the blocks that it reads, a line of JSON each, under the names of one program.
SESSION = """
import contextlib, io, json, sys, traceback

names = {"__name__": "__main__"}
for line in iter(sys.stdin.readline, ""):
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(json.loads(line), "page", "exec"), names)
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps({"printed": printed.getvalue(), "error": error}), flush=True)
"""
