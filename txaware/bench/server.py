"""`txaware serve` in a process of its own, to be measured from outside."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from txaware.model.settings import PREFIX, Settings

MIB = 1 << 20
ENDS_S = 60
_SAYS = "listening on "


@attrs.frozen
class BenchServer:
    """A server's process: its address, and what the system says of it (Linux only)."""

    url: str
    pid: int

    def resident_mib(self, field: str = "VmRSS") -> float:
        """Returns its memory; `VmHWM` is the most that it ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        line = next(line for line in status if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024 / MIB

    def cpu_s(self) -> float:
        """Returns the processor time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(directory: Path, settings: Settings) -> Iterator[BenchServer]:
    """Runs a server of that directory until the end of the block."""
    command = [sys.executable, "-m", "txaware", "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data", str(directory)],
        env=os.environ | _variables(settings),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            said = child.stdout.readline().strip()
            if not said.startswith(_SAYS):
                raise RuntimeError("the server to be measured does not start")
            yield BenchServer(said.removeprefix(_SAYS), child.pid)
        finally:
            child.terminate()
            try:
                child.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                child.kill()


def more_files() -> None:
    """Raises the number of files that this process, and its children, may open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _variables(settings: Settings) -> dict[str, str]:
    return {
        PREFIX + name.upper(): str(value).lower() if value is True else str(value)
        for name, value in attrs.asdict(settings).items()
        if value != getattr(Settings(), name)
    }
