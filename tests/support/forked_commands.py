"""Has a shell fork the Python programs that it is told to run, as `PythonProcess` does.

In a folder that comes first in its PATH, `txaware` and `python` are small: each sends
its files and its words to this process, which has the program forked, and ends as it.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from tests.support.forking import LONGEST, Program
from tests.support.python_process import can_be_forked, fork

NAMES = ("txaware", "python")
DOOR = "door"
FILES = 4  # three standard ones, and one for how it ends

# Until it knows which process it stands for, it takes no signal.
COMMAND = """\
#!%(python)s -IS
import json, os, signal, socket, sys

signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
folder, name = os.path.split(os.path.abspath(sys.argv[0]))
told = json.dumps([name, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
end, ended = os.pipe()
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.connect(os.path.join(folder, %(door)r))
    socket.send_fds(door, [told], [0, 1, 2, ended])
    pid = int(door.recv(20) or 0)
os.close(ended)
if not pid:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    os.execv(os.path.join(%(bin)r, name), [name, *sys.argv[1:]])
for each in signals:
    signal.signal(each, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
code = os.waitstatus_to_exitcode(int.from_bytes(os.read(end, 4), "big"))
if code < 0:
    if -code in signals:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def forked_commands(
    folder: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yields this environment with the folder, where programs are forked at all."""
    if not can_be_forked(environment):
        yield dict(environment)
        return
    folder.mkdir()
    places = {
        "python": sys.executable,
        "bin": str(Path(sys.executable).parent),
        "door": DOOR,
    }
    for name in NAMES:
        command = folder / name
        command.write_text(COMMAND % places)
        command.chmod(0o700)
    path = os.pathsep.join([str(folder), environment["PATH"]])
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as door:
        place = str(folder / DOOR)
        door.bind(place)
        door.listen()
        serving = threading.Thread(target=_serve, args=(door,))
        serving.start()
        try:
            yield {**environment, "PATH": path}
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
                last.connect(place)  # and says nothing
            serving.join()


def _serve(door: socket.socket) -> None:
    while True:
        calling, _ = door.accept()
        with calling:
            told, files, _, _ = socket.recv_fds(calling, LONGEST, FILES)
            if not told:
                return
            for file in files:
                os.set_inheritable(
                    file, False
                )  # `recv_fds` leaves them to all children
            program = _told(told)
            if program is not None:
                calling.send(b"%d" % fork(program, files))
            for file in files:
                os.close(file)


def _told(told: bytes) -> Program | None:
    name, arguments, directory, environment = json.loads(told)
    if not can_be_forked(environment):
        return None
    words = [sys.executable if name == "python" else name, *arguments]
    program = Program.of(words, environment)
    return program and attrs.evolve(program, directory=directory)
