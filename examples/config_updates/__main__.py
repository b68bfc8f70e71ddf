"""The command line: `python -m examples.config_updates --help`."""

import json
import logging
import os
import signal
import socket
import threading
import time
from typing import Any

import click

import txaware
from examples.config_updates.program import Program
from examples.config_updates.settings import LOG_LEVEL, PAUSED, RELOAD, Config, Progress

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@click.group()
@click.option(
    "--url",
    envvar="TXAWARE_URL",
    default="leveldb:./config-data",
    show_default=True,
    help="Where the settings are: leveldb:DIR, memory:, http://HOST:PORT.",
)
@click.pass_context
def config(context: click.Context, url: str) -> None:
    """Settings and control messages for all instances of a program."""
    context.obj = context.with_resource(txaware.connect(url))


@config.command("set")
@click.argument("settings", metavar="NAME=VALUE...", nargs=-1, required=True)
@click.pass_obj
def set_(messaging: txaware.Messaging, settings: tuple[str, ...]) -> None:
    """Set values, all at once; a value is JSON, or else text."""
    pairs = [setting.partition("=") for setting in settings]
    Config(messaging).set(**{name: value_of(text) for name, _, text in pairs})


@config.command()
@click.argument("name")
@click.pass_obj
def remove(messaging: txaware.Messaging, name: str) -> None:
    """Take a setting away."""
    Config(messaging).remove(name)


@config.command()
@click.argument("what", type=click.Choice(["pause", "resume", "reload"]))
@click.pass_obj
def tell(messaging: txaware.Messaging, what: str) -> None:
    """Have all instances pause, resume, or reload."""
    if what == "reload":
        Config(messaging).set(**{RELOAD: time.time()})
    else:
        Config(messaging).set(**{PAUSED: what == "pause"})


@config.command("log-level")
@click.argument("level", type=click.Choice(LEVELS))
@click.pass_obj
def log_level(messaging: txaware.Messaging, level: str) -> None:
    """Have all instances log more, or less."""
    Config(messaging).set(**{LOG_LEVEL: level})


@config.command()
@click.pass_obj
def show(messaging: txaware.Messaging) -> None:
    """Print the settings, and who has yet to apply them."""
    settings = Config(messaging)
    for name, value in settings.values().items():
        click.echo(f"{name} = {json.dumps(value)}")
    for one in settings.progress():
        click.echo(line_of(one))


@config.command()
@click.option("--name", help="The name of the instance; by default host and process.")
@click.pass_obj
def run(messaging: txaware.Messaging, name: str | None) -> None:
    """Run an instance until Ctrl-C."""
    Config(messaging)  # makes the topic
    name = name or f"{socket.gethostname()}-{os.getpid()}"
    program = Program(messaging, name)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: program.close())
    program.run()


@config.command()
@click.option("--instances", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.pass_obj
def demo(messaging: txaware.Messaging, instances: int) -> None:
    """Run instances in threads, change settings meanwhile, and show who has which."""
    settings = Config(messaging)
    settings.set(workers=4, log_level="WARNING")
    *programs, late = [Program(messaging, f"web-{n}") for n in range(1, instances + 1)]
    threads = [threading.Thread(target=program.run) for program in programs]
    for thread in threads:
        thread.start()
    settings.set(paused=True, workers=8)
    while any(one.missing for one in settings.progress() if one.instance != late.name):
        time.sleep(0.1)
    for one in settings.progress():
        click.echo(line_of(one))
    late.step()
    click.echo(f"{late.name} comes late: {json.dumps(late.settings, sort_keys=True)}")
    for program in (*programs, late):
        program.close()
    for thread in threads:
        thread.join()
    late.run()  # it is closed, and says so


def line_of(one: Progress) -> str:
    """Shows how far an instance is, as a line."""
    return f"{one.instance}: {', '.join(one.missing) or 'has applied all'}"


def value_of(text: str) -> Any:
    """Reads JSON, or returns the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    config()
