"""Nobody is kept waiting by others: not for a disk, nor for a thread, in the loop."""

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from coordinator import codec
from tests.support.background import Gate
from tests.support.concurrency import PATIENCE_S, until
from tests.support.http_raw import (
    AVRO,
    PING,
    POLL,
    TOPIC,
    Served,
    poll,
    publish,
    request,
    serving,
)
from tests.support.messagings import commit
from txaware.model.messages import MessageId
from txaware.server.server_context import SLOW_THREADS
from txaware.service.administration import Administration
from txaware.service.groups.local_groups import LocalGroups
from txaware.service.read.scan import FRESH_ROWS, QUICK_ROWS, READ_ROWS, Scan
from txaware.service.wakeups import Signal
from txaware.store.batch_writer import BatchWriter
from txaware.store.leveldb import LevelDbTable
from txaware.store.message_table import Block

LOOP = "txaware-http"  # its thread; others have numbers behind that
TOPICS = TOPIC.removesuffix("t")
GROUPS = "/v1/namespaces/default/groups"
BILLING = f"{GROUPS}/billing"
JSON = "Content-Type: application/json"


def is_well(here: Served) -> bool:
    """Whether whoever comes is answered, while others wait for something."""
    return all(here.ask(PING).status == 200 for _ in range(5))


def poll_json(**fields: Any) -> bytes:
    """The request of a poll as JSON."""
    return request("POST", POLL, json.dumps(fields).encode(), JSON)


@contextmanager
def still_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Nothing is written, until it is let go or the block ends."""
    gate, write = Gate(), BatchWriter._write

    def held(batches: BatchWriter, *args: Any) -> None:
        gate(lambda: write(batches, *args))

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "_write", held)
        try:
            yield gate
        finally:
            gate.open.set()


def test_an_absent_topic_is_404_while_another_one_is_created(
    served_disk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_disk.connect() as creating, still_disk(monkeypatch) as disk:
        creating.send(request("PUT", TOPICS + "new"))
        assert disk.came.wait(PATIENCE_S)
        assert served_disk.ask(request("GET", TOPICS + "absent")).status == 404
        assert served_disk.ask(request("GET", TOPICS + "new")).status == 404
        assert is_well(served_disk)
        disk.open.set()
        assert creating.response().status == 200
        assert served_disk.ask(request("GET", TOPICS + "new")).status == 200


def test_a_publish_to_a_topic_that_is_updated_keeps_nobody_else_waiting(
    served_disk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        served_disk.connect() as updating,
        served_disk.connect() as publishing,
        still_disk(monkeypatch) as disk,
    ):
        updating.send(request("PUT", TOPIC + "/properties", b'{"ttl": "50"}'))
        assert disk.came.wait(PATIENCE_S)
        publishing.send(publish())
        assert until(lambda: served_disk.in_flight == 2)
        assert is_well(served_disk)
        disk.open.set()
        assert updating.response().status == 200
        assert publishing.response().status == 200


def test_a_poll_does_not_wait_while_a_held_publish_saves_the_time(
    served_disk: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging, clock = served_disk.messaging, served_disk.clock
    clock.advance_s(10)
    tx = messaging.coordinator.start_short()
    clock.advance_s(4)  # further than was saved
    with ThreadPoolExecutor(1) as thread, still_disk(monkeypatch) as disk:
        held = thread.submit(messaging.publish, "t", [b"held"], transaction=tx)
        assert disk.came.wait(PATIENCE_S)
        assert served_disk.ask(poll()).body == b"\0"
        assert is_well(served_disk)
        disk.open.set()
        held.result(PATIENCE_S)
    assert served_disk.payloads() == [b"held"]


@attrs.frozen
class Reads:
    """What was read from the table: in which thread, and how many rows at most."""

    made: list[tuple[str, int]] = attrs.field(factory=list)

    @property
    def in_loop(self) -> list[int]:
        """The limits of those that the event loop waited for."""
        return [limit for thread, limit in self.made if thread == LOOP]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Those from now on."""
    noted, scan = Reads(), LevelDbTable.scan

    def noting(table: LevelDbTable, *args: Any, **options: Any) -> Any:
        noted.made.append((threading.current_thread().name, options["limit"]))
        return scan(table, *args, **options)

    monkeypatch.setattr(LevelDbTable, "scan", noting)
    return noted


def test_the_end_of_a_topic_is_read_in_a_thread(
    served_disk: Served, reads: Reads
) -> None:
    assert served_disk.server._thread.name == LOOP
    served_disk.messaging.publish("t", [b"a"])
    [last] = served_disk.ask(poll_json()).json()
    for _ in range(3):
        reads.made.clear()
        found = served_disk.ask(poll_json(startFrom=last["id"], inclusive=False))
        assert found.json() == []
        assert reads.made
        assert not reads.in_loop


def test_what_a_reference_stands_for_is_read_in_a_thread(
    served_disk: Served, reads: Reads
) -> None:
    messaging = served_disk.messaging
    tx = messaging.coordinator.start_short()
    messaging.store("t", [b"x" * 100] * 5000, transaction=tx)
    messaging.publish("t", [], transaction=tx)
    commit(messaging, tx)
    for _ in range(2):  # the second time the reference itself is kept
        reads.made.clear()
        assert len(served_disk.ask(poll_json(limit=10)).json()) == 10
        assert reads.made
        assert not reads.in_loop


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Whether a long poll waits for something to happen."""
    event, listen = threading.Event(), Signal.listen

    def noting(signal: Signal, *args: Any, **options: Any) -> bool:
        is_listening = listen(signal, *args, **options)
        event.set()
        return is_listening

    monkeypatch.setattr(Signal, "listen", noting)
    return event


@pytest.mark.parametrize("how", ["plain", "held", "stored"])
def test_what_a_long_poll_was_woken_for_is_read_in_a_thread_but_for_a_little(
    served_disk: Served, reads: Reads, listening: threading.Event, how: str
) -> None:
    messaging, many = served_disk.messaging, [b"x" * 1000] * 900
    tx = messaging.coordinator.start_short(60)
    if how == "stored":
        messaging.store("t", many, transaction=tx)
        messaging.publish("t", [], transaction=tx)
    elif how == "held":
        messaging.publish("t", many, transaction=tx)
    with served_disk.connect() as raw:
        raw.send(poll_json(isolation="committed", waitMs=20_000, limit=5000))
        assert listening.wait(PATIENCE_S)
        reads.made.clear()
        if how == "plain":
            messaging.publish("t", many)
        else:
            commit(messaging, tx)
        assert len(raw.response().json()) == 900
    assert len(reads.in_loop) <= 3
    assert max(reads.in_loop) <= FRESH_ROWS + 1


def test_a_commit_brings_the_row_that_blocked_a_reader_without_another_read(
    served_disk: Served, reads: Reads, listening: threading.Event
) -> None:
    messaging, now_ms = served_disk.messaging, served_disk.clock.now_ms
    tx = messaging.coordinator.start_short(60)
    messaging.publish("t", [b"a"], transaction=tx)
    with served_disk.connect() as raw:
        asked = {"isolation": "committed", "waitMs": 20_000, "startFrom": now_ms}
        raw.send(poll_json(**asked))
        assert listening.wait(PATIENCE_S)  # it has seen the row, and is blocked by it
        reads.made.clear()
        commit(messaging, tx)
        assert len(raw.response().json()) == 1
    assert not reads.made


def test_many_rows_that_nobody_may_see_are_judged_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged, take, count = {"loop": 0, "all": 0}, Scan._take, 4 * QUICK_ROWS

    def counting(scan: Scan, block: Block) -> bool:
        judged["all"] += len(block)
        if threading.current_thread().name == LOOP:
            judged["loop"] += len(block)
        return take(scan, block)

    with serving() as here:
        tx = here.messaging.coordinator.start_short()
        for _ in range(0, count, 1000):
            here.messaging.publish("t", [b""] * 1000, transaction=tx)
        here.messaging.coordinator.invalidate(tx)
        here.messaging.publish("t", [b"seen"])
        snapshot = codec.encode(here.messaging.coordinator.snapshot())
        asked = poll_json(
            startFrom=here.clock.now_ms,  # of older rows none is kept
            transaction=base64.b64encode(snapshot).decode(),
        )
        monkeypatch.setattr(Scan, "_take", counting)
        for kept in (False, True):
            judged |= {"loop": 0, "all": 0}
            assert len(here.ask(asked).json()) == 1
            assert judged["all"] >= count
            assert bool(judged["loop"]) == kept
            assert judged["loop"] <= QUICK_ROWS + READ_ROWS


def test_checks_keep_neither_what_monitors_ask_nor_transactions_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(Administration, "check", lambda *_, **__: gate(fails))
    url = f"leveldb:{tmp_path}/data"
    with serving(url, server_threads=2) as here, ExitStack() as stack:
        stack.callback(gate.open.set)
        checks = [stack.enter_context(here.connect()) for _ in range(SLOW_THREADS * 4)]
        for check in checks:
            check.send(request("POST", "/v1/admin/check"))
        assert until(lambda: here.in_flight == len(checks))
        assert gate.came.wait(PATIENCE_S)
        for path in ("/health", "/metrics", "/v1/metrics", "/v1/overview"):
            assert here.ask(request("GET", path)).status == 200
        with txaware.connect(here.url) as client, client.transaction():
            client.publisher("t").publish(b"a")
        assert here.ask(request("POST", POLL, b"\4\1\2\2", *AVRO)).body != b"\0"
        assert here.in_flight == len(checks)
        gate.open.set()
        assert {check.response().status for check in checks} == {400}


def test_joins_of_one_group_hold_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, join = Gate(), LocalGroups.join_group

    def held(groups: LocalGroups, *args: Any, **options: Any) -> Any:
        return gate(lambda: join(groups, *args, **options))

    monkeypatch.setattr(LocalGroups, "join_group", held)
    with serving(server_threads=2) as here, ExitStack() as stack:
        stack.callback(gate.open.set)
        joins = [stack.enter_context(here.connect()) for _ in range(8)]
        for one in joins:
            one.send(request("POST", f"{BILLING}/members", b'{"topics": ["t"]}', JSON))
        assert until(lambda: here.in_flight == len(joins))
        assert gate.came.wait(PATIENCE_S)
        assert here.ask(request("GET", BILLING)).status == 404
        assert here.ask(request("PUT", f"{GROUPS}/other", b"{}", JSON)).status == 200
        assert here.in_flight == len(joins)
        gate.open.set()
        assert {one.response().status for one in joins} == {200}
        assert len(here.ask(request("GET", BILLING)).json()["members"]) == len(joins)


@pytest.mark.parametrize("frames", [True, False])
def test_transactions_positions_and_jobs_need_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, frames: bool
) -> None:
    gate, join = Gate(), LocalGroups.join_group

    def held(groups: LocalGroups, *args: Any, **options: Any) -> Any:
        return gate(lambda: join(groups, *args, **options))

    monkeypatch.setattr(LocalGroups, "join_group", held)
    with (
        serving(f"leveldb:{tmp_path}/data", server_threads=2) as here,
        txaware.connect(here.url, frames=frames) as client,
        ExitStack() as stack,
    ):
        stack.callback(gate.open.set)
        client.create_queue("q")
        queue, publisher = client.queue("q"), client.publisher("t")
        queue.push(b"first")  # what is looked up once is known now
        with client.transaction():
            publisher.publish(b"first")
        joins = [stack.enter_context(here.connect()) for _ in range(2)]
        for number, one in enumerate(joins):
            path = f"{GROUPS}/g{number}/members"
            one.send(request("POST", path, b'{"topics": ["t"]}', JSON))
        assert until(lambda: here.in_flight == len(joins))
        assert gate.came.wait(PATIENCE_S)
        with client.transaction() as context:
            client.publish("t", [b"a"], transaction=context.transaction)
            publisher.publish(b"b")
            client.save_position(
                "billing", "t", MessageId(bytes(20)), transaction=context.transaction
            )
        queue.push(b"second")
        job = queue.pop()
        assert job is not None
        job.extend(60)
        job.commit()
        job = queue.pop()
        assert job is not None
        job.rollback()
        assert here.in_flight == len(joins)
        gate.open.set()
        assert {one.response().status for one in joins} == {200}
        assert client.position("billing", "t") == MessageId(bytes(20))
        assert here.payloads() == [b"first", b"a", b"b"]


def fails() -> None:
    raise txaware.BadRequest("nothing was checked")
