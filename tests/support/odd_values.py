"""Values of the wrong type or size, and every call that may be given one."""

from collections.abc import Callable

import txaware
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Outgoing, PublishResponse, Receipt

ODD: list[object] = [
    *(None, True, 0, -1, 1, 2**63, 2**80, 1.5, float("nan"), float("inf")),
    *("x", "", b"", b"x", b"x" * 19, b"x" * 30, [], [1], {}, {"a": 1}, (), object()),
    *(MessageId(20), MessageId(b"x"), Receipt(1, "t", b"", 1), print),
]
Call = Callable[..., object]


def receipt(pointer: int, attempt: object = b"", count: object = 1) -> Receipt:
    return Receipt(pointer, "t", attempt, count)  # type: ignore[arg-type]


def within(messaging: Messaging, call: Callable[[], object]) -> None:
    """Makes a call in a transaction."""
    with messaging.transaction():
        call()


def prepare(messaging: Messaging, name: object) -> None:
    """Prepares a transaction, and rolls it back."""
    with messaging.transaction() as tx:
        messaging.table("t").put(b"k", b"a")
        tx.prepare(name)  # type: ignore[arg-type]
    messaging.rollback_prepared(name)  # type: ignore[arg-type]


# One wrong value in one place of one call; `tx` is an open transaction.
CALLS: dict[str, Call] = {
    "create": lambda m, tx, v: m.create_topic(v),
    "create ttl": lambda m, tx, v: m.create_topic("c", ttl_s=v),
    "create properties": lambda m, tx, v: m.create_topic("c", properties=v),
    "create property": lambda m, tx, v: m.create_topic("c", properties={"a": v}),
    "create publishing": lambda m, tx, v: m.create_topic(
        "c", properties={"publishing": v}
    ),
    "update": lambda m, tx, v: m.update_topic(v),
    "update ttl": lambda m, tx, v: m.update_topic("t", ttl_s=v),
    "update properties": lambda m, tx, v: m.update_topic("t", properties=v),
    "topic": lambda m, tx, v: m.topic(v),
    "topics": lambda m, tx, v: m.topics(v),
    "delete": lambda m, tx, v: m.delete_topic(v),
    "publish": lambda m, tx, v: m.publish(v, [b"a"]),
    "publish messages": lambda m, tx, v: m.publish("t", v),
    "publish message": lambda m, tx, v: m.publish("t", [v]),
    "publish outgoing": lambda m, tx, v: m.publish("t", [Outgoing(v)]),
    "publish expiry": lambda m, tx, v: m.publish(
        "t", [Outgoing(b"a", expire_after_s=v)]
    ),
    "publish transaction": lambda m, tx, v: m.publish("t", [b"a"], transaction=v),
    "reference": lambda m, tx, v: m.publish("t", [], transaction=v),
    "receipts": lambda m, tx, v: m.publish("t", [], transaction=tx, receipts=v),
    "receipt": lambda m, tx, v: m.publish("t", [], transaction=tx, receipts=[v]),
    "receipt attempt": lambda m, tx, v: m.publish(
        "t", [], transaction=tx, receipts=[receipt(tx.transaction_id, v)]
    ),
    "receipt count": lambda m, tx, v: m.publish(
        "t", [], transaction=tx, receipts=[receipt(tx.transaction_id, b"", v)]
    ),
    "store": lambda m, tx, v: m.store(v, [b"a"], transaction=tx),
    "store messages": lambda m, tx, v: m.store("t", v, transaction=tx),
    "store transaction": lambda m, tx, v: m.store("t", [b"a"], transaction=v),
    "store attempt": lambda m, tx, v: m.store("t", [b"a"], transaction=tx, attempt=v),
    "rollback": lambda m, tx, v: m.rollback("t", v),
    "rollback pointer": lambda m, tx, v: m.rollback(
        "t", PublishResponse(v, 1, 1, 1, 1)
    ),
    "rollback start": lambda m, tx, v: m.rollback("t", PublishResponse(5, v, v, 1, 1)),
    "rollback end": lambda m, tx, v: m.rollback("t", PublishResponse(5, 1, 1, v, v)),
    "poll": lambda m, tx, v: m.poll(v),
    "poll start": lambda m, tx, v: m.poll("t", start=v),
    "poll inclusive": lambda m, tx, v: m.poll("t", start=5, inclusive=v),
    "poll limit": lambda m, tx, v: m.poll("t", limit=v),
    "poll transaction": lambda m, tx, v: m.poll("t", transaction=v),
    "poll isolation": lambda m, tx, v: m.poll("t", isolation=v),
    "poll wait": lambda m, tx, v: m.poll("t", wait_s=v),
    "position": lambda m, tx, v: m.position("g", v),
    "position group": lambda m, tx, v: m.position(v, "t"),
    "position transaction": lambda m, tx, v: m.position("g", "t", transaction=v),
    "save": lambda m, tx, v: m.save_position("g", "t", v, transaction=tx),
    "save group": lambda m, tx, v: m.save_position(v, "t", None, transaction=tx),
    "save transaction": lambda m, tx, v: m.save_position(
        "g", "t", MessageId.of(1), transaction=v
    ),
    "bounds": lambda m, tx, v: m.bounds(v),
    "wait": lambda m, tx, v: m.wait("t", timeout_s=v),
    "publisher": lambda m, tx, v: m.publisher(v).publish(b"a"),
    "publisher limit": lambda m, tx, v: m.publisher("t", buffer_limit_bytes=v),
    "publisher payload": lambda m, tx, v: m.publisher("t").publish(v),
    "direct publisher": lambda m, tx, v: m.direct_publisher("t").publish(v),
    "async publisher": lambda m, tx, v: m.async_publisher("t", linger_ms=v).close(),
    "consumer": lambda m, tx, v: m.consumer(v),
    "consumer group": lambda m, tx, v: m.consumer("t", group=v).poll(),
    "consumer start": lambda m, tx, v: m.consumer("t", start=v).poll(),
    "consumer isolation": lambda m, tx, v: m.consumer("t", isolation=v).poll(),
    "consumer poll": lambda m, tx, v: m.consumer("t").poll(v),
    "consumer seek": lambda m, tx, v: m.consumer("t").seek(v),
    "consumer wait": lambda m, tx, v: m.consumer("t").wait(v),
    "peek": lambda m, tx, v: m.peek("t", start=v),
    "peek limit": lambda m, tx, v: m.peek("t", limit=v),
    "inspect": lambda m, tx, v: m.inspect(v),
    "lag": lambda m, tx, v: m.lag_ms(v, v),
    "create queue": lambda m, tx, v: m.create_queue(v),
    "queue lease": lambda m, tx, v: m.create_queue("c", lease_s=v),
    "queue deliveries": lambda m, tx, v: m.create_queue("c", max_deliveries=v),
    "queue dead letters": lambda m, tx, v: m.create_queue("c", dead_letter_queue=v),
    "queue order": lambda m, tx, v: m.create_queue("c", order=v),
    "queue": lambda m, tx, v: m.queue(v).push(b"a"),
    "push": lambda m, tx, v: m.queue("q").push(v),
    "push all": lambda m, tx, v: m.queue("q").push_all(v),
    "push key": lambda m, tx, v: m.queue("q").push(b"a", key=v),
    "push headers": lambda m, tx, v: m.queue("q").push(b"a", headers=v),
    "push delay": lambda m, tx, v: m.queue("q").push(b"a", delay_s=v),
    "push priority": lambda m, tx, v: m.queue("q").push(b"a", priority=v),
    "push within": lambda m, tx, v: within(
        m, lambda: m.queue("q").push(b"a", priority=v)
    ),
    "push later within": lambda m, tx, v: within(
        m, lambda: m.queue("q").push(b"a", delay_s=v)
    ),
    "pop": lambda m, tx, v: m.queue("q").pop_many(v),
    "pop wait": lambda m, tx, v: m.queue("q").pop(v),
    "popper": lambda m, tx, v: m.queue("q").popper(name=v).pop(),
    "popper of a pipe": lambda m, tx, v: m.queue("q").popper(owns_pipe=v).pop(),
    "job delay": lambda m, tx, v: m.queue("q").pop().rollback(v),
    "job error": lambda m, tx, v: m.queue("q").pop().rollback(error=v),
    "job lease": lambda m, tx, v: m.queue("q").pop().extend(v),
    "queue peek": lambda m, tx, v: m.queue("q").peek(v),
    "redrive": lambda m, tx, v: m.queue("q").redrive(v),
    "worker": lambda m, tx, v: m.queue("q").worker(print, participants=v).close(),
    "table": lambda m, tx, v: m.table(v).get(b"k"),
    "get": lambda m, tx, v: m.table("t").get(v),
    "put": lambda m, tx, v: m.table("t").put(v, b"a"),
    "put value": lambda m, tx, v: m.table("t").put(b"k", v),
    "put expiry": lambda m, tx, v: m.table("t").put(b"k", b"a", ttl_s=v),
    "scan": lambda m, tx, v: list(m.table("t").scan(v)),
    "scan stop": lambda m, tx, v: list(m.table("t").scan(start=b"", stop=v)),
    "scan limit": lambda m, tx, v: list(m.table("t").scan(limit=v)),
    "producer": lambda m, tx, v: m.producer(v),
    "producer publish": lambda m, tx, v: m.producer().publish("t", v),
    "producer topic": lambda m, tx, v: m.producer().publish(v, [b"a"]),
    "producer sequence": lambda m, tx, v: m.producer().publish("t", [b"a"], v),
    "run once": lambda m, tx, v: m.producer("id").run_once(v, lambda *_: None),
    "prepare": lambda m, tx, v: prepare(m, v),
    "commit prepared": lambda m, tx, v: m.commit_prepared(v),
    "rollback prepared": lambda m, tx, v: m.rollback_prepared(v),
    "time-out": lambda m, tx, v: m.transaction(timeout_s=v).start(),
    "invalidate": lambda m, tx, v: m.coordinator.invalidate(v),
    "decide": lambda m, tx, v: m.coordinator.decide(v, committed=True),
    "decide life": lambda m, tx, v: m.coordinator.decide(7, committed=True, life=v),
    "truncate": lambda m, tx, v: m.coordinator.truncate_invalid_tx(v),
    "truncate one": lambda m, tx, v: m.coordinator.truncate_invalid_tx([v]),
    "truncate before": lambda m, tx, v: m.coordinator.truncate_invalid_tx_before(v),
    "can commit": lambda m, tx, v: m.coordinator.can_commit(tx, v),
    "can commit one": lambda m, tx, v: m.coordinator.can_commit(tx, [v]),
    "connect": lambda m, tx, v: txaware.connect(v),
    "connect path": lambda m, tx, v: txaware.connect(f"leveldb:/dev/null/{v!r:.9}"),
    "connect coordinator": lambda m, tx, v: txaware.connect("memory:", coordinator=v),
    "parse id": lambda m, tx, v: MessageId.parse(v),
    "make id": lambda m, tx, v: MessageId.of(v),
    "read id": lambda m, tx, v: MessageId.from_bytes(v),
}
