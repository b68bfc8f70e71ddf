"""Runs one part of the shop, or all of them: `python -m examples.shop run`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from examples.shop.loops import keep_ledger, send_mails
from examples.shop.rows import DATABASE

PARTS = {
    "server": ("txaware", "serve", "--data", "./shop-data"),
    "web": ("uvicorn", "examples.shop.web:app", "--workers", "2", "--port", "8000"),
    "relay": ("txaware", "outbox", "relay", "--every", "1s"),
    "mails": ("examples.shop", "mails"),
    "ledger": ("examples.shop", "ledger"),
}


def command_of(part: str) -> list[str]:
    """Returns the command that runs a part, as one types it behind `python -m`."""
    words = [sys.executable, "-m", *PARTS[part]]
    return [*words, relayed(DATABASE)] if part == "relay" else words


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
