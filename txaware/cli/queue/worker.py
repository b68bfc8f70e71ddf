"""`txaware worker`: calls a function with the jobs of a queue."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import click

from coordinator.interfaces import TransactionAware
from txaware.cli.progress import later_bar
from txaware.cli.queue.worker_processes import (
    WorkerProcesses,
    processes_option,
    stop_with_stdin,
)
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, note
from txaware.cli.stop import Stop, stopped_by_signal
from txaware.cli.values import duration, imported
from txaware.errors import BadRequest, Unavailable
from txaware.messaging import Messaging
from txaware.model.queues import QueueStats
from txaware.queue import Queue
from txaware.queue.participants_of_threads import MakesParticipant

TELL_EVERY_S = 1.0


@click.command(short_help="Call a function with the jobs of a queue.")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("--queue", "name", required=True, help="The queue to work on.")
@processes_option("work")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Jobs that each process handles at once.",
)
@click.option(
    "--transaction",
    is_flag=True,
    help="Handle each job in a transaction that also ends it: the function is called "
    "with (job, tx).",
)
@click.option(
    "--participant",
    "makers",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="A function that opens your database, as FUNCTION(messaging), in each thread: "
    "the job is handled once with its rows. Implies --transaction.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=duration,
    help="The longest time for a job: 90, 15m. Then the job comes again.",
)
@click.option("--child", "is_child", is_flag=True, hidden=True)
@pass_session
def worker(
    session: Session,
    *,
    target: str,
    name: str,
    processes: int,
    threads: int,
    transaction: bool,
    makers: tuple[str, ...],
    timeout_s: float | None,
    is_child: bool,
) -> None:
    """Call a function with the jobs of a queue, until Ctrl-C or SIGTERM.

    A job ends when FUNCTION(job) returns, and comes again after a pause when that
    raises. It may be `async def`. MODULE is looked for in this directory, too. When it
    is told to stop, it finishes the jobs that it has; told again, it ends at once, and
    those jobs come again.

    Several processes share data that this command owns by way of a server, which it
    runs meanwhile on this machine.

    \b
    Example:
      txaware worker shop.mails:send --queue mail
      txaware worker shop.mails:send --queue mail --processes 4 --timeout 30s
      txaware worker shop.mails:send --queue mail --participant shop.db:open_shop
    """
    handler = handler_of(target)
    opened = [handler_of(maker) for maker in makers]
    transaction = transaction or bool(opened)
    with session.open() as messaging, stopped_by_signal() as stop:
        queue = messaging.queue(name)
        before = queue.stats()
        if not is_child:
            each = counted(threads, "thread")
            crew_text = each if processes == 1 else f"{processes} processes of {each}"
            note(f"{target} works on queue {name}, {crew_text}; Ctrl-C ends it")
        if processes == 1:
            loop = queue.worker(
                handler,
                threads=threads,
                transaction=transaction,
                participants=[_opener(one, messaging) for one in opened],
                timeout_s=timeout_s,
            )
            if is_child:
                stop_with_stdin(stop)
            with _in_thread(loop.run, loop.close):
                _watch(queue, stop, is_shown=not is_child)
        else:
            options = ["--threads", str(threads)]
            options += ["--transaction"] * transaction
            for maker in makers:
                options += ["--participant", maker]
            if timeout_s is not None:
                options += ["--timeout", str(timeout_s)]
            arguments = ["worker", target, "--queue", name, *options]
            with _for_children(messaging, session) as (url, token):
                crew = WorkerProcesses(url, token, arguments, session.coordinator)
                with crew.working(processes):
                    _watch(queue, stop, look=crew.look_after)
        if not is_child:
            click.echo(_summary(name, before, queue.stats()))


def handler_of(target: str) -> Callable[..., object]:
    """Imports the function that is named `module:function`."""
    found = imported(target, what="function")
    if not callable(found):
        module_name, _, path = target.partition(":")
        raise BadRequest(f"module {module_name} has no function {path}")
    return found


def _opener(maker: Callable[..., Any], messaging: Messaging) -> MakesParticipant:
    """Returns a function that opens a participant of this messaging."""
    return lambda: cast(TransactionAware, maker(messaging))


@contextmanager
def _in_thread(run: Callable[[], object], close: Callable[[], None]) -> Iterator[None]:
    """Runs a loop beside the block, and ends it with the block."""
    thread = threading.Thread(target=run, name="worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        close()
        thread.join()


@contextmanager
def _for_children(
    messaging: Messaging, session: Session
) -> Iterator[tuple[str, str | None]]:
    """Returns the address for other processes, and the token if it is ours."""
    try:
        messaging.reach()
    except Unavailable:  # this process owns the data, and serves it meanwhile
        with messaging.serve():
            reach = messaging.reach()
            yield reach.url, reach.token
        return
    yield session.url, None


def _watch(
    queue: Queue,
    stop: Stop,
    *,
    look: Callable[[], None] | None = None,
    is_shown: bool = True,
) -> None:
    """Waits until it is asked to stop; shows on a terminal how far the work is."""
    with later_bar(length=1) as bar:
        while not stop.wait(TELL_EVERY_S):
            if look is not None:
                look()
            if bar is not None and is_shown:
                now = queue.stats()
                label = f"{now.depth:,} waiting, {now.in_work:,} in work"
                whole = now.committed + now.depth + now.in_work
                bar.move(label, to=now.committed, length=max(whole, 1))


def _summary(name: str, before: QueueStats, after: QueueStats) -> str:
    handled = counted(after.committed - before.committed, "job")
    failed = after.rolled_back + after.expired_leases
    failed -= before.rolled_back + before.expired_leases
    return (
        f"queue {name}: {handled} done meanwhile, {failed:,} failed, "
        f"{after.depth:,} waiting"
    )
