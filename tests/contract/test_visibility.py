"""Transactions of the coordinator beside readers: ends, time-outs, writes under way."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from tests.support.concurrency import in_background
from tests.support.messagings import Site, commit, committed, payloads, publish
from txaware.errors import TransactionNotInProgress, TransactionRefused, Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import Write
from txaware.service.read.scan import CachedRows


def test_a_transaction_that_timed_out_writes_nothing_more(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short(10)
    publish(messaging, b"a", transaction=tx)
    messaging.publish("t", [b"b"])
    site.clock.advance_s(10)
    publish(messaging, b"c", transaction=tx)
    assert committed(messaging) == []
    site.clock.advance_s(0.001)
    for messages in ([b"d"], []):
        with pytest.raises(TransactionNotInProgress):
            messaging.publish("t", messages, transaction=tx)
    with pytest.raises(TransactionNotInProgress):
        messaging.store("t", [b"d"], transaction=tx)
    assert committed(messaging) == [b"b"]


def test_messages_are_published_with_the_first_pointer_whatever_follows(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    later = messaging.coordinator.checkpoint(tx)
    response = publish(messaging, b"b", transaction=later)
    messaging.store("t", [b"c"], transaction=later)
    publish(messaging, transaction=later)
    assert response.transaction_write_pointer == tx.transaction_id
    found = payloads(messaging.poll("t", transaction=later))
    assert found == [b"a", b"b", b"c"]
    assert committed(messaging) == []
    messaging.rollback("t", response)
    commit(messaging, later)
    assert committed(messaging) == [b"a", b"c"]


def test_what_was_not_undone_is_visible_after_an_abort(messaging: Messaging) -> None:
    """As in Tephra: only who has undone everything calls abort."""
    tx = messaging.coordinator.start_short()
    undone = publish(messaging, b"a", transaction=tx)
    publish(messaging, b"b", transaction=tx)
    messaging.rollback("t", undone)
    messaging.coordinator.abort(tx)
    assert committed(messaging) == [b"b"]


def test_a_long_transaction_publishes_too(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_long()
    publish(messaging, b"a", transaction=tx)
    assert committed(messaging) == []
    commit(messaging, tx)
    assert committed(messaging) == [b"a"]


def test_two_transactions_are_delivered_in_the_order_of_their_rows(
    messaging: Messaging,
) -> None:
    one, two = (messaging.coordinator.start_short() for _ in range(2))
    publish(messaging, b"1", transaction=two)
    publish(messaging, b"2", transaction=one)
    publish(messaging, b"3", transaction=two)
    commit(messaging, two)
    assert committed(messaging) == [b"1"]
    commit(messaging, one)
    assert committed(messaging) == [b"1", b"2", b"3"]


class Slow:
    """Lets a write of the table begin, and end when it is told to."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        table: Any = site.table
        submit = table.submit

        def slowly(
            writes: Sequence[Write], on_written: OnWritten | None = None
        ) -> Wait:
            monkeypatch.setattr(table, "submit", submit)
            wait: Wait = submit(writes, on_written)

            def wait_longer() -> None:
                self.began.set()
                assert self.go_on.wait(60)
                wait()

            return wait_longer

        monkeypatch.setattr(table, "submit", slowly)


@pytest.mark.in_process
def test_a_commit_waits_for_writes_under_way_and_lets_no_more_in(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.open(sync_limit_bytes=1)
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short(outlives_process=True)
    slow = Slow(site, monkeypatch)
    write = in_background(lambda: publish(messaging, b"a", transaction=tx))
    assert slow.began.wait(10)
    end = in_background(lambda: commit(messaging, tx))
    for _ in range(1000):
        try:
            publish(messaging, b"b", transaction=tx)
        except TransactionNotInProgress:
            break
        time.sleep(0.01)  # nothing tells when the end was asked for
    else:
        pytest.fail("the end that was asked for keeps nobody out")
    assert end.is_alive()
    slow.go_on.set()
    for thread in (write, end):
        thread.join(10)
        assert not thread.is_alive()
    assert committed(messaging)[0] == b"a"


@pytest.mark.foreign_pointers
@pytest.mark.in_process
def test_a_reference_waits_for_stores_under_way(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    slow = Slow(site, monkeypatch)
    store = in_background(lambda: messaging.store("t", [b"a"], transaction=7))
    assert slow.began.wait(10)
    reference = in_background(lambda: publish(messaging, transaction=7))
    time.sleep(0.05)  # one that does not wait has ended by then
    assert reference.is_alive()
    slow.go_on.set()
    for thread in (store, reference):
        thread.join(10)
        assert not thread.is_alive()
    assert payloads(messaging.poll("t")) == [b"a"]


@pytest.mark.foreign_pointers
def test_a_reference_that_could_not_be_written_may_be_published_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.store("t", [b"a"], transaction=7)

    def fail(*_: Any) -> None:
        raise Unavailable("full")

    with monkeypatch.context() as patched:
        patched.setattr(site.table, "submit", fail)
        with pytest.raises(Unavailable, match="full"):
            publish(messaging, transaction=7)
        with pytest.raises(Unavailable, match="full"):
            messaging.store("t", [b"lost"], transaction=7)
    messaging.store("t", [b"b"], transaction=7)
    publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"b"]


def test_many_threads_store_for_one_reference(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    refused: list[bytes] = []

    def store(thread: int) -> None:
        for number in range(20):
            payload = b"%d.%d" % (thread, number)
            try:
                messaging.store("t", [payload], transaction=tx)
            except TransactionRefused:
                refused.append(payload)

    threads = [threading.Thread(target=store, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    publish(messaging, transaction=tx)
    for thread in threads:
        thread.join()
    commit(messaging, tx)
    page = messaging.poll("t", isolation="committed", limit=1_000)
    stored = {b"%d.%d" % (thread, at) for thread in range(8) for at in range(20)}
    assert {*payloads(page), *refused} == stored
    assert len(page) + len(refused) == len(stored)


def test_a_row_that_is_rolled_back_while_it_is_read_is_not_delivered(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot comes before the rows; later it would take an abort for a yes."""
    tx = messaging.coordinator.start_short()
    response = publish(messaging, b"never", transaction=tx)
    read, reads = CachedRows.read, [0]

    def read_and_roll_back(*args: Any) -> Any:
        found = read(*args)
        reads[0] += 1
        if reads[0] == 2:  # the first one only looks whether anything is there
            messaging.rollback("t", response)
            messaging.coordinator.abort(tx)
        return found

    monkeypatch.setattr(CachedRows, "read", read_and_roll_back)
    assert payloads(messaging.poll("t", isolation="committed")) == []
    assert reads[0] >= 2
