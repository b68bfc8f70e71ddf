"""One Java process that ends with ours: started, killed, paused; and its log."""

import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from txaware.errors import Unavailable

LAST_LINES = 8
# It waits for a line, and for our end, which closes its standard input without one.
_WATCH = 'read -r line || kill -9 "$0"'


class ServerProcess:
    """A command that runs or not; its output is appended to `log`.

    It is killed when this process ends, however that happens, and has a session of its
    own, so that Ctrl-C in a terminal is ours to handle.
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
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def alive(self) -> bool:
        """Whether it was started and has not ended yet."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, holds: Iterable[int] = ()) -> None:
        """Starts it, unless it runs already.

        `holds` are descriptors that it keeps open until it has ended.
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
        """Asks it to end, and kills it if it takes longer; it has ended then."""
        if self._process is not None:
            self._process.terminate()
            self.resume()  # who is paused does not see that it shall end
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Ends it by SIGKILL; it has ended when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def pause(self) -> None:
        """It answers nothing from now on, and keeps its connections."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        self._send(signal.SIGCONT)

    def require_alive(self) -> None:
        """Raises `Unavailable` with the end of its log, if it has ended."""
        if not self.alive:
            code = self._process.returncode if self._process else None
            raise Unavailable(f"{self._name} ended with {code}; {self.last_words()}")

    def last_words(self) -> str:
        """Where its log is, and its last lines but for stack traces."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        told = [line for line in lines if not line.startswith("\t")]
        return "\n".join([f"the end of {self.log}:", *told[-LAST_LINES:]])

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _forget(self) -> None:
        """Dismisses the watch of what has ended: its id may be another's soon."""
        self._process = None
        if self._watch is not None:
            self._watch.communicate(b"\n")
            self._watch = None

    @property
    def _name(self) -> str:
        return self.log.stem
