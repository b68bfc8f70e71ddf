"""`txaware token`: makes tokens for a server's clients, and looks at a tokens file."""

import os
import stat
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from txaware.auth import QUEUE_VERBS, VERBS, Rule, new_token
from txaware.auth.enrolment import Enrolment, enrol
from txaware.auth.tokens_file import Enrolled, read_tokens_file
from txaware.cli.show import NOTHING, echo_columns, echo_json, note


@click.group(short_help="Make tokens for a server's clients; check their file.")
def token() -> None:
    """Make tokens for a server's clients, and check the file that knows them.

    A server with --auth FILE lets in whoever has a token of FILE, and lets each do
    what the rules of its principal give. FILE has digests only. A client finds its
    token in TXAWARE_TOKEN, or in the file that TXAWARE_TOKEN_FILE names; no verb takes
    one as an option, where other users would see it.

    \b
    Example:
      txaware token new ann --file tokens.toml --topic 'orders*' --verb publish
      txaware token check --file tokens.toml
    """


@token.command()
@click.argument("principal")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The tokens file to write to; made where there is none.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="PATTERN",
    help="Topics that --verb and --monitor are about: `orders`, `orders*`, `audit:*`; "
    "`*` is all of namespace default, `*:*` all there are. May be repeated.",
)
@click.option(
    "--verb",
    "verbs",
    multiple=True,
    type=click.Choice((*VERBS, *QUEUE_VERBS)),
    help="What it may do with them; none includes another. admin is to create, change "
    "and delete topics; on `*:*` also clean-up, prune, check and backup. push, pop and "
    "manage are for queues. May be repeated.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    help="Consumer groups it may use, written as topics are. May be repeated.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="PATTERN",
    help="Tables that --verb is about, written as topics are: consume is to read rows, "
    "publish to change them. May be repeated.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATTERN",
    help="Queues that --verb and --monitor are about, written as topics are: pop is "
    "also to peek; manage is to create, delete, truncate, pause, resume and redrive. "
    "May be repeated.",
)
@click.option(
    "--transactional-id",
    "transactional_ids",
    multiple=True,
    metavar="PATTERN",
    help="Transactional ids it may use. May be repeated.",
)
@click.option("--transactions", is_flag=True, help="It may begin and end transactions.")
@click.option(
    "--long",
    is_flag=True,
    help="Its transactions may be long ones, which have a day; without it the server's "
    "max_transaction_timeout_s is the longest. Spark saves without save_id need it.",
)
@click.option(
    "--monitor",
    is_flag=True,
    help="It may see metrics and the overview: totals, and of --topic and --queue "
    "what names them.",
)
def new(*, principal: str, file: Path | None, **options: Any) -> None:
    """Make a token for PRINCIPAL, and print it this once.

    Its digest goes into --file, as a new principal with the rule that the options
    say, or beside the tokens that PRINCIPAL has. Without --file the lines to put
    there are printed on standard error. A running server knows it after SIGHUP.

    To change a token without a gap: make a new one, give it to the clients, then take
    the old line out of the file, and SIGHUP.

    \b
    Example:
      txaware token new billing --file tokens.toml --topic 'orders*' --verb publish
      txaware token new mailer --file tokens.toml --queue 'mail*' --verb pop
      txaware token new root --file tokens.toml --topic '*:*' --verb admin --monitor
      (umask 077; txaware token new billing --file tokens.toml > billing.token)
    """
    _check_rule(**options)
    rule = {
        key: value if isinstance(value, bool) else list(value)
        for key, value in options.items()
        if value or (key == "long" and options["transactions"])
    }
    made = new_token()
    enrolment = Enrolment(principal=principal, token=made, rule=rule)
    if file is None:
        text = f"to be put into a tokens file:\n{enrolment.section()}"
        click.echo(text, err=True, nl=False)
    else:
        enrol(file, enrolment)
        note(f"{file} knows its digest; a running server does after SIGHUP")
    if _others_may_read(sys.stdout):
        note(
            "other users may read the file that the token goes to; chmod 600 it, and "
            "next time: (umask 077; txaware token new ... > FILE)"
        )
    click.echo(made)


def _check_rule(
    *,
    topics: tuple[str, ...],
    tables: tuple[str, ...],
    queues: tuple[str, ...],
    verbs: tuple[str, ...],
    transactions: bool,
    long: bool,
    monitor: bool,
    **_others: object,
) -> None:
    """Refuses names without a verb for them, and verbs without a name."""
    of_queues = [verb for verb in verbs if verb in QUEUE_VERBS]
    others = [verb for verb in verbs if verb in VERBS]
    if of_queues and not queues:
        raise click.UsageError(f"--verb {of_queues[0]} needs --queue")
    if others and not (topics or tables):
        named = "--queue needs --verb push, pop or manage" if queues else ""
        raise click.UsageError(named or "--verb needs --topic, --table or --queue")
    if topics and not (others or monitor):
        raise click.UsageError("--topic needs --verb, or --monitor")
    if tables and not others:
        raise click.UsageError("--table needs --verb")
    if queues and not (of_queues or monitor):
        raise click.UsageError("--queue needs --verb push, pop or manage")
    if long and not transactions:
        raise click.UsageError("--long needs --transactions")


def _others_may_read(out: TextIO) -> bool:
    """Tells whether this is a file that other users may read."""
    try:
        mode = os.fstat(out.fileno()).st_mode
    except OSError:  # no file at all, as in a test
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o077)


@token.command()
@click.option(
    "--file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The tokens file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a principal.")
def check(*, file: Path, as_json: bool) -> None:
    """Check a tokens file, and list who may do what; no digests are shown.

    \b
    Example:
      txaware token check --file tokens.toml
    """
    enrolled = read_tokens_file(file).enrolled
    if as_json:
        for one in enrolled:
            echo_json(_as_json(one))
        return
    rows = [
        (one.principal.name, len(one.digests), rule)
        for one in enrolled
        for rule in [_text(rule) for rule in one.principal.rules] or [NOTHING]
    ]
    echo_columns(("PRINCIPAL", "TOKENS", "MAY"), rows, empty="no principals")


def _text(rule: Rule) -> str:
    """Formats rules: `publish, consume on orders*, audit:*; use groups billing*`."""
    parts = []
    if rule.topics:
        verbs = ", ".join(verb for verb in VERBS if verb in rule.verbs)
        parts.append(f"{verbs or 'see figures'} on {', '.join(map(str, rule.topics))}")
    if rule.queues:
        verbs = ", ".join(verb for verb in QUEUE_VERBS if verb in rule.verbs)
        names = ", ".join(map(str, rule.queues))
        parts.append(f"{verbs or 'see figures'} on queues {names}")
    if rule.tables:
        acts = {"consume": "read", "publish": "change"}
        verbs = " and ".join(acts[verb] for verb in acts if verb in rule.verbs)
        parts.append(f"{verbs} tables {', '.join(map(str, rule.tables))}")
    if rule.groups:
        parts.append(f"use groups {', '.join(map(str, rule.groups))}")
    if rule.transactional_ids:
        ids = ", ".join(pattern.text for pattern in rule.transactional_ids)
        parts.append(f"use transactional ids {ids}")
    if rule.transactions:
        how_long = {True: ", long ones too", False: "", None: " of up to a day"}[
            rule.long
        ]
        parts.append(f"use transactions{how_long}")
    parts += ["monitor"] * rule.monitor
    parts += ["operate the server"] * rule.makes_operator
    return "; ".join(parts) or NOTHING


def _as_json(one: Enrolled) -> dict[str, object]:
    return {
        "principal": one.principal.name,
        "tokens": len(one.digests),
        "operator": one.principal.is_operator,
        "rules": [
            {
                "topics": [str(pattern) for pattern in rule.topics],
                "verbs": [
                    verb for verb in (*VERBS, *QUEUE_VERBS) if verb in rule.verbs
                ],
                "groups": [str(pattern) for pattern in rule.groups],
                "tables": [str(pattern) for pattern in rule.tables],
                "queues": [str(pattern) for pattern in rule.queues],
                "transactional_ids": [one.text for one in rule.transactional_ids],
                "transactions": rule.transactions,
                "long": rule.long,
                "monitor": rule.monitor,
            }
            for rule in one.principal.rules
        ],
    }
