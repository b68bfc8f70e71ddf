"""`txaware queue stats` and `watch`: how queues stand, once or again and again."""

import sys
import time

import attrs
import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    duration_text,
    echo_columns,
    echo_fields,
    echo_json,
    time_text,
)
from txaware.cli.stop import stopped_by_signal
from txaware.cli.values import interval, json_option
from txaware.model.queues import JobInWork, PipeStats, QueueStats

CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.argument("name", metavar="QUEUE")
@click.option("--pipes", "with_pipes", is_flag=True, help="Its oldest pipes, too.")
@json_option
@pass_session
def stats(session: Session, *, name: str, with_pipes: bool, as_json: bool) -> None:
    """Print the counts of a queue, how it stands, and who has its jobs.

    Counts are of all time since the queue was created or truncated; rates and average
    times are of the last minute.

    \b
    Example:
      txaware queue stats mail
      txaware queue stats mail --pipes --json
    """
    with session.open() as messaging:
        now = messaging.queue(name).stats()
    if as_json:
        echo_json(stats_json(name, now))
        return
    echo_fields(fields_of(now))
    if now.jobs:
        click.echo()
        _echo_jobs(now.jobs)
    if with_pipes:
        click.echo()
        _echo_pipes(now.oldest_pipes)


@click.command()
@click.argument("name", metavar="QUEUE")
@click.option(
    "--every", type=interval, default="2s", show_default=True, help="How often: 5s, 1m."
)
@json_option
@pass_session
def watch(session: Session, *, name: str, every: float, as_json: bool) -> None:
    """Show how a queue stands, again and again, until Ctrl-C or SIGTERM.

    \b
    Example:
      txaware queue watch mail --every 5s
    """
    with session.open() as messaging, stopped_by_signal() as stop:
        queue = messaging.queue(name)
        while True:
            now = queue.stats()
            if as_json:
                echo_json({"time": time_text(_now_ms()), **stats_json(name, now)})
            else:
                if sys.stdout.isatty():
                    click.echo(CLEAR, nl=False)
                click.echo(f"{name} at {time_text(_now_ms())}")
                echo_fields(fields_of(now))
                _echo_jobs(now.jobs[:10])
            sys.stdout.flush()
            if stop.wait(every):
                return


def fields_of(now: QueueStats) -> list[tuple[str, object]]:
    """Returns the figures of a queue with their names, for people."""
    oldest = f", the oldest for {duration_text(now.oldest_age_s)}" if now.depth else ""
    later = f", {now.delayed:,} of them later" if now.delayed else ""
    return [
        ("waiting", f"{now.depth:,}{later}{oldest}"),
        ("in work", f"{now.in_work:,}"),
        ("pushed", f"{now.pushed:,}, {now.pushed_per_s:,.1f}/s"),
        ("popped", f"{now.popped:,}, {now.popped_per_s:,.1f}/s"),
        ("committed", f"{now.committed:,}, {now.committed_per_s:,.1f}/s"),
        ("rolled back", f"{now.rolled_back:,}"),
        ("leases ended", f"{now.expired_leases:,}"),
        ("expired", f"{now.expired:,}"),
        ("dead letters", f"{now.dead_letters:,}"),
        ("average wait", duration_text(now.average_wait_s)),
        ("average work", duration_text(now.average_work_s)),
        ("pipes", f"{now.pipes:,}, {now.open_pipes:,} take pushes"),
        ("pops", "paused" if now.is_paused else "go on"),
    ]


def stats_json(name: str, now: QueueStats) -> dict[str, object]:
    """Returns the figures of a queue for programs."""
    return {"queue": name, **attrs.asdict(now)}


def _echo_jobs(jobs: tuple[JobInWork, ...]) -> None:
    rows = [
        (
            time_text(job.since_ms),
            job.popper,
            job.deliveries,
            f"transaction {job.transaction}"
            if job.until_ms is None
            else time_text(job.until_ms),
        )
        for job in jobs
    ]
    if rows:
        echo_columns(("IN WORK SINCE", "BY", "DELIVERY", "UNTIL"), rows, empty="")


def _echo_pipes(pipes: tuple[PipeStats, ...]) -> None:
    header = (
        *("PIPE", "STATE", "SINCE", "PRIORITY", "PUSHED", "POPPED", "COMMITTED"),
        *("ROLLED BACK", "WAITING", "IN WORK"),
    )
    rows = [
        (
            *(f"{one.id:x}", one.state, time_text(one.created_ms), one.priority),
            *(one.pushed, one.popped, one.committed, one.rolled_back),
            *(one.depth, one.in_work),
        )
        for one in pipes
    ]
    echo_columns(header, rows, empty="no pipes")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
