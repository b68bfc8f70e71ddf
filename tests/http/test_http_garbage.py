"""Requests leave nothing to the collector of garbage, which a server runs rarely."""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import txaware
from coordinator.embedded.group_commit import End
from coordinator.embedded.open_transactions import OpenTransaction
from tests.support.concurrency import until
from tests.support.http_raw import Served, serving
from txaware.errors import TopicNotFound
from txaware.messaging import Messaging
from txaware.server.direct_lane import DirectRequest
from txaware.server.exchange import Request
from txaware.server.frame_request import FrameRequest, RequestStream

KINDS = (DirectRequest, FrameRequest, RequestStream, Request, End, OpenTransaction)
TIMES = 20
# More bytes than the event loop reads by itself, and more than one piece of a frame.
LARGE = bytes(200_000)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as here:
        here.messaging.create_queue("mail")
        yield here


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> list[object]:
    """What is in memory of requests and transactions."""
    return [one for one in gc.get_objects() if type(one) in KINDS]


def commits(messaging: Messaging) -> None:
    with messaging.transaction():
        messaging.publisher("t").publish(b"a")


def rolls_back(messaging: Messaging) -> None:
    with suppress(KeyError), messaging.transaction():
        messaging.publisher("t").publish(b"a")
        raise KeyError


def works_off(messaging: Messaging) -> None:
    queue = messaging.queue("mail")
    queue.push(b"a")
    job = queue.pop()
    assert job is not None
    job.commit()


def is_refused(messaging: Messaging) -> None:
    with pytest.raises(TopicNotFound):
        messaging.poll("nowhere")
    with pytest.raises(TopicNotFound):
        messaging.topic("nowhere")


CALLS: dict[str, Callable[[Messaging], object]] = {
    "commit": commits,
    "rollback": rolls_back,
    "job": works_off,
    "refusal": is_refused,
    "publish": lambda messaging: messaging.publish("t", [b"a"]),
    "large publish": lambda messaging: messaging.publish("t", [LARGE]),
    "poll": lambda messaging: messaging.poll("t", limit=3),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_what_a_request_had_is_free_when_it_is_answered(
    served: Served, call: str, frames: bool
) -> None:
    with txaware.connect(served.server.url, frames=frames) as messaging:
        for _ in range(TIMES):
            CALLS[call](messaging)
        assert until(lambda: len(left()) < TIMES)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("way", ["memory:", "leveldb:"])
def test_an_embedded_transaction_is_free_when_it_has_ended(
    way: str, tmp_path: object
) -> None:
    url = way if way == "memory:" else f"{way}{tmp_path}/d"
    with txaware.connect(url) as messaging:
        messaging.create_topic("t")
        for _ in range(TIMES):
            commits(messaging)
        assert len(left()) < TIMES
