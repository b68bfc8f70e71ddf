"""The group `txaware`: the options that come before a verb, and all verbs."""

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click
from click.shell_completion import CompletionItem

from txaware.cli.backup import backup, restore
from txaware.cli.bench import bench
from txaware.cli.check import check
from txaware.cli.copy import copy
from txaware.cli.demo.demo import demo
from txaware.cli.failures import EXIT_CODES, INTERRUPTED, Commands
from txaware.cli.groups import groups
from txaware.cli.hbase import hbase
from txaware.cli.janitor import janitor
from txaware.cli.metrics import metrics
from txaware.cli.outbox import outbox
from txaware.cli.participants import participants
from txaware.cli.poll import poll
from txaware.cli.publish import publish
from txaware.cli.queue.queue import queue
from txaware.cli.queue.worker import worker
from txaware.cli.run import asyncapi, run
from txaware.cli.serve import serve
from txaware.cli.session import DEFAULT_URL, Session, accept_url, load_settings
from txaware.cli.shard import shards
from txaware.cli.status import status
from txaware.cli.table import table
from txaware.cli.token import token
from txaware.cli.topic import topic
from txaware.cli.transactions.producers import producers
from txaware.cli.transactions.transactions import transactions
from txaware.cli.values import pair
from txaware.messaging import Messaging
from txaware.model.topics import DEFAULT_NAMESPACE

LEVELS = ("debug", "info", "warning", "error")
LOGGERS = ("txaware", "coordinator")
# Every record has these attributes; anything else was given as `extra`.
STANDARD = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
_BARE = re.compile(r"[^\s\"=\\]+")
NAMESPACE = "namespace"

Names = Callable[[Messaging, str], Iterable[str]]

# By the group of verbs, and the argument; "" stands for all groups.
_KINDS: dict[tuple[str, str], Names] = {
    ("topic", "name"): Messaging.topics,
    ("topic", "names"): Messaging.topics,
    ("queue", "name"): Messaging.queues,
    ("", "topic"): Messaging.topics,
    ("", "group"): lambda messaging, namespace: [
        *(found.group for found in messaging.groups(namespace)),
        *(lag.group for lag in messaging.metrics().groups),
    ],
}


class Name(click.types.StringParamType):
    """A name that the shell completes by those that are there."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Returns the names that begin so; none where the data cannot be opened.

        What fails is not told: it would come between the words of a command line.
        """
        url = ctx.params.get("url") or ctx.find_root().params.get("url") or DEFAULT_URL
        namespace = ctx.params.get(NAMESPACE) or DEFAULT_NAMESPACE
        try:
            with Session(url).open() as messaging:
                found = sorted(set(self._names(messaging, namespace)))
        except Exception:
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def complete_names(verb: click.Command, *, within: str = "") -> None:
    """Has the shell complete names in a verb, or in all verbs of a group.

    A verb that creates something takes a name that is not there yet.
    """
    if isinstance(verb, click.Group):
        for name, one in verb.commands.items():
            if name != "create":
                complete_names(one, within=verb.name or "")
        return
    for param in verb.params:
        names = _KINDS.get((within, str(param.name))) or _KINDS.get(
            ("", str(param.name))
        )
        if isinstance(param, click.Argument) and names is not None:
            param.type = Name(names)


class KeyValue(logging.Formatter):
    """A log format: `time=... level=info logger=txaware.x message="done" topics=3`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        pairs = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = record.__dict__.keys() - STANDARD
        pairs |= {key: str(record.__dict__[key]) for key in sorted(extra)}
        if record.exc_info and record.exc_info[1] is not None:
            pairs["error"] = repr(record.exc_info[1])
            if logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
                pairs["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@contextmanager
def logged_to_stderr(level: str) -> Iterator[None]:
    """Logs from `level` on, until the block ends."""
    handler = logging.StreamHandler()
    handler.setFormatter(KeyValue())
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)


EPILOG = f"""\b
Begin with:
  txaware demo
  txaware topic create orders
  txaware publish orders 'ann paid 5' 'bob paid 7'
  txaware poll orders

\b
Shell completion:
  bash   eval "$(_TXAWARE_COMPLETE=bash_source txaware)"
  zsh    eval "$(_TXAWARE_COMPLETE=zsh_source txaware)"
  fish   _TXAWARE_COMPLETE=fish_source txaware | source

{EXIT_CODES}"""


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--url",
    envvar="TXAWARE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="Where the data is: leveldb:PATH, hbase://HOST:PORT/PREFIX, http://HOST:PORT "
    "for a server (several with commas between them: the one that has the data is "
    "asked), or memory: for data that ends with the command.",
)
@click.option(
    "--coordinator",
    envvar="TXAWARE_COORDINATOR",
    show_envvar=True,
    metavar="ADDRESS",
    help="Who decides what commits: embedded, tephra:DIR, tephra://HOST:PORT, "
    "tephra+zk://HOSTS or http://HOST:PORT. By default the embedded one, or that of "
    "the server.",
)
@click.option(
    "--settings",
    "settings_file",
    envvar="TXAWARE_SETTINGS",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A TOML file with settings.",
)
@click.option(
    "--set",
    "pairs",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="One setting, above the file and TXAWARE_... variables; may be repeated. A "
    "name that does not exist is answered with all that do.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="warning",
    show_default=True,
    help="What is logged, as key=value lines on standard error.",
)
@click.version_option(package_name="txaware", message="txaware %(version)s")
@click.pass_context
def command(
    ctx: click.Context,
    url: str,
    coordinator: str | None,
    settings_file: str | None,
    pairs: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Messages that commit with your data, or not at all.

    Verbs work on the data that --url names, before the verb or after it: all but
    asyncapi, bench, copy, demo, hbase, metric and token, which say what they work on.
    Each has a --help with examples. A directory has one owner at a time; while that is
    `txaware serve`, other verbs are led to it. What a server asks for as a token is
    taken from TXAWARE_TOKEN, or from the file that TXAWARE_TOKEN_FILE names.
    """
    ctx.with_resource(logged_to_stderr(log_level))
    given = ctx.obj if isinstance(ctx.obj, Messaging) else None
    settings = load_settings(settings_file, dict(pairs))
    ctx.obj = Session(url, coordinator, settings, given)


for verb in (demo, bench, token, hbase, copy, asyncapi, metrics):
    command.add_command(verb)
for verb in (serve, topic, publish, poll, table, queue, worker, run):
    command.add_command(verb)
    accept_url(verb)
    complete_names(verb)
for verb in (groups, producers, shards, transactions):
    command.add_command(verb)
    accept_url(verb)
    complete_names(verb)
for verb in (outbox, participants, status, janitor, check, backup, restore):
    command.add_command(verb)
    accept_url(verb)


def _open_missing_streams() -> None:
    """Opens to nowhere what the shell closed (`>&-`), before a file takes its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))


def main() -> None:
    """Runs the command line; always ends with `SystemExit`."""
    _open_missing_streams()
    try:
        command.main(prog_name="txaware")
    except KeyboardInterrupt:  # one more, on the way out
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends, with no word about it
