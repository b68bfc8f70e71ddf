"""The ends of a topic for committed readers: where they stop, what they get last."""

from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.doubles import Watched
from tests.support.messagings import (
    Site,
    administration_of,
    commit,
    payloads,
    publish,
    table_of,
)
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.messages import Bounds, MessageId
from txaware.service.read import committed_bounds


def bounds(messaging: Messaging, start: Any = None) -> Bounds:
    return messaging.bounds("t", start=start, isolation="committed")


def ids(messaging: Messaging) -> list[MessageId]:
    return [row.id for row in messaging.peek("t", limit=10_000)]


def begun(messaging: Messaging) -> Transaction:
    return messaging.coordinator.start_short()


def test_an_empty_topic_has_no_ends(messaging: Messaging) -> None:
    assert bounds(messaging) == messaging.bounds("t")
    assert bounds(messaging).last is None


def test_without_open_transactions_they_are_those_of_all_rows(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"a", b"b"])
    assert bounds(messaging) == messaging.bounds("t")


def test_an_open_transaction_limits_all_that_comes_after_it(
    messaging: Messaging,
) -> None:
    """Scenario 90: the end."""
    tx = begun(messaging)
    messaging.publish("t", [b"before"])
    publish(messaging, b"open", transaction=tx)
    messaging.publish("t", [b"after"])
    before, open_, after = ids(messaging)
    assert bounds(messaging) == Bounds(before, before, open_)
    assert messaging.bounds("t").last == after
    assert payloads(messaging.poll("t", start=open_, isolation="committed")) == []
    commit(messaging, tx)
    assert bounds(messaging) == messaging.bounds("t")


def test_where_the_first_row_is_open_nothing_is_committed(messaging: Messaging) -> None:
    tx = begun(messaging)
    publish(messaging, b"open", transaction=tx)
    assert bounds(messaging) == Bounds(None, None, ids(messaging)[0])


@pytest.mark.parametrize("end", ["rolled back", "invalid"])
def test_what_never_committed_is_no_end(messaging: Messaging, end: str) -> None:
    first, last = begun(messaging), begun(messaging)
    responses = [publish(messaging, b"x", b"y", transaction=first)]
    messaging.publish("t", [b"a", b"b"])
    responses.append(publish(messaging, b"x", b"y", transaction=last))
    for tx, response in zip((first, last), responses, strict=True):
        if end == "rolled back":
            messaging.rollback("t", response)
            messaging.coordinator.abort(tx)
        else:
            messaging.coordinator.invalidate(tx)
    rows, behind = ids(messaging), messaging.bounds("t").next
    for _ in range(2):  # and once more, from where the first look came to
        assert bounds(messaging) == Bounds(rows[2], rows[3], behind)


def test_a_look_goes_on_from_the_one_before(messaging: Messaging) -> None:
    for _ in range(3):
        tx = begun(messaging)
        messaging.publish("t", [b"plain"])
        publish(messaging, b"committed", transaction=tx)
        assert bounds(messaging).next == ids(messaging)[-1]
        commit(messaging, tx)
        tx = begun(messaging)
        response = publish(messaging, b"rolled back", transaction=tx)
        assert bounds(messaging).last == ids(messaging)[-2]
        messaging.rollback("t", response)
        messaging.coordinator.abort(tx)
        found, rows = bounds(messaging), ids(messaging)
        assert found == Bounds(rows[0], rows[-2], messaging.bounds("t").next)


def test_times_and_ids_are_looked_up(site: Site, messaging: Messaging) -> None:
    """Scenario 90: what is looked up by time."""
    for payload in (b"a", b"b"):
        messaging.publish("t", [payload])
        site.clock.advance_s(10)
    tx = begun(messaging)
    publish(messaging, b"open", transaction=tx)
    site.clock.advance_s(10)
    messaging.publish("t", [b"after"])
    a, b, open_, after = ids(messaging)
    looked_up: list[tuple[Any, MessageId]]
    looked_up = [(a.publish_time_ms + 1, b), (b, b), (0, a), (None, a)]
    for start, first in looked_up:
        assert bounds(messaging, start) == Bounds(first, b, open_)
        assert messaging.bounds("t", start=start).first == first
    for start in (b.publish_time_ms + 1, b.after(), open_, after.publish_time_ms):
        assert bounds(messaging, start) == Bounds(None, None, open_)
    assert messaging.bounds("t", start=open_.publish_time_ms).first == open_
    assert messaging.bounds("t", start=after.after()).first is None
    assert bounds(messaging) == Bounds(a, b, open_)


def test_a_start_inside_of_a_reference_is_where_it_begins(messaging: Messaging) -> None:
    with messaging.transaction() as tx:
        receipt = messaging.store("t", [b"a", b"b"], transaction=tx.transaction)
        messaging.publish("t", [], transaction=tx.transaction, receipts=[receipt])
    first, second = (message.id for message in messaging.poll("t"))
    behind = messaging.bounds("t").next
    for isolation in ("committed", "uncommitted"):
        found = messaging.bounds("t", start=second, isolation=isolation)
        assert found == Bounds(second, second, behind)
        found = messaging.bounds("t", isolation=isolation)
        assert found.first == MessageId.of_row(first.row_key)


def test_what_has_expired_is_no_end(site: Site, messaging: Messaging) -> None:
    messaging.update_topic("t", ttl_s=60)
    messaging.publish("t", [b"old"])
    site.clock.advance_s(40)
    messaging.publish("t", [b"young"])
    first, second = ids(messaging)
    assert bounds(messaging).first == first
    site.clock.advance_s(40)
    assert bounds(messaging) == Bounds(second, second, messaging.bounds("t").next)
    site.clock.advance_s(40)
    assert bounds(messaging).first is None
    messaging.update_topic("t", ttl_s=3600)
    assert (bounds(messaging).first, bounds(messaging).last) == (first, second)


def test_the_last_one_has_expired_and_what_follows_was_rolled_back(
    site: Site, messaging: Messaging
) -> None:
    messaging.update_topic("t", ttl_s=60)
    messaging.publish("t", [b"old"])
    assert bounds(messaging).last == ids(messaging)[0]
    site.clock.advance_s(50)
    tx = begun(messaging)
    messaging.rollback("t", publish(messaging, b"rolled back", transaction=tx))
    messaging.coordinator.abort(tx)
    site.clock.advance_s(20)
    assert bounds(messaging) == Bounds(None, None, messaging.bounds("t").next)


def test_the_next_generation_begins_anew(messaging: Messaging) -> None:
    messaging.publish("t", [b"a"])
    assert bounds(messaging).last is not None
    messaging.delete_topic("t")
    messaging.create_topic("t")
    assert bounds(messaging).last is None
    messaging.publish("t", [b"b"])
    assert bounds(messaging).last == ids(messaging)[0]


@pytest.mark.foreign_pointers
def test_a_row_whose_pointer_nobody_gave_out_stops_them(
    site: Site, messaging: Messaging
) -> None:
    messaging.publish("t", [b"a"])
    response = publish(messaging, b"foreign", transaction=3)
    messaging.publish("t", [b"b"])
    rows = ids(messaging)
    for _ in range(2):
        site.clock.advance_s(600)  # its time tells nothing
        assert bounds(messaging) == Bounds(rows[0], rows[0], rows[1])
    messaging.rollback("t", response)
    for _ in range(2):
        found = bounds(messaging)
        assert found == Bounds(rows[0], rows[2], messaging.bounds("t").next)


@pytest.mark.foreign_pointers
def test_a_reader_that_meets_such_a_row_after_a_restart_tells_of_it(
    lasting: Site,
) -> None:
    lasting.messaging.create_topic("t")
    publish(lasting.messaging, b"foreign", transaction=3)
    messaging = lasting.open()
    messaging.publish("t", [b"b"])
    lasting.clock.advance_s(600)
    assert messaging.poll("t", isolation="committed").blocked_by is not None
    assert bounds(messaging).next == ids(messaging)[0]


def test_a_restart_finds_the_open_row_again(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short(timeout_s=600, outlives_process=True)
    messaging.publish("t", [b"a"])
    publish(messaging, b"open", transaction=tx)
    messaging.publish("t", [b"b"])
    before = bounds(messaging)
    assert bounds(lasting.open()) == before


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks read three rows at a time."""
    monkeypatch.setattr(committed_bounds, "MOST_ROWS", 3)


@pytest.mark.usefixtures("few_rows")
def test_many_rows_of_both_kinds_are_passed_over(messaging: Messaging) -> None:
    rolled_back = begun(messaging)
    responses = [publish(messaging, *[b"x"] * 20, transaction=rolled_back)]
    messaging.publish("t", [b"a"] * 20)
    responses.append(publish(messaging, *[b"x"] * 20, transaction=rolled_back))
    for response in responses:
        messaging.rollback("t", response)
    tx = begun(messaging)
    publish(messaging, b"open", transaction=tx)
    rows = ids(messaging)
    assert bounds(messaging) == Bounds(rows[20], rows[39], rows[60])


def rows_read(table: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each scan of a table reads from now on."""
    scan, read = table.scan, list[int]()

    def watched(*given: Any, **options: Any) -> Any:
        rows = scan(*given, **options)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(table, "scan", watched)
    return read


@pytest.mark.in_process
def test_a_second_look_reads_no_row_that_was_decided(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    tx, gone = begun(messaging), begun(messaging)
    messaging.publish("t", [b"plain"])
    response = publish(messaging, *[b"rolled back"] * 500, transaction=gone)
    messaging.rollback("t", response)
    publish(messaging, b"open", transaction=tx)
    table, found = table_of(messaging), bounds(messaging)
    read = rows_read(table, monkeypatch)
    assert bounds(messaging) == found
    assert sum(read) <= 6


@pytest.mark.in_process
def test_rows_from_before_the_oldest_transaction_are_not_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"old"] * 500)
    site.clock.advance_s(3600)
    tx = begun(messaging)
    publish(messaging, b"open", transaction=tx)
    table = table_of(messaging)
    read = rows_read(table, monkeypatch)
    assert bounds(messaging).next > bounds(messaging).last  # type: ignore[operator]
    assert sum(read) <= 16


def test_an_empty_topic_asks_no_coordinator(site: Site) -> None:
    site.embedded.create_topic("t")
    service = administration_of(site.embedded)._service
    watched = Watched(site.embedded.coordinator)
    service._reading._coordinator = watched
    assert bounds(site.messaging).next
    assert watched.log == []
    site.embedded.publish("t", [b"a"])
    assert bounds(site.messaging).last
    assert watched.log == ["snapshot"]


def test_a_committed_reader_that_seeks_the_next_gets_what_is_undecided(
    messaging: Messaging,
) -> None:
    """Scenario 90: who seeks the end."""
    tx = begun(messaging)
    messaging.publish("t", [b"before"])
    publish(messaging, b"open", transaction=tx)
    messaging.publish("t", [b"after"])
    late, early = messaging.consumer("t", start="next"), messaging.consumer("t")
    early.seek("next")
    everything = messaging.consumer("t", isolation="uncommitted", start="next")
    last = messaging.consumer("t", start="last")
    assert payloads(last.poll()) == [b"before"]
    assert payloads(late.poll()) == payloads(early.poll()) == []
    commit(messaging, tx)
    assert payloads(late.poll()) == payloads(early.poll()) == [b"open", b"after"]
    assert payloads(everything.poll()) == []


def test_lag_counts_to_where_the_reader_stops(site: Site, messaging: Messaging) -> None:
    tx = begun(messaging)
    messaging.publish("t", [b"a"])
    with messaging.transaction():
        assert len(messaging.consumer("t", group="g").poll()) == 1
    site.clock.advance_s(10)
    publish(messaging, b"open", transaction=tx)
    site.clock.advance_s(10)
    messaging.publish("t", [b"after"])
    administration = messaging.administration
    (group,) = administration.metrics().groups
    assert (administration.lag_ms("g", "t"), group.rows) == (0, 0)
    commit(messaging, tx)
    (group,) = administration.metrics().groups
    assert (administration.lag_ms("g", "t"), group.rows) == (20_000, 2)


@pytest.mark.parametrize(
    "wrong",
    [{"isolation": "serializable"}, {"isolation": None}, {"start": "x"}, {"start": -1}],
)
def test_wrong_arguments_are_bad_requests(
    messaging: Messaging, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest):
        messaging.bounds("t", **wrong)
