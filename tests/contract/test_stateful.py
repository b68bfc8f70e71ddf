"""Random histories of the whole service against a plain model of it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from tests.support.hbase_stores import HBaseStores
from tests.support.histories import Begun, History
from tests.support.messagings import commit
from tests.support.service_model import (
    ABORTED,
    COMMITTED,
    INVALID,
    OPEN,
    Entry,
    ModelTopic,
    Row,
    View,
    alive,
    known,
)
from txaware.errors import TopicNotFound, TransactionRefused
from txaware.model.messages import MessageId, PublishResponse, Receipt

NAMES = ("t", "t-", "ns:t")
names, groups = st.sampled_from(NAMES), st.sampled_from(["g", "g-h"])
counts, expiries = st.integers(1, 4), st.sampled_from([None, None, 3, 100])
attempts = st.sampled_from([None, None, b"x", b"yy"])


class Histories(History):
    """Does the same to the service and to the model."""

    # Topics

    @rule(name=names, ttl_s=st.sampled_from([None, 5, 60, 4_000]))
    def create_or_update(self, name: str, ttl_s: int | None) -> None:
        topic = self.model.topics.get(name)
        if topic is not None:
            self.site.messaging.update_topic(name, ttl_s=ttl_s)
            topic.ttl_s = ttl_s or topic.ttl_s
            return
        generation = self.model.generations.get(name, 0) + 1
        assert self.site.messaging.create_topic(name, ttl_s=ttl_s).generation == (
            generation
        )
        self.model.generations[name] = generation
        self.model.topics[name] = ModelTopic(ttl_s or 604_800, generation)

    @rule(name=names, really=st.integers(0, 3))
    def delete(self, name: str, really: int) -> None:
        if name in self.model.topics and not really:
            self.site.messaging.delete_topic(name)
            del self.model.topics[name]

    # Writes

    @rule(name=names, count=counts, expiry_s=expiries)
    def publish(self, name: str, count: int, expiry_s: int | None) -> None:
        messages = self._messages(count, expiry_s)
        topic = self.model.topics.get(name)
        if topic is None:
            with pytest.raises(TopicNotFound):
                self.site.messaging.publish(name, messages)
            return
        self.site.messaging.publish(name, messages)
        last = self.site.messaging.bounds(name).last
        assert last is not None
        self._add(topic, last.publish_time_ms, last.sequence, messages, None)

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), count=counts, expiry_s=expiries)
    def publish_in_transaction(
        self, data: st.DataObject, count: int, expiry_s: int | None
    ) -> None:
        name, pointer = self._topic(data), self._pointer(data)
        messages = self._messages(count, expiry_s)
        if not self._takes_writes(pointer):
            with pytest.raises(TransactionRefused):
                self.site.messaging.publish(name, messages, transaction=pointer)
            return
        response = self.site.messaging.publish(name, messages, transaction=pointer)
        self._published(name, pointer, response)
        assert response is not None
        topic = self.model.topics[name]
        last = response.end_timestamp, response.end_sequence_id
        self._add(topic, *last, messages, pointer)

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), count=counts, expiry_s=expiries, attempt=attempts)
    def store(
        self,
        data: st.DataObject,
        count: int,
        expiry_s: int | None,
        attempt: bytes | None,
    ) -> None:
        name, pointer = self._topic(data), self._pointer(data)
        stored = self.model.topics[name].store_of(pointer)
        messages = self._messages(count, expiry_s)

        def store() -> Receipt:
            return self.site.messaging.store(
                name, messages, transaction=pointer, attempt=attempt
            )

        closed = stored.closed or (attempt or b"") in stored.named
        if closed or not self._takes_writes(pointer):
            with pytest.raises(TransactionRefused):
                store()
            return
        assert store() == Receipt(pointer, name, attempt or b"", count)
        self._wrote(pointer)
        stored.entries += [
            Entry(message.payload, None, attempt or b"") for message in messages
        ]
        for entry, message in zip(stored.entries[-count:], messages, strict=True):
            self._expect_expiry(entry, message)

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), which=st.sampled_from(["all", "all", "none", "some", "bad"]))
    def publish_reference(self, data: st.DataObject, which: str) -> None:
        name, pointer = self._topic(data), self._pointer(data)
        topic = self.model.topics[name]
        stored = topic.store_of(pointer)
        of_attempt = stored.counts()
        new = of_attempt.keys() - stored.named
        if which == "all":
            receipts = None
        else:
            new &= {b"x"} if which == "some" else set()
            receipts = [Receipt(pointer, name, a, of_attempt[a]) for a in sorted(new)]
            if which == "bad":
                wrong = of_attempt.get(b"x", 0) + 1
                receipts = [Receipt(pointer, name, b"x", wrong)]

        def publish() -> PublishResponse | None:
            return self.site.messaging.publish(
                name, [], transaction=pointer, receipts=receipts
            )

        if which == "bad" or not self._takes_writes(pointer):
            with pytest.raises(TransactionRefused):
                publish()
            return
        response = publish()
        assert response is not None
        stored.named |= new
        stored.closed = stored.closed or receipts is None
        entries = [entry for entry in stored.entries if entry.attempt in new]
        key = MessageId.of(response.end_timestamp, response.end_sequence_id).row_key
        topic.rows.append(Row(key, pointer, entries, is_reference=True))
        self._published(name, pointer, response)

    # Transactions

    @rule(outlives=st.booleans(), timeout_s=st.sampled_from([10, 10_000]))
    def begin(self, outlives: bool, timeout_s: int) -> None:
        tx = self.site.messaging.coordinator.start_short(
            timeout_s, outlives_process=outlives
        )
        self.model.states[tx.transaction_id] = OPEN
        view = self.model.view(tx.transaction_id)
        due_ms = self.site.clock.elapsed_ms() + timeout_s * 1000
        expires_ms = self.site.table.clock.now_ms() + timeout_s * 1000
        self.begun[tx.transaction_id] = Begun(tx, due_ms, expires_ms, outlives, view)

    @precondition(lambda self: self._open())
    @rule(data=st.data(), how=st.sampled_from(["commit", "commit", "abort", "invalid"]))
    def end(self, data: st.DataObject, how: str) -> None:
        begun = data.draw(st.sampled_from(self._open()))
        messaging, pointer = self.site.messaging, begun.tx.transaction_id
        if how == "commit":
            commit(messaging, begun.tx)
            self.model.states[pointer] = COMMITTED
        elif how == "abort":
            self._undo(begun)
            messaging.coordinator.abort(begun.tx)
            self.model.states[pointer] = ABORTED
        else:
            assert messaging.coordinator.invalidate(begun.tx)
            self.model.states[pointer] = INVALID

    @precondition(lambda self: self.responses)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        name, response = data.draw(st.sampled_from(self.responses))
        topic = self.model.topics.get(name)
        if topic is None:
            with pytest.raises(TopicNotFound):
                self.site.messaging.rollback(name, response)
            return
        rows = topic.range(response)
        state = self.model.states.get(response.transaction_write_pointer)
        if rows and state in (COMMITTED, ABORTED):
            with pytest.raises(TransactionRefused):
                self.site.messaging.rollback(name, response)
            return
        self.site.messaging.rollback(name, response)
        for row in rows:
            row.rolled_back = True

    # Time and restarts

    @rule(seconds=st.sampled_from([0.001, 0.001, 4, 11, 4_000, -0.5, -20, -3_000]))
    def move_clock(self, seconds: float) -> None:
        self.site.clock.advance_s(seconds)
        assert self.site.messaging.coordinator.invalid_size() >= 0  # has it look
        self._time_out()

    @precondition(lambda self: self.kind != "memory")
    @rule(how=st.sampled_from(["open", "crash"]))
    def restart(self, how: str) -> None:
        getattr(self.site, how)()
        coordinator: Any = self.site.messaging.coordinator
        open_now = {
            entry.transaction_id: entry for entry in coordinator.open_transactions()
        }
        invalids = coordinator.snapshot().invalids
        for pointer, begun in list(self.begun.items()):
            state = self.model.states[pointer]
            if begun.outlives and begun.wrote and state == OPEN:
                has_passed = self.site.clock.elapsed_ms() > begun.due_ms
                latest_ms = self.site.table.clock.now_ms()
                assert pointer in open_now or has_passed or latest_ms > begun.expires_ms
            if state == OPEN and begun.outlives and pointer in open_now:
                begun.due_ms = open_now[pointer].due_ms  # it began to count anew
                continue
            if state == ABORTED and (pointer in open_now or pointer in invalids):
                self.unclear.add(pointer)  # that it was aborted was not written down
            if state != COMMITTED:
                # Nobody knows how much is left of it.
                self._see_what_is_left(pointer)
                self.model.states[pointer] = ABORTED if state == ABORTED else INVALID
                del self.begun[pointer]
        for pointer, state in self.model.states.items():
            if state == INVALID and pointer not in invalids:
                self.lost.add(pointer)  # a crash left no trace of it
        self._time_out()

    # Reads

    @precondition(lambda self: self.model.topics)
    @rule(
        data=st.data(),
        inclusive=st.booleans(),
        limit=st.integers(1, 9),
        who=st.sampled_from(["all", "fresh", "snapshot", "snapshot"]),
    )
    def poll(self, data: st.DataObject, inclusive: bool, limit: int, who: str) -> None:
        name = self._topic(data)
        topic = self.model.topics[name]
        start = data.draw(self._starts(topic))
        view: View | None = None
        options: dict[str, Any] = {"isolation": "uncommitted"}
        if who == "snapshot" and self.begun:
            begun = data.draw(st.sampled_from(list(self.begun.values())))
            view, options = begun.view, {"transaction": begun.tx}
        elif who != "all":
            view, options = self.model.view(), {"isolation": "committed"}
        page = self.site.messaging.poll(
            name, start=start, inclusive=inclusive, limit=limit, **options
        )
        expected = self.model.page(
            topic,
            start,
            inclusive=inclusive,
            limit=limit,
            view=view,
            now_ms=self.site.clock(),
        )
        assert [m.payload for m in page] == [e.payload for e in expected.entries]
        assert [m.id for m in page] == [e.id for e in expected.entries]
        assert page.next == expected.next
        assert page.blocked_by == expected.blocked_by
        assert page.skipped_before == expected.skipped_before

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), group=groups, back=st.booleans())
    def save_position(self, data: st.DataObject, group: str, back: bool) -> None:
        name, pointer = self._topic(data), self._pointer(data)
        self.number += 1
        position = None if back else MessageId.of(self.number)

        def save() -> None:
            self.site.messaging.save_position(
                group, name, position, transaction=pointer
            )

        state = self.model.states.get(pointer)
        ended = state in (COMMITTED, ABORTED) or pointer in self.lost
        if ended or (state == INVALID and not back):
            with pytest.raises(TransactionRefused):
                save()
            return
        save()
        saved = self.model.positions.setdefault((group, name), {})
        if position is None:
            saved.pop(pointer, None)
        else:
            saved[pointer] = position
            self._wrote(pointer)
            if pointer in self.begun:
                self.begun[pointer].saved.add((group, name))

    @precondition(lambda self: self.model.topics)
    @rule(data=st.data(), group=groups, old=st.booleans())
    def read_position(self, data: st.DataObject, group: str, old: bool) -> None:
        name, view, tx = self._topic(data), self.model.view(), None
        if self.begun and old:
            begun = data.draw(st.sampled_from(list(self.begun.values())))
            view, tx = begun.view, begun.tx
        found = self.site.messaging.position(group, name, transaction=tx)
        assert found == self.model.position(group, name, view)

    @invariant()
    def everything_is_there_once_and_keeps_its_id(self) -> None:
        if not hasattr(self, "site"):
            return
        now_ms = self.site.clock()
        for name, topic in self.model.topics.items():
            bound = MessageId.of(max(0, now_ms - topic.ttl_s * 1000)).row_key
            rows = [row for row in topic.rows if row.key >= bound]
            entries = [e for row in rows for e in alive(row.entries, now_ms)]
            page = self.site.messaging.poll(name, limit=10_000)
            assert [m.payload for m in page] == [e.payload for e in entries]
            ids = [message.id for message in page]
            assert ids == sorted(set(ids))
            for entry, found in zip(entries, ids, strict=True):
                assert entry.id in (None, found)
                entry.id = found
            for row in rows:
                for entry in alive(row.entries, now_ms):
                    assert known(entry).row_key == row.key


class DurableHistories(Histories):
    """The same, restarted and killed now and then."""

    kind = "leveldb"


class HBaseHistories(Histories):
    """The same on HBase; `stores` are given by the test."""

    kind = "hbase"


QUICK = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink is the soak's
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1_000, stateful_step_count=100, phases=tuple(Phase))
KINDS = [Histories, DurableHistories]


@pytest.mark.parametrize("kind", KINDS)
def test_random_histories_do_what_the_model_says(kind: type[Histories]) -> None:
    run_state_machine_as_test(kind, settings=QUICK)


@pytest.mark.hbase
def test_random_histories_on_hbase_do_what_the_model_says(
    hbase_stores: HBaseStores,
) -> None:
    HBaseHistories.stores = hbase_stores
    run_state_machine_as_test(HBaseHistories, settings=settings(QUICK, max_examples=8))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_many_long_histories_do_what_the_model_says(kind: type[Histories]) -> None:
    run_state_machine_as_test(kind, settings=LONG)
