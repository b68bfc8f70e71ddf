"""No pipe takes more items than its limit, however many are pushed at once."""

from contextlib import suppress
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txaware
from tests.support.concurrency import in_threads
from tests.support.messagings import Site
from tests.support.queues import numbered, popped, taken, waiting
from txaware.errors import TooManyPipes
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.queue import Pusher, Queue

EIGHT = numbered(8)


def limited(messaging: Messaging, limit: int = 3, **settings: Any) -> Queue:
    """A new queue whose pipes take so many items."""
    messaging.create_queue("mail", max_pushes_per_pipe=limit, **settings)
    return messaging.queue("mail")


def pipes(queue: Queue) -> list[list[bytes]]:
    """What waits in each pipe, the oldest first; the id of an item begins with it."""
    found = sorted(queue.peek(10_000), key=lambda item: item.id)
    return [
        [item.payload for item in items]
        for _, items in groupby(found, lambda item: item.id[:16])
    ]


def three_each(payloads: list[bytes]) -> list[list[bytes]]:
    return [payloads[first : first + 3] for first in range(0, len(payloads), 3)]


def test_a_push_of_many_fills_pipes_as_pushes_of_one_do(site: Site) -> None:
    queue = limited(site.messaging)
    queue.push_all(EIGHT)
    assert pipes(queue) == three_each(EIGHT)
    assert (queue.stats().pipes, queue.stats().open_pipes) == (3, 1)
    queue.push(b"ninth")  # goes where there is room
    queue.push_all([b"tenth"])
    assert pipes(queue) == three_each([*EIGHT, b"ninth", b"tenth"])
    assert taken(queue) == [*EIGHT, b"ninth", b"tenth"]
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.depth) == (10, 10, 0)
    assert stats.pipes == 1


def test_pushes_of_one_transaction_fill_pipes_as_pushes_without_do(site: Site) -> None:
    queue = limited(site.messaging)
    with site.messaging.transaction():
        queue.push(EIGHT[0])
        queue.push_all(EIGHT[1:6])
        for payload in EIGHT[6:]:
            queue.push(payload)
    assert pipes(queue) == three_each(EIGHT)
    with site.messaging.transaction():
        queue.push(b"ninth")
    assert pipes(queue) == three_each([*EIGHT, b"ninth"])
    assert taken(queue) == [*EIGHT, b"ninth"]


def test_a_transaction_that_is_rolled_back_leaves_room(site: Site) -> None:
    queue = limited(site.messaging)
    with queue.pusher() as pusher:
        with suppress(ZeroDivisionError), site.messaging.transaction():
            pusher.push_all(EIGHT)
            raise ZeroDivisionError
        assert waiting(queue) == []
        pusher.push_all(EIGHT)
        assert taken(queue) == EIGHT


def test_open_transactions_of_one_pusher_share_no_room(site: Site) -> None:
    queue, coordinator = limited(site.messaging), site.messaging.coordinator
    queues = site.messaging._queue_service
    open_ones = [coordinator.start_short() for _ in range(3)]
    shares = [
        queues.pipes_for("mail", 2, transaction=tx, pusher="p") for tx in open_ones
    ]
    for tx, of_one, items in zip(open_ones, shares, ("ab", "cd", "ef"), strict=True):
        sent = iter(items.encode())
        for share in of_one:
            payloads = [bytes([next(sent)]) for _ in range(share.items)]
            site.messaging.publish(share.pipe, payloads, transaction=tx)
        coordinator.can_commit(tx, ())
        coordinator.commit(tx)
    assert sorted(map(len, pipes(queue))) == [3, 3]
    assert sorted(taken(queue)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_transaction_that_pushes_one_by_one_asks_seldom_for_pipes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, asked = limited(site.messaging, 100), list[int]()
    queues = site.messaging._queue_service
    pipes_for = queues.pipes_for

    def counted(name: str, items: int, **options: object) -> object:
        asked.append(items)
        return pipes_for(name, items, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(queues, "pipes_for", counted)
    with site.messaging.transaction():
        for payload in numbered(250):
            queue.push(payload)
    assert [len(pipe) for pipe in pipes(queue)] == [100, 100, 50]
    assert len(asked) < 30


def test_each_commit_leaves_the_room_that_it_did_not_use(site: Site) -> None:
    queue = limited(site.messaging, 10)
    for payload in numbered(30):
        with site.messaging.transaction():
            queue.push(payload)
    assert [len(pipe) for pipe in pipes(queue)] == [10, 10, 10]
    assert taken(queue) == numbered(30)


@pytest.mark.parametrize("order", ["strict", "key"])
def test_one_pipe_for_all_has_no_limit(site: Site, order: str) -> None:
    queue = limited(site.messaging, order=order)
    queue.push_all(EIGHT)
    with site.messaging.transaction():
        queue.push_all(numbered(8, "t"))
    assert pipes(queue) == [EIGHT + numbered(8, "t")]


def test_items_that_are_due_together_have_one_pipe(site: Site) -> None:
    queue = limited(site.messaging)
    queue.push_all(EIGHT, delay_s=5)
    site.clock.advance_s(10)
    assert pipes(queue) == [EIGHT]


def test_keys_headers_and_expiry_go_with_their_items(site: Site) -> None:
    queue = limited(site.messaging, 2)
    queue.push_all(
        [
            b"plain",
            Outgoing(b"keyed", key=b"k"),
            Outgoing(b"headed", headers={"h": b"v"}),
            Outgoing(b"gone", expire_after_s=5),
            Outgoing(b"last", key=b"l", headers={"i": b"w"}),
        ]
    )
    site.clock.advance_s(6)
    jobs = [popped(queue) for _ in range(4)]
    assert [(job.payload, job.key, dict(job.headers)) for job in jobs] == [
        (b"plain", None, {}),
        (b"keyed", b"k", {}),
        (b"headed", None, {"h": b"v"}),
        (b"last", b"l", {"i": b"w"}),
    ]
    assert queue.pop() is None


@pytest.fixture
def narrow(site: Site) -> Site:
    """A store whose queues have three pipes at most."""
    site.open(max_pipes_per_queue=3)
    return site


def test_a_push_that_needs_too_many_pipes_pushes_nothing(narrow: Site) -> None:
    messaging = narrow.messaging
    queue = limited(messaging)
    with queue.pusher() as pusher:
        pusher.push(b"first")
        with pytest.raises(TooManyPipes, match="nothing was pushed"):
            pusher.push_all(numbered(9))
        assert waiting(queue) == [b"first"]
        with messaging.transaction():
            with pytest.raises(TooManyPipes, match="max_pipes_per_queue is 3"):
                pusher.push_all(numbered(9))
            pusher.push(b"second")
        assert pipes(queue) == [[b"first", b"second"]]
        pusher.push_all(EIGHT[:7])  # exactly as many as there is room for
        assert taken(queue) == [b"first", b"second", *EIGHT[:7]]


def test_pushes_of_many_threads_as_one_pusher_keep_the_limit(site: Site) -> None:
    queue = limited(site.messaging)
    pusher: Pusher = queue.pusher()

    def push(name: int) -> None:
        for number in range(0, 12, 4):
            pusher.push_all([b"%d-%02d" % (name, number + one) for one in range(4)])

    in_threads(push, range(6))
    assert max(len(pipe) for pipe in pipes(queue)) <= 3
    found = taken(queue)
    for name in range(6):
        mine = [item for item in found if item.startswith(b"%d-" % name)]
        assert mine == [b"%d-%02d" % (name, number) for number in range(12)]


def test_a_peek_and_a_pop_name_an_item_alike(site: Site) -> None:
    queue = limited(site.messaging)
    queue.push_all(EIGHT)
    seen = {item.payload: item.id for item in queue.peek(10)}
    assert seen == {job.payload: job.id for job in queue.pop_many(10)}


NAMES = st.sampled_from(("ann", "bob"))
SIZES = st.integers(1, 9)
ACTS = st.one_of(
    st.tuples(st.just("push"), NAMES, SIZES),
    st.tuples(st.just("push within"), NAMES, SIZES),
    st.tuples(st.just("push one by one"), NAMES, SIZES),
    st.tuples(st.just("give up"), NAMES, SIZES),
    st.tuples(st.just("pop"), NAMES, SIZES),
)


class GivesUp(Exception):
    """The error of a transaction that is rolled back."""


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 5), st.lists(ACTS, max_size=30))
def test_pushers_fill_no_pipe_and_keep_their_order(
    limit: int, acts: list[tuple[str, str, int]]
) -> None:
    with txaware.connect("memory:") as messaging:
        queue = limited(messaging, limit)
        pushers = [queue.pusher_of(name) for name in ("ann", "ann", "bob")]
        pushed: dict[str, list[bytes]] = {"ann": [], "bob": []}
        found: list[bytes] = []
        for number, (act, name, size) in enumerate(acts):
            pusher = pushers[2 if name == "bob" else number % 2]
            items = numbered(size, f"{name} {number}.")
            if act == "push":
                pusher.push_all(items)
            elif act == "push one by one":
                for item in items:
                    pusher.push(item)
            elif act == "push within":
                with messaging.transaction():
                    pusher.push(items[0])
                    pusher.push_all(items[1:])
            elif act == "give up":
                with suppress(GivesUp), messaging.transaction():
                    pusher.push_all(items)
                    raise GivesUp
            else:
                found += taken(queue, size)
            if act.startswith("push"):
                pushed[name] += items
            assert all(len(pipe) <= limit for pipe in pipes(queue))
            assert sum(map(len, pipes(queue))) + len(found) == sum(
                map(len, pushed.values())
            )
        found += taken(queue)
        for name, items in pushed.items():
            assert [one for one in found if one.startswith(name.encode())] == items
        stats = queue.stats()
        assert (stats.pushed, stats.committed) == (len(found), len(found))
