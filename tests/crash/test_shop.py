"""The shop of the examples: its parts are killed at random, and its tables agree."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session

import txaware
from examples.shop.__main__ import relayed
from examples.shop.rows import MAILS, ORDERS, Entry, Mail, Order
from tests.support.concurrency import until
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.python_process import PythonProcess

ROOT = Path(__file__).parents[2]
CUSTOMERS = 3
PATIENCE_S = 120
Loops = tuple[str, ...]
# The module of its web server, and the commands of its loops.
KINDS: dict[str, tuple[str, Loops]] = {
    "threads": ("web", ("mails", "ledger")),
    "asyncio": ("async_web", ("async-loops",)),
}


class Shop:
    """The parts of the shop as processes of their own, and customers who order."""

    def __init__(self, directory: Path, database: str, web: str, loops: Loops) -> None:
        self._loops = loops
        self.url = f"http://127.0.0.1:{free_port()}"
        self._web = f"http://127.0.0.1:{free_port()}"
        self.engine: Engine = create_engine(database)
        self._directory = directory
        self._environment = os.environ | {
            "SHOP_DATABASE": database,
            "TXAWARE_URL": self.url,
            "PYTHONPATH": str(ROOT),
        }
        port, web_port = self.url.rpartition(":")[2], self._web.rpartition(":")[2]
        self._commands = {
            "server": ("txaware", "serve", "--data", "./data", "--port", port),
            "web": ("uvicorn", f"examples.shop.{web}:app", "--port", web_port),
            "relay": (
                *("txaware", "outbox", "relay"),
                *(relayed(database), "--every", "1s"),
            ),
            **{loop: ("examples.shop", loop) for loop in loops},
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._closing = threading.Event()
        self._customers = [
            threading.Thread(target=self._order) for _ in range(CUSTOMERS)
        ]
        self.accepted = 0

    @property
    def parts(self) -> list[str]:
        return sorted(self._commands)

    def start(self, part: str) -> None:
        with (self._directory / f"{part}.log").open("ab") as log:
            self._running[part] = PythonProcess(
                [sys.executable, "-m", *self._commands[part]],
                cwd=self._directory,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def kill(self, part: str) -> None:
        self._running[part].kill()
        self._running[part].wait()

    def open(self) -> None:
        self.start("server")
        assert until(lambda: answers(self.url), timeout_s=PATIENCE_S), self.logs()
        self.start("web")
        for customer in self._customers:
            customer.start()
        self.wait_for_orders(1)  # the tables are there
        for part in ("relay", *self._loops):
            self.start(part)

    def wait_for_orders(self, more: int) -> None:
        """Waits until so many more orders have been accepted."""
        enough = self.accepted + more
        assert self.until(lambda: self.accepted >= enough), self.logs()

    def until(self, look: Callable[[], bool]) -> bool:
        """Waits for something; meanwhile what has ended by itself is started anew."""

        def revive_and_look() -> bool:
            for part, process in list(self._running.items()):
                if process.poll() is not None:
                    self.start(part)
            return look()

        return until(revive_and_look, timeout_s=PATIENCE_S)

    def send_customers_home(self) -> None:
        self._closing.set()
        for customer in self._customers:
            customer.join(PATIENCE_S)
            assert not customer.is_alive()

    def close(self) -> None:
        """Stops the parts as systemd does; each ends well."""
        for part in ("web", *self._loops, "relay", "server"):
            process = self._running[part]
            assert process.poll() is None, f"{part} has ended: {self.logs()}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM), part

    def kill_all(self) -> None:
        self._closing.set()
        for process in self._running.values():
            process.kill()
            process.wait()
        for customer in self._customers:
            if customer.ident is not None:
                customer.join(PATIENCE_S)
        self.engine.dispose()

    def logs(self) -> str:
        return "\n".join(
            f"{path.stem}: {path.read_text()[-2000:]}"
            for path in sorted(self._directory.glob("*.log"))
        )

    def _order(self) -> None:
        body = json.dumps({"who": "ann", "item": "apples", "count": 2}).encode()
        request = urllib.request.Request(
            f"{self._web}/orders",
            body,
            {"Content-Type": "application/json"},
            method="POST",
        )
        while not self._closing.wait(0.01):
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S):
                    self.accepted += 1
            except OSError:
                continue  # a part is away: nobody knows whether it was accepted


def answers(url: str) -> bool:
    try:
        with txaware.connect(url):
            return True
    except txaware.Unavailable:
        return False


@contextmanager
def opened(directory: Path, database: str, kind: str) -> Iterator[Shop]:
    shop = Shop(directory, database, *KINDS[kind])
    try:
        shop.open()
        yield shop
    finally:
        shop.kill_all()


def rows_of(shop: Shop) -> dict[str, list[int]]:
    """Returns the numbers of the orders, as each of the tables has them."""
    with Session(shop.engine) as session:
        return {
            "orders": sorted(session.scalars(select(Order.id))),
            "mails": sorted(session.scalars(select(Mail.order_id))),
            "ledger": sorted(session.scalars(select(Entry.order_id))),
        }


def orders_of(shop: Shop) -> dict[str, list[int]]:
    """Returns the numbers of the orders, as each of the four has them."""
    found = rows_of(shop)
    with txaware.connect(shop.url) as messaging:
        reader: Any = messaging.consumer(ORDERS, decode=txaware.from_json)
        events: list[int] = []
        while page := reader.poll():
            events += [message.payload["order"] for message in page]
        assert messaging.queue(MAILS).stats().dead_letters == 0
    return found | {"events": sorted(events)}


def all_agree(found: dict[str, list[int]]) -> bool:
    return all(numbers == found["orders"] for numbers in found.values())


def agree(shop: Shop) -> bool:
    """Tells whether the four agree; asks the server once the tables do.

    It may be starting: it was perhaps killed last, and orders need no server.
    """
    if not all_agree(rows_of(shop)):
        return False
    try:
        return all_agree(orders_of(shop))
    except txaware.Unavailable:
        return False


def settle(shop: Shop) -> None:
    """Waits until the four agree, for as long as they come nearer to it.

    On a machine with twenty times the work that it has processors for, a mail takes
    longer than a second, and as many may wait as there were kills.
    """
    is_done = False
    while not is_done:
        before = rows_of(shop)

        def has_moved(before: dict[str, list[int]] = before) -> bool:
            return agree(shop) or rows_of(shop) != before

        assert shop.until(has_moved), f"none came in {PATIENCE_S} s: {shop.logs()}"
        is_done = agree(shop)


def kill_parts(shop: Shop, *, kills: int, seed: int) -> None:
    choice = random.Random(seed)
    parts: list[str] = []
    for _ in range(kills):
        parts = parts or choice.sample(shop.parts, len(shop.parts))
        part = parts.pop()
        shop.wait_for_orders(choice.randint(1, 12))
        shop.kill(part)
        shop.start(part)
    shop.wait_for_orders(1)
    shop.send_customers_home()
    settle(shop)
    found = orders_of(shop)
    assert len(found["orders"]) >= shop.accepted
    for table, numbers in found.items():
        assert numbers == found["orders"], (table, shop.logs())
    shop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_orders_events_mails_and_ledger_agree_through_kills(
    tmp_path: Path, kind: str
) -> None:
    with opened(tmp_path, f"sqlite:///{tmp_path}/shop.db", kind) as shop:
        kill_parts(shop, kills=len(shop.parts), seed=20)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_they_agree_through_a_hundred_kills(
    tmp_path: Path, database: str, kind: str
) -> None:
    """`pytest -m soak -s tests/crash/test_shop.py`"""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    if database == "sqlite":
        with opened(tmp_path, f"sqlite:///{tmp_path}/shop.db", kind) as shop:
            kill_parts(shop, kills=100, seed=seed)
        return
    server = PostgresServer()
    try:
        with opened(tmp_path, server.session_url, kind) as shop:
            kill_parts(shop, kills=100, seed=seed)
    finally:
        server.close()
