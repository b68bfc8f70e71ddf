"""A forked child that uses what its parent made is told so, and never hangs."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.forks import forks_with_threads
from tests.support.messagings import Site, payloads
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import PublisherClosed, Unavailable

pytestmark = forks_with_threads
PATIENCE_S = 60

Call = Callable[[], object]


def refusals(calls: dict[str, Call]) -> dict[str, str]:
    """What each call raises in a forked child; a child that hangs is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        try:
            os.write(writing, "".join(map(refusal, calls.values())).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        told = answers.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0, told
    return dict(zip(calls, told, strict=True))


def refusal(call: Call) -> str:
    try:
        answer = call()
    except (Unavailable, PublisherClosed) as error:
        return f"{error}\n"
    except BaseException as error:
        return f"raised {error!r}\n"
    return f"answered {answer!r}\n"


@contextmanager
def held(*locks: Any) -> Iterator[None]:
    """Locks that another thread holds, which is not there in a child."""
    is_held, over = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        is_held.set()
        over.wait(PATIENCE_S)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(PATIENCE_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_every_call_of_a_child_is_refused_whatever_its_parent_was_doing(
    site: Site,
) -> None:
    m = site.messaging
    m.create_topic("t")
    publisher, direct = m.publisher("t"), m.direct_publisher("t")
    consumer, group = m.consumer("t"), m.consumer("t", group="g")
    subscriber = m.subscribe("t", print, group="g")
    context = m.transaction()
    coordinator, administration, service = m.coordinator, m.administration, m._service
    calls: dict[str, Call] = {
        "create": lambda: m.create_topic("u"),
        "publish": lambda: m.publish("t", [b"child"]),
        "poll": lambda: m.poll("t"),
        "position": lambda: m.position("g", "t"),
        "transaction": lambda: m.transaction(),
        "begin": context.start,
        "publisher": lambda: m.publisher("t"),
        "known publisher": lambda: publisher.publish(b"child"),
        "direct": lambda: direct.publish(b"child"),
        "consumer": lambda: consumer.poll(),
        "group": lambda: group.commit(),
        "subscriber": lambda: subscriber.run_once(),
        "run": lambda: subscriber.run(),
        "close subscriber": lambda: subscriber.close(),
        "coordinator": lambda: m.coordinator,
        "known coordinator": lambda: coordinator.start_short(),
        "snapshot": lambda: coordinator.snapshot(),
        "known service": lambda: service.topics(),
        "administration": lambda: administration.metrics(),
        "clean up": lambda: m.clean_up(),
        "serve": lambda: m.serve(),
        "close": lambda: m.close(),
        "exit": lambda: m.__exit__(None, None, None),
        "enter": lambda: m.__enter__(),
    }
    embedded = site.embedded
    locks = [getattr(embedded.coordinator, "_lock")]  # noqa: B009
    with held(*locks):
        told = refusals(calls)
    wrong = {
        name: text
        for name, text in told.items()
        if f"belongs to process {os.getpid()}, which forked" not in text
    }
    assert wrong == {}
    m.publish("t", [b"parent"])
    assert payloads(m.poll("t")) == [b"parent"]


def test_a_block_that_a_child_inherits_is_its_parent_s(site: Site) -> None:
    m = site.messaging
    m.create_topic("t")
    publisher = m.publisher("t")
    with m.transaction() as tx:
        publisher.publish(b"parent")
        told = refusals(
            {
                "publish": lambda: publisher.publish(b"child"),
                "finish": lambda: tx.finish(),
                "abort": lambda: tx.abort(),
                "exit": lambda: tx.__exit__(None, None, None),
                "transaction": lambda: tx.transaction,
            }
        )
        assert all("which forked" in text for text in told.values()), told
    assert payloads(m.poll("t", isolation="committed")) == [b"parent"]


def test_a_child_may_connect_anew(site: Site) -> None:
    m = site.messaging
    m.create_topic("t")

    def anew() -> object:
        with txaware.connect("memory:") as own:
            own.create_topic("c")
            with own.transaction():
                own.publisher("c").publish(b"child")
            return payloads(own.poll("c"))

    with m.transaction():
        told = refusals({"anew": anew, "shown": lambda: repr(m)})
    assert told == {
        "anew": "answered [b'child']",
        "shown": f"answered '<Messaging of process {os.getpid()}, which forked>'",
    }


def test_background_publishers_of_a_parent_take_nothing(site: Site) -> None:
    m = site.messaging
    m.create_topic("t")
    publisher, quick = m.async_publisher("t"), m.at_most_once_publisher("t")
    told = refusals(
        {
            "publish": lambda: publisher.publish(b"child"),
            "flush": lambda: publisher.flush(),
            "at most once": lambda: quick.publish(b"child"),
            "made": lambda: m.async_publisher("t"),
        }
    )
    assert all("fork" in text for text in told.values()), told
    assert not any(text.startswith(("raised", "answered")) for text in told.values())


def test_a_coordinator_alone_is_its_process_s_too(tmp_path: Path) -> None:
    for opened in (EmbeddedCoordinator(), EmbeddedCoordinator.open(tmp_path)):
        with held(opened._lock):
            told = refusals({"start": opened.start_short, "close": opened.close})
        assert "which forked" in told["close"]
        assert "which forked" in told["start"]
        opened.close()


def test_the_asyncio_client_of_a_parent_is_refused() -> None:
    client = connect_async("http://127.0.0.1:1")
    told = refusals(
        {
            "topics": lambda: client.topics(),
            "transaction": lambda: client.transaction(),
            "close": lambda: client.close(),
        }
    )
    assert all("which forked" in text for text in told.values()), told


CHILD_THAT_ENDS = """
import os, sys, txaware
with txaware.connect("leveldb:" + sys.argv[1]) as messaging:
    messaging.create_topic("t")
    kept = [messaging.publisher("t"), messaging.consumer("t"), messaging.coordinator]
    messaging.publish("t", [b"0"])
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 256, "the child"
        messaging.publish("t", [b"1"])
        print([message.payload for message in messaging.poll("t")])
"""


def test_a_child_that_comes_to_its_end_leaves_the_data_to_its_parent(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CHILD_THAT_ENDS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.stdout == "[b'0', b'1']\n", ended.stderr
    assert ended.stderr.count("Traceback") == 1
    assert "which forked" in ended.stderr.splitlines()[-1]
