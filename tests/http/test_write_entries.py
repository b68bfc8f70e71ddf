"""A store whose coordinator is another server's: its writes enter the barrier there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.outcome import Outcome
from coordinator.remote.calls import ENDS, ENTER, LEAVE, CallRequest
from coordinator.remote.remote_barrier import (
    RemoteBarrier,
    entered_by_the_server,
    writing_for,
)
from coordinator.transaction import NO_POINTER, Transaction
from tests.support.concurrency import PATIENCE_S, in_background, until
from tests.support.http_access import guarded
from tests.support.messagings import administration_of, payloads
from txaware.errors import (
    BadRequest,
    KeeperMissing,
    NotAuthorized,
    ShardAway,
    TransactionNotInProgress,
    TxAwareError,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.messaging.hosted_coordinator import HostedCoordinator
from txaware.model.settings import Settings
from txaware.server import write_entries
from txaware.server.admission import Full
from txaware.server.write_entries import WriteEntries, shard_shown
from txaware.service.wakeups import Endings

QUIET = Settings(janitor_interval_s=0)
OUTCOMES = {"commit": Outcome.COMMITTED, "abort": Outcome.ROLLED_BACK}


@attrs.frozen
class Two:
    """The store that has the coordinator, and one that asks it over the network."""

    decides: Messaging
    writes: Messaging
    url: str

    @property
    def hosted(self) -> HostedCoordinator:
        found = self.writes.coordinator
        assert isinstance(found, HostedCoordinator)
        return found

    @property
    def coordinator(self) -> EmbeddedCoordinator:
        found = self.decides.coordinator
        assert isinstance(found, EmbeddedCoordinator)
        return found

    @property
    def barrier(self) -> WriteBarrier:
        return self.coordinator.barrier

    def is_ending(self) -> bool:
        return any(one.end_asked for one in self.coordinator.open_transactions())

    def committed(self) -> list[bytes]:
        return payloads(self.writes.poll("t", isolation="committed"))


@contextmanager
def two() -> Iterator[Two]:
    with (
        txaware.connect("memory:", settings=QUIET) as decides,
        decides.serve() as server,
        txaware.connect("memory:", coordinator=server.url, settings=QUIET) as writes,
    ):
        writes.create_topic("t")
        yield Two(decides, writes, server.url)


@pytest.fixture
def stores() -> Iterator[Two]:
    with two() as found:
        yield found


def is_ending(coordinator: EmbeddedCoordinator, count: int) -> bool:
    return sum(one.end_asked for one in coordinator.open_transactions()) == count


def endings_of(messaging: Messaging) -> Endings:
    service: Any = messaging._parts.service
    found: Endings = service._endings
    return found


@pytest.mark.parametrize("end", ["commit", "abort", "invalidate"])
def test_a_write_after_the_end_is_refused(stores: Two, end: str) -> None:
    tx = stores.writes.coordinator.start_short()
    pointer = tx.transaction_id
    stores.writes.publish("t", [b"in time"], transaction=pointer)
    getattr(stores.writes.coordinator, end)(tx)
    with pytest.raises(TransactionNotInProgress):
        stores.writes.publish("t", [b"late"], transaction=pointer)
    with pytest.raises(TransactionNotInProgress):
        stores.writes.store("t", [b"late"], transaction=tx)
    seen = payloads(stores.writes.poll("t"))
    assert seen == [b"in time"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_waits_for_a_write_that_is_under_way(stores: Two, end: str) -> None:
    tx = stores.hosted.start_short()
    entry = stores.hosted.admission.enter(tx.transaction_id)
    ending = in_background(partial(getattr(stores.hosted, end), tx))
    assert until(stores.is_ending)
    with pytest.raises(TransactionNotInProgress, match="is ending"):
        stores.hosted.admission.enter(tx.transaction_id)
    assert ending.is_alive()
    stores.hosted.admission.leave(entry)
    ending.join(PATIENCE_S)
    assert stores.coordinator.outcome(tx) is OUTCOMES[end]


def test_a_writer_that_is_gone_takes_its_transaction_along(stores: Two) -> None:
    """Nobody knows whether its rows come in yet: they would be seen after a commit."""
    tx, other = stores.hosted.start_short(), stores.hosted.start_short()
    gone = HostedCoordinator(stores.url, None)
    left = gone.admission.enter(other.transaction_id)
    gone.admission.leave(left)
    assert until(lambda: not stores.barrier.is_writing(other.transaction_id))
    gone.admission.enter(tx.transaction_id)
    gone.close()
    assert until(lambda: stores.barrier.is_invalid(tx.transaction_id))
    assert not stores.barrier.is_writing(tx.transaction_id)
    with pytest.raises(TransactionNotInProgress):
        stores.hosted.commit(tx)
    stores.hosted.commit(other)


def refused_commit(
    stores: Two,
    hosted: HostedCoordinator,
    tx: Transaction,
    act: Callable[[], object],
) -> list[TxAwareError]:
    """Commits beside a writer that is within, acts, and returns what was raised."""
    refused: list[TxAwareError] = []

    def commit() -> None:
        try:
            hosted.commit(tx)
        except TxAwareError as error:
            refused.append(error)

    committing = in_background(commit)
    assert until(stores.is_ending)
    act()
    committing.join(PATIENCE_S)
    return refused


def test_who_waits_for_a_server_that_is_forsaken_is_told_at_once(stores: Two) -> None:
    hosted, writer = (HostedCoordinator(stores.url, None) for _ in range(2))
    tx = hosted.start_short()
    writer.admission.enter(tx.transaction_id)
    refused = refused_commit(stores, hosted, tx, hosted.forsake)
    assert [type(error) for error in refused] == [Unavailable]
    with pytest.raises(Unavailable, match="closed"):
        hosted.start_short()
    hosted.close()
    writer.close()


def test_a_commit_that_waits_for_a_writer_that_goes_is_refused(stores: Two) -> None:
    tx, gone = stores.hosted.start_short(), HostedCoordinator(stores.url, None)
    gone.admission.enter(tx.transaction_id)
    refused = refused_commit(stores, stores.hosted, tx, gone.close)
    assert [type(error) for error in refused] == [TransactionNotInProgress]


@pytest.mark.parametrize("end", ["commit", "abort", "invalidate"])
def test_an_end_wakes_readers_of_the_store_elsewhere(stores: Two, end: str) -> None:
    tx = stores.hosted.start_short()
    stores.writes.publish("t", [b"one"], transaction=tx.transaction_id)
    signals = endings_of(stores.writes).signals
    assert tx.transaction_id in signals
    (signal,) = signals[tx.transaction_id]
    seen = signal.count
    getattr(stores.hosted, end)(tx)
    assert until(lambda: signal.count != seen)
    assert not signals


def test_an_end_that_went_unheard_is_told_once_the_server_is_another(
    tmp_path: Path,
) -> None:
    told: list[int] = []
    url = f"leveldb:{tmp_path / 'decides'}"
    with ExitStack() as stack:
        with txaware.connect(url, settings=QUIET) as decides:
            server = stack.enter_context(decides.serve())
            hosted = HostedCoordinator(server.url, None)
            stack.callback(hosted.close)
            hosted.admission.on_end(told.extend)
            tx = hosted.start_short()
            hosted.admission.leave(hosted.admission.enter(tx.transaction_id))
            port = int(server.url.rpartition(":")[2])
        with (
            txaware.connect(url, settings=QUIET) as again,
            again.serve(port=port),
        ):
            assert until(lambda: tx.transaction_id in told)


def test_no_transaction_of_before_ends_until_each_shard_has_greeted(
    tmp_path: Path,
) -> None:
    """What entered at the server before may still be on its way to the disk."""
    url = f"leveldb:{tmp_path / 'decides'}"
    with ExitStack() as stack:
        with txaware.connect(url, settings=QUIET) as decides:
            assert isinstance(decides.coordinator, EmbeddedCoordinator)
            server = stack.enter_context(decides.serve())
            shard = HostedCoordinator(server.url, None, shards=[1])
            stack.callback(shard.close)
            before, undone = shard.start_short(), shard.start_short()
            for tx in (before, undone):  # its start is on disk, and it survives
                shard.admission.leave(shard.admission.enter(tx.transaction_id))
            inside = decides.coordinator.barrier.inside
            assert until(lambda: not inside)
            writing = shard.start_short()
            slow = shard.admission.enter(writing.transaction_id)
            port = int(server.url.rpartition(":")[2])
            server.close()
        again = stack.enter_context(txaware.connect(url, settings=QUIET))
        coordinator = again.coordinator
        assert isinstance(coordinator, EmbeddedCoordinator)
        coordinator.barrier.await_stores([shard_shown(1), shard_shown(2)])
        stack.enter_context(again.serve(port=port))
        ended: list[str] = []

        def commit() -> None:
            shard.can_commit(before, [])
            shard.commit(before)
            ended.append("commit")

        def abort() -> None:
            shard.abort(undone)
            ended.append("abort")

        ends = [in_background(commit), in_background(abort)]
        new = shard.start_short()
        shard.commit(new)  # it began here
        assert until(lambda: is_ending(coordinator, 2))
        coordinator.barrier.greet([shard_shown(2)])
        assert not ended
        shard.admission.leave(slow)
        for one in ends:
            one.join(PATIENCE_S)
        assert sorted(ended) == ["abort", "commit"]
        assert not coordinator.barrier.awaited


def test_the_start_is_on_disk_before_a_row_is_written(
    stores: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the coordinator's server leaves no row of an unknown transaction."""
    seen: list[str] = []
    journal: Any = stores.coordinator._journal
    sync, enter = journal.sync, stores.barrier.enter

    def noted(what: str, call: Any, *of: Any) -> Any:
        seen.append(what)
        return call(*of)

    monkeypatch.setattr(journal, "sync", partial(noted, "disk", sync))
    monkeypatch.setattr(stores.barrier, "enter", partial(noted, "enter", enter))
    tx = stores.hosted.start_short()
    stores.writes.publish("t", [b"one"], transaction=tx.transaction_id)
    assert seen == ["disk", "enter"]


def test_what_a_transaction_wrote_is_taken_back_until_it_has_committed(
    stores: Two,
) -> None:
    kept, undone = stores.hosted.start_short(), stores.hosted.start_short()
    invalid = stores.hosted.start_short()
    answers = {}
    for tx in (kept, undone, invalid):
        pointer = tx.transaction_id
        answer = stores.writes.publish("t", [b"%d" % pointer], transaction=pointer)
        assert answer is not None
        answers[tx] = answer
    stores.hosted.commit(kept)
    stores.hosted.invalidate(invalid)
    for tx in (undone, invalid):
        stores.writes.rollback("t", answers[tx])
    stores.hosted.abort(undone)
    with pytest.raises(TransactionNotInProgress, match="stays"):
        stores.writes.rollback("t", answers[kept])
    assert stores.committed() == [b"%d" % kept.transaction_id]


def test_a_server_of_before_is_asked_to_persist(
    stores: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    persisted: list[int] = []
    persist = stores.coordinator.persist

    def noted(tx: Transaction) -> None:
        persisted.append(tx.transaction_id)
        persist(tx)

    monkeypatch.setattr(stores.coordinator, "persist", noted)
    monkeypatch.setattr(stores.coordinator.barrier, "enter", None)
    hosted = HostedCoordinator(stores.url, None)
    hosted.introduce()
    assert hosted._info is not None
    hosted._info = attrs.evolve(hosted._info, takes_writes=False)
    try:
        tx = hosted.start_short()
        entry = hosted.admission.enter(tx.transaction_id)
        assert hosted.admission.leave(entry)
        hosted.commit(tx)
    finally:
        hosted.close()
    assert tx.transaction_id in persisted


def test_calls_of_entries_are_checked(stores: Two) -> None:
    send = stores.hosted._to_server
    tx = stores.hosted.start_short()
    pointer = tx.transaction_id
    for asked in [
        CallRequest(ENTER, pointer, {"writer": "", "write": 1}),
        CallRequest(ENTER, pointer, {"writer": "w", "write": "1"}),
        CallRequest(ENTER, pointer, {"writer": "w", "write": 1, "more": 1}),
        CallRequest(LEAVE, None, {"writer": "w", "writes": [1, None]}),
        CallRequest(LEAVE, None, {"writer": 1, "writes": [1]}),
        CallRequest(ENDS, None, {"writer": "w", "since": "", "after": -1, "waitMs": 0}),
    ]:
        with pytest.raises(BadRequest):
            send.ask(asked)


def test_writes_under_way_and_stores_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_entries, "MOST_UNDER_WAY", 2)
    monkeypatch.setattr(write_entries, "MOST_WRITERS", 2)
    coordinator = EmbeddedCoordinator()
    pointer = coordinator.start_short().transaction_id
    entries = WriteEntries(coordinator)
    for write in range(2):
        entries.enter(("ann", "one"), write, pointer, None)
    with pytest.raises(Full, match="2 writes of this store are under way"):
        entries.enter(("ann", "one"), 2, pointer, None)
    entries.leave(("ann", "two"), [1])
    entries.leave(("ann", "three"), [1])  # in place of the second, which is idle
    entries.enter(("ann", "three"), 1, pointer, None)
    with pytest.raises(Full, match="2 stores write here"):
        entries.enter(("ann", "four"), 1, pointer, None)
    for name, writes in [("one", [0, 1]), ("three", [1])]:
        entries.leave(("ann", name), writes)
    assert not coordinator.barrier.is_writing(pointer)


def test_what_is_left_of_a_writer_goes_with_its_transactions() -> None:
    """Over HTTP no connection tells that the writer is gone."""
    coordinator = EmbeddedCoordinator()
    entries, name = WriteEntries(coordinator), ("ann", "one")
    pointer = coordinator.start_short().transaction_id
    since = entries.enter(name, 1, pointer, None)
    coordinator.invalidate(pointer)
    assert entries.ends(name, since, 0) == (since, [pointer])
    assert entries.ends(name, since, 1) == (since, [])
    assert not coordinator.barrier.is_writing(pointer)


def test_a_sent_write_in_doubt_that_cannot_be_invalidated_stays_until_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ended otherwise would show it; and nothing is left of it afterwards."""
    coordinator = EmbeddedCoordinator()
    entries, name = WriteEntries(coordinator), ("ann", "one")
    entries.greet(name, [1])
    first, second = (coordinator.start_short().transaction_id for _ in range(2))

    def fails(_: int) -> NoReturn:
        raise Unavailable("the journal's disk is full")

    with monkeypatch.context() as full:
        full.setattr(coordinator, "invalidate", fails)
        with pytest.raises(Unavailable, match="full"), entries.sending(1, first):
            raise Unavailable("no answer")
    with entries.sending(1, second):
        assert coordinator.barrier.is_writing(first)
    coordinator.invalidate(first)  # as a time-out does
    with entries.sending(1, second):
        assert not coordinator.barrier.is_writing(first)


def test_ends_that_nobody_fetches_are_counted_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_entries, "MOST_ENDS", 2)
    coordinator = EmbeddedCoordinator()
    entries, name = WriteEntries(coordinator), ("ann", "one")
    for _ in range(3):
        tx = coordinator.start_short()
        since = entries.enter(name, 1, tx.transaction_id, None)
        entries.leave(name, [1])
        coordinator.commit(tx)
    now_since, ended = entries.ends(name, since, 0)
    assert now_since != since
    assert ended == [tx.transaction_id]


def test_a_shard_writes_for_whoever_began_the_transaction_alone(tmp_path: Path) -> None:
    """A server of the store may enter for all; it names whom it writes for."""
    with guarded(tmp_path) as site:
        url, tokens = site.server.url, site.tokens
        writer = HostedCoordinator(url, tokens["writer"])
        shard = HostedCoordinator(url, tokens["operator"], shards=[1])
        with closing(writer), closing(shard):
            pointer = writer.start_short().transaction_id
            with writing_for("rival"), pytest.raises(NotAuthorized, match="rival may"):
                shard.admission.enter(pointer)
            for principal in ("writer", None):
                with writing_for(principal):
                    shard.admission.leave(shard.admission.enter(pointer))


def test_what_wrote_since_a_report_is_needed_in_the_next_one(stores: Two) -> None:
    """Its rows may have come in behind who looked at them."""
    admission = RemoteBarrier(stores.hosted)
    with closing_of(admission):
        first, second = (stores.hosted.start_short() for _ in range(2))
        inside = admission.enter(second.transaction_id)
        admission.leave(admission.enter(first.transaction_id))
        with pytest.raises(Unavailable), admission.reporting(NO_POINTER):
            raise Unavailable("the server is away")
        with admission.reporting(NO_POINTER) as least:
            assert least == first.transaction_id
        with admission.reporting(NO_POINTER) as least:
            assert least == second.transaction_id  # it is inside
        admission.leave(inside)
        with admission.reporting(5) as least:
            assert least == 5
        with admission.reporting(NO_POINTER) as least:
            assert least == NO_POINTER


@attrs.frozen
class Sends:
    """The server of a coordinator that sends writes to the store of shard 1 itself."""

    entries: WriteEntries
    hosted: HostedCoordinator
    admission: RemoteBarrier

    def begin(self) -> int:
        """Begins a transaction whose start is on disk."""
        pointer = self.hosted.start_short().transaction_id
        self.entries.persist(pointer)
        return pointer

    def joins(self, pointer: int, since: str, ticket: str) -> bool:
        """Tells whether a write with this ticket joins, and does not ask the server."""
        with entered_by_the_server(since, ticket):
            entry = self.admission.enter(pointer)
        self.admission.leave(entry)
        return entry.number is None


@pytest.fixture
def sends(stores: Two) -> Iterator[Sends]:
    served = stores.decides._parts.served
    assert served is not None
    assert served.write_entries is not None
    entries = served.write_entries
    admission = RemoteBarrier(stores.hosted, shards=[1])
    found = Sends(entries, stores.hosted, admission)
    with closing_of(admission):
        pointer = found.begin()

        def has_greeted() -> bool:
            with entries.sending(1, pointer) as since:
                return bool(since)

        assert until(has_greeted)
        yield found


def test_a_write_that_the_server_sends_joins_and_holds_its_end_back(
    sends: Sends, stores: Two
) -> None:
    told: list[int] = []
    sends.admission.on_end(told.extend)
    pointer = sends.begin()
    with sends.entries.sending(1, pointer) as since:
        assert sends.joins(pointer, since, sends.admission.ticket_for(since))
        tx = Transaction(pointer, 0, write_pointer=pointer)
        ending = in_background(partial(stores.hosted.commit, tx))
        assert until(stores.is_ending)
        assert ending.is_alive()
    ending.join(PATIENCE_S)
    assert stores.coordinator.outcome(pointer) is Outcome.COMMITTED
    assert until(lambda: pointer in told)  # which wakes the readers there


def test_a_write_that_was_sent_before_a_report_enters_by_itself(sends: Sends) -> None:
    """It may be over at the server, and by the report nobody remembers that."""
    pointer = sends.begin()
    with sends.entries.sending(1, pointer) as since:
        ticket = sends.admission.ticket_for(since)
    with sends.admission.reporting(NO_POINTER):
        pass
    assert not sends.joins(pointer, since, ticket)
    assert sends.joins(pointer, since, sends.admission.ticket_for(since))
    with sends.admission.reporting(NO_POINTER):
        pass
    sends.hosted.invalidate(Transaction(pointer, 0, write_pointer=pointer))
    with pytest.raises(TransactionNotInProgress):
        sends.joins(pointer, since, ticket)


def test_a_write_of_another_life_of_the_server_enters_by_itself(sends: Sends) -> None:
    pointer = sends.begin()
    with sends.entries.sending(1, pointer) as since:
        ticket = sends.admission.ticket_for(since)
    for other in ("", "another"):
        assert sends.admission.ticket_for(other) == ""
        assert not sends.joins(pointer, other, ticket)
        assert not sends.joins(pointer, other, "")
    with sends.entries.sending(7, pointer) as since:
        assert since == ""  # nobody has greeted for that shard


def test_what_joined_is_needed_in_the_next_report(sends: Sends) -> None:
    pointer = sends.begin()
    with sends.admission.reporting(NO_POINTER):
        pass
    with sends.entries.sending(1, pointer) as since:
        assert sends.joins(pointer, since, sends.admission.ticket_for(since))
    with sends.admission.reporting(NO_POINTER) as least:
        assert least == pointer


def test_a_write_of_which_nobody_knows_whether_it_was_done_ends_its_transaction(
    sends: Sends, stores: Two
) -> None:
    """It may come in later: what ended otherwise would show it."""
    unknown, refused = sends.begin(), sends.begin()
    with pytest.raises(Unavailable), sends.entries.sending(1, unknown):
        raise Unavailable("no answer")
    with pytest.raises(ShardAway), sends.entries.sending(1, refused):
        raise ShardAway("it moves")
    assert stores.barrier.is_invalid(unknown)
    assert stores.barrier.is_open(refused)
    assert not stores.barrier.is_writing(refused)


def test_pointers_are_kept_for_shards_elsewhere() -> None:
    with txaware.connect("memory:", settings=QUIET) as messaging:
        administration = administration_of(messaging)
        administration.keep_for_shards(here=[0], elsewhere=[1, 2])
        assert kept(messaging) == {"(shard 1)": 1, "(shard 2)": 1}
        administration.report_keeper("(shard 1)", 7)
        administration.keep_for_shards(here=[0, 2], elsewhere=[1])
        assert kept(messaging) == {"(shard 1)": 7}

        def away() -> None:
            raise KeeperMissing("shard 1 is at no server")

        administration.clean_for(require_all=away)
        with pytest.raises(KeeperMissing):
            messaging.prune()


def test_a_store_that_says_what_it_needs_leaves_it_to_others_to_forget(
    stores: Two,
) -> None:
    """An operator is not told there to forget what another server forgets."""
    reports = list[int]()
    administration_of(stores.writes).clean_for(report=reports.append)
    tx = stores.hosted.start_short()
    stores.writes.publish("t", [b"rolled back"], transaction=tx.transaction_id)
    stores.hosted.invalidate(tx)
    stores.hosted._settle_grace_s = lambda: 0.0  # by which it is an old one
    assert stores.writes.clean_up().held_back is None
    assert [one > tx.transaction_id for one in reports] == [True]


def kept(messaging: Messaging) -> dict[str, int]:
    return {one.name: one.smallest_pointer for one in messaging.keepers()}


@contextmanager
def closing_of(admission: RemoteBarrier) -> Iterator[None]:
    try:
        yield
    finally:
        admission.stop()
