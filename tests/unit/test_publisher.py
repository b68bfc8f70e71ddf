"""Publishers that join a transaction: what is published, when, and what is undone."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from coordinator.errors import (
    BadRequest,
    ParticipantFailed,
    TransactionConflict,
    TransactionRefused,
    Unavailable,
)
from coordinator.transaction import Status, Transaction
from tests.support.concurrency import in_threads
from tests.support.doubles import Recorder, failing, lost
from tests.support.fake_service import FakeService
from tests.support.publishing import ROOM_BYTES, Setting, fail
from tests.support.workers import stable_id
from txaware.errors import RequestTooLarge, TopicNotFound
from txaware.model.interfaces import Payload
from txaware.model.messages import Outgoing, Receipt
from txaware.publish.outbox import TransactionPublisher
from txaware.publish.publisher import DirectPublisher, KnownTopics


@pytest.fixture
def here() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    assert not setting.embedded.snapshot().in_progress, "a transaction was left open"


# In a transaction


def test_72_messages_go_out_with_the_commit_one_publish_a_topic(here: Setting) -> None:
    table = Recorder("table", log=here.coordinator.log)
    here.service.instead["publish"] = lambda write: (
        here.coordinator.log.append("publish"),
        write(),
    )[1]
    with here.transaction() as tx:
        for number in range(3):
            here.publisher("b").publish(b"b%d" % number)
        here.publisher("a").publish_all([b"a0", b"a1"])
        tx.join(table)
        assert here.writes() == []
    assert here.writes() == ["publish b", "publish a"]
    assert here.service.published("b") == [b"b0", b"b1", b"b2"]
    assert here.service.published("a") == [b"a0", b"a1"]
    log = here.coordinator.log
    assert log.index("commit_tx table") < log.index("publish") < log.index("commit")


@pytest.mark.parametrize(
    "between", [[], [b"alone"], [b"few", Outgoing(b"", b"k")]], ids=stable_id
)
def test_lists_and_single_messages_go_out_in_their_order(
    here: Setting, between: list[Payload]
) -> None:
    keyed: list[Payload] = [Outgoing(b"%d" % n, bytes(30 * n)) for n in range(10)]
    plain: list[Payload] = [b"%d" % n for n in range(20)]
    listed = [plain.copy(), between.copy(), keyed.copy(), plain.copy()]
    with here.transaction():
        for part in listed:
            here.publisher().publish_all(part)
            part.clear()  # what was taken is not the caller's any more
    assert here.service.published("a") == [*plain, *between, *keyed, *plain]


def test_a_list_with_a_wrong_message_leaves_those_before_it(here: Setting) -> None:
    before = [Outgoing(b"b", b"%d" % n) for n in range(20)]
    with here.transaction(), pytest.raises(BadRequest):
        here.publisher().publish_all([*before, None, b"c"])  # type: ignore[list-item]
    assert here.service.published("a") == before


def test_all_topics_of_a_transaction_have_one_participant_without_keys(
    here: Setting,
) -> None:
    with here.transaction() as tx:
        here.publisher("a").publish(b"1")
        here.publisher("b").publish(b"2")
        joined = tx._participants.in_commit_order()
        assert [p.transaction_aware_name for p in joined] == ["publisher of a, b"]
        assert joined[0].get_tx_changes() == ()


def test_two_names_of_one_topic_are_one_publish(here: Setting) -> None:
    with here.transaction():
        here.publisher("a").publish(b"1")
        here.publisher("default:a").publish(b"2")
        here.publisher("ns:a").publish(b"3")
        here.publisher("a").publish(b"4")
    assert here.writes() == ["publish a", "publish ns:a"]
    assert here.service.published("a") == [b"1", b"2", b"4"]


def test_73_an_exception_in_the_body_publishes_nothing(here: Setting) -> None:
    tx = here.failed(ZeroDivisionError, here.publish("a"), fail)
    assert here.writes() == []
    assert tx.status is Status.ABORTED


def test_a_conflict_publishes_nothing(here: Setting) -> None:
    here.coordinator.instead["can_commit"] = failing(TransactionConflict("other"))
    with pytest.raises(TransactionConflict), here.transaction():
        here.publisher().publish(b"1")
    assert here.writes() == []


def test_a_participant_that_fails_before_it_publishes_nothing(here: Setting) -> None:
    table = Recorder("table", commit_tx=OSError("full"))
    here.failed(OSError, here.publish("a"), participants=[table])
    assert here.writes() == []


def test_74_a_refused_commit_rolls_back_each_answer(here: Setting) -> None:
    here.coordinator.instead["commit"] = failing(TransactionConflict("other"))
    tx = here.failed(TransactionConflict, here.publish("a", "b"))
    assert here.writes() == ["publish a", "publish b", "rollback a", "rollback b"]
    handed_back = [call.response.start_timestamp for call in here.service.calls[-2:]]
    assert handed_back == [1, 2]
    assert here.service.published("a") == here.service.published("b") == []
    assert tx.status is Status.ABORTED


def test_74_a_later_participant_that_fails_rolls_back_what_was_published(
    here: Setting,
) -> None:
    position = Recorder("position", flushes_last=True, commit_tx=False)
    tx = here.failed(ParticipantFailed, here.publish("a"), here.join(position))
    assert here.writes() == ["publish a", "rollback a"]
    assert tx.status is Status.ABORTED


def test_a_topic_deleted_meanwhile_refuses_the_whole_transaction(here: Setting) -> None:
    deletion = partial(here.service.deleted.add, "b")
    tx = here.failed(TopicNotFound, here.publish("a", "b"), deletion)
    assert here.writes() == ["publish a", "publish b", "rollback a"]
    assert tx.status is Status.ABORTED


def test_a_topic_deleted_after_its_publish_leaves_nothing_to_undo(
    here: Setting,
) -> None:
    def refused(commit: Any) -> None:
        here.service.deleted.add("a")
        raise TransactionConflict("other")

    here.coordinator.instead["commit"] = refused
    with pytest.raises(TransactionConflict), here.transaction() as tx:
        here.publisher("a").publish(b"1")
    assert tx.status is Status.ABORTED


@pytest.mark.parametrize("reached", [False, True])
def test_76_a_lost_answer_to_a_publish_invalidates(
    here: Setting, reached: bool
) -> None:
    error = Unavailable("no answer")
    here.service.instead["publish"] = lost(error) if reached else failing(error)
    with pytest.raises(Unavailable), here.transaction() as tx:
        here.publisher("a").publish(b"1")
    assert tx.status is Status.INVALIDATED
    assert here.is_invalid(tx)


@pytest.mark.parametrize("call", ["publish", "store"])
@pytest.mark.parametrize(
    "no", [BadRequest("x"), TopicNotFound("x"), TransactionRefused("x")]
)
def test_a_definite_no_aborts(here: Setting, call: str, no: Exception) -> None:
    here.service.instead[call] = failing(no)
    publisher = here.publisher(buffer_limit_bytes=1)
    messages = [b"1", b"2"] if call == "store" else [b"1"]
    tx = here.failed(type(no), partial(publisher.publish_all, messages))
    assert tx.status is Status.ABORTED


def test_a_flush_whose_answer_is_lost_ends_in_a_rollback(here: Setting) -> None:
    here.service.instead["publish"] = lost(Unavailable("no answer"))
    publisher = here.publisher("a")

    def step() -> None:
        publisher.publish(b"1")
        with pytest.raises(Unavailable):
            publisher.flush()
        publisher.publish(b"2")

    assert here.failed(ParticipantFailed, step).status is Status.INVALIDATED


def test_a_flush_that_is_refused_may_be_tried_again(here: Setting) -> None:
    publisher = here.publisher("a")
    with here.transaction() as tx:
        publisher.publish(b"1")
        here.service.instead["publish"] = failing(BadRequest("x"))
        with pytest.raises(BadRequest):
            tx.flush()
        del here.service.instead["publish"]
        tx.flush()
        assert here.service.published("a") == [b"1"]
    assert here.writes() == ["publish a", "publish a"]


def test_a_flush_rolls_back_all_that_it_published(here: Setting) -> None:
    publisher = here.publisher("a")

    def step() -> None:
        for payload in (b"1", b"2"):
            publisher.publish(payload)
            publisher.flush()
        raise ZeroDivisionError

    tx = here.failed(ZeroDivisionError, step)
    assert here.writes() == ["publish a", "publish a", "rollback a", "rollback a"]
    assert tx.status is Status.ABORTED


def test_a_lost_answer_still_rolls_back_the_topics_before_it(here: Setting) -> None:
    answers = iter([lambda write: write(), lost(OSError("reset"))])
    here.service.instead["publish"] = lambda write: next(answers)(write)
    tx = here.failed(OSError, here.publish("a", "b"))
    assert here.writes() == ["publish a", "publish b", "rollback a"]
    assert tx.status is Status.INVALIDATED


def test_a_rollback_that_fails_invalidates_and_tries_the_other_topics(
    here: Setting,
) -> None:
    here.coordinator.instead["commit"] = failing(TransactionConflict("other"))
    here.service.instead["rollback"] = failing(Unavailable("gone"))
    tx = here.failed(TransactionConflict, here.publish("a", "b"))
    assert here.writes()[2:] == ["rollback a", "rollback b"]
    assert "Unavailable('gone')" in "".join(here.caught.__notes__)
    assert tx.status is Status.INVALIDATED


def test_an_interrupt_in_a_publish_leaves_it_in_doubt(here: Setting) -> None:
    here.service.instead["publish"] = lost(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), here.transaction() as tx:
        here.publisher().publish(b"1")
    assert tx.status is Status.INVALIDATED


def test_a_publish_without_an_answer_to_roll_back_is_refused(here: Setting) -> None:
    def answers_nothing(write: Any) -> None:
        write()

    here.service.instead["publish"] = answers_nothing
    tx = here.failed(ParticipantFailed, here.publish("a"))
    assert "answered nothing" in str(here.caught)
    assert tx.status is Status.INVALIDATED


def test_a_checkpoint_publishes_nothing_and_keeps_the_first_pointer(
    here: Setting,
) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    with here.transaction() as tx:
        publisher.publish(b"before the")
        tx.checkpoint()
        assert here.writes() == []
        publisher.publish(b"after it..")
        here.publisher("b").publish(b"joined late")
    first = tx.transaction.transaction_id
    assert first != tx.transaction.write_pointer
    pointers = {call.pointer for call in here.service.calls if call.name != "topic"}
    assert pointers == {first}
    assert here.service.published("a") == [b"before the", b"after it.."]


@pytest.mark.parametrize("shares", [True, False])
def test_its_start_is_persisted_unless_it_shares_the_journal(
    here: Setting, shares: bool
) -> None:
    with here.transaction():
        here.publisher(shares_journal=shares).publish(b"1")
    assert ("persist" in here.coordinator.log) is not shares


def test_two_services_of_one_coordinator_do_not_mix(here: Setting) -> None:
    other = Setting()
    other.coordinator = here.coordinator
    with here.transaction():
        here.publisher("a").publish(b"here")
        other.publisher("a").publish(b"there")
    assert here.service.published("a") == [b"here"]
    assert other.service.published("a") == [b"there"]


def test_publishing_none_publishes_nothing(here: Setting) -> None:
    here.publisher().publish_all([])
    with here.transaction():
        here.publisher().publish_all([])
    assert here.writes() == []


def test_a_rolled_back_publisher_holds_nothing_for_a_later_transaction(
    here: Setting,
) -> None:
    publisher = here.publisher()
    for _ in range(3):
        here.failed(ZeroDivisionError, partial(publisher.publish, b"no"), fail)
    with here.transaction():
        publisher.publish(b"yes")
    assert here.service.published("a") == [b"yes"]
    assert here.writes() == ["publish a"]


@pytest.mark.parametrize("commits", [True, False])
def test_it_lets_go_of_its_messages_at_the_end(here: Setting, commits: bool) -> None:
    here.service = FakeService("a", keeps=False)
    context = here.transaction()
    with context:
        here.publisher().publish(b"x" * 5000)
        if not commits:
            context.abort()
    (participant,) = context._participants.in_commit_order()
    assert isinstance(participant, TransactionPublisher)
    assert participant._outboxes == {}
    assert participant._held_bytes == 0


# Without one, and beside one


def test_without_a_transaction_it_publishes_at_once(here: Setting) -> None:
    here.publisher().publish(b"1")
    more: list[Payload] = [b"2", Outgoing(b"3", expire_after_s=5)]
    here.publisher().publish_all(iter(more))
    assert [(c.name, c.messages, c.pointer) for c in here.service.calls] == [
        ("publish", [b"1"], None),
        ("publish", [b"2", Outgoing(b"3", expire_after_s=5)], None),
    ]


def test_77_a_direct_publisher_does_not_join(here: Setting) -> None:
    direct = DirectPublisher(here.service, "a", message_limit_bytes=100)
    first = partial(direct.publish, b"1")
    more = partial(direct.publish_all, [b"2", b"3"])
    here.failed(ZeroDivisionError, first, more, fail)
    assert here.service.published("a") == [b"1", b"2", b"3"]
    assert here.writes() == ["publish a", "publish a"]


def test_an_expiry_travels_with_its_message(here: Setting) -> None:
    message = Outgoing(b"soon over", expire_after_s=1.5)
    with here.transaction():
        here.publisher().publish(message)
    assert here.service.published("a") == [message]


def test_a_misspelt_topic_fails_at_publish_and_the_transaction_goes_on(
    here: Setting,
) -> None:
    with here.transaction() as tx:
        with pytest.raises(TopicNotFound):
            here.publisher("misspelt").publish(b"1")
        here.publisher("a").publish(b"2")
    assert tx.status is Status.COMMITTED
    assert here.writes() == ["publish a"]


def test_a_topic_is_asked_for_once(here: Setting) -> None:
    known = KnownTopics(here.service)
    for _ in range(3):
        with here.transaction():
            here.publisher(known_topics=known).publish(b"1")
            here.publisher(known_topics=known).publish(b"1")
    assert here.service.names().count("topic a") == 1


def test_a_topic_that_was_not_there_is_asked_for_again(here: Setting) -> None:
    publisher = here.publisher("a")
    here.service.deleted.add("a")
    with here.transaction(), pytest.raises(TopicNotFound):
        publisher.publish(b"1")
    here.service.deleted.clear()
    with here.transaction():
        publisher.publish(b"2")
    assert here.service.published("a") == [b"2"]


def test_a_topic_for_plain_messages_only_fails_at_publish(here: Setting) -> None:
    here.service.properties = {"publishing": "plain"}
    with here.transaction(), pytest.raises(BadRequest, match="no messages of trans"):
        here.publisher().publish(b"1")
    here.service.properties = {}
    with here.transaction():
        here.publisher().publish(b"2")


WRONG: list[Any] = ["text", 5, None, bytearray(b"x"), memoryview(b"x"), [b"x"]]
WRONG += [Outgoing("text"), Outgoing(b"x", expire_after_s=-1)]


@pytest.mark.parametrize("wrong", WRONG, ids=stable_id)
@pytest.mark.parametrize("joined", [True, False])
def test_what_is_no_message_fails_at_publish(
    here: Setting, wrong: Any, joined: bool
) -> None:
    if joined:
        with here.transaction() as tx:
            with pytest.raises(BadRequest):
                here.publisher().publish(wrong)
            here.publisher().publish(b"right")
        assert tx.status is Status.COMMITTED
        assert here.service.published("a") == [b"right"]
    else:
        with pytest.raises(BadRequest):
            here.publisher().publish(wrong)
        with pytest.raises(BadRequest):
            here.publisher().publish_all([b"right", wrong])
        assert here.writes() == []


@pytest.mark.parametrize(
    "wrong", [b"bytes", "text", 5, None, Outgoing(b"x")], ids=stable_id
)
@pytest.mark.parametrize("joined", [True, False])
def test_publish_all_takes_no_single_message(
    here: Setting, wrong: Any, joined: bool
) -> None:
    if not joined:
        with pytest.raises(BadRequest, match="takes many"):
            here.publisher().publish_all(wrong)
        return
    with here.transaction(), pytest.raises(BadRequest, match="takes many"):
        here.publisher().publish_all(wrong)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("message", [b"x" * 101, Outgoing(b"x" * 101)])
def test_a_message_above_the_limit_fails_at_publish(
    here: Setting, joined: bool, message: Any
) -> None:
    publisher = here.publisher(message_limit_bytes=100)
    if joined:
        with here.transaction():
            publisher.publish(b"x" * 100)
            with pytest.raises(RequestTooLarge, match=r"101 bytes .* 100"):
                publisher.publish(message)
        assert here.service.published("a") == [b"x" * 100]
    else:
        with pytest.raises(RequestTooLarge, match=r"101 bytes .* 100"):
            publisher.publish(message)
        assert here.writes() == []


@pytest.mark.parametrize(
    "options",
    [{"buffer_limit_bytes": 0}, {"message_limit_bytes": "big"}, {"topic": "a b"}],
)
def test_a_publisher_of_nonsense_is_not_made(here: Setting, options: Any) -> None:
    with pytest.raises(BadRequest):
        here.publisher(**options)


# Who is in which transaction


def test_two_threads_with_transactions_of_their_own_do_not_mix(here: Setting) -> None:
    publisher, turn = here.publisher(), threading.Barrier(2, timeout=20)

    def work(name: bytes) -> None:
        with here.transaction():
            for number in range(20):
                turn.wait()
                publisher.publish(b"%s %d" % (name, number))

    in_threads(work, (b"x", b"y"))
    calls = [call for call in here.service.calls if call.name == "publish"]
    assert len(calls) == 2
    for call in calls:
        name = call.messages[0][:1]
        assert call.messages == [b"%s %d" % (name, n) for n in range(20)]


def test_two_tasks_with_transactions_of_their_own_do_not_mix(here: Setting) -> None:
    publisher = here.publisher()

    async def work(name: bytes, *, fails: bool) -> None:
        with here.transaction():
            for number in range(20):
                await asyncio.sleep(0)
                publisher.publish(b"%s %d" % (name, number))
            if fails:
                raise ZeroDivisionError

    async def all_of_them() -> Any:
        return await asyncio.gather(
            work(b"x", fails=False),
            work(b"y", fails=True),
            work(b"z", fails=False),
            return_exceptions=True,
        )

    answers = asyncio.run(all_of_them())
    assert [type(answer) for answer in answers] == [
        type(None),
        ZeroDivisionError,
        type(None),
    ]
    calls = [call.messages for call in here.service.calls if call.name == "publish"]
    assert calls == [[b"%s %d" % (name, n) for n in range(20)] for name in (b"x", b"z")]


def test_a_thread_started_inside_a_transaction_is_not_in_it(here: Setting) -> None:
    publisher = here.publisher()
    thread = threading.Thread(target=publisher.publish, args=(b"beside it",))
    here.failed(ZeroDivisionError, thread.start, partial(thread.join, 20), fail)
    assert here.service.published("a") == [b"beside it"]


class Storing:
    """Takes what is stored."""

    carrier = None

    def store(
        self, topic: str, messages: list[Payload], *, transaction: int, attempt: bytes
    ) -> Receipt:
        return Receipt(1, topic, attempt, len(messages))


def test_all_topics_together_stay_below_the_limit() -> None:
    service: object = Storing()
    publisher = TransactionPublisher(service, shares_journal=True)  # type: ignore[arg-type]
    publisher.start_tx(Transaction(1, 0))
    sizes = [("a", 100), ("b", 900), ("a", 950), *((f"c{i}", 10) for i in range(9))]
    for topic, size_bytes in [*sizes, ("d", 990)]:
        publisher.publish(topic, b"", size_bytes=size_bytes, limit_bytes=1000)
        assert publisher._held_bytes <= 1000
