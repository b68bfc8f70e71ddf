"""The thread of a member: what it says, what it keeps, and when it gives up."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from txaware.consume.heartbeats import Heartbeats
from txaware.errors import MemberFenced, Unavailable
from txaware.model.groups import Beat, Joined, NamedPartition, PartitionPosition

ORDERS = NamedPartition("orders", 0)
GOT = PartitionPosition("orders", 0)


class Group:
    """Answers heartbeats one by one, as the test says, and keeps what was said."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.left: list[str] = []
        self._answers: list[Beat | Exception] = []
        self._changed = threading.Condition()

    def heartbeat(self, _: str, __: str, **said: Any) -> Beat:
        with self._changed:
            self.asked.append(said)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: bool(self._answers), timeout=20)
            answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave_group(self, _: str, member: str, *, incarnation: int) -> None:
        self.left.append(f"{member} {incarnation}")

    def answer(self, answer: Beat | Exception) -> None:
        with self._changed:
            self._answers.append(answer)
            self._changed.notify_all()

    def said(self, count: int) -> dict[str, Any]:
        """Waits for the heartbeat of that number."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, timeout=20)
            return self.asked[count - 1]


class Clock:
    """Stands still until it is told otherwise."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beats(group: Group, clock: Clock) -> Iterator[Heartbeats]:
    port: Any = group
    found = Heartbeats(port, "billing", poll_interval_s=300, clock_s=clock)
    found.joined(Joined("a", 7, 1, 3000, [GOT]), ())
    yield found
    found.close()
    group.answer(MemberFenced("it left"))


def news_of(beats: Heartbeats) -> Any:
    with beats.changed:
        assert beats.changed.wait_for(lambda: beats.news is not None, timeout=20)
        return beats.news


def test_while_news_waits_heartbeats_do_not(group: Group, beats: Heartbeats) -> None:
    first = group.said(1)
    assert first["wait_s"] == 0
    assert (first["generation"], first["owned"]) == (0, ())
    beats.took_up(news_of(beats), [ORDERS])
    group.answer(Beat(1, [GOT], [], []))  # it knows nothing of what was taken up
    second = group.said(2)
    assert (second["generation"], second["owned"]) == (1, (ORDERS,))
    assert second["wait_s"] == 3
    assert beats.news is None


def test_news_that_came_while_others_were_taken_up_comes_again(
    group: Group, beats: Heartbeats
) -> None:
    taken = news_of(beats)
    group.said(1)
    group.answer(Beat(1, [GOT], [], [GOT]))
    with beats.changed:
        assert beats.changed.wait_for(lambda: beats.news is not taken, timeout=20)
    beats.took_up(taken, [ORDERS])
    # Rewinds are told once, and are kept.
    assert news_of(beats).rewound == (GOT,)
    assert news_of(beats).assign == ()
    beats.took_up(news_of(beats), [ORDERS])
    assert group.said(2)["generation"] == 1


def test_a_rewind_is_news_though_something_was_taken_up_meanwhile(
    group: Group, beats: Heartbeats
) -> None:
    group.said(1)
    beats.took_up(news_of(beats), [ORDERS])
    group.answer(Beat(1, [GOT], [], [GOT]))
    group.said(2)
    news = news_of(beats)
    assert (news.rewound, news.assign, news.generation) == ((GOT,), (), 1)
    beats.took_up(news, [ORDERS])
    assert beats.news is None


def test_a_generation_alone_is_no_news(group: Group, beats: Heartbeats) -> None:
    group.said(1)
    beats.took_up(news_of(beats), [ORDERS])
    group.answer(Beat(1, [GOT], [], []))
    group.said(2)
    group.answer(Beat(5, [], [], []))
    assert group.said(3)["generation"] == 5
    assert beats.news is None


def test_an_error_of_the_way_is_no_end(group: Group, beats: Heartbeats) -> None:
    group.said(1)
    beats.took_up(news_of(beats), [ORDERS])
    group.answer(Unavailable("away"))
    group.said(2)
    assert beats.fenced is None


def test_a_fence_stops_the_heartbeats_until_it_joins_anew(
    group: Group, beats: Heartbeats
) -> None:
    group.said(1)
    group.answer(MemberFenced("over"))
    with beats.changed:
        assert beats.changed.wait_for(lambda: beats.fenced is not None, timeout=20)
    assert len(group.asked) == 1
    beats.joined(Joined("a", 8, 2, 3000, []), ())
    assert group.said(2)["incarnation"] == 8


def test_who_does_not_poll_lets_go(
    group: Group, beats: Heartbeats, clock: Clock
) -> None:
    group.said(1)
    beats.took_up(news_of(beats), [ORDERS])
    beats.polls(is_polling=False)
    clock.now_s = 301
    group.answer(Beat(1, [], [], []))
    with beats.changed:
        assert beats.changed.wait_for(lambda: beats.fenced is not None, timeout=20)
    assert group.left == ["a 7"]
    assert "not polled for 300 s" in str(beats.fenced)
