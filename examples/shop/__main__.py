"""Runs one part of the shop, or all of them: `python -m examples.shop run`."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import click

try:
    from sqlalchemy import Engine, create_engine
    from sqlalchemy.orm import Session
except ImportError as error:  # pragma: no cover - it is a dependency of the example
    raise SystemExit(
        "the shop needs sqlalchemy: pip install -e '.[examples]'"
    ) from error

from examples.shop.async_loops import work as async_work
from examples.shop.loops import keep_ledger, send_mails
from examples.shop.rows import DATABASE, Entry, Mail, Order

PARTS = {
    "server": ("txaware", "serve", "--data", "./shop-data"),
    "web": ("uvicorn", "examples.shop.web:app", "--workers", "2", "--port", "8000"),
    "relay": ("txaware", "outbox", "relay", "--every", "1s"),
    "mails": ("examples.shop", "mails"),
    "ledger": ("examples.shop", "ledger"),
}


def command_of(part: str, database: str = DATABASE) -> list[str]:
    """Returns the command that runs a part, as one types it behind `python -m`."""
    words = [sys.executable, "-m", *PARTS[part]]
    return [*words, relayed(database)] if part == "relay" else words


def relayed(database: str) -> str:
    """Returns what `txaware outbox` calls a database that SQLAlchemy names."""
    if database.startswith("sqlite:///"):
        return str(Path(database.removeprefix("sqlite:///")))
    return database.replace("postgresql+psycopg://", "postgresql://")


@click.group()
def shop() -> None:
    """A shop whose orders, events, mails and ledger agree."""


@shop.command()
def mails() -> None:
    """Send the mails of the queue."""
    send_mails()


@shop.command()
def ledger() -> None:
    """Keep the ledger of the orders."""
    keep_ledger()


@shop.command("async-loops")
def async_loops() -> None:
    """Send the mails and keep the ledger in one process, in asyncio."""
    asyncio.run(async_work())


@shop.command()
@click.option("--orders", type=click.IntRange(1, 1000), default=3, show_default=True)
def demo(orders: int) -> None:
    """Run all parts in a new directory, order something, and show what came of it."""
    web, server = free_port(), free_port()
    ports = {"web": [f"--port={web}"], "server": [f"--port={server}"]}
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        database = f"sqlite:///{place}/shop.db"
        environment = os.environ | {
            "SHOP_DATABASE": database,
            "TXAWARE_URL": f"http://127.0.0.1:{server}",
            "PYTHONPATH": os.getcwd(),
        }

        def start(part: str) -> None:
            process = subprocess.Popen(
                [*command_of(part, database), *ports.get(part, ())],
                cwd=place,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.callback(process.wait)
            running.callback(process.terminate)

        start("server")
        start("web")
        for number in range(orders):
            click.echo(order(f"http://127.0.0.1:{web}/orders", f"customer {number}"))
        for part in PARTS.keys() - ports.keys():  # now they find the database
            start(part)
        engine = create_engine(database)
        while min(counts(engine)) < orders:
            time.sleep(0.1)
        stored, mails, entries = counts(engine)
        click.echo(f"{stored} orders, {mails} mails, {entries} entries in the ledger")
        engine.dispose()


def free_port() -> int:
    """Returns a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def order(url: str, who: str) -> str:
    """Orders something, once the shop answers."""
    body = json.dumps({"who": who, "item": "apples"}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return f"{who}: {answer.read().decode()}"
        except OSError:  # it starts yet
            time.sleep(0.2)


def counts(engine: Engine) -> tuple[int, int, int]:
    """Returns how many orders, mails and entries there are."""
    with Session(engine) as session:
        orders, mails, entries = (
            session.query(kind).count() for kind in (Order, Mail, Entry)
        )
    return orders, mails, entries


@shop.command()
def run() -> None:
    """Run all parts until Ctrl-C; one that ends is started anew."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while True:
            for part in PARTS:
                if part not in running or running[part].poll() is not None:
                    click.echo(f"{part}: {' '.join(command_of(part)[1:])}")
                    running[part] = subprocess.Popen(command_of(part))
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until one has ended
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        for process in reversed(running.values()):
            process.terminate()
        for process in running.values():
            process.wait()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    shop()
