"""Transactional producers: one instance at a time, and each commit counted once."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from coordinator.transaction import Status
from tests.support.concurrency import in_threads
from tests.support.consume_setting import run_in_thread
from tests.support.doubles import Recorder
from tests.support.messagings import DAY_S, Site, committed, payloads, publish
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ProducerFenced,
    PublisherClosed,
    TopicNotFound,
    TransactionNotInProgress,
    TransactionRefused,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.producers import MAX_EPOCH, ProducerIdentity
from txaware.publish.producer_states import REFUSALS, State
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.service.producers import producer_ids

Producer = TransactionalProducer


def commit_one(producer: Producer, payload: bytes = b"m") -> None:
    with producer.transaction():
        producer.publish("t", [payload])


# Fencing.


def test_a_newer_instance_fences_the_next_begin(messaging: Messaging) -> None:
    old, new = messaging.producer("loader"), messaging.producer("loader")
    with pytest.raises(ProducerFenced, match="newer instance of producer loader"):
        commit_one(old)
    with pytest.raises(ProducerFenced):
        old.begin()
    assert (old.state, new.state) == (State.FENCED, State.READY)
    commit_one(new)
    assert committed(messaging) == [b"m"]
    assert (old.producer_id, old.epoch + 1) == (new.producer_id, new.epoch)


@pytest.mark.parametrize("by", ["block", "verbs"])
def test_a_newer_instance_fences_the_commit_of_what_is_open(
    messaging: Messaging, by: str
) -> None:
    old = messaging.producer("loader")

    def block() -> None:
        with old.transaction():
            old.publish("t", [b"old"])
            run_in_thread(lambda: messaging.producer("loader"))

    def verbs() -> None:
        old.begin()
        old.publish("t", [b"old"])
        messaging.producer("loader")
        old.commit()

    with pytest.raises(ProducerFenced):
        {"block": block, "verbs": verbs}[by]()
    with pytest.raises(ProducerFenced):
        old.publish("t", [b"later"])
    with pytest.raises(ProducerFenced):
        old.begin()
    assert committed(messaging) == []
    assert messaging.producer("loader").commits == 0


def test_other_ids_are_not_fenced(messaging: Messaging) -> None:
    one, _ = messaging.producer("one"), messaging.producer("one.two")
    commit_one(one)
    assert one.commits == 1
    assert messaging.producer("one.two").commits == 0


def test_after_the_greatest_epoch_an_id_goes_on_with_another_producer(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greatest itself is nobody's: it fences the one before."""
    monkeypatch.setattr(producer_ids, "MAX_EPOCH", 2)
    instances = [messaging.producer("p") for _ in range(2)]
    commit_one(instances[1])
    instances[1].begin()
    newest = messaging.producer("p")
    assert [one.epoch for one in (*instances, newest)] == [0, 1, 0]
    assert newest.producer_id != instances[1].producer_id
    with pytest.raises(ProducerFenced, match="has taken over"):
        instances[1].commit()
    with pytest.raises(ProducerFenced, match="has taken over"):
        commit_one(instances[0])
    for old in instances:
        identity = ProducerIdentity(old.producer_id, old.epoch)
        with pytest.raises(ProducerFenced):
            messaging._parts.producers.publish_once(
                "t", [b"z"], producer=identity, sequence=0
            )
    assert [one.producer_id for one in messaging.producers()] == [newest.producer_id]
    commit_one(newest)
    assert newest.commits == 2


def test_an_instance_with_the_greatest_epoch_is_fenced(
    site: Site, messaging: Messaging
) -> None:
    """Earlier versions gave it to an instance."""
    first = messaging.producer("p")
    ids = site.producing.ids
    ids._change(attrs.evolve(ids.find(first.producer_id), epoch=MAX_EPOCH))
    newest = messaging.producer("p")
    old = ProducerIdentity(first.producer_id, MAX_EPOCH)
    with pytest.raises(ProducerFenced):
        messaging._parts.producers.publish_once("t", [b"z"], producer=old, sequence=0)
    commit_one(newest)
    assert committed(messaging) == [b"m"]


@pytest.mark.parametrize("by", ["forgetting", "expiry"])
def test_the_commits_of_an_id_that_was_forgotten_count_from_0(
    site: Site, messaging: Messaging, by: str
) -> None:
    """In the process that counted the ones before, too."""
    first = messaging.producer("loader")
    ids, holders = site.producing.ids, site.producing._removal._holders
    ids.counts()
    for _ in range(2):
        commit_one(first)
    assert holders.known("loader") is not None
    if by == "forgetting":
        messaging.forget_producer(first.producer_id)
    else:
        site.clock.now_ms += 366 * DAY_S * 1000
        assert messaging.clean_up().producers == 1
    assert messaging.producers() == []
    assert holders.known("loader") is None
    assert ids._named == {}
    again = messaging.producer("loader")
    seen = [again.commits]
    for _ in range(2):
        commit_one(again)
        seen.append(again.commits)
    assert seen == [0, 1, 2]


def test_an_id_that_begins_a_transaction_as_it_expires_is_kept(
    site: Site, messaging: Messaging
) -> None:
    producer = messaging.producer("loader")
    commit_one(producer)
    site.clock.now_ms += 366 * DAY_S * 1000
    removal = site.producing._removal
    remove = removal._remove_unless_used
    with pytest.MonkeyPatch.context() as patch:

        def remove_late(*arguments: Any) -> Any:
            commit_one(producer)
            return remove(*arguments)

        patch.setattr(removal, "_remove_unless_used", remove_late)
        assert messaging.clean_up().producers == 0
    assert producer.commits == 2
    assert messaging.producer("loader").commits == 2


def test_what_an_older_instance_left_open_has_ended_when_a_newer_one_is_opened(
    messaging: Messaging,
) -> None:
    old = messaging.producer("loader")
    old.begin(timeout_s=900)
    tx = old._context.transaction  # type: ignore[union-attr]
    publish(messaging, b"left", transaction=tx)
    messaging.publish("t", [b"plain"])
    assert committed(messaging) == []  # it is in the way
    messaging.producer("loader")
    assert committed(messaging) == [b"plain"]
    assert not messaging.coordinator.snapshot().is_in_progress(tx.transaction_id)


def test_a_commit_before_the_newer_instance_counts(messaging: Messaging) -> None:
    old = messaging.producer("loader")
    assert old.commits == 0
    commit_one(old)
    new = messaging.producer("loader")
    assert (old.commits, new.commits) == (1, 1)
    commit_one(new)
    assert (old.commits, new.commits) == (2, 2)


def test_it_serves_one_with_statement(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    with producer, pytest.raises(MisusedTransaction, match="make a new one"):
        producer.__enter__()
    with pytest.raises(MisusedTransaction):
        producer.__enter__()


def test_the_end_of_its_block_undoes_what_is_open(messaging: Messaging) -> None:
    with messaging.producer("loader") as producer:
        producer.begin()
        producer.publish("t", [b"undone"])
    producer.close()
    messaging.publish("t", [b"plain"])
    assert committed(messaging) == [b"plain"]
    with pytest.raises(PublisherClosed):
        producer.begin()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a:b", "~a", "a/b", 7, "x" * 256]
)
def test_a_wrong_id_is_refused(messaging: Messaging, name: Any) -> None:
    with pytest.raises(BadRequest):
        messaging.producer(name)


def test_an_id_of_dots_is_one(messaging: Messaging) -> None:
    commit_one(messaging.producer("..."))
    assert messaging.producer("...").commits == 1


def test_an_instance_that_nobody_opened_is_refused(messaging: Messaging) -> None:
    opened = messaging.producer("loader")
    service: Any = messaging._producers
    tx = messaging.coordinator.start_short()
    for wrong in (
        ProducerIdentity(opened.producer_id, opened.epoch + 1),
        ProducerIdentity(-1, 0),
    ):
        with pytest.raises(BadRequest):
            service.enter_transaction("loader", wrong, tx)
    for name in ("loader", "other"):
        with pytest.raises(ProducerFenced):
            service.enter_transaction(name, ProducerIdentity(1, 0), tx)
    messaging.coordinator.abort(tx)


# Transactions.


def test_participants_and_messages_commit_together(messaging: Messaging) -> None:
    table, producer = Recorder(), messaging.producer("loader")
    with producer.transaction(table) as tx:
        assert producer.publish("t", [b"a", Outgoing(b"b")]) == []
        messaging.publisher("t").publish(b"c")
    assert tx.status is Status.COMMITTED
    assert table.log[-1] == "post_tx_commit table"
    assert committed(messaging) == [b"a", b"b", b"c"]
    assert producer.commits == 1


def test_a_block_that_raises_undoes_and_counts_nothing(messaging: Messaging) -> None:
    producer = messaging.producer("loader")

    def fail() -> None:
        with producer.transaction():
            producer.publish("t", [b"a"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert producer.commits == 0
    commit_one(producer)
    assert producer.commits == 1
    assert committed(messaging) == [b"m"]


def test_a_participant_that_refuses_undoes_and_counts_nothing(
    messaging: Messaging,
) -> None:
    producer = messaging.producer("loader")
    with (
        pytest.raises(ValueError, match="no"),
        producer.transaction(Recorder(commit_tx=ValueError("no"))),
    ):
        producer.publish("t", [b"a"])
    assert producer.commits == 0
    assert committed(messaging) == []
    commit_one(producer)
    assert producer.commits == 1


def test_messages_that_spill_count_once(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    with producer.transaction():
        small = messaging.publisher("t", buffer_limit_bytes=1000)
        small.publish_all([b"x" * 400] * 10)
    assert producer.commits == 1
    assert len(committed(messaging)) == 10


def test_a_checkpoint_changes_nothing_for_the_count(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    with producer.transaction(Recorder()) as tx:
        producer.publish("t", [b"a"])
        tx.checkpoint()
        producer.publish("t", [b"b"])
    assert producer.commits == 1
    assert committed(messaging) == [b"a", b"b"]


def test_it_has_one_transaction_at_a_time(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    with producer.transaction():
        producer.publish("t", [b"a"])
        for begin in (producer.begin, lambda: commit_one(producer)):
            with pytest.raises(MisusedTransaction, match="a transaction is open"):
                run_in_thread(begin)
    assert committed(messaging) == [b"a"]


def test_transactions_of_two_instances_never_both_commit(messaging: Messaging) -> None:
    """Even where nobody ended the older one: both change one key."""
    old = messaging.producer("loader")
    old.begin()
    old.publish("t", [b"old"])
    coordinator: Any = messaging.coordinator
    keys = [bytes(key) for key in old._context.count.get_tx_changes()]  # type: ignore[union-attr]
    tx = coordinator.start_short()
    coordinator.can_commit(tx, keys)
    coordinator.commit(tx)
    with pytest.raises(TransactionRefused):
        old.commit()
    assert committed(messaging) == []


def test_long_transactions_are_not_taken(messaging: Messaging) -> None:
    opened, service = messaging.producer("loader"), messaging._producers
    tx = messaging.coordinator.start_long()
    with pytest.raises(BadRequest, match="no long transactions"):
        service.enter_transaction(
            "loader", ProducerIdentity(opened.producer_id, opened.epoch), tx
        )
    messaging.coordinator.invalidate(tx)


def test_a_transaction_that_timed_out_takes_no_more_and_the_next_one_works(
    site: Site,
) -> None:
    """Scenario 92; the instance stays, as nobody else opened its id."""
    messaging = site.messaging
    messaging.create_topic("t")
    producer = messaging.producer("loader")
    producer.begin(timeout_s=1)
    producer.publish("t", [b"early"])
    assert isinstance(producer._context, object)
    producer._context._began_s -= 2  # type: ignore[union-attr]  # as if it passed
    site.clock.advance_s(2)
    with pytest.raises(TransactionNotInProgress, match="timed out"):
        producer.publish("t", [b"late"])
    with pytest.raises(TransactionNotInProgress):
        producer.commit()
    producer.abort()
    commit_one(producer)
    assert committed(messaging) == [b"m"]
    assert producer.commits == 1


def test_ten_thousand_undone_messages_in_ten_topics_hide_no_committed_one(
    messaging: Messaging,
) -> None:
    """Scenario 99."""
    topics = [f"p{number}" for number in range(10)]
    for topic in topics:
        messaging.create_topic(topic)
    producer = messaging.producer("loader")

    def batch(count: int, text: bytes) -> None:
        producer.begin()
        for topic in topics:
            producer.publish(topic, [text] * (count // 10))

    for _ in range(2):
        batch(5000, b"undone")
        producer.abort()
    batch(1000, b"done")
    producer.commit()
    found = [committed(messaging, topic) for topic in topics]
    assert found == [[b"done"] * 100] * 10


# Kafka's verbs.


def in_state(messaging: Messaging, state: State) -> Producer:
    """A producer in each of its states."""
    producer = messaging.producer("loader")
    if state is State.CLOSED:
        producer.close()
    elif state is not State.READY:
        failing = Recorder(commit_tx=ValueError("no"))
        producer.begin(*([failing] if state is State.ROLLED_BACK else []))
    if state is State.ROLLED_BACK:
        with pytest.raises(ValueError, match="no"):
            producer.commit()
    elif state is State.UNKNOWN:
        assert producer._context is not None
        producer._context.status = Status.UNKNOWN
    assert producer.state is state
    return producer


CALLS: dict[str, Callable[[Producer], object]] = {
    "begin": lambda producer: producer.begin(),
    "transaction": lambda producer: producer.transaction().start(),
    "publish": lambda producer: producer.publish("t", [b"m"]),
    "save_positions": lambda producer: producer.save_positions(),
    "commit": lambda producer: producer.commit(),
    "abort": lambda producer: producer.abort(),
}


@pytest.mark.parametrize(
    ("state", "call"),
    [(state, call) for state, refused in REFUSALS.items() for call in refused],
)
def test_a_wrong_call_is_one_sentence_and_changes_nothing(
    messaging: Messaging, state: State, call: str
) -> None:
    """Scenario 93."""
    producer = in_state(messaging, state)
    before = messaging.coordinator.snapshot().in_progress
    with pytest.raises(MisusedTransaction) as refused:
        CALLS[call](producer)
    assert state.value in str(refused.value)
    assert producer.state is state
    assert messaging.coordinator.snapshot().in_progress == before
    assert committed(messaging) == []
    if state is State.UNKNOWN:
        with pytest.raises(TransactionNotInProgress):
            producer.commit()
    producer.close()


@pytest.mark.parametrize(
    "state", [state for state in State if state not in (State.FENCED, State.CLOSED)]
)
def test_from_each_state_a_transaction_commits_in_the_end(
    messaging: Messaging, state: State
) -> None:
    producer = in_state(messaging, state)
    if state is State.OPEN:
        producer.abort()
    elif state is State.ROLLED_BACK:
        producer.abort()  # as programs for Kafka do
    commit_one(producer)
    assert committed(messaging) == [b"m"]
    assert producer.commits == 1


def test_verbs_come_from_any_thread(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    run_in_thread(producer.begin)
    run_in_thread(lambda: producer.publish("t", [b"a"]))
    assert messaging.poll("t") == []  # what this thread does joins nothing
    run_in_thread(producer.commit)
    assert committed(messaging) == [b"a"]


def test_a_message_of_a_transaction_has_no_sequence(messaging: Messaging) -> None:
    producer = messaging.producer("loader")
    producer.begin()
    with pytest.raises(BadRequest, match="no sequence"):
        producer.publish("t", [b"a"], sequence=0)
    with pytest.raises(TopicNotFound):
        producer.publish("nowhere", [b"a"])
    with pytest.raises(BadRequest):
        producer.publish("t", "one")  # type: ignore[arg-type]
    producer.commit()
    assert committed(messaging) == []


def test_commits_and_aborts_in_turn_leave_what_was_committed_and_its_position(
    messaging: Messaging,
) -> None:
    """Scenario 89."""
    messaging.create_topic("out")
    messaging.publish("t", [b"%d" % number for number in range(60)])
    consumer = messaging.consumer("t", group="copier")
    producer = messaging.producer("copier")
    expected: list[bytes] = []
    for number in range(16):
        page = consumer.poll(limit=5)
        producer.begin()
        producer.publish("out", [message.payload for message in page])
        producer.save_positions(consumer)
        if number % 4 == 3:
            producer.abort()
        else:
            producer.commit()
            expected += payloads(page)
    assert committed(messaging, "out") == expected
    assert expected == [b"%d" % number for number in range(60)]
    assert messaging.position("copier", "t") == messaging.bounds("t").last
    assert consumer.poll() == []


def test_polls_after_the_positions_were_saved_come_after_them(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"a", b"b", b"c"])
    consumer, producer = messaging.consumer("t", group="g"), messaging.producer("p")
    first = consumer.poll(limit=1)
    producer.begin()
    producer.save_positions(consumer)
    with pytest.raises(MisusedTransaction, match="saved with the commit"):
        consumer.commit()
    assert payloads(consumer.poll(limit=1)) == [b"b"]
    producer.commit()
    assert messaging.position("g", "t") == first[-1].id
    assert payloads(consumer.poll(limit=1)) == [b"c"]
    consumer.commit()
    assert messaging.position("g", "t") == messaging.bounds("t").last


def test_what_has_no_position_is_refused(messaging: Messaging) -> None:
    producer: Any = messaging.producer("p")
    producer.begin()
    with pytest.raises(BadRequest, match="save_positions takes consumers"):
        producer.save_positions("g")
    producer.commit()


def test_positions_of_a_group_by_topic_move_with_the_commit(
    messaging: Messaging,
) -> None:
    messaging.create_topic("u")
    for topic in ("t", "u"):
        messaging.publish(topic, [b"a", b"b"])
    places = {topic: messaging.poll(topic)[0].id for topic in ("t", "u")}
    producer = messaging.producer("p")
    for end in (producer.abort, producer.commit):
        producer.begin()
        producer.save_positions("g", places)
        assert messaging.position("g", "t") is None
        end()
    assert {topic: messaging.position("g", topic) for topic in places} == places


def test_a_wrong_position_saves_none_of_them(messaging: Messaging) -> None:
    messaging.publish("t", [b"a"])
    places: Any = {"t": messaging.poll("t")[0].id, "u": "far away"}
    with messaging.transaction() as tx, pytest.raises(BadRequest, match="far away"):
        messaging.save_positions("g", places, transaction=tx.transaction)
    assert messaging.position("g", "t") is None


def test_positions_by_topic_go_back_with_their_block(messaging: Messaging) -> None:
    messaging.publish("t", [b"a"])
    places = {"t": messaging.poll("t")[0].id}

    def save() -> None:
        with messaging.transaction() as tx:
            messaging.save_positions("g", places, transaction=tx.transaction)
            raise LookupError

    with pytest.raises(LookupError):
        save()
    assert messaging.position("g", "t") is None


def test_positions_of_a_moved_group_are_refused(messaging: Messaging) -> None:
    messaging.publish("t", [b"a", b"b"])
    one, other = (messaging.consumer("t", group="g") for _ in range(2))
    producer = messaging.producer("p")
    one.poll(limit=1)
    other.poll()
    other.commit()
    producer.begin()
    with pytest.raises(TransactionRefused):
        producer.save_positions(one)
    producer.abort()
    producer.begin()
    without = messaging.consumer("t")
    with pytest.raises(MisusedTransaction, match="no group"):
        producer.save_positions(without)
    producer.abort()


# What is done once.


def test_a_key_runs_once_whatever_comes_after_it(messaging: Messaging) -> None:
    def publish_with(name: str, key: str) -> bool:
        producer = messaging.producer(name)
        return producer.run_once(key, lambda: producer.publish("t", [key.encode()]))

    assert [publish_with("p", key) for key in ("1", "2", "1", "3", "2")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert committed(messaging) == [b"1", b"2", b"3"]
    assert messaging.producer("p").commits == 3
    assert publish_with("q", "1")  # keys belong to their producer


def test_a_key_whose_function_failed_runs_again(messaging: Messaging) -> None:
    producer = messaging.producer("p")

    def fail(tx: Any) -> None:
        assert tx.transaction.transaction_id
        producer.publish("t", [b"undone"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        producer.run_once("k", fail)
    with pytest.raises(ZeroDivisionError) as raised:
        producer.run_once("k", lambda: 1 / 0)
    assert raised.value.__context__ is None  # nothing but its own error is shown
    assert not producer.run_once("k", lambda tx: tx.abort())
    assert producer.run_once("k", lambda: producer.publish("t", [b"done"]))
    assert committed(messaging) == [b"done"]


def test_a_key_that_is_done_is_known_though_the_service_is_away_then(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = messaging.producer("p")
    assert producer.run_once("k", lambda: None)
    service = producer._instance.service

    def away(*_: object, **__: object) -> None:
        raise Unavailable("it was killed")

    with monkeypatch.context() as patched:
        patched.setattr(messaging.coordinator, "abort", away)
        patched.setattr(service, "leave_transaction", away)
        assert not producer.run_once("k", lambda: 1 / 0)
    assert not producer.run_once("k", lambda: 1 / 0)
    assert producer.commits == 1


@pytest.mark.parametrize(
    "key",
    ["", 1, None, "x" * 10_001, "\ud800"],
    ids=["empty", "number", "none", "long", "half"],
)
def test_a_wrong_key_is_refused(messaging: Messaging, key: Any) -> None:
    producer = messaging.producer("p")
    with pytest.raises(BadRequest, match="a key is a text"):
        producer.run_once(key, lambda: None)
    assert producer.run_once("ключ / 鍵", lambda: None)


async def awaited() -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "why"),
    [(5, "no function"), (awaited, "a coroutine"), (lambda: awaited(), "a coroutine")],
    ids=["number", "coroutine", "hidden"],
)
def test_what_nobody_runs_is_not_done(
    messaging: Messaging, function: Any, why: str
) -> None:
    producer = messaging.producer("p")
    with pytest.raises(BadRequest, match=why):
        producer.run_once("k", function)
    assert producer.run_once("k", lambda: None)


# Calls that come late.


def test_a_late_begin_reaches_no_later_transaction(messaging: Messaging) -> None:
    producer = messaging.producer("p")
    service: Any = messaging._producers
    identity = ProducerIdentity(producer.producer_id, producer.epoch)
    with producer.transaction() as first:
        producer.publish("t", [b"first"])
    with producer.transaction():
        producer.publish("t", [b"second"])
        with pytest.raises(TransactionNotInProgress):
            service.enter_transaction("p", identity, first.transaction)
    assert committed(messaging) == [b"first", b"second"]
    assert producer.commits == 2


def test_a_transaction_that_nobody_began_is_refused_and_holds_up_no_later_one(
    messaging: Messaging,
) -> None:
    producer = messaging.producer("p")
    service: Any = messaging._producers
    tx = messaging.coordinator.start_short()
    never = attrs.evolve(tx, transaction_id=2**62, write_pointer=2**62)
    identity = ProducerIdentity(producer.producer_id, producer.epoch)
    with pytest.raises(TransactionNotInProgress, match="never given out here"):
        service.enter_transaction("p", identity, never)
    with pytest.raises(TransactionNotInProgress, match="never given out here"):
        service.leave_transaction("p", 2**62)
    commit_one(producer)
    assert producer.commits == 1


def test_a_late_commit_reaches_no_later_transaction(messaging: Messaging) -> None:
    """Jepsen found in 2024 that Kafka's protocol lets one end the next transaction."""
    coordinator: Any = messaging.coordinator
    producer = messaging.producer("p")
    producer.begin()
    first = producer._context.transaction  # type: ignore[union-attr]
    producer.publish("t", [b"undone"])
    producer.abort()
    producer.begin()
    producer.publish("t", [b"torn"])
    with pytest.raises(TransactionNotInProgress):
        coordinator.commit(first)  # of the first one; its client gave it up
    assert committed(messaging) == []
    producer.publish("t", [b"whole"])
    producer.commit()
    with pytest.raises(TransactionNotInProgress):
        coordinator.commit(first)
    coordinator.abort(first)
    coordinator.invalidate(first)
    assert committed(messaging) == [b"torn", b"whole"]
    assert producer.commits == 1


def test_a_late_publish_of_an_ended_transaction_is_refused(
    messaging: Messaging,
) -> None:
    """Scenario 97."""
    producer = messaging.producer("p")
    producer.begin()
    first = producer._context.transaction  # type: ignore[union-attr]
    producer.commit()
    with pytest.raises(TransactionNotInProgress):
        publish(messaging, b"late", transaction=first)
    messaging.publish("t", [b"plain"])
    assert committed(messaging) == [b"plain"]


def test_a_begin_that_is_repeated_counts_once(messaging: Messaging) -> None:
    service: Any = messaging._producers
    opened = service.open_producer("p")
    tx = messaging.coordinator.start_short()
    for _ in range(3):
        entered = service.enter_transaction("p", opened.identity, tx, key="k")
        assert (entered.commits, entered.is_done) == (0, False)
    messaging.coordinator.can_commit(tx, [])
    messaging.coordinator.commit(tx)
    assert service.producer_commits("p") == 1


# Crashes.


def test_commits_and_epochs_outlive_a_crash(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    producer = lasting.messaging.producer("p")
    commit_one(producer)
    producer.run_once("k", lambda: producer.publish("t", [b"once"]))
    producer.begin()
    producer.publish("t", [b"open"])
    messaging = lasting.crash()
    again = messaging.producer("p")
    assert (again.commits, again.epoch) == (2, producer.epoch + 1)
    assert not again.run_once("k", lambda: again.publish("t", [b"twice"]))
    assert committed(messaging) == [b"m", b"once"]
    assert again.producer_id == producer.producer_id


def test_two_instances_that_race_leave_every_commit_counted(
    messaging: Messaging,
) -> None:
    done: list[bytes] = []

    def load(name: bytes) -> None:
        for _ in range(5):
            producer = messaging.producer("p")
            try:
                for number in range(20):
                    payload = b"%s %d %d" % (name, producer.epoch, number)
                    commit_one(producer, payload)
                    done.append(payload)
            except ProducerFenced:
                continue

    in_threads(lambda n: load(b"%d" % n), range(3))
    found = committed(messaging)
    assert sorted(found) == sorted(done)
    assert len(set(found)) == len(found)
    assert messaging.producer("p").commits == len(found)
    assert not messaging.coordinator.snapshot().in_progress
