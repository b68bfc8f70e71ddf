"""How publishing in the background ends: flush, close, exit; and at most once."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from coordinator.errors import Unavailable
from tests.support.background import PATIENCE_S, Setting, done
from tests.support.doubles import failing, lost
from tests.support.forks import printed_by_forking
from txaware.errors import (
    NotWritten,
    PublisherClosed,
)
from txaware.publish import Sent
from txaware.publish.background_publishers import AsyncPublisher


@pytest.fixture
def here() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.close()


# The end


def test_a_flush_that_takes_too_long_says_so(here: Setting) -> None:
    publisher, gate = here.busy()
    assert not publisher.flush(timeout_s=0.001)
    gate.open.set()
    assert publisher.flush(PATIENCE_S)


def test_a_flush_waits_for_failures_too_and_does_not_raise_them(
    here: Setting,
) -> None:
    here.service.instead["publish"] = failing(OSError("x"))
    publisher = here.publisher()
    future = publisher.publish(b"1")
    assert publisher.flush(PATIENCE_S)
    assert isinstance(future.exception(0), OSError)


def test_a_flush_of_nothing_returns_at_once(here: Setting) -> None:
    assert here.publisher().flush(timeout_s=0)


def test_publish_after_close_is_refused(here: Setting) -> None:
    publisher = here.publisher()
    publisher.close()
    publisher.close()
    with pytest.raises(PublisherClosed):
        publisher.publish(b"1")
    assert publisher.flush()
    assert here.batches() == []


def test_a_close_in_a_body_that_fails_loses_nothing(here: Setting) -> None:
    def publish(publisher: AsyncPublisher) -> None:
        publisher.publish(b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), here.publisher() as publisher:
        publish(publisher)
    assert here.service.published("a") == [b"1"]


def test_a_close_loses_nothing_that_was_taken_from_many_threads(
    here: Setting,
) -> None:
    publisher = here.publisher(
        batch_limit_messages=10, queue_limit_messages=50, linger_ms=1
    )
    futures: list[list[Future[Sent]]] = [[] for _ in range(8)]
    started = threading.Barrier(9, timeout=PATIENCE_S)

    def work(name: int) -> None:
        started.wait()
        while True:
            try:
                number = len(futures[name])
                futures[name].append(publisher.publish(b"%d %d" % (name, number)))
            except PublisherClosed:
                return

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    while len(here.service.calls) < 20:
        done(futures[0][-1]) if futures[0] else None
    publisher.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    published = here.service.published("a")
    assert len(published) == sum(map(len, futures))
    for name, taken in enumerate(futures):
        assert all(future.done() for future in taken)
        mine = [message for message in published if message.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(len(taken))]


def test_a_forgotten_publisher_is_published_to_its_end(here: Setting) -> None:
    gate = here.gate()
    publisher = AsyncPublisher(here.service, "a", message_limit_bytes=100)
    thread, seen = publisher._background.thread, weakref.ref(publisher)
    futures = [publisher.publish(b"%d" % number) for number in range(3)]
    del publisher
    gc.collect()
    assert seen() is None
    gate.open.set()
    for future in futures:
        done(future)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


EXIT = """
import logging, time
from tests.support.fake_service import FakeService
from txaware.errors import Unavailable
from txaware.publish import background, {kind}

class Printing(FakeService):
    def publish(self, topic, messages, **options):
        if "{weather}" == "outage":
            raise Unavailable("away")
        time.sleep(0.05)  # an exit that does not wait comes before
        print(*(message.decode() for message in messages), flush=True)

    publish_once = publish  # as an AsyncPublisher publishes

logging.basicConfig()
background.EXIT_WAIT_S = 0.2 if "{weather}" == "outage" else 30
publisher = {kind}(Printing("a"), "a", message_limit_bytes=100, linger_ms=60_000)
for number in range(3):
    publisher.publish(b"%d" % number)
"""


@pytest.mark.parametrize("then", ["", "del publisher"])
@pytest.mark.parametrize("kind", ["AsyncPublisher", "AtMostOncePublisher"])
def test_the_exit_of_a_program_publishes_what_waits(kind: str, then: str) -> None:
    program = EXIT.format(kind=kind, weather="sun") + then
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 1 2\n", "")


def test_an_outage_does_not_hang_the_exit_of_a_program() -> None:
    program = EXIT.format(kind="AsyncPublisher", weather="outage")
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0
    assert "3 messages to a were lost" in ended.stderr


FORK = """
import os, sys, threading
from tests.support.fake_service import FakeService
from txaware.errors import PublisherClosed
from txaware.publish import AsyncPublisher

publisher = AsyncPublisher(
    FakeService("a"), "a", message_limit_bytes=100, linger_ms=60_000
)
publisher.publish(b"0")
held, over = threading.Event(), threading.Event()

def hold():
    with publisher._background.lock:
        held.set()
        over.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    for call in (lambda: publisher.publish(b"1"), publisher.flush):
        try:
            call()
        except PublisherClosed as error:
            print("after the fork" in str(error), flush=True)
    publisher.close()
    sys.exit(0)
over.set()
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_is_told_that_the_thread_stayed_behind() -> None:
    assert printed_by_forking(FORK) == ("True\nTrue\n0\n", "")


def test_a_closed_publisher_leaves_nothing_behind(here: Setting) -> None:
    publisher = AsyncPublisher(here.service, "a", message_limit_bytes=100)
    seen = weakref.ref(publisher._background.machine)
    publisher.close()
    del publisher
    gc.collect()
    assert seen() is None


def test_its_repr_says_how_much_waits(here: Setting) -> None:
    publisher, _ = here.busy()
    assert repr(publisher) == "<AsyncPublisher of a, 1 waiting>"


# At most once


def test_at_most_once_publishes_in_the_background(here: Setting) -> None:
    with here.at_most_once() as publisher:
        assert publisher.publish(b"1") is None
    assert here.service.published("a") == [b"1"]
    assert publisher.dropped == 0


def test_at_most_once_drops_and_counts_what_finds_no_room(here: Setting) -> None:
    gate, publisher = here.gate(), here.at_most_once(queue_limit_messages=2)
    publisher.publish(b"0")
    assert gate.came.wait(PATIENCE_S)
    for number in range(1, 5):
        publisher.publish(b"%d" % number)
    assert publisher.dropped == 3
    gate.open.set()
    publisher.close()
    assert here.service.published("a") == [b"0", b"1"]
    assert repr(publisher) == "<AtMostOncePublisher of a, 0 waiting, 3 dropped>"


def test_at_most_once_never_repeats_what_may_be_written(here: Setting) -> None:
    here.service.instead["publish"] = lost(Unavailable("cut"))
    with here.at_most_once() as publisher:
        publisher.publish(b"1")
    assert here.service.published("a") == [b"1"]
    assert publisher.dropped == 1


def test_at_most_once_tries_a_little_after_a_definite_no(here: Setting) -> None:
    answers = iter([failing(NotWritten("full"))] * 2 + [lambda write: write()])
    here.service.instead["publish"] = lambda write: next(answers)(write)
    with here.at_most_once() as publisher:
        publisher.publish(b"1")
    assert here.service.published("a") == [b"1"]
    assert publisher.dropped == 0


def test_at_most_once_gives_up_soon(here: Setting) -> None:
    here.service.instead["publish"] = failing(NotWritten("full"))
    with here.at_most_once() as publisher:
        publisher.publish(b"1")
        assert publisher.flush(PATIENCE_S)
        assert publisher.dropped == 1
    assert len(here.batches()) == 3


def test_at_most_once_counts_every_message_of_a_lost_batch(here: Setting) -> None:
    gate, publisher = here.gate(), here.at_most_once()
    publisher.publish(b"0")
    assert gate.came.wait(PATIENCE_S)
    publisher.publish(b"1")
    publisher.publish(b"2")
    here.service.instead["publish"] = failing(OSError("x"))
    gate.open.set()
    publisher.flush(PATIENCE_S)
    assert publisher.dropped == 2


def test_at_most_once_takes_nothing_after_its_close(here: Setting) -> None:
    publisher = here.at_most_once()
    publisher.close()
    with pytest.raises(PublisherClosed):
        publisher.publish(b"1")
