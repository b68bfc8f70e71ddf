"""A whole cluster on this machine, of which HBase and a server are killed under load.

HBase keeps the messages, in four shards that three equal servers share; Tephra decides
what commits, and ZooKeeper, which is HBase's own here, knows where Tephra is. Three
payers, each with a table of its own, pay and tell so in one transaction; a key keeps
what each of them tells in order. A booker reads what they tell, as a group, and writes
it into its table, in one transaction with its position. What fails is tried again; the
tables say how far each has come. It takes about a minute.

    python examples/cluster/run.py

Prints:
1. HBase runs, with ZooKeeper and its Thrift server
2. Tephra runs, and ZooKeeper knows where
3. three servers answer, over HBase and beside Tephra, each with shards of its own
4. three payers and a booker are at work
5. HBase killed with SIGKILL: calls failed, each within seconds; the servers answer
6. HBase is back, and all went on by themselves: 90 payments
7. a server killed with SIGKILL
8. the others took its shards, and all went on: 180 payments
9. committed 180, booked 180: each payment exactly once, and in order
"""

import json
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from kazoo.client import KazooClient

import txaware
from coordinator import Transaction
from coordinator.tephra import TephraCoordinator
from txaware.local_hbase import LocalHBase

PAYERS = ("ann", "ben", "cleo")
PAYMENTS_A_HALF = 30
# What a killed process leaves open ends by itself after that.
TRANSACTION_TIMEOUT_S = 5
WITHIN_SECONDS_S, PATIENCE_S = 30, 100
SERVERS, SHARDS, PARTITIONS = 3, 4, 8
PROGRAM = [sys.executable, "-m", "txaware"]


class Table:
    """Rows in SQLite, each with the pointer of the transaction that wrote it."""

    def __init__(self, path: Path) -> None:
        self.transaction_aware_name = path.stem
        self._rows = sqlite3.connect(path, isolation_level=None)
        self._rows.execute("CREATE TABLE IF NOT EXISTS rows (pointer, text)")

    def start_tx(self, tx: Transaction) -> None:
        self._tx, self._new = tx, list[str]()

    def update_tx(self, tx: Transaction) -> None:
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [self.transaction_aware_name.encode()] if self._new else []

    def commit_tx(self) -> bool:
        self._rows.executemany(
            "INSERT INTO rows VALUES (?, ?)",
            [(self._tx.write_pointer, text) for text in self._new],
        )
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        self._rows.executemany(
            "DELETE FROM rows WHERE pointer = ?",
            [(one,) for one in self._tx.pointers],
        )
        return True

    def add(self, text: str) -> None:
        self._new.append(text)

    def committed(self) -> list[str]:
        """The rows that the transaction may see, in the order of their writing."""
        rows = self._rows.execute("SELECT pointer, text FROM rows ORDER BY rowid")
        return [text for pointer, text in rows if self._tx.is_visible(pointer)]

    def close(self) -> None:
        self._rows.close()


class Load:
    """Payers and a booker, until `is_over`; what fails is tried again."""

    def __init__(self, directory: Path, url: str) -> None:
        self.each = PAYMENTS_A_HALF
        self.is_over = threading.Event()
        self.paid = dict.fromkeys(PAYERS, 0)
        self.booked = 0
        self.failed_within_s: list[float] = []
        self._directory, self._url = directory, url

    def pay(self, name: str) -> None:
        """One payment after the other, each numbered by what the table holds."""
        with (
            closing(Table(self._directory / name)) as table,
            txaware.connect(self._url) as messaging,
        ):
            payments = messaging.publisher("payments")

            def step() -> None:
                with messaging.transaction(table, timeout_s=TRANSACTION_TIMEOUT_S):
                    number = len(table.committed())
                    if number < self.each:
                        table.add(f"{name} pays {number}")
                        told = f"{name} pays {number}".encode()
                        payments.publish(told, key=name.encode())
                self.paid[name] = number

            self._again_and_again(step)

    def book(self) -> None:
        """Books what was told since the position of its group."""
        with (
            closing(Table(self._directory / "book")) as table,
            txaware.connect(self._url) as messaging,
        ):
            payments = messaging.consumer("payments", group="bookers")

            def step() -> None:
                with messaging.transaction(table, timeout_s=TRANSACTION_TIMEOUT_S):
                    self.booked = len(table.committed())
                    for message in payments.poll(10):
                        table.add(message.payload.decode())

            self._again_and_again(step)

    def _again_and_again(self, step: Callable[[], None]) -> None:
        while not self.is_over.wait(0.02):
            began_s = time.monotonic()
            try:
                step()
            except txaware.TxAwareError:
                self.failed_within_s.append(time.monotonic() - began_s)


class Servers:
    """`txaware serve` as processes over one store; their logs are in the directory."""

    def __init__(self, directory: Path, data: str, coordinator: str) -> None:
        ports = []
        for _ in range(SERVERS):
            with socket.create_server(("127.0.0.1", 0)) as free:
                ports.append(free.getsockname()[1])
        self._urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._log = directory / "servers.log"
        command = [*PROGRAM, "--set", f"shards={SHARDS}", "serve", "--data", data]
        command += ["--coordinator", coordinator]
        self._commands = [[*command, "--port", str(port)] for port in ports]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """Leads to any of them that is there."""
        return ",".join(self._urls)

    def start(self) -> None:
        """Returns when all listen."""
        for command in self._commands:
            with self._log.open("ab") as log:
                self._processes.append(
                    subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
                )
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline(), self._log.read_text()
        wait_until(lambda: len(set(self.owners())) == SERVERS)

    def owners(self) -> list[str]:
        """The server that has each shard, as far as one does."""
        for url in self._urls:
            with suppress(OSError), urlopen(f"{url}/v1/servers") as answer:
                shards = json.load(answer)["shards"]
                return [one["server"] for one in shards if one["server"]]
        return []

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].communicate()

    def kill_all(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)


@contextmanager
def announced_tephra(directory: Path, zookeeper: str) -> Iterator[str]:
    """A Tephra with its Thrift service, and the address by which it is found."""
    with TephraCoordinator(directory) as tephra:
        host, port = tephra.serve_thrift()
        client = KazooClient(zookeeper)
        client.start()
        where = {"service": "transaction", "hostname": host, "port": port}
        path = "/discoverable/transaction/here"
        client.create(path, json.dumps(where).encode(), makepath=True)
        client.stop()
        client.close()
        yield f"tephra+zk://{zookeeper}"


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < give_up_s, "it does not go on"
        time.sleep(0.02)


def kill_and_go_on(hbase: LocalHBase, servers: Servers, load: Load) -> None:
    """Kills HBase, and then a server, both in the middle of the work."""

    def paid() -> int:
        return sum(load.paid.values())

    def all_paid() -> bool:
        return all(count >= load.each for count in load.paid.values())

    wait_until(lambda: paid() > 10)
    hbase.kill()
    wait_until(lambda: len(load.failed_within_s) > len(PAYERS))
    assert max(load.failed_within_s) < WITHIN_SECONDS_S
    with txaware.connect(servers.url):
        print(
            "5. HBase killed with SIGKILL: calls failed, each within seconds; ", end=""
        )
        print("the servers answer")
    hbase.start()
    wait_until(all_paid)
    print(f"6. HBase is back, and all went on by themselves: {paid()} payments")

    load.each += PAYMENTS_A_HALF
    before = paid()
    wait_until(lambda: paid() > before + 10)
    servers.kill(SERVERS - 1)
    print("7. a server killed with SIGKILL")
    wait_until(all_paid)
    assert len(set(servers.owners())) == SERVERS - 1
    assert len(servers.owners()) == SHARDS
    print("8. the others took its shards, and all went on: ", end="")
    print(f"{paid()} payments")


def verdict(directory: Path, url: str) -> str:
    """What all tables hold in one snapshot; raises where they do not agree."""
    with (
        txaware.connect(url) as messaging,
        closing(Table(directory / "book")) as book,
        messaging.transaction(book) as tx,
    ):
        booked, committed = book.committed(), 0
        for name in PAYERS:
            with closing(Table(directory / name)) as table:
                table.start_tx(tx.transaction)
                paid = table.committed()
            committed += len(paid)
            of_this = [text for text in booked if text.startswith(name)]
            assert of_this == paid, "lost, doubled or out of order"
    return f"committed {committed}, booked {len(booked)}"


def main() -> None:
    with tempfile.TemporaryDirectory() as name, LocalHBase(f"{name}/hbase") as hbase:
        directory = Path(name)
        print("1. HBase runs, with ZooKeeper and its Thrift server", flush=True)
        data = f"hbase://127.0.0.1:{hbase.thrift_port}/example"
        create_tables = [*PROGRAM, "hbase", "create-tables", data]
        subprocess.run(create_tables, check=True, capture_output=True)
        with announced_tephra(directory / "tephra", hbase.zookeeper) as tephra:
            print("2. Tephra runs, and ZooKeeper knows where")
            servers = Servers(directory, data, tephra)
            try:
                servers.start()
                print("3. three servers answer, over HBase and beside Tephra, ", end="")
                print("each with shards of its own")
                run_load(directory, hbase, servers)
            finally:
                servers.kill_all()


def run_load(directory: Path, hbase: LocalHBase, servers: Servers) -> None:
    with txaware.connect(servers.url) as messaging:
        messaging.create_topic("payments", partitions=PARTITIONS)
    load = Load(directory, servers.url)
    with ThreadPoolExecutor(1 + len(PAYERS)) as threads:
        running = [threads.submit(load.pay, name) for name in PAYERS]
        running.append(threads.submit(load.book))
        print("4. three payers and a booker are at work")
        try:
            kill_and_go_on(hbase, servers, load)
            wait_until(lambda: load.booked == sum(load.paid.values()))
        finally:
            load.is_over.set()
    for one in running:
        one.result()
    print(f"9. {verdict(directory, servers.url)}: ", end="")
    print("each payment exactly once, and in order")


if __name__ == "__main__":
    main()
