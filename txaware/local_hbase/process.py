"""A Java process that ends with this one: started, killed, paused; and its log."""

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from txaware.errors import Unavailable

LAST_LINES = 8
# The watch waits for a line, or for the end of this process, which closes the standard
# input of the watch without a line.
_WATCH = 'read -r line || kill -9 "$0"'


class ServerProcess:
    """A command that runs or not; its output is appended to `log`.

    It is killed when this process ends, however that happens. It has a session of its
    own, so that Ctrl-C in a terminal reaches this process only.
    """

    def __init__(self, command: Sequence[str], *, log: Path, directory: Path) -> None:
        self._command = tuple(command)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self.log = log

    @property
    def pid(self) -> int:
        """The process id; raises `Unavailable` where none was started."""
        if self._process is None:
            raise Unavailable(f"{self._name} was not started")
        return self._process.pid

    @property
    def started(self) -> bool:
        """True when it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def alive(self) -> bool:
        """True when it was started and has not ended yet."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, holds: Iterable[int] = ()) -> None:
        """Starts the process, unless it runs already.

        `holds` are descriptors that the process keeps open until it has ended.
        """
        if self.alive:
            return
        self._forget()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                pass_fds=tuple(holds),
                start_new_session=True,
            )
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self, timeout_s: float) -> None:
        """Ends the process: asks it to, and kills it after the time-out."""
        if self._process is not None:
            self._process.terminate()
            self.resume()  # a paused process does not see the signal
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Ends the process by SIGKILL; it has ended when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def pause(self) -> None:
        """Stops the process for now: it answers nothing, and keeps its connections.

        Threads run on for a moment after the signal; all are still when this returns.
        """
        self._send(signal.SIGSTOP)
        if self.alive:
            stops = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            os.waitid(os.P_PID, self.pid, stops)

    def resume(self) -> None:
        """Ends a pause."""
        self._send(signal.SIGCONT)

    def require_alive(self) -> None:
        """Raises `Unavailable` with the end of the log, if the process has ended."""
        if not self.alive:
            code = self._process.returncode if self._process else None
            raise Unavailable(f"{self._name} ended with {code}; {self.last_words()}")

    def last_words(self) -> str:
        """Returns the path of the log and its last lines, without stack traces."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        plain_lines = [line for line in lines if not line.startswith("\t")]
        return "\n".join([f"the end of {self.log}:", *plain_lines[-LAST_LINES:]])

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _forget(self) -> None:
        """Ends the watch of a process that has ended: another may get its id soon."""
        self._process = None
        if self._watch is not None:
            self._watch.communicate(b"\n")
            self._watch = None

    @property
    def _name(self) -> str:
        return self.log.stem
