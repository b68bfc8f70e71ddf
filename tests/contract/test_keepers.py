"""Participants with rows of their own: what was never committed stays hidden there."""

from typing import Any

import pytest

import txaware
from coordinator.outcome import Outcome
from tests.support.messagings import Site, administration_of, payloads
from tests.support.rows_elsewhere import DAY_S, NoKeeper, RowsElsewhere, killed, write
from txaware.errors import (
    BadRequest,
    KeeperMissing,
    KeeperNotFound,
    NotAuthorized,
)
from txaware.messaging import Messaging
from txaware.service.transfer.backup import restore
from txaware.store.journaled_table import FORMAT, SECOND_FORMAT
from txaware.store.keys import KEEPER, UNWATCHED


@pytest.fixture
def rows(messaging: Messaging) -> RowsElsewhere:
    """A table that has one committed row."""
    found = RowsElsewhere()
    write(messaging, found, "first")
    return found


def visible(messaging: Messaging, rows: RowsElsewhere) -> list[str]:
    """What a reader of the table sees, which has to be what one of the topic does."""
    snapshot = messaging.coordinator.snapshot()
    messages = payloads(messaging.poll("t", transaction=snapshot))
    seen = rows.seen_by(snapshot)
    assert [row.encode() for row in seen] == messages
    return seen


@pytest.mark.parametrize("kind", [RowsElsewhere, NoKeeper])
@pytest.mark.parametrize("way", ["prune", "clean_up"])
def test_a_row_of_a_participant_that_was_killed_in_its_commit_never_appears(
    site: Site, messaging: Messaging, kind: type[RowsElsewhere], way: str
) -> None:
    """Registered or not, and whoever forgets."""
    rows = kind()
    write(messaging, rows, "first")
    pointer = killed(messaging, rows)
    site.clock.advance_s(2 * DAY_S)
    done: Any = getattr(messaging, way)()
    assert visible(messaging, rows) == ["first"]
    assert messaging.coordinator.invalid_size() == 1
    assert "rows. Nobody registered rows" in done.held_back
    if kind is RowsElsewhere:
        messaging.register_keeper(rows)
        done = getattr(messaging, way)()
        assert visible(messaging, rows) == ["first"]
        assert done.held_back.endswith("may still hold them: rows")
        assert messaging.coordinator.outcome(pointer) is Outcome.ROLLED_BACK


def test_exclusive_says_that_only_registered_ones_have_rows_elsewhere(
    site: Site, messaging: Messaging, rows: RowsElsewhere
) -> None:
    killed(messaging, rows)
    killed(messaging, RowsElsewhere("gone"))
    messaging.register_keeper(rows)
    site.clock.advance_s(2 * DAY_S)
    assert messaging.prune().pruned == 0
    messaging.prune(exclusive=True)
    assert visible(messaging, rows) == ["first"]
    rows.rows = []
    messaging.register_keeper(rows)
    assert messaging.prune().pruned == 1  # before the other one took part
    assert messaging.prune(exclusive=True).pruned == 1


def test_prune_forgets_below_what_a_keeper_still_holds(
    site: Site, messaging: Messaging, rows: RowsElsewhere
) -> None:
    first, second = killed(messaging, rows, "a"), killed(messaging, rows, "b")
    site.clock.advance_s(2 * DAY_S)
    rows.rows = [one for one in rows.rows if one[0] == second]
    keeper = messaging.register_keeper(rows)
    assert (keeper.name, keeper.smallest_pointer) == ("rows", second)
    done = messaging.prune()
    assert (done.pruned, done.least_needed) == (1, second)
    outcome = messaging.coordinator.outcome
    assert outcome(first) is Outcome.FORGOTTEN
    assert outcome(second) is Outcome.ROLLED_BACK
    rows.rows = []
    messaging.register_keeper(rows)  # which one elsewhere has to say again
    assert messaging.prune().pruned == 1


def test_a_commit_of_a_keeper_is_known_while_it_names_it(
    site: Site, messaging: Messaging, rows: RowsElsewhere
) -> None:
    committed = rows.rows[0][0]
    messaging.register_keeper(rows)
    later = killed(messaging, rows)
    site.clock.advance_s(2 * DAY_S)
    messaging.prune()
    outcome = messaging.coordinator.outcome
    assert outcome(committed) is Outcome.COMMITTED
    rows.rows = []
    messaging.register_keeper(rows)
    messaging.prune()
    assert outcome(committed) is outcome(later) is Outcome.FORGOTTEN


@pytest.mark.in_process
def test_prune_refuses_by_name_where_a_keeper_does_not_answer(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    rows = RowsElsewhere()
    messaging.register_keeper(rows)
    killed(messaging, rows)
    messaging = lasting.crash()
    lasting.clock.advance_s(2 * DAY_S)
    with pytest.raises(KeeperMissing, match=r"keeper 'rows' does not answer.*register"):
        messaging.prune()
    assert "keeper 'rows' does not answer" in str(messaging.clean_up().held_back)
    assert messaging.coordinator.invalid_size() == 1
    [keeper] = messaging.keepers()
    assert (keeper.name, keeper.answers) == ("rows", False)
    messaging.register_keeper(rows)
    assert messaging.prune().pruned == 0
    assert visible(messaging, rows) == []
    messaging.forget_keeper("rows")
    assert messaging.keepers() == []
    assert messaging.prune().pruned == 1


@pytest.mark.in_process
@pytest.mark.parametrize("answer", ["7", True, 1.5, -1, 2**63, ValueError("no disk")])
def test_a_keeper_that_answers_nonsense_does_not_answer(
    site: Site, messaging: Messaging, rows: RowsElsewhere, answer: Any
) -> None:
    messaging.register_keeper(rows)
    killed(messaging, rows)
    site.clock.advance_s(2 * DAY_S)

    def ask() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    rows.ask = ask
    with pytest.raises(KeeperMissing, match="keeper 'rows' could not say"):
        messaging.prune()
    assert "keeper 'rows' could not say" in str(messaging.clean_up().held_back)
    assert messaging.coordinator.invalid_size() == 1


@pytest.mark.parametrize("name", [None, 7, "", "x" * 1001, "\ud800"])
def test_a_keeper_without_a_name_is_refused(messaging: Messaging, name: Any) -> None:
    with pytest.raises(BadRequest, match=r"keeper"):
        messaging.register_keeper(RowsElsewhere(name))
    assert messaging.keepers() == []


def test_what_cannot_be_asked_is_no_keeper(messaging: Messaging) -> None:
    with pytest.raises(BadRequest, match=r"rows cannot be a keeper: .*smallest_point"):
        messaging.register_keeper(NoKeeper())  # type: ignore[arg-type]
    with pytest.raises(KeeperNotFound, match=r"no keeper 'x'; those known: none"):
        messaging.forget_keeper("x")


def test_an_open_transaction_may_still_write_for_one_elsewhere(
    site: Site, messaging: Messaging
) -> None:
    """It says that it holds nothing, and writes with an older transaction next."""
    rows = RowsElsewhere()
    opened = messaging.coordinator.start_short(timeout_s=60)
    bound = messaging.register_keeper(rows).smallest_pointer
    assert bound <= opened.transaction_id
    messaging.coordinator.persist(opened)
    rows.rows.append((opened.transaction_id, "never"))
    messaging.coordinator.invalidate(opened)
    site.clock.advance_s(2 * DAY_S)
    messaging.prune()
    messaging.forget_keeper("(unnamed)")
    assert messaging.prune().pruned == 0
    assert visible(messaging, rows) == []


def test_keepers_are_listed_with_what_they_hold(
    messaging: Messaging, rows: RowsElsewhere
) -> None:
    [seen] = messaging.keepers()
    assert (seen.name, seen.kind, seen.answers) == ("rows", "unregistered", True)
    messaging.register_keeper(rows)
    [found] = messaging.keepers()
    assert found.kind in ("here", "elsewhere")
    assert found.answers
    assert found.smallest_pointer == rows.rows[0][0] >= seen.smallest_pointer
    assert not messaging.check().problems


@pytest.mark.in_process
def test_very_many_names_are_kept_as_one(site: Site, messaging: Messaging) -> None:
    for number in range(103):
        write(messaging, RowsElsewhere(f"upload {number}"), "row")
    listed = [keeper.name for keeper in messaging.keepers()]
    assert len(listed) == 101
    assert "(others)" in listed
    late = RowsElsewhere("late")
    killed(messaging, late)
    for name in listed:
        if name != "(others)":
            messaging.forget_keeper(name)
    site.clock.advance_s(2 * DAY_S)
    assert messaging.prune().pruned == 0
    messaging.forget_keeper("(others)")
    assert messaging.prune().pruned == 1


@pytest.mark.in_process
def test_keepers_go_along_with_a_copy_and_a_backup(
    durable: Site, tmp_path: Any
) -> None:
    messaging = durable.messaging
    messaging.create_topic("t")
    rows = RowsElsewhere()
    write(messaging, rows, "first")
    with messaging.transaction() as aborted:
        aborted.abort()
    pointer = killed(messaging, rows)
    messaging.register_keeper(rows)
    with (tmp_path / "backup").open("wb") as file:
        messaging.backup(file)
    messaging.close()
    txaware.copy(f"leveldb:{durable.directory}", f"leveldb:{tmp_path}/copy")
    with (tmp_path / "backup").open("rb") as file:
        restore(file, tmp_path / "restored", txaware.Settings(), clock_ms=durable.clock)
    durable.clock.advance_s(2 * DAY_S)
    for place in ("copy", "restored"):
        settings = txaware.Settings(janitor_interval_s=0)
        url = f"leveldb:{tmp_path}/{place}"
        with txaware.connect(url, settings=settings, clock_ms=durable.clock) as found:
            with pytest.raises(KeeperMissing, match="'rows'"):
                found.prune()
            found.register_keeper(rows)
            assert found.prune().pruned == 0
            outcome = found.coordinator.outcome
            assert outcome(pointer) is Outcome.ROLLED_BACK
            assert outcome(rows.rows[0][0]) is Outcome.COMMITTED
            assert outcome(aborted.transaction) is Outcome.ROLLED_BACK
            assert visible(found, rows) == ["first"]
            assert not found.check().problems


@pytest.mark.in_process
def test_data_of_an_earlier_version_is_not_pruned_unasked(durable: Site) -> None:
    """Nobody wrote down who keeps rows elsewhere."""
    messaging = durable.messaging
    messaging.create_topic("t")
    rows = NoKeeper()
    killed(messaging, rows)
    killed(messaging, RowsElsewhere("other"))
    table = durable.table
    gone = [(KEEPER + key, None) for key, _ in table.scan(KEEPER)]
    table.submit([*gone, (FORMAT, SECOND_FORMAT), (UNWATCHED, None)])()
    messaging = durable.crash()
    assert not messaging.check().problems
    durable.clock.advance_s(2 * DAY_S)
    done = messaging.clean_up()
    assert (done.forgotten, messaging.coordinator.invalid_size()) == (0, 2)
    assert "2 are kept: an earlier version ended them" in str(done.held_back)
    write(messaging, rows, "new")  # so there is somebody who may hold older ones
    assert messaging.prune().pruned == 0
    messaging.forget_keeper("rows")
    assert messaging.prune().pruned == 2
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"never"], transaction=tx)
    messaging.coordinator.invalidate(tx)
    durable.clock.advance_s(2 * DAY_S)
    assert messaging.clean_up().forgotten == 1


@pytest.mark.in_process
@pytest.mark.parametrize("way", ["prune", "clean_up"])
def test_the_outcome_of_who_is_still_open_will_be_known_to_its_keeper(
    durable: Site, way: str
) -> None:
    """Forgetting a younger one would forget it too, and its rows come only later."""
    messaging, rows = durable.messaging, RowsElsewhere()
    messaging.create_topic("t")
    coordinator: Any = messaging.coordinator
    coordinator.settle_grace_s = 60
    messaging.register_keeper(rows)
    open_one = coordinator.start_long()
    coordinator.invalidate(coordinator.start_short())
    durable.clock.advance_s(3600)
    getattr(messaging, way)()
    rows.rows.append((open_one.transaction_id, "late"))
    coordinator.commit(open_one)
    assert coordinator.outcome(open_one) is Outcome.COMMITTED
    getattr(messaging, way)()
    assert coordinator.outcome(open_one) is Outcome.COMMITTED
    rows.rows.clear()
    getattr(messaging, way)()
    assert coordinator.invalid_size() == 0


@pytest.mark.in_process
def test_a_keeper_here_and_one_elsewhere_need_names_of_their_own(
    messaging: Messaging, rows: RowsElsewhere
) -> None:
    messaging.register_keeper(rows)
    administration = administration_of(messaging)
    with pytest.raises(BadRequest, match="a name of its own"):
        administration.report_keeper("rows", None)


@pytest.mark.in_process
def test_rows_in_another_store_keep_what_they_need(durable: Site) -> None:
    """Published there by hand, with a pointer of ours that it never persists."""
    messaging = durable.messaging
    with (
        messaging.serve() as server,
        txaware.connect("memory:", coordinator=server.url, clock_ms=durable.clock) as b,
    ):
        b.create_topic("t")
        tx = messaging.coordinator.start_short()
        b.publish("t", [b"never"], transaction=tx.transaction_id)
        messaging.coordinator.invalidate(tx)
        durable.clock.advance_s(2 * DAY_S)
        assert messaging.clean_up().forgotten == 0
        assert "another store" in str(messaging.prune().held_back)
        assert not b.poll("t", isolation="committed")
    assert messaging.prune(exclusive=True).pruned == 1


@pytest.mark.in_process
def test_rows_in_a_store_that_was_lent_the_coordinator_do(durable: Site) -> None:
    """Also when that one is not open any more."""
    messaging = durable.messaging
    lent = messaging.coordinator
    with txaware.connect("memory:", coordinator=lent, clock_ms=durable.clock) as other:
        other.create_topic("t")
        tx = lent.start_short()
        other.publish("t", [b"never"], transaction=tx.transaction_id)
        lent.invalidate(tx)
    messaging = durable.crash()
    durable.clock.advance_s(2 * DAY_S)
    assert messaging.clean_up().forgotten == 0
    assert [one.name for one in messaging.keepers()] == ["(another store)"]


@pytest.mark.in_process
def test_nobody_else_speaks_for_a_keeper_elsewhere(messaging: Messaging) -> None:
    report = administration_of(messaging).report_keeper
    report("rows", 5, principal="ann", is_operator=False)
    with pytest.raises(NotAuthorized, match="bob may not speak for keeper 'rows'"):
        report("rows", 9, principal="bob", is_operator=False)
    assert report("rows", 7, principal="ann", is_operator=False).smallest_pointer == 7
    assert report("rows", 8, principal="root", is_operator=True).smallest_pointer == 8
