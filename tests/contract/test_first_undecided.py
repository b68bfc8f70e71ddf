"""Where a reader with a snapshot stops: the first row that it cannot decide."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import codec
from coordinator.transaction import Transaction
from tests.support.http_access import Caller
from tests.support.http_served import served
from tests.support.messagings import Site, commit, publish, seen_by
from txaware.errors import BadRequest, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import MessageId

LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)
TX = Transaction(5, 3)
PATH = "/v1/namespaces/default/topics/t/first-undecided"
BODY = {
    "from": str(LEAST),
    "to": str(MOST),
    "transaction": b64encode(codec.encode(TX)).decode(),
}


def found(
    messaging: Messaging,
    snapshot: Transaction | None = None,
    *,
    start: MessageId = LEAST,
    stop: MessageId | None = None,
) -> MessageId:
    snapshot = snapshot or messaging.coordinator.snapshot()
    stop = stop or messaging.bounds("t").next
    return messaging.administration.first_undecided(
        "t", start=start, stop=stop, snapshot=snapshot
    )


def ids(messaging: Messaging) -> list[MessageId]:
    return [row.id for row in messaging.peek("t")]


def test_it_is_the_first_row_of_an_open_transaction(messaging: Messaging) -> None:
    coordinator = messaging.coordinator
    first, second = coordinator.start_short(), coordinator.start_short()
    messaging.publish("t", [b"plain"])
    publish(messaging, b"a", transaction=second)
    publish(messaging, b"b", transaction=first)
    messaging.publish("t", [b"plain"])
    rows, behind = ids(messaging), messaging.bounds("t").next
    assert found(messaging) == rows[1]
    assert found(messaging, start=rows[2]) == rows[2]
    assert found(messaging, start=rows[3]) == behind
    assert found(messaging, stop=rows[1]) == rows[1]
    before = coordinator.snapshot()
    commit(messaging, second)
    assert found(messaging) == rows[2]
    assert found(messaging, before) == rows[1]
    coordinator.invalidate(first)
    assert found(messaging) == behind


def test_what_was_rolled_back_is_decided(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    messaging.rollback("t", publish(messaging, b"a", transaction=tx))
    assert found(messaging) == messaging.bounds("t").next


def test_an_end_inside_of_a_reference_that_is_undecided(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    receipt = messaging.store("t", [b"a", b"b"], transaction=tx, attempt=b"x")
    messaging.publish("t", [], transaction=tx, receipts=[receipt])
    first, second = (message.id for message in messaging.poll("t"))
    assert found(messaging, stop=second) == MessageId(first.row_key + bytes(10))
    assert found(messaging, start=second) == second


def test_all_rows_are_looked_at_however_many_there_are(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"x"] * 2500)
    publish(messaging, b"open", transaction=tx)
    messaging.publish("t", [b"x"])
    open_row = messaging.poll("t", limit=3000)[2500].id
    assert found(messaging) == open_row


def test_rows_from_before_the_oldest_transaction_are_not_looked_at(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"old"], transaction=None)
    site.clock.advance_s(3600)
    young = 10**6 * site.clock.now_ms
    old_row, behind = ids(messaging)[0], messaging.bounds("t").next
    assert found(messaging, seen_by(young + 2, read=0, in_progress=[young])) == behind
    assert old_row < behind


@pytest.mark.parametrize(
    "wrong", [{"start": b"short"}, {"stop": None}, {"snapshot": 5}, {"start": "x" * 40}]
)
def test_wrong_arguments_are_bad_requests(
    messaging: Messaging, wrong: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {"start": LEAST, "stop": MOST, "snapshot": TX} | wrong
    with pytest.raises(BadRequest):
        messaging.administration.first_undecided("t", **asked)


def test_a_topic_has_to_be_there(messaging: Messaging) -> None:
    with pytest.raises(TopicNotFound):
        messaging.administration.first_undecided(
            "x", start=LEAST, stop=MOST, snapshot=TX
        )


@pytest.fixture
def server() -> Iterator[Caller]:
    """Calls a server with an empty topic."""
    with served() as store:
        store.messaging.create_topic("t")
        caller = Caller(store.url, None)
        yield caller
        caller.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"from": None},
        {"from": 5},
        {"to": "00"},
        {"transaction": None},
        {"transaction": "AAAA"},
        {"transaction": "no base64"},
        {"more": 1},
    ],
)
def test_wrong_bodies_are_bad_requests(server: Caller, wrong: dict[str, Any]) -> None:
    assert server.ask("POST", PATH, BODY).json == {"id": str(MOST)}
    answer = server.ask("POST", PATH, BODY | wrong)
    assert answer.status == 400
    assert server.ask("POST", PATH, [1]).status == 400
