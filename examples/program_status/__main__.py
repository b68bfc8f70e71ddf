"""The command line: `python -m examples.program_status --help`."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

import txaware
from examples.program_status.notify import Mail, Notifier, Way, webhook
from examples.program_status.statuses import Reporter, Status, newest, open_statuses
from examples.program_status.watch import Rule, Watch, rules_of
from txaware import Message

EVERY_S = 1.0


@click.group()
@click.option(
    "--url",
    envvar="TXAWARE_URL",
    default="leveldb:./status-data",
    show_default=True,
    help="Where the statuses are: leveldb:DIR, memory:, http://HOST:PORT.",
)
@click.pass_context
def status(context: click.Context, url: str) -> None:
    """States and heartbeats of programs, and notifications about them."""
    context.obj = context.with_resource(txaware.connect(url))


@status.command()
@click.argument("program")
@click.argument("command", nargs=-1, required=True)
@click.pass_obj
def run(messaging: txaware.Messaging, program: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND as the program PROGRAM, with heartbeats, and tell how it ends."""
    with Reporter(messaging, program).running():
        subprocess.run(command, check=True)


@status.command()
@click.pass_obj
def table(messaging: txaware.Messaging) -> None:
    """Print the runs that are alive, and those that ended within a day."""
    for message in newest(messaging).values():
        click.echo(line_of(message))


@status.command()
@click.option("--once", is_flag=True, help="End when all that is there was printed.")
@click.pass_obj
def tail(messaging: txaware.Messaging, once: bool) -> None:
    """Print statuses as they come."""
    consumer = open_statuses(messaging).consumer()
    while True:
        for message in consumer.poll():
            click.echo(line_of(message))
        if not consumer.wait(0 if once else 60) and once:
            return


@status.command()
@click.option("--rules", "path", type=click.Path(path_type=Path), help="TOML of rules.")
@click.option("--once", is_flag=True, help="End when all that is there was seen.")
@click.pass_obj
def watch(messaging: txaware.Messaging, path: Path | None, once: bool) -> None:
    """Find the runs that fell silent, and queue notifications by rules."""
    watcher = Watch(messaging, [] if path is None else rules_of(path))
    every(EVERY_S, watcher.catch_up, once=once)


@status.command()
@click.option("--smtp", default="127.0.0.1:25", show_default=True, help="HOST:PORT.")
@click.option("--once", is_flag=True, help="End when all that waits was sent.")
@click.pass_obj
def notify(messaging: txaware.Messaging, smtp: str, once: bool) -> None:
    """Send the notifications that wait."""
    host, _, port = smtp.rpartition(":")
    ways: dict[str, Way] = {"mail": Mail(host, int(port)), "webhook": webhook}
    every(EVERY_S, Notifier(messaging, ways).catch_up, once=once)


@status.command()
@click.pass_obj
def outcomes(messaging: txaware.Messaging) -> None:
    """Print what became of each notification."""
    for name, one in Notifier(messaging, {}).outcomes().items():
        told = one.told
        click.echo(
            f"{one.state:8}{told['way']} to {told['to']}: {told['program']} "
            f"{told['state']} {one.why} ({name})"
        )


@status.command()
@click.pass_obj
def demo(messaging: txaware.Messaging) -> None:
    """Run three programs, of which one fails and one is killed; a webhook hears it."""
    with a_webhook() as address:
        watcher = Watch(messaging, [Rule("on-call", webhook=address)])
        with Reporter(messaging, "import").running() as reporter:
            reporter.beat("half of it")
        try:
            with Reporter(messaging, "nightly").running():
                raise ValueError("there is no input")
        except ValueError:
            pass
        Reporter(messaging, "killed", "run-7", alive_s=1).beat("at work")
        for message in newest(messaging).values():
            click.echo(line_of(message))
        watcher.catch_up()
        time.sleep(1)  # the last heartbeat of the third one expires
        watcher.catch_up()
        Notifier(messaging, {"webhook": webhook}).catch_up()
        for one in Notifier(messaging, {}).outcomes().values():
            click.echo(f"{one.state}: {one.told['program']} {one.told['state']}")


@contextmanager
def a_webhook() -> Iterator[str]:
    """Runs a server that prints what is posted to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            click.echo(f"webhook: {len(body)} bytes for {self.path}")
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/on-call"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def every(pause_s: float, step: Callable[[], object], *, once: bool) -> None:
    """Does a step once, or every so often until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while True:
        step()
        if once or ended.wait(pause_s):
            return


def line_of(message: Message[Status]) -> str:
    """Shows a status as a line."""
    found = message.payload
    return (
        f"{message.time:%H:%M:%S}  {found.program:12}  {found.run:14}  "
        f"{found.state:9}  {found.text}".rstrip()
    )


if __name__ == "__main__":
    status()
