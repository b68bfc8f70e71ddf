"""Queues of many pipes: what a start reads, what rests, what goes, and the bound."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.messagings import KINDS, Site, lent_site
from tests.support.queues import (
    CountedScans,
    fill_pipes,
    made,
    numbered,
    popped,
    rows_of,
    taken,
    waiting,
)
from txaware.errors import QueueNotFound, TooManyPipes
from txaware.model.queues import PipeShare, pipe_prefix
from txaware.queue import Queue
from txaware.service.queue import loading, pushing
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.queue.pipe import LENT_MS
from txaware.service.queue.pushing import Pushing
from txaware.service.queue.queue_state import QueueState
from txaware.service.write.message_cargo import CarriedMessages
from txaware.service.write.publishing import Publishing
from txaware.store.queue_table import TOTALS, pipe_rows, pipe_write

in_process = pytest.mark.in_process


def state_of(site: Site) -> QueueState:
    """The queue as the process that owns the data has it in memory."""
    queues = site.embedded._queue_service
    assert isinstance(queues, LocalQueues)
    return queues._queue("mail").state


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has pipes read a few at a time."""
    for name in ("FIRST_ROWS", "PIECE_ROWS", "COUNTED_ROWS"):
        monkeypatch.setattr(loading, name, 3)


@pytest.fixture(params=KINDS)
def bounded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Every implementation in turn, with room for three pipes in a queue."""
    with lent_site(request, tmp_path, max_pipes_per_queue=3) as opened:
        yield opened


@pytest.mark.parametrize("count", [3_000, 12_000])
def test_a_first_pop_reads_as_much_with_any_number_of_pipes(
    durable: Site, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = made(durable.messaging)
    fill_pipes(durable.table, count)
    read = CountedScans(durable.table, monkeypatch)
    assert popped(queue).payload == b"1"
    assert read.rows < 3_100
    assert read.scans < 12


def test_all_pipes_are_read_and_counted_once(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = made(durable.messaging)
    fill_pipes(durable.table, 12_000)
    read = CountedScans(durable.table, monkeypatch)
    stats = queue.stats()
    assert (stats.pushed, stats.depth, stats.pipes) == (12_000, 12_000, 12_000)
    assert read.rows < 2.2 * 12_000
    assert read.scans < 12_000 // 5  # hundreds in one
    read.rows = 0
    assert queue.stats().depth == 12_000
    assert read.rows < 300


def test_a_pipe_that_rests_takes_little_memory(durable: Site) -> None:
    queue = made(durable.messaging)
    fill_pipes(durable.table, 3_000)
    assert queue.stats().pipes == 3_000
    state = state_of(durable)
    assert len(state.pipes) <= 200  # those that have turns, and those that are shown
    assert len(state.resting) >= 2_800


@in_process
def test_pipes_that_are_full_rest_until_their_turn(site: Site) -> None:
    site.messaging.create_queue("mail", max_pushes_per_pipe=2, max_pop_width=3)
    queue = site.messaging.queue("mail")
    pushers = [queue.pusher() for _ in range(20)]
    for payload in numbered(80):
        pushers[int(payload[1:]) % 20].push(payload)
    state = state_of(site)
    assert len(state.resting) >= 15
    stats = queue.stats()
    assert (stats.pushed, stats.depth, stats.pipes) == (80, 80, 40)
    assert sorted(waiting(queue)) == sorted(numbered(80))
    assert sorted(taken(queue)) == sorted(numbered(80))
    for pusher in pushers:
        pusher.close()
    queue.pop()
    assert queue.stats().pipes == 0
    assert (queue.stats().pushed, queue.stats().committed) == (80, 80)


@in_process
def test_pushers_above_a_number_begin_other_pipes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "MOST_OPEN", 4)
    site.messaging.create_queue("mail", max_pop_width=2)
    queue = site.messaging.queue("mail")
    pushers = [queue.pusher() for _ in range(10)]
    for payload in numbered(30):
        pushers[int(payload[1:]) % 10].push(payload)
    assert queue.stats().open_pipes <= 4
    assert len(state_of(site).pushers) <= 4
    found = taken(queue)
    for first in range(10):
        own = [b"m%d" % number for number in range(first, 30, 10)]
        assert [one for one in found if one in own] == own


@pytest.mark.usefixtures("in_pieces")
def test_pipes_read_in_pieces_keep_the_order_of_each_pusher(lasting: Site) -> None:
    lasting.messaging.create_queue("mail", max_pushes_per_pipe=1, max_pop_width=4)
    queue = lasting.messaging.queue("mail")
    pusher = queue.pusher()
    for payload in numbered(25):
        pusher.push(payload)
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    assert taken(queue) == numbered(25)
    assert queue.pop() is None
    assert (queue.stats().pushed, queue.stats().committed) == (25, 25)


@pytest.mark.usefixtures("in_pieces")
def test_what_waits_in_pipes_not_read_yet_is_found(lasting: Site) -> None:
    """Delays, priorities, jobs in work, and what transactions did."""
    lasting.messaging.create_queue("mail", max_pushes_per_pipe=1)
    queue = lasting.messaging.queue("mail")
    queue.push_all(numbered(10))
    queue.push(b"later", delay_s=100)
    queue.push(b"first", priority=9)
    with lasting.messaging.transaction():
        queue.push_all([b"x", b"y"])
    first, second = popped(queue), popped(queue)
    second.commit()
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.delayed) == (14, 1, 1)
    assert stats.depth + stats.in_work == 13
    left = {*numbered(10), b"first", b"x", b"y"} - {second.payload}
    assert {*taken(queue)} == left
    assert first.payload in left
    lasting.clock.advance_s(101)
    assert taken(queue) == [b"later"]


def test_a_first_pop_skips_any_number_of_empty_pipes(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = made(durable.messaging)
    fill_pipes(durable.table, 3_000, items=0)
    fill_pipes(durable.table, 2, first=5_000)
    read = CountedScans(durable.table, monkeypatch)
    assert popped(queue).payload == b"5000"
    assert read.scans < 60
    assert queue.stats().pipes == 2
    assert (queue.stats().pushed, queue.stats().depth) == (2, 1)


@pytest.mark.usefixtures("in_pieces")
def test_empty_pipes_go_by_themselves_after_a_start(lasting: Site) -> None:
    queue = made(lasting.messaging)
    for payload in numbered(10):
        with queue.pusher() as pusher:
            pusher.push(payload)
    job = popped(queue)
    kept = rows_of(lasting)
    assert taken(queue) == numbered(10)[1:]
    job.commit()
    items = {key: value for key, value in kept.items() if key[:1] == b"i"}
    lasting.table.submit(list(items.items()))()  # as if their ends were not on disk
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    queue.push(b"more")
    assert taken(queue) == [b"more"]
    assert queue.stats().pipes == 1


def test_a_pipe_whose_row_says_too_little_keeps_what_is_there(lasting: Site) -> None:
    """As versions wrote it that did not wait with that for the last count."""
    queue = made(lasting.messaging)
    queue.push_all(numbered(3))
    popped(queue).commit()
    state = state_of(lasting)
    for number, row in pipe_rows(lasting.table, state.prefix):
        if number != TOTALS:
            prefix = pipe_prefix(state.name, state.descriptor.generation, number)
            too_little = attrs.evolve(row, pushed=row.counts.removed)
            lasting.table.submit([pipe_write(prefix, too_little)])()
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    for _ in range(2):
        assert queue.stats().depth == 2
    assert taken(queue) == numbered(3)[1:]
    assert (queue.stats().pushed, queue.stats().committed) == (3, 3)


def lent_in_an_earlier_life(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> Queue[bytes]:
    """A queue of which each transaction has room in the pipe of an earlier life."""
    queue = made(lasting.messaging)
    queue.push(b"a")
    [pipe] = state_of(lasting).pipes.values()
    lasting.crash()
    before = [PipeShare(str(pipe.name), 1)]
    monkeypatch.setattr(Pushing, "reserve", lambda *_, **__: before)
    return lasting.messaging.queue("mail")


def test_a_pipe_that_is_lent_is_popped_from_though_it_was_empty_meanwhile(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction got the pipe from an earlier life, and commits in this one."""
    queue = lent_in_an_earlier_life(lasting, monkeypatch)
    cargo = CarriedMessages.cargo

    def looked_at(*given: Any) -> Any:
        made_cargo = cargo(*given)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(taken, queue).result() == [b"a"]
        return made_cargo

    monkeypatch.setattr(CarriedMessages, "cargo", looked_at)
    with lasting.messaging.transaction():
        queue.push(b"b")
    assert taken(queue) == [b"b"]


@pytest.mark.parametrize(
    ("writer", "way"), [(CarriedMessages, "cargo"), (Publishing, "transactional")]
)
def test_a_push_to_a_pipe_that_went_as_its_server_stood_still_is_refused(
    lasting: Site, monkeypatch: pytest.MonkeyPatch, writer: type, way: str
) -> None:
    """The pipe goes between the look for it and the write, and no job is lost."""
    queue = lent_in_an_earlier_life(lasting, monkeypatch)
    written = getattr(writer, way)

    def stood_still(*given: Any) -> Any:
        with ThreadPoolExecutor(1) as other:
            assert other.submit(taken, queue).result() == [b"a"]
            lasting.clock.now_ms += 2 * LENT_MS
            assert other.submit(taken, queue).result() == []
            assert not state_of(lasting).pipes
        return written(*given)

    monkeypatch.setattr(writer, way, stood_still)
    if way == "transactional":
        monkeypatch.setattr(CarriedMessages, "may_carry", False)
    is_refused = pytest.raises(QueueNotFound, match="push in another transaction")
    with is_refused, lasting.messaging.transaction(timeout_s=600):
        queue.push(b"b")
    monkeypatch.undo()
    with lasting.messaging.transaction():
        queue.push(b"c")
    lasting.crash()
    assert taken(lasting.messaging.queue("mail")) == [b"c"]


def test_a_pipe_above_the_bound_is_refused(bounded: Site) -> None:
    """One of each pusher, of each second of delay, and in a transaction."""
    queue = made(bounded.messaging)
    for payload in numbered(2):
        queue.pusher().push(payload)
    queue.push(b"later", delay_s=100)
    with pytest.raises(TooManyPipes, match="max_pipes_per_queue is 3"):
        queue.pusher().push(b"one more")
    with pytest.raises(TooManyPipes):
        queue.push(b"one more", delay_s=200)
    with pytest.raises(TooManyPipes), bounded.messaging.transaction():
        queue.push(b"one more")
    queue.push(b"also later", delay_s=100)
    stats = queue.stats()
    assert (stats.pushed, stats.depth, stats.pipes) == (4, 4, 3)


def test_the_bound_holds_after_a_start(bounded: Site) -> None:
    queue = made(bounded.messaging)
    for payload in numbered(3):
        queue.pusher().push(payload)
    if bounded.kind == "memory":
        return
    bounded.open()
    queue = bounded.messaging.queue("mail")
    with pytest.raises(TooManyPipes):
        queue.push(b"one more")
    assert popped(queue).payload == b"m0"


def test_empty_pipes_make_room_for_others(bounded: Site) -> None:
    queue = made(bounded.messaging)
    for payload in numbered(3):
        queue.pusher().push(payload)
    assert taken(queue) == numbered(3)
    with pytest.raises(TooManyPipes):  # their pushers may be coming back
        queue.push(b"one more")
    bounded.clock.advance_s(61)
    queue.push(b"one more")
    assert taken(queue) == [b"one more"]


def test_room_is_looked_for_once_a_second(bounded: Site) -> None:
    """However often a push is refused."""
    queue = made(bounded.messaging)
    for payload in numbered(3):
        queue.pusher().push(payload)
    assert taken(queue) == numbered(3)
    for seconds in (59.8, 0.5):
        bounded.clock.advance_s(seconds)
        with pytest.raises(TooManyPipes):
            queue.push(b"one more")
    bounded.clock.advance_s(0.5)
    queue.push(b"one more")


def test_dead_letters_have_room_above_the_bound(bounded: Site) -> None:
    bounded.messaging.create_queue("mail", max_deliveries=1)
    queue = bounded.messaging.queue("mail")
    dead = made(bounded.messaging, "mail-dead")
    queue.push(b"bad")
    for payload in numbered(3):
        dead.pusher().push(payload)
    popped(queue).rollback()
    assert b"bad" in waiting(dead)


def job_in_a_run_that_ended(site: Site) -> Queue:
    """A queue as a crash leaves it, where a job was in a run and then in a commit."""
    queue = made(site.messaging)
    queue.push_all([b"a", b"b"])
    try:
        with site.messaging.transaction():
            queue.pop_many(2)
            raise KeyError
    except KeyError:
        pass
    with site.messaging.transaction():
        assert len(queue.pop_many(2)) == 2
        before = rows_of(site)
    site.table.submit(list(before.items()))()  # as if their ends were not on disk
    return queue


def test_a_job_of_a_run_that_committed_later_is_counted_once(lasting: Site) -> None:
    job_in_a_run_that_ended(lasting)
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    assert queue.pop() is None
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.expired_leases) == (2, 2, 0)
