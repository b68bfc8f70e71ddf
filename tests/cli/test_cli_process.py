"""`python -m txaware` as a process: signals, pipes, bytes, a directory in use."""

import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import (
    PATIENCE_S,
    PROGRAM,
    error_of,
    run,
    run_json,
    start,
    wait_until_taken,
)
from tests.support.concurrency import until
from tests.support.python_process import completed


def txaware_run(
    here: Path, *arguments: str, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    return completed([*PROGRAM, *arguments], cwd=here, stdin=stdin, timeout=PATIENCE_S)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("t")
    return tmp_path


def test_bytes_come_out_as_they_went_in(here: Path) -> None:
    stdin = bytes(range(256)) + b"\n\xff\xfe\n\n\r\n"
    assert txaware_run(here, "publish", "t", stdin=stdin).returncode == 0
    polled = txaware_run(here, "poll", "t", "--raw")
    assert (polled.stdout, polled.stderr) == (stdin, b"")


def test_a_directory_in_use_is_one_sentence_with_the_pid(here: Path) -> None:
    follow = start("poll", "t", "--follow", "--json", cwd=here)
    assert follow.stdout is not None
    with follow:
        try:
            _wait_for_owner(here, follow.pid)
            refused = txaware_run(here, "publish", "t", "m")
        finally:
            follow.send_signal(signal.SIGINT)
        out, err = follow.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 3
    assert refused.stderr.decode() == (
        f"Error: {here / 'data'} is in use by process {follow.pid}; a directory has "
        f"one owner at a time. To use it from several programs, start `txaware serve` "
        f"on it first (or messaging.serve() in the one that has it): all others are "
        f"then led there\n"
    )
    assert (follow.returncode, out, err) == (0, b"", b"")


def _wait_for_owner(here: Path, pid: int) -> None:
    lock = here / "data" / "LOCK"
    assert until(lambda: lock.read_text().strip() == str(pid), timeout_s=PATIENCE_S)
    # the last of the handlers
    assert until(lambda: _catches(pid, signal.SIGTERM), timeout_s=PATIENCE_S)


def _catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search("SigCgt:\t([0-9a-f]+)", status)
    assert caught is not None
    return bool(int(caught[1], 16) >> number - 1 & 1)


def test_ctrl_c_ends_quietly_with_130(here: Path) -> None:
    publish = start("publish", "t", cwd=here)
    assert publish.stdin is not None
    with publish:
        for piece in (b"one\ntwo\nthr", b"e"):  # read after the first was counted
            publish.stdin.write(piece)
            publish.stdin.flush()
            wait_until_taken(publish.stdin.fileno())
        time.sleep(0.3)  # Python takes no notice of a signal just before it reads
        publish.send_signal(signal.SIGINT)
        assert publish.wait(PATIENCE_S) == 130
        assert publish.stderr is not None
        assert publish.stderr.read() == b"(at least 2 messages published before)\n"
    assert run("--url", f"leveldb:{here / 'data'}", "poll", "t", "--raw").stdout == (
        "one\ntwo\n"
    )


def test_a_closed_pipe_ends_quietly(here: Path) -> None:
    lines = [b"a line of some length, number %d" % n for n in range(20_000)]
    with txaware.connect(f"leveldb:{here / 'data'}") as messaging:
        messaging.publish("t", lines)
    poll = start("poll", "t", "--raw", cwd=here)
    with poll:
        assert poll.stdout is not None
        assert poll.stdout.readline().startswith(b"a line")
        poll.stdout.close()
        assert poll.stderr is not None
        assert poll.stderr.read() == b""
        assert poll.wait(PATIENCE_S) == 141


def test_what_the_shell_closed_is_nowhere(here: Path) -> None:
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *PROGRAM]
    for call, code in (("publish t a", 0), ("poll t", 0), ("nosuch", 2)):
        ended = subprocess.run(
            [*shell, *call.split()], cwd=here, capture_output=True, timeout=PATIENCE_S
        )
        assert ended.returncode == code, call
    with txaware.connect(f"leveldb:{here / 'data'}") as messaging:
        assert [one.payload for one in messaging.poll("t")] == [b"a"]


def test_completion_knows_the_verbs(here: Path) -> None:
    ran = subprocess.run(
        PROGRAM,
        env={
            "_TXAWARE_COMPLETE": "bash_complete",
            "COMP_WORDS": "txaware top",
            "COMP_CWORD": "1",
            "PYTHONPATH": str(Path(txaware.__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "plain,topic\n"


def test_demo_does_what_it_says_and_leaves_nothing_behind(here: Path) -> None:
    scratch = here / "scratch"
    scratch.mkdir()
    ran = subprocess.run(
        [*PROGRAM, "demo"],
        env={
            "TMPDIR": str(scratch),
            "PYTHONPATH": str(Path(txaware.__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    for promised in (
        "others see              no messages",
        "refused at its commit   ann paid bob 7: rolled back",
        "the topic holds         1 reference to 60 payloads",
        "billing, another one    dan paid bob 2",
        "a child pays 50         killed by SIGKILL",
        "written in the topic    ann paid bob 50: invalid",
        "the balances are        ann 95, bob 5",
        "audit goes on with      ann paid bob 5 again",
        "All of it was as promised",
    ):
        assert promised in ran.stdout
    assert not list(scratch.iterdir())


def test_the_directory_of_a_demo_can_be_looked_at(here: Path) -> None:
    assert txaware_run(here, "demo", "--directory", "demo").returncode == 0
    place = f"leveldb:{here / 'demo' / 'data'}"
    polled = run_json("--url", place, "poll", "transfers")
    assert [line["payload"] for line in polled] == [
        "ann paid bob 5",
        "cid paid bob 1",
        "dan paid bob 2",
        "ann paid bob 5 again",
    ]
    again = error_of("demo", "--directory", str(here / "demo"), code=2)
    assert "demo is not empty" in again


@pytest.mark.long
def test_help_comes_at_once() -> None:
    def took_s(*command: str) -> float:
        """Of a processor, of which others may take their share meanwhile."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    # In turns, since a processor is slower now and then.
    turns = [
        (took_s("-m", "txaware", "--help"), took_s("-c", "import txaware"))
        for _ in range(5)
    ]
    help_s, import_s = map(min, zip(*turns, strict=True))
    assert help_s < import_s + 0.3
