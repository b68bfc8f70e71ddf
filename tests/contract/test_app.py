"""Declared programs: handlers of topics and queues, and of the passing time."""

import asyncio
import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

import txaware
from tests.support.concurrency import until
from tests.support.messagings import Site
from txaware.app.schedule import Schedule, Ticker
from txaware.errors import BadRequest, MisusedTransaction


@dataclasses.dataclass
class OrderPlaced:
    """An order was placed."""

    order: int
    customer: str = "ann"


def test_functions_and_coroutines_handle_what_a_test_publishes_to_its_end() -> None:
    app, seen = txaware.App("leveldb:./not-opened"), []

    @app.subscriber("orders", group="billing", into=OrderPlaced)
    def bill(message: txaware.Message[OrderPlaced]) -> None:
        seen.append(("bill", message.payload.order))
        app.blocking.publisher("bills").publish(b"%d" % message.payload.order)

    @app.subscriber("bills", group="posting")
    async def post(message: txaware.Message) -> None:
        seen.append(("post", int(message.payload)))
        queue = await app.messaging.queue("mail")
        await queue.push(message.payload)

    @app.worker("mail")
    def mail(job: txaware.Job) -> None:
        seen.append(("mail", int(job.payload)))

    @app.worker("mail-async", into=OrderPlaced, transaction=True)
    async def mail_async(job: Any, tx: Any) -> None:
        seen.append(("mail_async", job.payload.order))

    with app.test() as messaging:
        orders = messaging.topic("orders", type=OrderPlaced)
        orders.publish_all([OrderPlaced(1), OrderPlaced(2)])
        messaging.queue("mail-async").push(b'{"order": 5}')
        messaging.run()
        messaging.run()
    assert sorted(seen) == sorted(
        [(name, number) for name in ("bill", "post", "mail") for number in (1, 2)]
        + [("mail_async", 5)]
    )
    assert not Path("not-opened").exists()


def test_a_parameter_of_the_class_gets_the_event_alone() -> None:
    app, seen = txaware.App("memory:"), []

    @app.subscriber("orders", group="a", into=OrderPlaced)
    def first(order: OrderPlaced) -> None:
        seen.append(order)

    @app.subscriber("orders", group="b", into=OrderPlaced)
    async def second(order: OrderPlaced) -> None:
        seen.append(order)

    @app.worker("mail", into=OrderPlaced)
    async def third(order: OrderPlaced) -> None:
        seen.append(order)

    with app.test() as messaging:
        messaging.topic("orders", type=OrderPlaced).publish(OrderPlaced(7))
        messaging.queue("mail", encode=txaware.to_json).push(OrderPlaced(7))
        messaging.run()
    assert seen == [OrderPlaced(7)] * 3


def test_a_misfit_goes_to_the_dead_letters_that_the_app_made() -> None:
    app = txaware.App("memory:")

    @app.subscriber("orders", group="g", into=OrderPlaced, dead_letter_topic="dead")
    async def handle(order: OrderPlaced) -> None:
        raise AssertionError

    with app.test() as messaging:
        messaging.publish("orders", [b'{"order": "one"}'])
        messaging.run()
        [letter] = messaging.poll("dead")
        assert b"order" in letter.headers["error"]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_handler_raises_reaches_the_test_unless_it_is_tried_again(
    is_async: bool,
) -> None:
    app, calls = txaware.App("memory:"), []

    def fail(message: Any) -> None:
        calls.append(message.payload)
        raise ValueError("no")

    async def fail_async(message: Any) -> None:
        fail(message)

    handler = fail_async if is_async else fail
    app.subscriber("raising", group="g")(handler)
    app.subscriber("tried", group="g", tries=2, dead_letter_topic="dead")(handler)
    app.worker("mail")(handler)
    with app.test() as messaging:
        messaging.publish("tried", [b"a"])
        messaging.run()
        assert calls == [b"a", b"a"]
        assert [letter.payload for letter in messaging.poll("dead")] == [b"a"]
        messaging.publish("raising", [b"b"])
        with pytest.raises(ValueError, match="no"):
            messaging.run()
        app.subscriptions.clear()
    with app.test() as messaging:
        messaging.queue("mail").push(b"c")
        with pytest.raises(ValueError, match="no"):
            messaging.run()
        assert messaging.queue("mail").stats().depth == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_every_period_is_one_call_in_a_transaction(is_async: bool) -> None:
    app = txaware.App("memory:")
    app.topic("marks")

    def tidy() -> None:
        app.blocking.publisher("marks").publish(b"tidy")

    async def tidy_async() -> None:
        await app.messaging.publisher("marks").publish(b"tidy")

    app.every("1h", name="tidy")(tidy_async if is_async else tidy)
    with app.test() as messaging:

        def marks() -> int:
            messaging.run()
            return len(messaging.poll("marks"))

        assert marks() == 0
        messaging.clock.advance_s(3599)
        assert marks() == 0
        messaging.clock.advance_s(1)
        assert marks() == 1
        assert marks() == 1
        messaging.clock.advance_s(3600)
        assert marks() == 2
        messaging.clock.advance_s(10 * 3600)  # nobody was there: once, and no more
        assert marks() == 3
        messaging.clock.advance_s(3600)
        assert marks() == 4


def test_of_several_processes_one_sees_a_period_end(site: Site) -> None:
    messaging = site.messaging
    schedule = Schedule("tidy", 60_000)
    messaging.create_queue(schedule.queue)
    tickers = [Ticker(messaging, [schedule]) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for _ in range(3):
                sum(pool.map(Ticker.tick, tickers))
            before = messaging.queue(schedule.queue).stats().pushed
            site.clock.advance_s(60)
            sum(pool.map(Ticker.tick, tickers))
            pushed = messaging.queue(schedule.queue).stats().pushed
            assert pushed == before + 1


def test_a_function_of_a_period_that_fails_is_called_again() -> None:
    app, calls = txaware.App("memory:"), []

    @app.every(60)
    def tidy() -> None:
        calls.append("tidy")
        if len(calls) == 1:
            raise ValueError("not now")

    with app.test() as messaging:
        messaging.clock.advance_s(60)
        with pytest.raises(ValueError, match="not now"):
            messaging.run()
        messaging.clock.advance_s(1)
        messaging.run()
    assert calls == ["tidy", "tidy"]


@pytest.mark.parametrize(
    ("period", "why"),
    [("", "duration"), ("5 parsecs", "duration"), (0, "above 0"), (-1, "above 0")],
)
def test_a_period_that_is_none_is_refused(period: Any, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        txaware.App("memory:").every(period)


def test_two_functions_share_no_group_of_a_topic() -> None:
    app = txaware.App("memory:")

    def bill(message: txaware.Message) -> None:
        """Gets all of them."""

    def ship(message: txaware.Message) -> None:
        """Would get none, or some."""

    app.subscriber("orders", group="billing")(bill)
    said = "^bill gets the messages of .*orders in group billing, and ship would share"
    with pytest.raises(txaware.BadRequest, match=said):
        app.subscriber("orders", group="billing")(ship)
    app.subscriber("orders", group="shipping")(ship)
    app.subscriber("orders")(bill)
    app.subscriber("orders")(ship)
    assert len(app.subscriptions) == 4


def test_what_cannot_be_declared_is_refused_where_it_is_declared() -> None:
    app: Any = txaware.App("memory:")
    with pytest.raises(BadRequest, match="no function"):
        app.subscriber("t")(5)
    with pytest.raises(BadRequest, match="topic"):
        app.subscriber("no topic")
    with pytest.raises(BadRequest, match="type of events"):
        app.subscriber("t", into=object)

    def twice() -> None:
        """Is declared twice."""

    app.every("1h")(twice)
    with pytest.raises(BadRequest, match="name="):
        app.every("1h")(twice)
    with pytest.raises(BadRequest, match="nothing to run"):
        txaware.App("memory:").run()
    with pytest.raises(MisusedTransaction, match="blocking"):
        _ = app.messaging
    app.stop()


@pytest.mark.parametrize("url", ["memory:", "leveldb:{}/data", "http"])
def test_a_started_app_handles_from_the_first_message_on(
    tmp_path: Path, url: str
) -> None:
    with txaware.connect("memory:") as owner, owner.serve() as server:
        app = txaware.App(server.url if url == "http" else url.format(tmp_path))
        seen: list[Any] = []

        @app.subscriber("orders", group="new", idle_wait_s=0.05)
        def handle(message: txaware.Message) -> None:
            seen.append(message.payload)

        @app.subscriber("orders", group="async", idle_wait_s=0.05)
        async def handle_async(message: txaware.Message) -> None:
            seen.append(message.payload)

        app.blocking.create_topic("orders")
        app.blocking.publish("orders", [b"before"])
        with app:
            app.blocking.publish("orders", [b"after"])
            assert until(lambda: len(seen) == 4, timeout_s=20)
        assert sorted(seen) == [b"after", b"after", b"before", b"before"]


def shop() -> tuple[txaware.App, FastAPI, list[OrderPlaced], threading.Event]:
    app = txaware.App("memory:")
    orders = app.topic("orders", type=OrderPlaced)
    api, seen, handled = FastAPI(lifespan=app.lifespan), [], threading.Event()

    @app.subscriber("orders", group="billing", into=OrderPlaced, idle_wait_s=0.05)
    async def bill(order: OrderPlaced) -> None:
        seen.append(order)
        handled.set()

    @api.post("/orders/{order}")
    async def place(order: int, tx: Any = Depends(app.transaction)) -> dict[str, int]:  # noqa: B008
        assert tx.status is txaware.Status.ACTIVE
        await orders.publish(OrderPlaced(order))
        if order == 13:
            raise HTTPException(422, "no thirteen")
        return {"order": order}

    return app, api, seen, handled


def test_an_endpoint_commits_before_its_answer_and_undoes_what_it_refused() -> None:
    app, api, seen, _ = shop()
    with app.test() as messaging, TestClient(api) as client:
        assert client.post("/orders/1").json() == {"order": 1}
        assert len(messaging.poll("orders", isolation="committed")) == 1
        assert client.post("/orders/13").status_code == 422
        assert client.post("/orders/2").status_code == 200
        messaging.run()
    assert seen == [OrderPlaced(1), OrderPlaced(2)]


def test_what_would_be_outside_of_the_transaction_of_an_endpoint_is_refused() -> None:
    app, api, _, _ = shop()
    asked = Depends(app.transaction)

    @api.post("/in-thread")
    def in_thread(_: Any = asked) -> None:
        app.blocking.publish("orders", [b"alone"])

    @api.post("/in-loop")
    async def in_loop(_: Any = asked) -> None:
        app.blocking.publish("orders", [b"alone"])

    @api.post("/without-it")
    def without_it() -> None:
        with app.blocking.transaction():
            app.blocking.publisher("orders").publish(b"good")

    @api.post("/with")
    async def with_block() -> None:
        with app.messaging.transaction():
            pass  # never reached

    with app.test() as messaging, TestClient(api) as client:
        for path in ("/in-thread", "/in-loop"):
            with pytest.raises(MisusedTransaction, match="write outside of it"):
                client.post(path)
        with pytest.raises(MisusedTransaction, match="`async with`, not of `with`"):
            client.post("/with")
        assert client.post("/without-it").status_code == 200
        page = messaging.poll("orders", isolation="committed")
        assert [message.payload for message in page] == [b"good"]


def test_a_commit_that_is_refused_is_no_good_answer() -> None:
    app, api, _, _ = shop()
    theirs: list[txaware.Messaging] = []

    @api.post("/conflict")
    async def conflict(_: Any = Depends(app.transaction)) -> None:  # noqa: B008
        table = await app.messaging.table("rows")
        await table.put(b"k", b"ours")
        theirs[0].table("rows").put(b"k", b"theirs")

    @api.exception_handler(txaware.TransactionConflict)
    async def told(request: Any, error: Any) -> Any:
        from fastapi.responses import JSONResponse

        return JSONResponse({"again": True}, status_code=409)

    with app.test() as messaging, TestClient(api) as client:
        theirs.append(messaging)
        assert client.post("/conflict").status_code == 409


def test_a_mounted_app_runs_its_handlers_in_the_web_application() -> None:
    _, api, seen, handled = shop()
    with TestClient(api) as client:
        assert client.post("/orders/1").status_code == 200
        assert handled.wait(20)
    assert seen == [OrderPlaced(1)]
    with TestClient(api) as client:  # it may come again, as a new one in memory
        assert client.post("/orders/3").status_code == 200


def test_the_document_of_an_app_has_its_topics_queues_and_events() -> None:
    app, _, _, _ = shop()

    @app.worker("mail")
    def mail(job: Any) -> None:
        """Sends mail."""

    described = app.asyncapi(title="shop", version="2")
    assert described["asyncapi"] == "3.0.0"
    assert described["info"] == {"title": "shop", "version": "2"}
    channel = described["channels"]["topic.orders"]
    assert channel["address"] == "orders"
    assert list(channel["messages"]) == ["OrderPlaced"]
    message = described["components"]["messages"]["OrderPlaced"]
    assert message["payload"] == {"$ref": "#/components/schemas/OrderPlaced"}
    schema = described["components"]["schemas"]["OrderPlaced"]
    assert schema["required"] == ["order"]
    actions = {
        (one["action"], one["channel"]["$ref"])
        for one in described["operations"].values()
    }
    assert actions == {
        ("receive", "#/channels/topic.orders"),
        ("receive", "#/channels/queue.mail"),
    }
    assert every_reference_leads_somewhere(described)
    json.dumps(described)
    empty = txaware.App("http://127.0.0.1:11015").asyncapi()
    assert empty["channels"] == {}
    assert empty["servers"]["txaware"]["host"] == "127.0.0.1:11015"


def every_reference_leads_somewhere(document: dict[str, Any]) -> bool:
    waiting: list[Any] = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "$ref" in one:
                found: Any = document
                for part in one["$ref"].removeprefix("#/").split("/"):
                    found = found[part]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return True


def test_each_event_loop_has_a_messaging_of_its_own() -> None:
    app = txaware.App("memory:")
    app.blocking.create_topic("t")

    async def publish() -> Any:
        await app.messaging.publish("t", [b"a"])
        found = app.messaging
        assert found is app.messaging
        await found.close()
        return found

    assert asyncio.run(publish()) is not asyncio.run(publish())
    assert len(app.blocking.poll("t")) == 2
    app.stop()
