"""A server that ends does not begin what nobody waits for any more."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import PATIENCE_S, until
from tests.support.http_raw import TOPIC, request, serving
from txaware.errors import BadRequest
from txaware.server.server_context import SLOW_THREADS, Threads
from txaware.service.administration import Administration
from txaware.service.check.table_scan import CheckScan
from txaware.service.monitor.inspection import Inspection
from txaware.service.retention.clean_up import Retention

# Nobody closes anything, and a thread asks once the main thread has ended.
FORGETFUL = r"""
import sys, threading, urllib.error, urllib.request
import txaware

messaging = txaware.connect(sys.argv[1])
messaging.create_topic("t")
server = messaging.serve()

def ask():
    threading.main_thread().join()
    url = server.url + "/v1/namespaces/default/topics/t/publish"
    head = {"Content-Type": "avro/binary", "Idempotency-Key": "k"}
    try:
        urllib.request.urlopen(urllib.request.Request(url, b"\2\2\2a\0", head))
    except urllib.error.HTTPError as error:
        assert error.code == 503, error
    except OSError:
        pass

threading.Thread(target=ask).start()
messaging.publish("t", [b"there"])
"""
ROUNDS, TAKES_S = 15, 0.5


@pytest.mark.parametrize("stay", [False, True], ids=["clients go", "clients stay"])
def test_requests_that_wait_for_a_thread_do_not_hold_the_end_up(
    stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    all_there = threading.Event()

    def check(*args: object, **_: object) -> None:
        begun.append(args)
        all_there.wait(PATIENCE_S)
        time.sleep(TAKES_S)
        raise BadRequest("nothing was checked")

    monkeypatch.setattr(Administration, "check", check)
    with serving(drain_timeout_s=0.5) as here, ExitStack() as stack:
        checks = [
            stack.enter_context(here.connect()) for _ in range(ROUNDS * SLOW_THREADS)
        ]
        for each in checks:
            each.send(request("POST", "/v1/admin/check"))
        assert until(lambda: here.in_flight == len(checks))
        all_there.set()
        if not stay:
            stack.close()
        began_s = time.monotonic()
        here.server.close()
        assert time.monotonic() - began_s < ROUNDS * TAKES_S * 2 / 3
        assert len(begun) < len(checks)


@pytest.mark.parametrize(
    ("owner", "step", "asked"),
    [
        (CheckScan, "_piece", request("POST", "/v1/admin/check")),
        (Retention, "_clean_topic", request("POST", "/v1/admin/clean-up")),
        (Retention, "_clean_topic", request("POST", "/v1/admin/prune")),
        (Inspection, "_blocks", request("GET", f"{TOPIC}/inspect")),
    ],
    ids=["check", "clean-up", "prune", "inspect"],
)
def test_what_takes_long_ends_at_its_next_step_when_the_time_to_drain_is_up(
    owner: Any, step: str, asked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    begun, dropped = threading.Event(), threading.Event()
    take, drop = getattr(owner, step), Threads.drop

    def wait() -> None:
        steps.append(step)
        begun.set()
        assert dropped.wait(PATIENCE_S)

    def slow(*args: Any) -> Any:
        wait()
        return take(*args)

    def slow_blocks(*args: Any) -> Iterator[Any]:
        for block in take(*args):
            wait()
            yield block

    def told(threads: Threads) -> None:
        drop(threads)
        dropped.set()

    with serving(drain_timeout_s=0) as here, here.connect() as raw:
        for topic in ("u", "v"):
            here.messaging.create_topic(topic)
        here.messaging.publish("t", [b""] * 3000)
        replaced: Callable[..., Any] = slow_blocks if step == "_blocks" else slow
        monkeypatch.setattr(owner, step, replaced)
        monkeypatch.setattr(Threads, "drop", told)
        raw.send(asked)
        assert begun.wait(PATIENCE_S)
        here.server.close()
    assert len(steps) == 1


def test_a_server_that_nobody_closes_ends_with_its_program(tmp_path: Path) -> None:
    data = f"leveldb:{tmp_path / 'data'}"
    command = [sys.executable, "-c", FORGETFUL, data]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert not (tmp_path / "data" / "SERVER").exists()
    with txaware.connect(data) as messaging:
        assert messaging.poll("t")[0].payload == b"there"
