"""`txaware janitor`: removes what nobody can read any more, once or every so often."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import click

from txaware.cli.bar import later_bar
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_fields, echo_json
from txaware.cli.stop import stopped_by_signal
from txaware.cli.values import duration

Progress = Callable[[str, int, int], None]
NOUNS = {
    "expired_messages": "expired messages",
    "expired_payloads": "expired payloads",
    "old_generation_rows": "rows of deleted topics",
    "marked_rows": "rows marked as never committed",
    "positions": "positions nobody needs",
}


@click.command(short_help="Remove what nobody can read any more.")
@click.option("--once", is_flag=True, help="Clean up once and end; the default.")
@click.option(
    "--every", type=duration, help="Go on until Ctrl-C or SIGTERM, this often: 1h."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run.")
@pass_session
def janitor(
    session: Session, *, once: bool, every: float | None, as_json: bool
) -> None:
    """Remove expired messages, deleted topics, and what never committed.

    The space goes back to the disk. It also tells the least transaction id that the
    data still needs; `txaware transactions prune` forgets those below.

    \b
    Example:
      txaware janitor
      txaware janitor --every 1h
    """
    if once and every is not None:
        raise click.UsageError("either --once or --every")
    with (
        session.open(janitor_interval_s=0) as messaging,
        stopped_by_signal() as stop,
    ):
        while True:
            with _progress() as on_progress:
                cleaned: Any = messaging.clean_up(on_progress=on_progress)
            _echo(attrs.asdict(cleaned), as_json=as_json)
            if every is None or stop.wait(every):
                return


def _echo(cleaned: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(cleaned)
        return
    fields = [(name, f"{cleaned[key]:,}") for key, name in NOUNS.items()]
    least = cleaned["least_needed"]
    echo_fields([*fields, ("least transaction needed", least or "none")])


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar on standard error, where that is a terminal and this process cleans up."""
    with later_bar(length=1) as bar:
        if bar is None:
            yield None
            return

        def on_progress(topic: str, done: int, all_topics: int) -> None:
            label = f"{counted(all_topics, 'topic')}, {topic}"
            bar.move(label, to=done, length=max(all_topics, 1))

        yield on_progress
