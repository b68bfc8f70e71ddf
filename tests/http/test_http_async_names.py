"""The asyncio client has what `Messaging` has; what an operator asks, awaited."""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest

from tests.support.concurrency import in_loop, until
from tests.support.http_served import ServedStore, served
from tests.support.rows_elsewhere import RowsElsewhere
from txaware.client.aio.async_broadcast import AsyncBroadcastConsumer
from txaware.client.aio.async_consumer import TopicConsumer
from txaware.client.aio.async_member import AsyncMember
from txaware.client.aio.async_messaging import AsyncMessaging, connect_async
from txaware.client.aio.async_producer import AsyncProducer, AsyncTransactionalProducer
from txaware.client.aio.async_publisher import TopicPublisher
from txaware.client.aio.async_queue import (
    AsyncJob,
    AsyncPopper,
    AsyncPusher,
    AsyncQueue,
)
from txaware.client.aio.async_sender import AsyncSender
from txaware.client.aio.async_table import AsyncTable
from txaware.client.aio.async_typed_topic import AsyncTypedTopic
from txaware.consume import Consumer, Member
from txaware.errors import (
    BadRequest,
    KeeperNotFound,
    MisusedTransaction,
    TopicNotFound,
)
from txaware.messaging import Messaging
from txaware.messaging.broadcast import BroadcastConsumer
from txaware.messaging.typed_topic import TypedTopic
from txaware.model.messages import MessageId
from txaware.publish import Producer, Publisher, Sender
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.queue import Job, Popper, Pusher, Queue
from txaware.tables import Table

TWINS: list[tuple[type, type]] = [
    (Messaging, AsyncMessaging),
    (Publisher, TopicPublisher),
    (Consumer, TopicConsumer),
    (TransactionalProducer, AsyncTransactionalProducer),
    (Queue, AsyncQueue),
    (Popper, AsyncPopper),
    (Pusher, AsyncPusher),
    (Job, AsyncJob),
    (Table, AsyncTable),
    (Producer, AsyncProducer),
    (BroadcastConsumer, AsyncBroadcastConsumer),
    (Sender, AsyncSender),
    (Member, AsyncMember),
    (TypedTopic, AsyncTypedTopic),
]
# `wait` asks the first, and a pop the last ones; a producer calls others in its thread,
# databases that decide a block do so too, and Spark's driver has what is stored pushed.
NOT_AWAITED_OF: dict[type, set[str]] = {
    Consumer: {"has_group", "may_go_on", "require_outside", "save_in", "wait_options"},
    Publisher: {"publish_in"},
    Queue: {"options", "jobs", "reserve", "push_stored", "pusher_of"},
    Popper: {"options", "jobs"},
    Pusher: {"push_stored"},
    Job: {"was_handled"},
    TransactionalProducer: {"require_newest"},
    Producer: {"identity", "take"},
    BroadcastConsumer: {"renewed_after_s"},
    Member: {"one_by_one", "places"},
}
NOT_AWAITED = {
    "administration": "shares a clean-up between processes, as those of Spark",
    "async_publisher": "a task of the program's own publishes in the background",
    "at_most_once_publisher": "as above; its errors are passed over by the program",
    "backup": "writes a file, which blocks",
    "carrier": "is for what joins a block, in its thread",
    "clock_ms": "is for participants, as `kept_once`",
    "coordinator": "its calls block, and `transaction` makes them in threads",
    "direct_publisher": "`publish` of the messaging publishes at once",
    "end_handled": "is for databases that decide a block, whose calls block",
    "is_kept": "is for participants, as `kept_once`",
    "is_owner": "is for who serves data, as `serve`",
    "kept_once": "is for participants, whose calls block",
    "longest_timeout_s": "is for Spark's driver, which asks for as much as it may",
    "message_limit_bytes": "is for participants, as `kept_once`",
    "needs_server": "is for participants, as `kept_once`",
    "persist_stored": "is for who hands transactions to others, as Spark's driver",
    "reach": "is for processes beside an owner of data; here there is an address",
    "serve": "is for the owner of data",
    "shares_journal": "is for participants, as `kept_once`",
}
# `info` tells what server this is, which `connect` asks by itself; a producer that
# blocks opens as it is made, and publishes by its own verb.
ONLY_AWAITED: dict[type, set[str]] = {
    AsyncMessaging: {"in_thread", "info", "open_producer", "publish_once"},
    AsyncTransactionalProducer: {"open"},
    AsyncProducer: {"open"},
    AsyncSender: {"open", "send_and_wait"},
}
# What one of the two takes and the other does not.
TAKEN_BY_ONE = {
    (Messaging, "check", "progress"): "a server tells no progress",
    (Messaging, "clean_up", "on_progress"): "as above",
    (Messaging, "publisher", "buffer_limit_bytes"): "one for all, that of the settings",
    (Messaging, "transaction", "begun"): "is for Spark's tasks, whose calls block",
    (Member, "close", "leaves"): "is for loops, whose member outlives a turn",
    (
        Queue,
        "worker",
        "concurrency",
    ): "functions of the event loop overlap; `threads` is its other name",
    (TypedTopic, "subscribe", "concurrency"): "as `worker`",
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.1) as opened:
        opened.messaging.create_topic("t")
        yield opened


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_whatever_blocks_is_there_to_be_awaited(blocking: type, awaited: type) -> None:
    missing = public(blocking) - public(awaited)
    expected = {Messaging: set(NOT_AWAITED), **NOT_AWAITED_OF}.get(blocking, set())
    assert missing == expected
    added = public(awaited) - public(blocking)
    assert added == ONLY_AWAITED.get(awaited, set())


@pytest.mark.parametrize(("blocking", "awaited"), TWINS)
def test_what_is_awaited_takes_what_blocks_takes(blocking: type, awaited: type) -> None:
    differ = set()
    for name in public(blocking) & public(awaited):
        calls = getattr(blocking, name), getattr(awaited, name)
        if all(map(callable, calls)):
            differ |= {(blocking, name, one) for one in taken_by_one(*calls)}
    assert differ == {one for one in TAKEN_BY_ONE if one[0] is blocking}


def taken_by_one(*calls: Any) -> set[str]:
    """Returns the parameters that differ, by their kind or their default."""
    taken = [signature(call).parameters.values() for call in calls]
    first, second = (
        {(one.name, one.kind, one.default) for one in each} for each in taken
    )
    return {name for name, *_ in first ^ second}


def test_what_is_passed_on_has_the_words_of_what_blocks() -> None:
    passed_on: list[tuple[Any, Any, str]] = [
        (AsyncTable, Table, "get"),
        (AsyncJob, Job, "key"),
        (AsyncQueue, Queue, "push"),
    ]
    for awaited, blocking, name in passed_on:
        assert getattr(awaited, name).__doc__ == getattr(blocking, name).__doc__


@in_loop
async def test_what_an_operator_asks_is_awaited(store: ServedStore) -> None:
    here = store.messaging
    here.publish("t", [b"a", b"b", b"c"])
    with here.transaction():
        here.consumer("t", group="g").poll(limit=1)
    bounds = here.bounds("t")
    assert bounds.first is not None
    async with connect_async(store.url) as messaging:
        assert await messaging.namespaces() == here.namespaces() == ["default"]
        assert await messaging.peek("t", start=bounds.first, limit=2) == here.peek(
            "t", limit=2
        )
        assert await messaging.inspect("t") == here.inspect("t")
        assert await messaging.lag_ms("g", "t") == here.lag_ms("g", "t")
        assert until(lambda: here.oldest_unread_ms("g", "t") > 0)
        assert await messaging.oldest_unread_ms("g", "t") > 0
        assert (
            await messaging.splits(
                "t", start=bounds.first, stop=bounds.next, part_bytes=1 << 20
            )
            == []
        )
        assert (await messaging.metrics()).topics["t"].messages_in == 3
        assert (await messaging.check()).is_clean


@in_loop
async def test_what_is_left_of_an_invalid_transaction_is_cleaned_up(
    store: ServedStore,
) -> None:
    here = store.messaging
    tx = here.coordinator.start_short()
    here.publish("t", [b"never"], transaction=tx)
    here.coordinator.invalidate(tx)
    async with connect_async(store.url) as messaging:
        assert (await messaging.metrics()).invalid_transactions == 1
        assert (await messaging.clean_up()).marked_rows == 1
        assert (await messaging.prune(exclusive=True)).pruned == 0  # some may ask yet


@in_loop
async def test_participants_with_rows_of_their_own_are_known_to_the_server(
    store: ServedStore,
) -> None:
    rows = RowsElsewhere()
    async with connect_async(store.url) as messaging:
        async with messaging.transaction(rows) as tx:
            await messaging.publisher("t").publish(b"row")
            rows.new.append("row")
        assert [one.name for one in await messaging.keepers()] == ["rows"]
        keeper = await messaging.register_keeper(rows)
        assert keeper.kind == "elsewhere"
        assert keeper.smallest_pointer == tx.transaction.transaction_id
        await messaging.forget_keeper("rows")
        async with messaging.transaction():
            consumer = await messaging.consumer("t", group="g")
            await consumer.poll()
        assert await messaging.keepers() == []  # positions are the server's own
        with pytest.raises(KeeperNotFound, match="no keeper 'rows'"):
            await messaging.forget_keeper("rows")


@in_loop
async def test_wrong_values_are_refused_before_they_are_sent(
    store: ServedStore,
) -> None:
    zero = MessageId(bytes(20))
    async with connect_async(store.url) as messaging:
        with pytest.raises(TopicNotFound):
            await messaging.inspect("absent")
        with pytest.raises(BadRequest):
            await messaging.peek("t", limit=0)
        with pytest.raises(BadRequest):
            await messaging.splits("t", start=zero, stop=zero, part_bytes=0)
        with pytest.raises(BadRequest):
            await messaging.prune(exclusive=1)  # type: ignore[arg-type]


@in_loop
async def test_what_others_stored_is_published_with_the_block(
    store: ServedStore,
) -> None:
    async with connect_async(store.url) as messaging:
        publisher = messaging.publisher("t")
        with pytest.raises(MisusedTransaction, match="none is open here"):
            await publisher.publish_stored([])
        async with messaging.transaction() as tx:
            receipt = store.messaging.store("t", [b"a"], transaction=tx.transaction)
            await publisher.publish_stored([receipt])
        assert store.committed() == [b"a"]
