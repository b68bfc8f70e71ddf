"""A database that tests start ends with them, also where these are killed."""

import subprocess
import sys
from pathlib import Path

from tests.support.clusters import is_alive
from tests.support.concurrency import until
from tests.support.python_process import PythonProcess

PROGRAM = """
import signal
from tests.support.database_server import DatabaseServer


class Sleeper(DatabaseServer):
    user, url, session_url = "root", "", ""
    ends_by = killed_by = signal.SIGKILL

    def connect(self, **options): ...

    def _make(self): ...

    def _command(self):
        return ["sleep", "600"]

    def _answers(self):
        return True


server = Sleeper()
server.kill()  # as tests do, which start it again
server.start()
print(server._child.pid, server._directory, flush=True)
signal.pause()
"""


def test_a_server_and_its_data_are_gone_after_a_kill_of_its_tests() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with PythonProcess(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, directory = process.stdout.readline().split()
        assert is_alive(int(pid))
        assert Path(directory).exists()
        process.kill()
    assert until(lambda: not is_alive(int(pid)))
    assert until(lambda: not Path(directory).exists())
