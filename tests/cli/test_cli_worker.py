"""`txaware worker`: a function that is called with the jobs of a queue."""

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run, start
from tests.support.concurrency import until
from txaware.cli.queue.worker import handler_of
from txaware.cli.queue.worker_processes import WorkerProcesses

PATIENCE_S = 60
HANDLERS = """
import sqlite3
from txaware import participants

import os, pathlib, threading, time

def note(job, tx=None):
    pathlib.Path("done", job.payload.decode()).write_text(str(os.getpid()))
    if job.payload == b"slow":
        while not pathlib.Path("go-on").exists():
            time.sleep(0.01)

class Group:
    async def note(self, job):
        note(job)

group = Group()
number = 5


def open_shop(messaging):
    connection = sqlite3.connect("shop.db", timeout=60)
    return participants.sqlite(messaging, connection)


def note_in_shop(job, tx):
    [shop] = tx.participants
    shop.connection.execute("INSERT INTO handled VALUES (?)", (job.payload,))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "handlers_of_a_test.py").write_text(HANDLERS)
    (tmp_path / "done").mkdir()
    with txaware.connect("leveldb:data") as messaging:
        messaging.create_queue("mail")
        messaging.queue("mail").push_all([b"1", b"slow", b"2"])
    return tmp_path


@pytest.mark.parametrize(
    "options", [("note", "--transaction"), ("group.note",)], ids=" ".join
)
def test_sigterm_finishes_the_jobs_at_work(
    here: Path, options: tuple[str, ...]
) -> None:
    target, *more = options
    process = start("worker", f"handlers_of_a_test:{target}", "--queue", "mail", *more)
    with process:
        try:
            assert until(
                lambda: (here / "done" / "slow").exists(), timeout_s=PATIENCE_S
            )
            assert until(lambda: (here / "done" / "2").exists(), timeout_s=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            assert process.poll() is None
            (here / "go-on").touch()
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out == b"queue mail: 3 jobs done meanwhile, 0 failed, 0 waiting\n"
    assert b"works on queue mail, 4 threads; Ctrl-C ends it" in err


def test_processes_share_the_jobs_and_end_with_their_parent(here: Path) -> None:
    with txaware.connect("leveldb:data") as messaging:
        messaging.queue("mail").push_all([b"%d" % number for number in range(3, 60)])
    process = start(
        *("worker", "handlers_of_a_test:note", "--queue", "mail"),
        *("--processes", "2", "--threads", "2"),
    )
    with process:
        try:
            assert until(
                lambda: len(list((here / "done").iterdir())) == 60, timeout_s=PATIENCE_S
            )
            process.send_signal(signal.SIGTERM)
            (here / "go-on").touch()
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out == b"queue mail: 60 jobs done meanwhile, 0 failed, 0 waiting\n"
    workers = {path.read_text() for path in (here / "done").iterdir()}
    assert str(process.pid) not in workers
    assert len(workers) <= 2


def test_a_participant_is_opened_in_each_thread(here: Path) -> None:
    """The rows and the ends of the jobs commit together, in each process."""
    connection = sqlite3.connect(here / "shop.db")
    connection.execute("CREATE TABLE handled (what)")
    process = start(
        *("worker", "handlers_of_a_test:note_in_shop", "--queue", "mail"),
        *("--participant", "handlers_of_a_test:open_shop"),
        *("--processes", "2", "--threads", "2"),
    )

    def handled() -> list[Any]:
        return connection.execute("SELECT what FROM handled ORDER BY what").fetchall()

    with process:
        try:
            assert until(lambda: len(handled()) == 3, timeout_s=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out == b"queue mail: 3 jobs done meanwhile, 0 failed, 0 waiting\n"
    assert handled() == [(b"1",), (b"2",), (b"slow",)]
    connection.close()


def test_what_cannot_be_called_is_one_sentence() -> None:
    for target, sentence in (
        ("handlers_of_a_test", "'handlers_of_a_test' is not MODULE:FUNCTION"),
        ("handlers_of_a_test:number", "module handlers_of_a_test has no function"),
        ("handlers_of_a_test:a.b", "module handlers_of_a_test has no function a.b"),
        ("no_such.module:f", "there is no module no_such.module, here or installed"),
    ):
        assert sentence in error_of("worker", target, "--queue", "mail", code=2)
    found = handler_of("handlers_of_a_test:group.note")
    assert getattr(found, "__name__", "") == "note"
    told = error_of("worker", "handlers_of_a_test:note", "--queue", "none")
    assert told.startswith("queue none does not exist")


def test_the_help_says_how_it_ends() -> None:
    text = " ".join(run("worker", "--help").stdout.split())
    assert "until Ctrl-C or SIGTERM" in text
    assert "--child" not in text


def test_a_process_that_dies_is_replaced() -> None:
    crew = WorkerProcesses("leveldb:data", None, ["x"], None)
    crew._command = ["sleep", "60"]
    with crew.working(2):
        first, second = (child.process for child in crew._children)
        first.kill()
        first.wait()
        crew._children[0].began_s -= 60
        crew.look_after()
        assert len(crew._children) == 2
        assert second in [child.process for child in crew._children]
        for child in crew._children:
            child.process.kill()
