"""A Tephra that runs elsewhere: by address and by ZooKeeper, without a JVM here."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator import codec
from coordinator.errors import (
    MissingExtra,
    TransactionConflict,
    TransactionTooLarge,
    Unavailable,
)
from coordinator.interfaces import Coordinator
from coordinator.tephra import TephraCoordinator, ThriftCoordinator
from tests.support.tephra_service import distributed_tephra
from tests.support.tephra_tricks import PATIENCE_S, python, wait_until

pytestmark = pytest.mark.tephra

NOTICED_WITHIN_S = 10.0  # of 30, after which no answer is waited for
MANY = 50_000

NO_JVM = """
import sys
sys.modules["py4j"] = None
from coordinator.tephra import ThriftCoordinator
with ThriftCoordinator("127.0.0.1", int(sys.argv[1])) as coordinator:
    tx = coordinator.start_short()
    coordinator.can_commit(tx, [b"key"])
    coordinator.commit(tx)
    print(coordinator.status())
"""


@pytest.fixture
def served(tmp_path: Path, java: str) -> Iterator[TephraCoordinator]:
    """A Tephra for this test alone, which serves others."""
    limits = {"data.tx.changeset.count.limit": "100"}
    with TephraCoordinator(tmp_path / "served", settings=limits) as coordinator:
        yield coordinator


@contextmanager
def mute_server(*, answer: bytes | None = None) -> Iterator[int]:
    """Listens, and never answers, or always answers the same; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    if answer is not None:
                        connection.recv(10_000)
                        connection.sendall(answer)
                    done.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            done.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_it_is_a_coordinator_and_needs_no_jvm(served: TephraCoordinator) -> None:
    _, port = served.serve_thrift()
    with python(NO_JVM, str(port)) as process:
        assert process.communicate(timeout=60) == ("OK\n", "")
    coordinator: Coordinator
    with ThriftCoordinator("127.0.0.1", port) as coordinator:
        assert coordinator.status() == "OK"


def test_it_decides_together_with_those_who_come_over_py4j(
    served: TephraCoordinator,
) -> None:
    with ThriftCoordinator(*served.serve_thrift(), client_id="far away") as far:
        loser = far.start_short()
        winner = served.start_short()
        assert loser.transaction_id in winner.in_progress
        served.can_commit(winner, [b"key"])
        served.commit(winner)
        with pytest.raises(TransactionConflict, match="key"):
            far.can_commit(loser, [b"key"])
        far.abort(loser)
        assert not served.start_short().in_progress


def test_both_ways_tell_the_same_bytes_of_a_transaction(
    served: TephraCoordinator,
) -> None:
    served.invalidate(served.start_short())
    served.start_long()
    with ThriftCoordinator(*served.serve_thrift()) as far:
        tx = far.checkpoint(far.checkpoint(far.start_long()))
    calls = served._calls
    assert calls.checkpoint(tx).pointers[:-1] == tx.pointers
    assert codec.decode(codec.encode(tx)) == tx
    assert len(tx.invalids) == len(tx.in_progress) == 1


def test_fifty_thousand_invalid_pointers_arrive_sorted(
    served: TephraCoordinator,
) -> None:
    first = served.start_short().transaction_id
    invalids = served.jvm.view.java.util.stream.LongStream.range(first, first + MANY)
    manager = served._tephra.manager
    field = manager.getClass().getDeclaredField("invalidTxList")
    field.setAccessible(True)
    field.get(manager).addAll(
        invalids.boxed().collect(served.jvm.view.java.util.stream.Collectors.toList())
    )
    with ThriftCoordinator(*served.serve_thrift()) as far:
        seen = far.start_short().invalids
        assert seen == served.start_short().invalids
        assert (len(seen), seen[0], seen[-1]) == (MANY, first, first + MANY - 1)
        assert far.invalid_size() == MANY


def test_a_dead_server_is_unavailable_soon_and_a_new_one_is_found_again(
    served: TephraCoordinator,
) -> None:
    host, port = served.serve_thrift()
    with ThriftCoordinator(host, port) as far:
        tx = far.start_short()
        served.jvm.kill()
        for call in (far.start_short, lambda: far.commit(tx), far.snapshot):
            began = time.monotonic()
            with pytest.raises(Unavailable):
                call()
            assert time.monotonic() - began < NOTICED_WITHIN_S
        assert far.status() != "OK"


def test_connections_that_the_server_closed_while_idle_are_not_used(
    served: TephraCoordinator,
) -> None:
    with ThriftCoordinator(*served.serve_thrift()) as far:
        far.start_short()
        (idle,) = far._pool._idle
        idle._socket.shutdown(socket.SHUT_RDWR)
        assert far.status() == "OK"
        assert idle not in far._pool._idle


def test_a_server_that_never_answers_is_unavailable_after_the_time_out() -> None:
    with (
        mute_server() as port,
        ThriftCoordinator("127.0.0.1", port, answer_timeout_s=0.2) as far,
        pytest.raises(Unavailable, match="timed out"),
    ):
        far.start_short()


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\x04\0\0\0\0",
        b"\0\0\0\x20HTTP/1.1 400 Bad Request\r\n\r\n\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\1\0cut off",
        b"\0\0\0\x26\x80\1\0\2\0\0\0\x12startShortClientId\0\0\0\0\x0c\0\0\0\1\2",
    ],
)
def test_a_server_that_answers_something_else_is_unavailable(answer: bytes) -> None:
    with (
        mute_server(answer=answer) as port,
        ThriftCoordinator("127.0.0.1", port, answer_timeout_s=0.2) as far,
        pytest.raises(Unavailable),
    ):
        far.start_short()


def test_where_nobody_listens_it_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    far = ThriftCoordinator("127.0.0.1", port)
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port} cannot be reached"):
        far.start_short()
    far.close()
    with pytest.raises(Unavailable, match="closed"):
        far.start_short()


def test_the_reason_of_a_refusal_is_told(served: TephraCoordinator) -> None:
    with ThriftCoordinator(*served.serve_thrift()) as far:
        tx = far.start_short()
        with pytest.raises(TransactionTooLarge, match="101 entries"):
            far.can_commit(tx, [b"%d" % i for i in range(101)])


def test_a_service_is_found_by_zookeeper_and_found_again_after_it_moved(
    java: str, tmp_path: Path
) -> None:
    with (
        distributed_tephra(tmp_path) as distributed,
        ThriftCoordinator.discover(distributed.hosts) as far,
    ):
        with pytest.raises(Unavailable, match="does not say where Tephra is"):
            far.start_short()
        first = distributed.start_service()
        wait_until(lambda: far.status() == "OK")
        tx = far.start_short()
        far.can_commit(tx, [b"key"])
        far.commit(tx)
        first.stop()
        with pytest.raises(Unavailable):
            far.start_short()
        second = distributed.start_service()
        wait_until(lambda: far.status() == "OK")
        assert far.start_short().transaction_id > tx.transaction_id
        second.stop()


def test_a_node_written_by_hand_is_found_too(java: str, tmp_path: Path) -> None:
    from kazoo.client import KazooClient

    with distributed_tephra(tmp_path) as distributed:
        client = KazooClient(hosts=distributed.hosts)
        client.start()
        announced = b'{"service":"tx","hostname":"127.0.0.1","port":1,"payload":[]}'
        client.create("/discoverable/tx/one", announced, makepath=True)
        client.stop()
        client.close()
        with (
            ThriftCoordinator.discover(
                distributed.hosts, service="tx", connect_timeout_s=20
            ) as far,
            pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached"),
        ):
            far.start_short()


def test_where_there_is_no_zookeeper_it_is_unavailable_soon(
    capfd: pytest.CaptureFixture[str], java: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    took_s = []
    for _ in range(3):  # threads of kazoo begin and end; the fastest tells
        with ThriftCoordinator.discover(
            f"127.0.0.1:{port}", connect_timeout_s=1
        ) as far:
            began = time.monotonic()
            with pytest.raises(Unavailable, match="ZooKeeper at"):
                far.start_short()
            took_s.append(time.monotonic() - began)
    assert min(took_s) < 2
    assert capfd.readouterr() == ("", "")


def test_a_forked_child_is_told_to_open_its_own(served: TephraCoordinator) -> None:
    with ThriftCoordinator(*served.serve_thrift()) as far:
        far.start_short()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                far.start_short()
            except Unavailable as error:
                os._exit(42 if "forked" in str(error) else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 42
        assert far.status() == "OK"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[tephra\]' in a checkout"):
        ThriftCoordinator.discover("127.0.0.1:1").start_short()
