"""Queues of values: what is pushed is encoded, what is popped is decoded."""

import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from tests.support.concurrency import until
from tests.support.messagings import Site
from txaware import participants
from txaware.errors import BadRequest
from txaware.messaging import MessagingTransaction
from txaware.model.messages import Outgoing
from txaware.queue import Job, Queue

PATIENCE_S = 20


@attrs.frozen
class Order:
    """What the queue is of."""

    name: str
    amount: int = 1


@pytest.fixture
def orders(site: Site) -> "Queue[Order]":
    """A queue of values that gives a job up after its second delivery."""
    site.messaging.create_queue("orders", max_deliveries=2)
    return typed(site)


def typed(site: Site, name: str = "orders") -> "Queue[Order]":
    return site.messaging.queue(name, encode=txaware.to_json, decode=Order)


def bytes_of(site: Site, name: str = "orders") -> list[bytes]:
    return [item.payload for item in site.messaging.queue(name).peek()]


def taken(queue: "Queue[Order]") -> list[Order]:
    found = []
    while (job := queue.pop()) is not None:
        with job:
            found.append(job.payload)
    return found


def handled(
    site: Site, queue: "Queue[Order]", handler: Any, jobs: int, **options: Any
) -> None:
    """Runs a worker until it has handled so many jobs, well or not."""
    worker = queue.worker(handler, first_pause_s=0.001, idle_wait_s=0.02, **options)

    def is_done() -> bool:
        site.clock.advance_s(0.1)  # what failed comes again
        counts = worker.metrics()
        return counts.done + counts.failed == jobs

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(worker.run)
        try:
            assert until(is_done, timeout_s=PATIENCE_S), worker.metrics()
        finally:
            worker.close()
        ended.result(PATIENCE_S)


def test_what_is_pushed_in_every_way_is_popped_as_it_was(
    orders: "Queue[Order]", site: Site
) -> None:
    orders.push(Order("one", 5), key=b"k", headers={"h": b"v"})
    orders.push_all([Order("two"), Outgoing(Order("three"), b"k3")])
    with orders.pusher() as pusher:
        pusher.push(Order("four"))
    with site.messaging.transaction():
        orders.push(Order("five"))
    assert bytes_of(site)[0] == b'{"name": "one", "amount": 5}'
    (job,) = orders.popper().pop_many(1)
    assert (job.payload, job.key, job.headers) == (
        Order("one", 5),
        b"k",
        {"h": b"v"},
    )
    assert job.payload is job.payload
    job.commit()
    names = {order.name for order in taken(orders)}
    assert names == {"two", "three", "four", "five"}


def test_jobs_in_a_transaction_have_values(orders: "Queue[Order]", site: Site) -> None:
    orders.push(Order("ann"))
    with site.messaging.transaction():
        job = orders.pop()
        assert job is not None
        assert job.payload == Order("ann")
        orders.push(attrs.evolve(job.payload, amount=2))
    assert taken(orders) == [Order("ann", 2)]


def test_what_cannot_be_encoded_pushes_nothing(
    orders: "Queue[Order]", site: Site
) -> None:
    with pytest.raises(BadRequest, match="is no JSON"):
        orders.push_all([Order("ann"), {1j}])  # type: ignore[list-item]
    assert bytes_of(site) == []
    only_pops = site.messaging.queue("orders", decode=Order)
    with pytest.raises(BadRequest, match="bytes"):
        only_pops.push(Order("ann"))
    with pytest.raises(BadRequest, match="coroutine"):
        site.messaging.queue("orders", encode=awaited)  # type: ignore[arg-type]


async def awaited(_: object) -> bytes:
    """No function that a queue can call."""
    return b""


def test_who_names_one_side_has_bytes_on_the_other(site: Site) -> None:
    site.messaging.create_queue("mail")
    site.messaging.queue("mail", encode=str.encode).push("a")
    site.messaging.queue("mail").push(b"b")
    one, other = site.messaging.queue("mail", decode=bytes.decode).pop_many(2)
    assert {one.payload, other.payload} == {"a", "b"}


def test_values_take_the_pipes_that_bytes_have(site: Site) -> None:
    """A queue may be named anew for each push."""
    site.messaging.create_queue("mail")
    for number in range(5):
        queue = site.messaging.queue("mail", encode=str.encode)
        queue.push(str(number))
        site.messaging.queue("mail").push(b"plain")
    assert site.messaging.queue("mail").stats().pipes == 1


def test_a_job_that_has_no_value_keeps_none_from_the_others(
    orders: "Queue[Order]", site: Site
) -> None:
    site.messaging.queue("orders").push_all([b"no JSON", b'{"name": 5}'])
    orders.push(Order("ann"))
    jobs = orders.pop_many(3)
    assert len(jobs) == 3
    wrong = 0
    for job in jobs:
        try:
            with job:
                assert job.payload == Order("ann")
        except BadRequest:
            wrong += 1
    assert wrong == 2
    stats = orders.stats()
    assert (stats.committed, stats.depth, stats.in_work) == (1, 2, 0)


@pytest.mark.parametrize("transaction", [False, True])
def test_a_worker_buries_what_cannot_be_decoded_with_the_reason(
    orders: "Queue[Order]",
    site: Site,
    caplog: pytest.LogCaptureFixture,
    *,
    transaction: bool,
) -> None:
    site.messaging.queue("orders").push(b'{"name": 5}', key=b"k")
    orders.push(Order("ann"))
    found: list[Order] = []

    def handler(job: "Job[Order]", *_: object) -> None:
        found.append(job.payload)

    with caplog.at_level(logging.WARNING):
        handled(site, orders, handler, 3, transaction=transaction)
    assert found == [Order("ann")]
    assert orders.stats().depth == orders.stats().in_work == 0
    (letter,) = site.messaging.queue("orders-dead").pop_many(9)
    assert (letter.payload, letter.key) == (b'{"name": 5}', b"k")
    reason = letter.headers["error"].decode()
    assert "is no Order" in reason
    assert "$.name" in reason
    assert "is no Order" in caplog.text


def test_a_coroutine_is_not_called_without_a_value(
    orders: "Queue[Order]", site: Site
) -> None:
    site.messaging.queue("orders").push(b"no JSON")
    called: list[object] = []

    async def handler(job: "Job[Order]") -> None:
        called.append(job)

    handled(site, orders, handler, 2)
    assert called == []
    assert len(bytes_of(site, "orders-dead")) == 1


def test_what_is_sent_back_after_a_mend_is_decoded(
    orders: "Queue[Order]", site: Site
) -> None:
    site.messaging.queue("orders").push(b"ann")
    handled(site, orders, lambda _: None, 2)
    assert orders.redrive() == 1
    mended = site.messaging.queue("orders", decode=lambda data: Order(data.decode()))
    assert taken(mended) == [Order("ann")]


def test_beside_rows_it_is_undone_with_them(
    orders: "Queue[Order]", site: Site, tmp_path: Path
) -> None:
    """The rows of the block, the item and the reason are one decision each time."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as made, made:
        made.execute("CREATE TABLE mails (name TEXT)")

    opened: list[sqlite3.Connection] = []

    def open_shop() -> Any:
        opened.append(sqlite3.connect(file))
        return participants.sqlite(site.messaging, opened[-1])

    site.messaging.queue("orders").push(b"no JSON")
    orders.push(Order("ann"))

    def handler(job: "Job[Order]", _: MessagingTransaction) -> None:
        opened[-1].execute("INSERT INTO mails VALUES (?)", (job.payload.name,))

    handled(site, orders, handler, 3, transaction=True, participants=[open_shop])
    with closing(sqlite3.connect(file)) as found, found:
        assert found.execute("SELECT name FROM mails").fetchall() == [("ann",)]
    assert bytes_of(site, "orders-dead") == [b"no JSON"]
    assert orders.stats().depth == 0
