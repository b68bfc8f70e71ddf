"""What a queue does for poppers with an inbox: lost items wait, handled ones end."""

import pytest

from tests.support.messagings import Site
from tests.support.queues import made, popped, waiting
from txaware.errors import BadRequest
from txaware.model.messages import MessageId
from txaware.model.queue_service import QueueService
from txaware.model.queues import Popped
from txaware.service.queue.pipe import Item
from txaware.service.queue.pipe_reader import PipeReader


def service_of(site: Site) -> QueueService:
    return site.messaging._queue_service


def lost(site: Site, *, has_inbox: bool = True, limit: int = 10) -> list[Popped]:
    """Items that were popped in a transaction which then timed out."""
    tx = site.messaging.coordinator.start_short(5)
    found = service_of(site).pop(
        "mail", transaction=tx, has_inbox=has_inbox, limit=limit
    )
    site.messaging.coordinator.invalidate(tx)
    return found


def test_an_item_that_may_be_handled_waits_again_however_often_it_came(
    site: Site,
) -> None:
    site.messaging.create_queue("mail", max_deliveries=2)
    queue = site.messaging.queue("mail")
    queue.push_all([b"a", b"b"])
    for deliveries in (1, 2, 3):
        found = lost(site)
        assert [one.deliveries for one in found] == [deliveries] * 2
    assert queue.stats().depth == 2
    popped(queue).rollback()
    assert [job.payload for job in lost_letters(site)] == [b"a"]
    lost(site, has_inbox=False)
    assert [job.payload for job in lost_letters(site)] == [b"b"]


def lost_letters(site: Site) -> list[Popped]:
    for _ in range(2):  # the first finds them dying, the second buries them
        site.messaging.queue("mail").stats()
    return service_of(site).pop("mail-dead", limit=10)


def test_an_item_that_may_be_handled_waits_through_a_crash(lasting: Site) -> None:
    lasting.messaging.create_queue("mail", max_deliveries=1)
    lasting.messaging.queue("mail").push_all([b"a", b"b"])
    tx = lasting.messaging.coordinator.start_short()
    service_of(lasting).pop("mail", transaction=tx, has_inbox=True, limit=2)
    for _ in range(2):  # from the lease, and from what it became
        lasting.crash()
        assert waiting(lasting.messaging.queue("mail")) == [b"a", b"b"]


def test_items_that_were_handled_end_wherever_they_are(site: Site) -> None:
    queue, service = made(site.messaging), service_of(site)
    queue.push_all([b"a", b"b", b"c"])
    ids = [one.id for one in lost(site)]
    tx = site.messaging.coordinator.start_short()
    [mine] = service.pop("mail", transaction=tx)
    theirs = popped(queue)
    queue.push(b"d")
    unread = queue.peek()[-1]
    assert {mine.id, theirs.id} < {*ids}
    asked = [*ids, unread.id, "0" * 64]
    left = service.end_handled("mail", asked, transaction=tx)
    assert sorted(left) == sorted([theirs.id, unread.id])
    service.release_jobs("mail", tx)
    site.messaging.coordinator.abort(tx)
    theirs.rollback()
    assert service.end_handled("mail", asked) == [unread.id]
    stats = queue.stats()
    assert (waiting(queue), stats.committed, stats.depth) == ([b"d"], 3, 1)


def test_items_that_were_handled_stay_away_after_a_crash(lasting: Site) -> None:
    queue = made(lasting.messaging)
    queue.push_all([b"a", b"b"])
    [found] = lost(lasting, limit=1)
    assert service_of(lasting).end_handled("mail", [found.id]) == []
    messaging = lasting.crash()
    assert waiting(messaging.queue("mail")) == [b"b"]


@pytest.mark.in_process
def test_an_item_that_ended_is_gone_though_its_row_is_still_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the batch that deletes what a transaction has popped."""
    queue = made(site.messaging)
    queue.push_all([b"a", b"b"])
    job = popped(queue)
    job.commit()
    row = Item(MessageId(bytes(20)), b"a")
    monkeypatch.setattr(PipeReader, "look", lambda *_: row)
    assert service_of(site).end_handled("mail", [job.id]) == []


def test_no_two_items_have_one_id(site: Site) -> None:
    """The clock stands, so that a place in a pipe may come again."""
    queue = made(site.messaging)
    queue.push(b"a")
    first = popped(queue)
    queue.truncate()
    queue.push(b"a")
    second = popped(queue)
    assert first.id != second.id
    assert service_of(site).end_handled("mail", [first.id]) == []
    second.commit()


def test_ids_that_are_none_are_one_sentence(site: Site) -> None:
    made(site.messaging)
    with pytest.raises(BadRequest, match="is no job's id"):
        service_of(site).end_handled("mail", ["x"])
    with pytest.raises(BadRequest, match="are more than"):
        service_of(site).end_handled("mail", ["0" * 64] * 10_001)
