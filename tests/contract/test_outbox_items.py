"""Items of queues in an outbox: pushed in a block, popped once with its messages."""

import pytest

from tests.support.outboxes import Shop
from tests.support.queues import made, taken, waiting
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    QueueNotFound,
    RequestTooLarge,
    TransactionConflict,
)
from txaware.model.messages import Outgoing, Receipt
from txaware.participants.outbox_load import OutboxLoad
from txaware.participants.outbox_row import OutboxRows


def test_items_commit_with_rows_and_messages_and_come_once(shop: Shop) -> None:
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        queue.push(b"1", key=b"ann", headers={"source": b"till"})
        shop.messaging.publisher("t").publish(b"ann")
        queue.push_all([b"2", Outgoing(b"3")])
    assert (waiting(queue), shop.read()) == ([], [])
    assert shop.participant.outbox.waiting() == 4
    assert shop.participant.relay() == 4
    [first, *_] = queue.peek()
    assert (first.key, first.headers) == (b"ann", {"source": b"till"})
    assert taken(queue) == [b"1", b"2", b"3"]
    assert shop.participant.relay() == 0
    assert (taken(queue), shop.read()) == ([], [b"ann"])
    assert shop.participant.outbox.waiting() == 0


def test_many_at_once_come_in_their_order(shop: Shop) -> None:
    queue, many = made(shop.messaging), [b"%d" % number for number in range(20)]
    with shop.messaging.transaction(shop.participant):
        shop.messaging.publisher("t").publish_all(many)
        queue.push_all(many)
    assert shop.participant.relay() == 40
    assert (shop.read(), taken(queue)) == (many, many)


def test_a_block_or_a_savepoint_that_is_undone_takes_its_items_along(
    shop: Shop,
) -> None:
    queue = made(shop.messaging)
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        shop.messaging.transaction(shop.participant),
    ):
        queue.push(b"never")
        assert 1 / 0
    with shop.messaging.transaction(shop.participant):
        queue.push(b"kept")
        shop.connection.execute("SAVEPOINT mine")
        queue.push(b"gone")
        shop.connection.execute("ROLLBACK TO mine")
    shop.participant.relay()
    assert taken(queue) == [b"kept"]


def test_items_and_messages_of_a_block_are_carried_in_one_transaction(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        for number in (b"1", b"2"):
            shop.messaging.publisher("t").publish(number)
            queue.push(number)
    seen: list[tuple[list[bytes], list[bytes]]] = []
    publish = OutboxLoad.publish

    def refused(load: OutboxLoad, *arguments: object, **options: object) -> None:
        publish(load, *arguments, **options)  # type: ignore[arg-type]
        seen.append((waiting(queue), shop.read()))
        monkeypatch.undo()
        raise TransactionConflict("another one was faster")

    monkeypatch.setattr(OutboxLoad, "publish", refused)
    relay = shop.relay_of_another(batch_rows=1)  # a block is not cut
    assert relay.carry_over() == 4
    assert seen == [([], [])]
    assert (taken(queue), shop.read()) == ([b"1", b"2"], [b"1", b"2"])


def test_delays_and_expiries_count_from_the_push_and_the_publish(shop: Shop) -> None:
    queue, clock = made(shop.messaging), shop.site.clock
    with shop.messaging.transaction(shop.participant):
        queue.push(b"late", delay_s=60)
        queue.push(b"later", delay_s=90)
        queue.push(Outgoing(b"gone", expire_after_s=50))
        queue.push(Outgoing(b"there", expire_after_s=120))
        shop.messaging.publisher("t").publish(Outgoing(b"gone", expire_after_s=50))
        shop.messaging.publisher("t").publish(Outgoing(b"there", expire_after_s=120))
    clock.advance_s(55)
    assert shop.participant.relay() == 4
    assert shop.read() == [b"there"]
    assert taken(queue) == [b"there"]
    clock.advance_s(4)
    assert taken(queue) == []
    clock.advance_s(2)
    assert taken(queue) == [b"late"]
    clock.advance_s(30)
    assert taken(queue) == [b"later"]


def test_an_item_whose_delay_is_over_when_it_is_carried_comes_at_once(
    shop: Shop,
) -> None:
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        queue.push(b"1", delay_s=60)
    shop.site.clock.advance_s(60)
    shop.participant.relay()
    assert taken(queue) == [b"1"]


@pytest.mark.parametrize("order", ["mostly", "strict", "key"])
def test_items_come_in_the_order_that_the_queue_promises(
    shop: Shop, order: str
) -> None:
    shop.messaging.create_queue("mail", order=order)  # type: ignore[arg-type]
    queue = shop.messaging.queue("mail")
    pushers = [queue.pusher(), queue.pusher()]
    for number in range(3):
        with shop.messaging.transaction(shop.participant):
            for name, pusher in zip(b"ab", pushers, strict=True):
                pusher.push(b"%c%d" % (name, number), key=b"%c" % name)
            queue.push(b"c%d" % number, key=b"c")
    shop.participant.relay()
    found = taken(queue)
    for name in b"abc":
        own = [item for item in found if item[0] == name]
        assert own == [b"%c%d" % (name, number) for number in range(3)]
    if order == "strict":
        assert found == [b"%c%d" % (c, number) for number in range(3) for c in b"abc"]


def test_a_higher_priority_is_popped_first(shop: Shop) -> None:
    queue = made(shop.messaging)
    with shop.messaging.transaction(shop.participant):
        for number, priority in enumerate([0, 9, 0, 9]):
            queue.push(b"%d" % number, priority=priority)
    shop.participant.relay()
    assert taken(queue) == [b"1", b"3", b"0", b"2"]


def test_what_can_be_known_is_refused_at_the_push(shop: Shop) -> None:
    queue = made(shop.messaging)
    too_large = bytes(shop.messaging.message_limit_bytes + 1)
    with shop.messaging.transaction(shop.participant):
        if not shop.messaging.needs_server:  # which nobody asks in the block
            with pytest.raises(QueueNotFound):
                shop.messaging.queue("away").push(b"1")
        with pytest.raises(RequestTooLarge, match="above the limit"):
            queue.push(too_large)
        with pytest.raises(BadRequest, match="delay_s is at least 0"):
            queue.push(b"1", delay_s=-1)
        with pytest.raises(BadRequest, match="priority is from 0 to 9"):
            queue.push(b"1", priority=10)
        with pytest.raises(MisusedTransaction, match="cannot be published in a block"):
            queue.push_stored([Receipt(1, "default:.mail.1.1", b"one", 1)])
        queue.push(b"good")
    shop.participant.relay()
    assert taken(queue) == [b"good"]


def test_a_batch_is_bounded_in_bytes_and_in_rows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite_outbox", "outbox_tables"):
        monkeypatch.setattr(f"txaware.participants.{module}.MOST_BYTES", 1_000)
        monkeypatch.setattr(f"txaware.participants.{module}.WHOLE_BYTES", 4_000)
    for _ in range(3):
        shop.publish("t", *[bytes(300)] * 2)
    shop.publish("t", *[bytes(300)] * 20)
    rows: OutboxRows = shop.participant._relay.rows
    assert len(rows.take(b"", limit=100).rows) == 2
    assert len(rows.take(b"", limit=1).rows) == 2
    assert shop.participant.relay() == 26
