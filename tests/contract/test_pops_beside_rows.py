"""Items that are popped in a block of a database: handled once with its rows."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.deciders import Decider, killed_behind_the_commit
from tests.support.queues import popped, taken, waiting
from txaware import participants
from txaware.errors import BadRequest, LeaseLost, MisusedTransaction
from txaware.messaging import Messaging
from txaware.queue import Job, Queue


@pytest.fixture
def queue(decider_messaging: Messaging) -> Queue:
    decider_messaging.create_queue("mail", max_deliveries=2)
    return decider_messaging.queue("mail")


def handle_next(decider: Decider, queue: Queue, n: int = 1) -> list[bytes]:
    """Handles the next items in one block."""
    with decider.messaging.transaction(decider.participant):
        found = [job.payload for job in queue.pop_many(n)]
        for payload in found:
            decider.handle(payload)
    return found


def test_items_are_handled_once_with_the_rows_of_the_block(
    decider: Decider, queue: Queue
) -> None:
    queue.push_all([b"1", b"2", b"3"])
    assert handle_next(decider, queue) == [b"1"]
    assert handle_next(decider, queue, n=5) == [b"2", b"3"]
    assert handle_next(decider, queue) == []
    assert decider.rows() == ["1", "2", "3"]
    assert (queue.stats().committed, queue.stats().depth) == (3, 0)
    assert decider.notes() == 3
    decider.participant.relay()
    assert decider.notes() == 0


def test_an_item_whose_process_was_killed_behind_the_commit_ends_silently(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push_all([b"1", b"2", b"3"])
    for _ in range(2):  # the last delivery, too
        with killed_behind_the_commit(decider.messaging, monkeypatch):
            assert handle_next(decider, queue)
    assert handle_next(decider, queue, n=2) == [b"3"]
    assert decider.rows() == ["1", "2", "3"]
    stats = queue.stats()
    assert (stats.committed, stats.depth, stats.dead_letters) == (3, 0, 0)
    decider.participant.relay()
    assert decider.notes() == 0


def test_an_item_that_a_crash_left_is_ended_in_the_background_too(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push_all([b"1", b"2"])
    with killed_behind_the_commit(decider.messaging, monkeypatch):
        handle_next(decider, queue)
    decider.participant.relay()
    assert (decider.notes(), waiting(queue)) == (0, [b"2"])
    assert taken(queue) == [b"2"]


def test_a_block_that_fails_gives_its_items_back_with_their_count(
    decider: Decider, queue: Queue
) -> None:
    queue.push(b"1")
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        decider.messaging.transaction(decider.participant),
    ):
        assert popped(queue).deliveries == 1
        assert 1 / 0
    assert decider.notes() == 0
    with decider.messaging.transaction(decider.participant):
        job = popped(queue)
        decider.handle(job.payload)
        assert job.deliveries == 2
    assert decider.rows() == ["1"]


def test_a_job_that_is_rolled_back_in_its_block_comes_again(
    decider: Decider, queue: Queue
) -> None:
    queue.push_all([b"1", b"2"])
    with decider.messaging.transaction(decider.participant):
        popped(queue).rollback()
        decider.handle(popped(queue).payload)
    assert decider.notes() == 1
    assert len(handle_next(decider, queue, n=5)) == 1
    assert sorted(decider.rows()) == ["1", "2"]


def test_a_job_of_a_savepoint_that_is_rolled_back_comes_again(
    decider: Decider, queue: Queue
) -> None:
    queue.push_all([b"1", b"2"])
    with decider.messaging.transaction(decider.participant):
        decider.handle(popped(queue).payload)
        decider.execute("SAVEPOINT mine")
        decider.handle(popped(queue).payload)
        decider.execute("ROLLBACK TO SAVEPOINT mine")
    assert (decider.rows(), waiting(queue)) == (["1"], [b"2"])
    assert handle_next(decider, queue) == [b"2"]
    assert decider.rows() == ["1", "2"]


def test_a_job_that_was_popped_before_the_block_ends_with_it(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push(b"1")
    with killed_behind_the_commit(decider.messaging, monkeypatch):
        job = popped(queue)
        with decider.messaging.transaction(decider.participant):
            decider.handle(job.payload)
            job.commit()
    again = popped(queue)
    with decider.messaging.transaction(decider.participant):
        assert again.was_handled()
    assert (again.is_over, queue.stats().committed, queue.stats().depth) == (True, 1, 0)
    assert decider.rows() == ["1"]


def test_a_job_that_was_handled_and_is_not_asked_for_undoes_its_block(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push(b"1")
    with killed_behind_the_commit(decider.messaging, monkeypatch):
        handle_next(decider, queue)
    again = popped(queue)
    with (  # noqa: PT012
        pytest.raises(LeaseLost, match="was handled before"),
        decider.messaging.transaction(decider.participant),
    ):
        decider.handle(again.payload)
        again.commit()
    assert (decider.rows(), queue.stats().depth) == (["1"], 0)


def test_an_item_that_nobody_handled_in_its_last_delivery_is_a_dead_letter(
    decider: Decider, queue: Queue
) -> None:
    queue.push_all([b"1", b"2"])
    for _ in range(2):
        tx = decider.messaging.coordinator.start_short()
        queue._access.queues.pop("mail", transaction=tx, has_inbox=True, limit=2)
        decider.messaging.coordinator.invalidate(tx)
    assert handle_next(decider, queue) == []
    assert (decider.rows(), decider.notes()) == ([], 0)
    letters = decider.messaging.queue("mail-dead")
    assert sorted(taken(letters)) == [b"1", b"2"]


def test_what_was_popped_before_the_database_joined_is_refused(
    decider: Decider, queue: Queue
) -> None:
    queue.push(b"1")
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="begin with that one"),
        decider.messaging.transaction() as tx,
    ):
        popped(queue)
        tx.join(decider.participant)
    assert handle_next(decider, queue) == [b"1"]


def test_notes_of_another_store_stay(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One database may be beside two stores, whose queues have the same names."""
    import txaware

    queue.push(b"1")
    with killed_behind_the_commit(decider.messaging, monkeypatch):
        handle_next(decider, queue)
    with txaware.connect("memory:") as other:
        other.create_queue("mail")
        elsewhere = Decider(decider.kind, other, decider._place)
        elsewhere.participant.relay()
        other.queue("mail").push(b"2")
        handle_next(elsewhere, other.queue("mail"))
        elsewhere.participant.relay()
        elsewhere.close()
    assert decider.notes() == 1
    assert handle_next(decider, queue) == []
    assert decider.rows() == ["1", "2"]


def test_a_file_of_some_thousand_items_does_not_grow(
    decider: Decider, queue: Queue
) -> None:
    worker = decider.another(relay=True)
    most = 0
    for _ in range(30):
        queue.push_all([b"%d" % number for number in range(100)])
        assert len(handle_next(worker, queue, n=100)) == 100
        most = max(most, decider.notes())
        assert until(lambda: decider.notes() <= 1_500)
    assert until(lambda: decider.notes() == 0)
    assert len(decider.rows()) == 3_000
    worker.close()


def test_a_worker_handles_each_job_once_with_its_rows(
    decider: Decider, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function opens the database in each thread, and again where it was lost."""
    made: list[Decider] = []

    def opened() -> Any:
        made.append(decider.another())
        made[-1].participant.decider = made[-1]
        return made[-1].participant

    def handle(job: Job, tx: Any) -> None:
        tx.participants[0].decider.handle(job.payload)

    queue.push_all([b"%d" % number for number in range(20)])
    with killed_behind_the_commit(decider.messaging, monkeypatch):
        handle_next(decider, queue, n=3)
    worker = queue.worker(
        handle, threads=3, transaction=True, participants=[opened], idle_wait_s=0.05
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert until(lambda: queue.stats().committed == 20)
    worker.close()
    thread.join()
    assert len(made) == 3
    assert sorted(map(int, decider.rows())) == [*range(20)]
    for one in made:
        one.close()


def test_a_connection_that_a_worker_cannot_have_is_one_sentence(
    decider: Decider, queue: Queue, tmp_path: Path
) -> None:
    def handle(job: Job, tx: object) -> None:
        decider.handle(job.payload)

    given: dict[str, Any] = {"transaction": True}
    with pytest.raises(BadRequest, match="give a function that opens one"):
        queue.worker(handle, threads=2, participants=[decider.participant], **given)
    queue.worker(handle, participants=[decider.participant], **given).close()
    own = sqlite3.connect(tmp_path / "own.db")
    shop = participants.sqlite(decider.messaging, own, relay=False)
    with pytest.raises(BadRequest, match="check_same_thread=False"):
        queue.worker(handle, participants=[shop], **given)
    own.close()
