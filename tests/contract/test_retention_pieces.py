"""A clean-up in pieces: in any order, more than once or never, beside all others."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clean_up_data import (
    BEGAN_MS,
    Store,
    cleaned_here,
    filled,
    retention_of,
    rows_of,
    store,
    truncated,
)
from tests.support.doubles import Clock
from tests.support.messagings import commit, payloads, publish, table_of
from txaware.model.reports import CleanUp
from txaware.protocol.values import from_json, to_json
from txaware.service.retention.clean_up_plan import (
    EXPIRED,
    MARKED,
    OLD_GENERATIONS,
    PAYLOADS,
    Piece,
    PieceResult,
    Plan,
)
from txaware.service.retention.planning import cuts
from txaware.store.keys import MARK, MESSAGE, row_key
from txaware.store.memory import MemoryTable

KINDS = (EXPIRED, MARKED, OLD_GENERATIONS, PAYLOADS)


@pytest.fixture(name="store")
def _store() -> Iterator[Store]:
    with store() as found:
        yield found


def same_but_marked(one: CleanUp, other: CleanUp) -> bool:
    """What expires before it is marked is not marked any more."""
    return attrs.evolve(one, marked_rows=0) == attrs.evolve(other, marked_rows=0)


def test_the_data_of_these_tests_has_something_for_every_kind_of_piece(
    store: Store,
) -> None:
    plan = retention_of(store.messaging).plan(pieces=3)
    marks = len(rows_of(store.messaging)[MARK])
    results = store.do(plan, list(range(len(plan.pieces))))
    assert len(rows_of(store.messaging)[MARK]) == marks - 6 + 1  # one of those by hand
    for kind in KINDS:
        busy = [n for n in store.numbers_of(plan, kind) if results[n].rows]
        assert len(busy) > 1, kind
    done = retention_of(store.messaging).finish(plan, results)
    assert done == cleaned_here()[0]
    assert rows_of(store.messaging) == cleaned_here()[1]
    assert store.messaging.check().problems == ()


@given(st.data(), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_pieces_in_any_order_and_repeated_leave_what_one_process_leaves(
    data: st.DataObject, pieces: int
) -> None:
    expected, left = cleaned_here()
    clock = Clock(BEGAN_MS)
    with filled(clock) as messaging:
        retention = retention_of(messaging)
        plan = retention.plan(pieces=pieces)
        numbers = range(len(plan.pieces))
        again = data.draw(st.lists(st.sampled_from(numbers), max_size=20))
        order = data.draw(st.permutations([*numbers, *again]))
        done = retention.finish(plan, Store(clock, messaging).do(plan, order))
        assert same_but_marked(done, expected)
        assert rows_of(messaging) == left
        assert messaging.check().problems == ()


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_pieces_that_were_never_done_are_made_up_for_by_the_next_clean_up(
    data: st.DataObject,
) -> None:
    _, left = cleaned_here()
    clock = Clock(BEGAN_MS)
    with filled(clock) as messaging:
        retention = retention_of(messaging)
        plan = retention.plan(pieces=3)
        numbers = range(len(plan.pieces))
        done = data.draw(st.sets(st.sampled_from(numbers), max_size=len(numbers) - 1))
        cleaned = retention.finish(plan, Store(clock, messaging).do(plan, sorted(done)))
        missing = {plan.pieces[number].topic for number in set(numbers) - done}
        assert cleaned.failed_topics == len(missing)
        assert cleaned.topics == len(plan.topics) - len(missing)
        assert cleaned.least_needed is None
        assert messaging.clean_up().failed_topics == 0
        assert rows_of(messaging) == left


def test_a_piece_that_is_repeated_removes_nothing_more(store: Store) -> None:
    plan = retention_of(store.messaging).plan(pieces=2)
    everything = list(range(len(plan.pieces)))
    assert any(result.rows for result in store.do(plan, everything).values())
    left = rows_of(store.messaging)
    store.clock.advance_s(3600)  # what has expired since is not of this plan
    store.messaging.publish("a", [b"new"])
    again = store.do(plan, everything)
    # Payloads go by the clock of the plan as well, so that all pieces agree.
    assert {result.rows for result in again.values()} == {0}
    assert len(rows_of(store.messaging)[MESSAGE]) == len(left[MESSAGE]) + 1


def test_pieces_beside_each_other_and_beside_users_leave_the_same(
    store: Store,
) -> None:
    expected, left = cleaned_here()
    opened = store.messaging.administration.plan_clean_up(pieces=4)
    begin, failures = threading.Barrier(5), []

    def act(work: Callable[[], object]) -> None:
        begin.wait(10)
        try:
            work()
        except BaseException as error:
            failures.append(error)

    def all_pieces(first: int) -> None:
        for number in range(opened.pieces):
            piece = (number * 7 + first) % opened.pieces
            store.messaging.administration.clean_piece(opened.id, piece)

    def use() -> None:
        for _ in range(50):
            store.messaging.publish("empty", [b"new"])
            store.messaging.poll("a", isolation="committed")

    threads = [
        threading.Thread(target=act, args=[work])
        for work in (
            *(lambda first=n: all_pieces(first) for n in (0, 5, 11)),
            *(use, lambda: retention_of(store.messaging).plan(pieces=3)),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    done = store.messaging.administration.finish_clean_up(opened.id)
    assert done.failed_topics == 0
    once = expected.expired_messages  # two may find one and the same
    assert once <= done.expired_messages <= 2 * once
    store.messaging.delete_topic("empty")
    store.messaging.clean_up()
    found = rows_of(store.messaging)
    assert found[MESSAGE] == left[MESSAGE]


def test_a_mark_never_brings_back_a_row_that_was_removed_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = retention_of(store.messaging).plan()
    marks, expired = (store.numbers_of(plan, kind)[0] for kind in (MARKED, EXPIRED))
    table = table_of(store.messaging)
    assert isinstance(table, MemoryTable)
    scan, prefix = table.scan, MESSAGE + store.messaging.topic("a").prefix
    seen: list[int] = []

    def scan_and_lose(of: bytes, **options: Any) -> Any:
        rows = scan(of, **options)
        if of == prefix and not seen:
            seen.append(len(rows))
            store.do(plan, [expired])
        return rows

    monkeypatch.setattr(table, "scan", scan_and_lose)
    store.do(plan, [marks])
    monkeypatch.undo()
    assert seen[0] > 0
    bound = row_key(store.clock() - 100_000)
    assert not table.scan(prefix, stop=bound)


def test_only_when_all_pieces_were_done_invalid_transactions_are_forgotten(
    store: Store,
) -> None:
    retention = retention_of(store.messaging)
    invalid = store.messaging.coordinator.invalid_size()
    plan = retention.plan()
    results = store.do(plan, list(range(len(plan.pieces))))
    del results[store.numbers_of(plan, MARKED)[0]]
    assert retention.finish(plan, results).least_needed is None
    assert len(retention._marking.forgettable(plan.judge, 0)) == 0  # type: ignore[arg-type]
    plan = retention.plan()
    retention.finish(plan, store.do(plan, list(range(len(plan.pieces)))))
    store.clock.advance_s(2 * 86_400)
    assert invalid > 0
    assert truncated(store.messaging) == 0


def test_an_old_plan_forgets_nobody_who_became_invalid_since(store: Store) -> None:
    retention = retention_of(store.messaging)
    open_one = store.messaging.coordinator.start_short(timeout_s=100)
    publish(store.messaging, b"never", transaction=open_one, topic="a")
    plan = retention.plan()
    results = store.do(plan, list(range(len(plan.pieces))))
    store.messaging.coordinator.invalidate(open_one)
    done = retention.finish(plan, results)
    assert done.least_needed is not None
    assert done.least_needed <= open_one.transaction_id
    forgettable = retention._marking.forgettable(
        store.messaging.coordinator.snapshot(), 0
    )
    assert open_one.transaction_id not in forgettable


def test_a_transaction_that_opened_after_the_plan_keeps_what_it_stored(
    store: Store,
) -> None:
    plan = retention_of(store.messaging).plan(pieces=2)
    tx = store.messaging.coordinator.start_short(timeout_s=1000)
    store.messaging.store("a", [b"later"], transaction=tx)
    store.do(plan, list(range(len(plan.pieces))))
    store.messaging.publish("a", [], transaction=tx)
    commit(store.messaging, tx)
    found = payloads(store.messaging.poll("a", isolation="committed"))
    assert found[-1] == b"later"


def test_a_topic_that_was_deleted_since_is_left_to_the_next_plan(store: Store) -> None:
    plan = retention_of(store.messaging).plan(pieces=2)
    store.messaging.delete_topic("a")
    store.messaging.create_topic("a", ttl_s=1)
    store.messaging.publish("a", [b"new"])
    of_a = [n for n, piece in enumerate(plan.pieces) if piece.topic == "a"]
    results = store.do(plan, of_a)
    assert {result.rows for result in results.values()} == {0}
    assert payloads(store.messaging.poll("a")) == [b"new"]


def test_a_longer_time_to_live_saves_what_no_piece_has_removed_yet(
    store: Store,
) -> None:
    before = len(store.messaging.peek("a", limit=10_000))
    plan = retention_of(store.messaging).plan(pieces=2)
    store.messaging.update_topic("a", ttl_s=1000)
    results = store.do(plan, list(range(len(plan.pieces))))
    of_a = [n for n in store.numbers_of(plan, EXPIRED) if plan.pieces[n].topic == "a"]
    assert of_a
    assert not any(results[n].rows for n in of_a)
    assert len(store.messaging.peek("a", limit=10_000)) == before
    assert store.messaging.check().problems == ()


def test_a_longer_time_to_live_leaves_no_reference_without_its_payloads(
    store: Store,
) -> None:
    plan = retention_of(store.messaging).plan()
    store.do(plan, store.numbers_of(plan, PAYLOADS))
    store.messaging.update_topic("a", ttl_s=1000)
    assert store.messaging.check().problems == ()  # they went before their payloads
    store.do(plan, store.numbers_of(plan, EXPIRED))
    assert store.messaging.check().problems == ()
    assert b"plain" in payloads(store.messaging.poll("a"))


def test_a_piece_that_is_wrong_removes_no_more_than_the_rules_allow(
    store: Store,
) -> None:
    plan = retention_of(store.messaging).plan()
    kept = rows_of(store.messaging)
    store.messaging.clean_up()
    left = rows_of(store.messaging)
    assert kept != left
    later = attrs.evolve(plan, planned_ms=2 * plan.planned_ms)
    retention = retention_of(store.messaging)
    for name, generation in (("a", 1), ("old", 2), ("gone", -1), ("none", 1)):
        for kind in KINDS:
            piece = Piece(name, generation, kind, b"", None)
            assert retention.clean_piece(later, piece).rows == 0
            piece = attrs.evolve(piece, stop=b"\xff" * 30)
            assert retention.clean_piece(later, piece).rows == 0
    assert rows_of(store.messaging) == left
    with pytest.raises(ValueError, match="nothing is known of 'all'"):
        retention.clean_piece(plan, Piece("a", 1, "all"))


def test_a_plan_travels_as_json(store: Store) -> None:
    plan = retention_of(store.messaging).plan(pieces=3)
    again = from_json(Plan, to_json(plan))
    assert again == plan
    assert again.judge == plan.judge
    result = PieceResult(3, (), 7)
    assert from_json(PieceResult, to_json(result)) == result


def test_what_expired_unseen_is_counted_once_a_topic(store: Store) -> None:
    tx = store.messaging.coordinator.start_long()
    for _ in range(4):
        publish(store.messaging, b"blocks", transaction=tx, topic="b")
        store.clock.advance_s(40)
    store.clock.advance_s(200)
    plan = retention_of(store.messaging).plan(pieces=5)
    retention = retention_of(store.messaging)
    results = store.do(plan, list(range(len(plan.pieces))))
    assert len([result for result in results.values() if result.unseen]) > 1
    retention.finish(plan, results)
    assert retention.expired_unseen == {"b": 1}
    store.messaging.delete_topic("b")
    store.messaging.clean_up()
    assert retention.expired_unseen == {}


@given(
    st.binary(min_size=3, max_size=3),
    st.binary(min_size=3, max_size=3),
    st.integers(1, 20),
)
def test_cuts_rise_and_lie_behind_the_first_and_up_to_the_last(
    one: bytes, other: bytes, parts: int
) -> None:
    first, last = sorted((one, other))
    found = cuts(first, last, parts)
    assert len(found) < parts
    assert found == sorted(set(found))
    assert all(first < cut <= last for cut in found)
