"""One batch function that publishes twice to one topic: with names, or refused."""

from typing import Any

import pytest

import txaware
from tests.support.spark_frames import Frame, Session
from txaware.errors import BadRequest
from txaware.messaging import Messaging, MessagingTransaction
from txaware.spark import once_per_batch

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def new_run() -> None:
    """A thread of a query that has done nothing yet."""
    Session.begin()


def run(messaging: Messaging, row: bytes, batch_id: int, **options: Any) -> None:
    def work(frame: Any, tx: MessagingTransaction) -> None:
        tx.messaging.publisher("t").publish(frame.payloads[0])

    frame: Any = Frame(row)
    once_per_batch(messaging, "t", work, **options)(frame, batch_id)


def test_the_second_is_refused_and_not_dropped() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        run(messaging, b"good", 0)
        with pytest.raises(BadRequest, match="twice in one run"):
            run(messaging, b"bad", 0)


def test_each_with_a_name_is_published_once() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        for _ in range(2):  # the second one repeats the batch, after a crash
            Session.begin()
            run(messaging, b"good", 0, name="good")
            run(messaging, b"bad", 0, name="bad")
        page = messaging.consumer("t").poll()
        assert [message.payload for message in page] == [b"good", b"bad"]
