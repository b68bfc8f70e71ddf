"""Orders, messages and items of an outbox, while its processes are killed at random."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.deciders import DATABASES
from tests.support.mysql import MysqlServer
from tests.support.outbox_load import EVERY, connection_to, participant_of
from tests.support.postgres import PostgresServer
from tests.support.python_process import PythonProcess
from tests.support.queues import taken
from txaware.messaging import Messaging

ROOT = Path(__file__).parents[2]
STARTS_S = 60
ROLES = ("shop", "relay", "relay", "retry")


class Process:
    """A process of one role, which is started anew after each kill."""

    def __init__(self, role: str, url: str, database: str) -> None:
        self.lives = 0
        self._command = [
            *(sys.executable, "-m", "tests.support.outbox_load"),
            *(role, url, database),
        ]
        self.start()

    def start(self) -> None:
        """Starts it."""
        self.lives += 1
        self._child = PythonProcess(
            [*self._command, str(self.lives)], cwd=ROOT, stdout=subprocess.PIPE
        )

    def wait(self) -> None:
        """Returns when it works."""
        assert self._child.stdout is not None
        assert self._child.stdout.readline(), "it does not begin"

    def kill(self) -> None:
        """Returns when it is gone."""
        self._child.send_signal(signal.SIGKILL)
        self._child.wait(STARTS_S)
        assert self._child.stdout is not None
        self._child.stdout.close()


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of the shop's database."""
    if request.param == "sqlite":
        yield str(tmp_path / "shop.db")
        return
    server = {"postgres": PostgresServer, "mysql": MysqlServer}[request.param]()
    yield server.url
    server.close()


@pytest.mark.parametrize(
    "kills", [4, pytest.param(100, marks=pytest.mark.soak, id="many")]
)
def test_orders_messages_and_items_are_the_same_each_once(
    database: str, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(kills)
    with ExitStack() as stack:
        owner = stack.enter_context(txaware.connect(f"leveldb:{tmp_path / 'data'}"))
        for topic in ("orders", "large"):
            owner.create_topic(topic)
        owner.create_queue("mails")
        url = stack.enter_context(owner.serve()).url
        connection_to(database).close()
        running = [Process(role, url, database) for role in ROLES]
        for one in running:
            stack.callback(one.kill)
            one.wait()
        for _ in range(kills):
            time.sleep(chance.uniform(0, 0.3))  # so long it works, more or less
            victim = chance.choice(running)
            victim.kill()
            victim.start()
            victim.wait()
        assert until(lambda: len(ordered(database)) >= kills, timeout_s=STARTS_S)
        for one in running:
            one.kill()
        assert look(owner, database) >= kills


def look(owner: Messaging, database: str) -> int:
    """Carries over the rest, and compares all that is there; returns how many."""
    for pointer in owner.coordinator.snapshot().in_progress:  # nobody goes on with it
        owner.coordinator.invalidate(pointer)
    connection = connection_to(database)
    shop = participant_of(owner, connection)
    shop.relay()
    for entry in shop.outbox.set_aside():
        shop.outbox.retry(entry.topic)
    assert (shop.outbox.waiting(), shop.outbox.set_aside()) == (0, [])
    connection.close()
    orders = sorted(ordered(database), key=place)
    assert read(owner, "orders") == orders
    assert [
        item.decode() for item in taken(owner.queue("mails"), len(orders) + 1)
    ] == orders
    large = [name.partition(" ")[0] for name in read(owner, "large")]
    expected = [name for name in orders if int(name.rpartition("-")[2]) % EVERY == 0]
    assert sorted(large) == sorted(expected)
    return len(orders)


def ordered(database: str) -> list[str]:
    """The orders in the shop's database."""
    with closing(connection_to(database)) as connection:
        found = connection.execute("SELECT number FROM orders").fetchall()
    return [name for (name,) in found]


def place(order: str) -> list[int]:
    """The place of an order among all: each life of the shop begins after the last."""
    return [int(part) for part in order.split("-")]


def read(owner: Messaging, topic: str) -> list[str]:
    """All that is committed in a topic, in its order."""
    reader, found = owner.consumer(topic), []
    while page := reader.poll(limit=5_000):
        found += [message.payload.decode() for message in page]
    return found
