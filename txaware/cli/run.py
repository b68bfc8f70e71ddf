"""`txaware run` and `txaware asyncapi`: run a declared program, and describe it."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txaware.cli.queue.worker_processes import (
    WorkerProcesses,
    processes_option,
    stop_with_stdin,
)
from txaware.cli.session import DEFAULT_URL, Session, pass_session
from txaware.cli.show import note
from txaware.cli.stop import Stop, stopped_by_signal
from txaware.cli.values import imported
from txaware.errors import BadRequest

if TYPE_CHECKING:
    from txaware.app.app import App

LOOK_EVERY_S = 0.5


@click.command(short_help="Run the handlers of a declared program.")
@click.argument("target", metavar="MODULE:APP")
@processes_option("run the handlers")
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="Begin the processes anew when a file of Python below this directory changes. "
    "What is in work ends first.",
)
@click.option("--child", "is_child", is_flag=True, hidden=True)
@pass_session
def run(
    session: Session, *, target: str, processes: int, reloads: bool, is_child: bool
) -> None:
    """Run the handlers of a txaware.App, until Ctrl-C or SIGTERM.

    APP is a txaware.App in MODULE, which is looked for in this directory, too. Its data
    is where the app says, or where --url says. Topics and queues that the app names are
    made if they are missing. When it is told to stop, what is in work ends first; told
    again, it ends at once.

    Several processes share data that this command owns by way of a server, which it
    runs meanwhile on this machine.

    \b
    Example:
      txaware run shop:app
      txaware run shop:app --processes 4
      txaware run shop:app --reload
    """
    app = app_of(target)
    app.require_handlers()
    url = None if session.url == DEFAULT_URL else session.url
    with stopped_by_signal() as stop:
        app.open(url)
        if is_child:
            stop_with_stdin(stop)
        else:
            crew_text = "" if processes == 1 else f" in {processes} processes"
            note(f"{target} runs at {app.url}{crew_text}; Ctrl-C ends it")
        try:
            if processes == 1 and not reloads:
                with app:
                    while not stop.wait(LOOK_EVERY_S):
                        pass
                return
            reach = app.reach()
            crew = WorkerProcesses(
                reach.url, reach.token, ["run", target], session.coordinator
            )
            _run_children(
                crew, processes, stop, changes=SourceChanges() if reloads else None
            )
        finally:
            app.stop()


def _run_children(
    crew: WorkerProcesses,
    processes: int,
    stop: Stop,
    *,
    changes: "SourceChanges | None",
) -> None:
    while not stop.requested:
        with crew.working(processes):
            while not stop.wait(LOOK_EVERY_S):
                if changes is None:
                    crew.look_after()
                elif changed := changes.look():
                    note(f"{changed} has changed: the handlers begin anew")
                    break
                else:
                    crew.drop_ended()


class SourceChanges:
    """The files of Python below a directory, and what has changed since the last look.

    Hidden directories and installed packages are left out.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path.cwd()
        self._seen = self._look()

    def look(self) -> Path | None:
        """Returns a file that was changed, made or removed since the last look."""
        before, self._seen = self._seen, self._look()
        for path in {**before, **self._seen}:
            if before.get(path) != self._seen.get(path):
                return path.relative_to(self._root)
        return None

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for directory, inner, files in os.walk(self._root):
            inner[:] = [
                name
                for name in inner
                if not name.startswith((".", "__")) and name != "site-packages"
            ]
            for name in files:
                if name.endswith(".py"):
                    path = Path(directory, name)
                    try:
                        status = path.stat()
                    except OSError:  # it is gone by now
                        continue
                    found[path] = (status.st_mtime_ns, status.st_size)
        return found


@click.command(short_help="Print the AsyncAPI document of a declared program.")
@click.argument("target", metavar="MODULE:APP")
@click.option("--title", help="The title of the document; by default the module.")
@click.option("--version", default="1", show_default=True, help="Its version.")
def asyncapi(target: str, title: str | None, version: str) -> None:
    """Print the AsyncAPI 3 document of a txaware.App, as JSON.

    It has the app's topics and queues, the JSON schemas of their events, and who
    handles them.

    \b
    Example:
      txaware asyncapi shop:app > asyncapi.json
    """
    named = title or target.partition(":")[0]
    described = app_of(target).asyncapi(title=named, version=version)
    click.echo(json.dumps(described, indent=2))


def app_of(target: str) -> "App":
    """Imports the app that is named `module:app`."""
    from txaware.app.app import App  # the command line begins without it

    found = imported(target, what="app")
    if not isinstance(found, App):
        raise BadRequest(f"{target} is no txaware.App: {found!r:.100}")
    return found
