"""Lost requests and answers, against a real server: nothing is there twice."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionOutcomeUnknown, TxAwareError
from coordinator.remote.client import RemoteCoordinator
from tests.support.concurrency import in_threads
from tests.support.http_served import ServedStore
from tests.support.lossy_proxy import LossyProxy
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpQueues,
    HttpService,
    Link,
    Transport,
)
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import Unavailable
from txaware.model.interfaces import Isolation
from txaware.publish import Publisher

ROUNDS, ONE_IN = 150, 12


@pytest.fixture(params=range(4))
def proxy(request: pytest.FixtureRequest, store: ServedStore) -> Iterator[LossyProxy]:
    with LossyProxy(store.url, seed=request.param, one_in=ONE_IN) as opened:
        yield opened


def client(proxy: LossyProxy) -> Transport:
    """Half of them go by HTTP."""
    settings = ClientSettings(frames=proxy.seed % 2 == 0)
    return Transport(Link(proxy.url, settings=settings), sleep=lambda _: None)


def counted(
    store: ServedStore, *, isolation: Isolation = "uncommitted"
) -> Counter[bytes]:
    page = store.messaging.poll("t", limit=10_000, isolation=isolation)
    assert page.blocked_by is None
    return Counter(message.payload for message in page)


def test_each_message_is_there_once(store: ServedStore, proxy: LossyProxy) -> None:
    transport = client(proxy)
    service, published = HttpService(transport), []
    service.info()  # without it, nobody knows where the first request went
    for number in range(ROUNDS):
        service.publish("t", [b"%d" % number])
        published.append(b"%d" % number)
    assert proxy.lost > 10
    assert counted(store) == Counter(published)
    transport.close()


def test_threads_that_share_connections_lose_nothing(
    store: ServedStore, proxy: LossyProxy
) -> None:
    transport = client(proxy)
    service = HttpService(transport)
    failures: list[BaseException] = []

    def publish(thread: int) -> None:
        try:
            for number in range(40):
                service.publish("t", [b"%d %d" % (thread, number)])
        except Unavailable as error:
            failures.append(error)

    service.info()
    in_threads(publish, range(8))
    assert not failures
    assert set(counted(store).values()) == {1}
    assert len(counted(store)) == 320
    transport.close()


def test_what_is_created_although_its_answer_was_lost_is_no_refusal(
    store: ServedStore, proxy: LossyProxy
) -> None:
    transport = client(proxy)
    service, queues = HttpService(transport), HttpQueues(transport)
    service.info()
    for number in range(ROUNDS // 3):
        service.create_topic(f"t{number}")
        queues.create_queue(f"q{number}", exist_ok=number % 2 == 0)
        queues.update_queue(f"q{number}", lease_s=60)
    assert proxy.lost > 10
    assert len(store.messaging.topics()) == ROUNDS // 3 + 1
    assert len(store.messaging.queues()) == ROUNDS // 3
    transport.close()


def test_what_is_stored_is_named_by_its_receipt(
    store: ServedStore, proxy: LossyProxy
) -> None:
    transport = client(proxy)
    service = HttpService(transport)
    service.info()
    tx = store.messaging.coordinator.start_short()
    for number in range(50):
        receipt = service.store(
            "t", [b"%d" % number], transaction=tx, attempt=b"%d" % number
        )
        service.publish("t", [], transaction=tx, receipts=[receipt])
    store.messaging.coordinator.can_commit(tx, [])
    store.messaging.coordinator.commit(tx)
    assert counted(store, isolation="committed") == Counter(
        b"%d" % number for number in range(50)
    )
    transport.close()


def test_a_transaction_is_there_as_a_whole_or_not_at_all(
    store: ServedStore, proxy: LossyProxy
) -> None:
    transport = client(proxy)
    service = HttpService(transport)
    coordinator = RemoteCoordinator(CoordinatorSend(transport))
    publisher = Publisher(
        *(service, coordinator, "t"),
        buffer_limit_bytes=200,
        message_limit_bytes=1000,
        shares_journal=False,
    )
    yes: set[bytes] = set()
    unknown: set[bytes] = set()
    for number in range(ROUNDS):
        payload = b"%d" % number
        context = TransactionContext(coordinator)
        try:
            with context:
                publisher.publish_all([payload] * 4)  # the first ones are stored
            yes.add(payload)
        except TransactionOutcomeUnknown:
            unknown.add(payload)
            store.messaging.coordinator.invalidate(context.transaction)
        except TxAwareError:
            if context.status.name not in ("NEW", "ABORTED"):
                store.messaging.coordinator.invalidate(context.transaction)
    for left in open_ones(store):
        store.messaging.coordinator.invalidate(left)
    found = counted(store, isolation="committed")
    assert set(found.values()) <= {4}
    assert yes <= found.keys() <= yes | unknown
    assert len(yes) > ROUNDS // 3
    transport.close()


def open_ones(store: ServedStore) -> list[int]:
    coordinator = store.messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    return [one.transaction_id for one in coordinator.open_transactions()]


def test_the_asyncio_client_loses_nothing_either(
    store: ServedStore, proxy: LossyProxy
) -> None:
    async def publish() -> None:
        async with connect_async(proxy.url) as messaging:
            await messaging.info()
            await asyncio.gather(
                *(messaging.publish("t", [b"%d" % number]) for number in range(60))
            )

    asyncio.run(publish())
    assert counted(store) == Counter(b"%d" % number for number in range(60))
