"""The command line: `python -m examples.workflow_scheduler --help`."""

import json
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

import txaware
from examples.workflow_scheduler.operations import (
    Operations,
    Refused,
    lines_of,
    plain_run,
)
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.processes import Options, run_scheduler, run_worker
from examples.workflow_scheduler.runs import SUCCEEDED, Run, WorkflowState
from examples.workflow_scheduler.store import DEFAULT_LEASE_S, MOST_DELIVERIES
from examples.workflow_scheduler.triggers import DefinitionError, seconds

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """A duration such as 4s or 15m."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return seconds(float(value) if str(value).isdecimal() else value)
        except DefinitionError as error:
            self.fail(str(error), param, ctx)


class Parameter(click.ParamType[tuple[str, str]]):
    """A parameter, as NAME=VALUE."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, equals, text = str(value).partition("=")
        if not (name and equals):
            self.fail(f"a parameter is NAME=VALUE, not {value!r}", param, ctx)
        return name, text


def places(function: F) -> F:
    """Adds --url and --data, which may stand before the command, too."""
    data = click.option("--data", help="A directory with the data.")
    url = click.option("--url", help="A server, or another address of data.")
    return url(data(function))


def place_of(context: click.Context, url: str | None, data: str | None) -> Place:
    """Returns the place that was named, here or before the command."""
    outer: dict[str, str | None] = context.obj or {}
    url, data = (url, data) if url or data else (outer.get("url"), outer.get("data"))
    if url and data:
        raise click.UsageError("name the data once: by --url or by --data")
    if data:
        return Place(data if ":" in data else f"leveldb:{data}")
    if url:
        return Place(url)
    raise click.UsageError("where is the data? Say --url ADDRESS or --data DIRECTORY")


def command(group: click.Group, name: str) -> Callable[[F], Any]:
    """Makes a command that gets `place`, and tells errors in one sentence."""

    def made(function: F) -> Any:
        @click.pass_context
        def called(
            context: click.Context,
            /,
            url: str | None,
            data: str | None,
            **options: Any,
        ) -> None:
            try:
                function(place_of(context, url, data), **options)
            except (Refused, DefinitionError, txaware.TxAwareError) as error:
                raise click.ClickException(str(error)) from error

        called.__doc__ = function.__doc__
        wrapped: Any = places(called)
        wrapped.__click_params__ = [
            *getattr(function, "__click_params__", []),
            *getattr(wrapped, "__click_params__", []),
        ]
        return group.command(name)(wrapped)

    return made


@click.group()
@places
@click.pass_context
def scheduler(context: click.Context, url: str | None, data: str | None) -> None:
    """Workflows started by time, data and events: each trigger exactly one run."""
    context.obj = {"url": url, "data": data}
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)


FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
LEASE = click.option(
    "--lease",
    type=Duration(),
    default=f"{DEFAULT_LEASE_S:g}s",
    show_default=True,
    help="What a process that died had comes to another one after this time.",
)
DELIVERIES = click.option(
    "--deliveries",
    type=click.IntRange(1),
    default=MOST_DELIVERIES,
    show_default=True,
    help="A step that killed so many workers is dead.",
)
THREADS = click.option(
    "--threads", type=click.IntRange(1), default=4, help="Steps at once in a worker."
)
PARAMETERS = click.option(
    "--parameter", "-p", type=Parameter(), multiple=True, help="A parameter of the run."
)


@command(scheduler, "run")
@FILE
@LEASE
@DELIVERIES
@THREADS
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Worker processes beside the scheduler.",
)
def run(
    place: Place, file: Path, lease: float, deliveries: int, threads: int, workers: int
) -> None:
    """Schedule the workflows of FILE, and carry out their steps."""
    run_scheduler(place, Options(file, lease, deliveries, workers, threads))


@command(scheduler, "worker")
@FILE
@LEASE
@DELIVERIES
@THREADS
def worker(
    place: Place, file: Path, lease: float, deliveries: int, threads: int
) -> None:
    """Carry out steps of the workflows of FILE."""
    run_worker(place, Options(file, lease, deliveries, threads=threads))


@command(scheduler, "list")
@click.option("--long", "is_long", is_flag=True, help="Say how each of them is.")
def names(place: Place, is_long: bool) -> None:
    """List the names of the workflows."""
    if not is_long:
        for name in Operations(place).names():
            click.echo(name)
        return
    for state in Operations(place).states():
        click.echo(f"{state.name:30} {said(state)}")


@command(scheduler, "show")
@click.argument("name")
def show(place: Place, name: str) -> None:
    """Show a workflow, or a run with its steps and what they said."""
    operations = Operations(place)
    found = operations.workflow(name)
    if found is not None:
        state, workflow = found
        click.echo(f"{name}: {said(state)}")
        if state.problem:
            click.echo(f"  problem: {state.problem}")
        waits = [f"{note.source} ({shown(note.time_ms)})" for note in state.notes]
        if waits:
            click.echo(f"  pending trigger, with {', '.join(waits)}")
        if workflow is not None:
            click.echo(json.dumps(workflow.plain, indent=2))
        return
    one = operations.run(name)
    click.echo(line_of(one))
    logs = operations.logs(name)
    for step, of in one.steps.items():
        click.echo(f"  {step}: {of.state}{f', {of.error}' if of.error else ''}")
        for line in lines_of(logs.get(f"{step}/{of.attempt}", "")):
            click.echo(line)


@command(scheduler, "trigger")
@click.argument("name")
@click.option("--event", help="An event that the workflow waits for.")
@PARAMETERS
@click.option("--id", "once", help="With an id of before nothing is triggered.")
@click.option("--wait", is_flag=True, help="Wait for the end of the run.")
@click.option("--timeout", type=Duration(), default="10m", help="The longest wait.")
def trigger(
    place: Place,
    name: str,
    event: str | None,
    parameter: tuple[tuple[str, str], ...],
    once: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Trigger a run of a workflow by hand, or by an event that is for it alone."""
    operations = Operations(place)
    mark = operations.trigger(name, event=event, parameters=dict(parameter), once=once)
    click.echo(f"{name} is triggered: {mark}")
    if wait:
        ended = operations.wait_for(name, mark, timeout_s=timeout)
        if ended is None:
            raise click.ClickException(f"no run of it was over within {timeout:g} s")
        click.echo(line_of(ended))
        sys.exit(0 if ended.state == SUCCEEDED else 1)


@command(scheduler, "pause")
@click.argument("name")
@click.option("--resume", is_flag=True, help="Go on.")
def pause(place: Place, name: str, resume: bool) -> None:
    """Begin no more runs of a workflow, until --resume; triggers are kept."""
    operations = Operations(place)
    (operations.resume if resume else operations.pause)(name)
    click.echo(f"{name} {'goes on' if resume else 'is paused'}")


@command(scheduler, "cancel")
@click.argument("run")
def cancel(place: Place, run: str) -> None:
    """End a run that is pending or goes on."""
    Operations(place).cancel(run)
    click.echo(f"{run} is being cancelled")


@command(scheduler, "backfill")
@click.argument("name")
@click.option("--from", "begins", type=datetime.fromisoformat, required=True)
@click.option("--to", "ends", type=datetime.fromisoformat, required=True)
@click.option("--again", is_flag=True, help="Also the times that have a good run.")
@PARAMETERS
def backfill(
    place: Place,
    name: str,
    begins: datetime,
    ends: datetime,
    again: bool,
    parameter: tuple[tuple[str, str], ...],
) -> None:
    """Run a workflow for its times from one moment on and before another."""
    count = Operations(place).backfill(
        name, begins, ends, again=again, parameters=dict(parameter)
    )
    click.echo(f"{name}: {count} runs")


@command(scheduler, "history")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def history(place: Place, name: str, as_json: bool) -> None:
    """Tell the runs of a workflow, the oldest first."""
    runs = Operations(place).runs(name)
    if as_json:
        click.echo(json.dumps([plain_run(one) for one in runs]))
        return
    for one in runs:
        click.echo(line_of(one))


@command(scheduler, "check")
def check(place: Place) -> None:
    """Name the rows that cannot be read; ends with 1 if there are any."""
    damaged = Operations(place).damaged()
    for row in damaged:
        click.echo(row)
    click.echo(f"{len(damaged) or 'no'} damaged rows")
    sys.exit(1 if damaged else 0)


@command(scheduler, "token")
@click.argument("run")
def token(place: Place, run: str) -> None:
    """Print what the steps of a run returned, as JSON."""
    click.echo(json.dumps(Operations(place).run(run).token, indent=2))


@command(scheduler, "page")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
def page(place: Place, port: int) -> None:
    """Serve the page on which workflows are watched, to this machine."""
    # A page takes long to import, and most commands have none.
    from examples.workflow_scheduler.page import PageServer

    with PageServer(place, port) as server:
        click.echo(f"the page is at {server.url}")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def said(state: WorkflowState) -> str:
    """Returns how a workflow is, in a line."""
    if state.is_left_out:
        return state.problem
    how = "paused" if state.is_paused else "enabled"
    if not state.is_enabled:
        how = "disabled" if state.fingerprint else "removed"
    parts = [how, f"{len(state.running)} running", f"{len(state.pending)} pending"]
    if state.last_state:
        parts.append(f"last {state.last_state}")
    if state.wake_ms:
        parts.append(f"next look {shown(state.wake_ms)}")
    if state.problem:
        parts.append(state.problem)
    return ", ".join(parts)


def line_of(run: Run) -> str:
    """Returns a run in a line."""
    began = shown(run.launched_ms) if run.launched_ms else "-"
    took = ""
    if run.ended_ms and run.launched_ms:
        took = f"{(run.ended_ms - run.launched_ms) / 1000:.1f} s"
    causes = ", ".join(run.first_causes)
    reason = f": {run.reason}" if run.reason else ""
    return f"{run.run:20} {run.state:10} {began} {took:>8}  {causes}{reason}"


def shown(time_ms: int) -> str:
    """Returns a time for people, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    scheduler(prog_name="python -m examples.workflow_scheduler")
