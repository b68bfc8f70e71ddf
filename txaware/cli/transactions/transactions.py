"""`txaware transaction`: lists the open ones, finds those that block, ends them."""

import attrs
import click

from coordinator.optional_ports import KnowsLives
from coordinator.transaction_status import ENDED, INVALID, NEVER, OPEN
from txaware.cli.failures import Failure
from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    counted,
    duration_text,
    echo_columns,
    echo_fields,
    echo_json,
    note,
    time_text,
)
from txaware.cli.transactions.prepared import commit, prepared, rollback
from txaware.cli.transactions.transaction_view import (
    HANGING_HEADER,
    HEADER,
    Known,
    all_topics,
    hanging,
    invalid_ones,
    known,
    open_ones,
    roll_back_all,
    waiting_rows,
)
from txaware.cli.values import duration, full_name, json_option, pointer
from txaware.errors import NotAuthorized
from txaware.messaging import Messaging
from txaware.model.keeper import UNREGISTERED
from txaware.model.topics import DEFAULT_NAMESPACE

STATES = ("open", "prepared", "invalid", "all")
WHAT_IT_MEANS = {
    OPEN: "readers stop before its first message",
    INVALID: "nobody ever sees what it wrote",
    ENDED: "committed, or rolled back with nothing left",
    NEVER: "this coordinator never gave out that id",
}


def full_topic(text: str) -> str:
    """Reads the name of a topic, with its namespace or without."""
    return full_name(text, DEFAULT_NAMESPACE)


namespaces_option = click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    default=(DEFAULT_NAMESPACE,),
    show_default=True,
    help="Whose topics to look through. May be repeated.",
)
principal_option = click.option("--principal", help="Only what that principal began.")
producer_option = click.option(
    "--producer", help="Only those of the producer with that transactional id."
)
topic_option = click.option(
    "--topic",
    "topics",
    type=full_topic,
    multiple=True,
    help="Only what keeps readers of that topic waiting. May be repeated.",
)


@click.group(
    "transaction",
    short_help="List, describe and abort transactions; find hanging ones.",
)
def transactions() -> None:
    """List and describe transactions, abort those that hang, end prepared ones.

    \b
    Example:
      txaware transaction find-hanging --older-than 15m
      txaware transaction abort 1763740800000000000
      txaware transaction commit order-7
    """


transactions.add_command(prepared)
transactions.add_command(commit)
transactions.add_command(rollback)


@transactions.command("list")
@click.option(
    "--state",
    type=click.Choice(STATES),
    default="open",
    show_default=True,
    help="Only those that are so; prepared ones are open, too.",
)
@click.option("--older-than", type=duration, help="Only those begun before: 15m, 2h.")
@principal_option
@producer_option
@topic_option
@json_option
@pass_session
def list_(
    session: Session,
    *,
    state: str,
    older_than: float | None,
    principal: str | None,
    producer: str | None,
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """List the transactions that are open, prepared ones among them, or invalid.

    Those of a program that died are invalid when its data is opened again. With --topic
    it lists those that keep readers of that topic waiting.

    \b
    Example:
      txaware transaction list --state all
      txaware transaction list --older-than 1h --topic orders
    """
    if topics and state in ("invalid", "all"):
        raise click.UsageError("--topic finds open ones: leave --state out")
    with session.open() as messaging:
        found = open_ones(messaging) if state != "invalid" else []
        invalid = invalid_ones(messaging)
        held_back = _held_back(messaging) if invalid and not as_json else None
        waiting = waiting_rows(messaging, topics)
    if state == "prepared":
        found = [one for one in found if one.stage == state]
    elif state != "open":
        found += invalid
    pointers = {one.pointer for one in waiting} if topics else None
    found = [
        one
        for one in found
        if one.is_chosen(
            older_than_s=older_than, principal=principal, producer=producer
        )
        and one.has_any_of(pointers)
    ]
    _echo(found, as_json=as_json)
    if invalid and state == "open" and not as_json:
        note(f"{len(invalid):,} invalid; --state invalid lists them")
    if held_back is not None:
        note(f"of the invalid ones {held_back}")


@transactions.command()
@click.argument("transaction", type=pointer)
@namespaces_option
@json_option
@pass_session
def describe(
    session: Session, *, transaction: int, namespaces: tuple[str, ...], as_json: bool
) -> None:
    """Tell what is known of a transaction, and which topics wait for it.

    It ends with 1 for an id that was never given out and that no topic has rows of.

    \b
    Example:
      txaware transaction describe 1763740800000000000
    """
    with session.open() as messaging:
        found = known(messaging, transaction)
        waiting = [
            one
            for one in (
                waiting_rows(messaging, all_topics(messaging, namespaces))
                if found.state in (OPEN, NEVER)
                else ()
            )
            if one.pointer in found.pointers
        ]
    topics = sorted({one.topic for one in waiting})
    if found.state == NEVER and not topics:
        raise Failure(
            f"transaction {transaction} was never given out here, and no topic in "
            f"{', '.join(namespaces)} has messages of it"
        )
    if as_json:
        rows = [one.as_json() for one in waiting]
        echo_json(found.as_json() | {"topics": topics, "waiting": rows})
        return
    echo_fields(
        [
            ("transaction", found.transaction_id),
            ("state", f"{found.stage}: {WHAT_IT_MEANS[found.state]}"),
            *found.as_fields(),
            ("keeps waiting", ", ".join(topics) or "no topic"),
            *((f"in {one.topic}", one.text) for one in waiting),
        ]
    )


@transactions.command("find-hanging")
@click.option(
    "--older-than",
    type=duration,
    default="15m",
    show_default=True,
    help="Only those begun, and not heard of, for so long: 15m, 2h.",
)
@principal_option
@producer_option
@topic_option
@namespaces_option
@json_option
@pass_session
def find_hanging(
    session: Session,
    *,
    older_than: float,
    principal: str | None,
    producer: str | None,
    topics: tuple[str, ...],
    namespaces: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find transactions that hang: open for long, and nobody has them any more.

    A long one whose client is still there does not hang: the connection that it was
    begun over is open, or it was used since; or the program that has it, or whose
    producer has it, is the one that owns the data. Neither does one whose end was asked
    for. What was published with an id that nobody was ever given hangs, too. `txaware
    transaction abort` ends one, and its readers go on; `list --older-than` shows all
    that are open for long.

    \b
    Example:
      txaware transaction find-hanging --older-than 15m
      txaware transaction find-hanging --topic orders --json
    """
    with session.open() as messaging:
        places = list(topics) or all_topics(messaging, namespaces)
        found = hanging(messaging, places, older_than)
    found = [
        one
        for one in found
        if one.known.is_chosen(principal=principal, producer=producer)
        and (one.waiting or not topics)
    ]
    if as_json:
        for one in found:
            echo_json(one.as_json())
        return
    echo_columns(
        HANGING_HEADER,
        [one.as_row() for one in found],
        empty=f"no transaction hangs for more than {duration_text(older_than)}",
    )


@transactions.command()
@click.argument("transaction", type=pointer)
@namespaces_option
@pass_session
def abort(session: Session, *, transaction: int, namespaces: tuple[str, ...]) -> None:
    """Abort an open transaction: its commit is refused, and its readers go on.

    Nobody ever sees what it wrote, and it is listed as invalid until that is cleaned
    up. An id that this coordinator never gave out cannot be aborted: messages that were
    written with it are rolled back.

    \b
    Example:
      txaware transaction abort 1763740800000000000
    """
    with session.open() as messaging:
        found = known(messaging, transaction)
        if found.state == NEVER:
            topics = roll_back_all(messaging, transaction, namespaces)
            if topics:
                click.echo(
                    f"rolled back in {', '.join(topics)} what was written with "
                    f"{transaction}, which this coordinator never gave out"
                )
                return
        if not messaging.coordinator.invalidate(found.transaction_id):
            found = known(messaging, transaction)
            raise Failure(
                f"transaction {transaction} is not open ({WHAT_IT_MEANS[found.state]})"
            )
    click.echo(
        f"aborted: transaction {found.transaction_id} is invalid now, nobody will see "
        f"what it wrote"
    )


@transactions.command()
@click.argument("transaction", type=pointer)
@click.option(
    "--committed/--rolled-back",
    default=None,
    help="What is to count as its outcome; one of them has to be said.",
)
@click.option("--life", help="The life that gave it out, where the error names one.")
@pass_session
def decide(
    session: Session, *, transaction: int, committed: bool | None, life: str | None
) -> None:
    """Say what became of a transaction, where nobody else knows.

    The data may have been put back from a copy, while a PostgreSQL has something
    prepared, or files wait, for the outcome of a transaction that the data does not
    know. Find out what it was about, and whether others have acted on it. What waits
    ends as you say at its next use, or by txaware participant recover. No message
    appears or goes, and an outcome that is known cannot be changed.

    \b
    Example:
      txaware transaction decide 1763740800000123456 --life 0f1e2d3c4b5a6978 \\
        --rolled-back
    """
    if committed is None:
        raise click.UsageError("say --committed or --rolled-back")
    with session.open() as messaging:
        if not isinstance(messaging.coordinator, KnowsLives):
            raise Failure(
                f"{type(messaging.coordinator).__name__} takes no decisions: end what "
                f"waits for an outcome where it is kept"
            )
        messaging.coordinator.decide(transaction, committed=committed, life=life)
    outcome = "committed" if committed else "rolled back"
    click.echo(f"transaction {transaction} counts as {outcome} from now on")


@transactions.command()
@click.option(
    "--exclusive",
    is_flag=True,
    help="Nobody else uses this coordinator, nor keeps rows elsewhere, but keepers "
    "that registered: forget, also in a Tephra.",
)
@json_option
@pass_session
def prune(session: Session, *, exclusive: bool, as_json: bool) -> None:
    """Forget invalid transactions that this data needs no more.

    It cleans up first, as `txaware janitor` does: what they wrote is marked. One that
    ended within the last day stays, for whoever still asks about its commit. A Tephra
    that others share is not changed without --exclusive: the command then only shows
    the least transaction id that this data still needs.

    What a participant wrote to a table of its own is not marked here: once its
    transaction is forgotten, its rows count as committed. So such a participant
    registers (messaging.register_keeper) and answers smallest_pointer(), the least
    pointer that its rows may still hold; nothing from there on is forgotten. One that
    was registered and does not answer is named, with exit code 1, and nothing is done:
    register it again where the data is open, or `forget-keeper` it when its rows are
    gone. For one that took part and never registered, all that it may hold is kept.

    \b
    Example:
      txaware transaction prune
      txaware transaction keepers
    """
    with session.open() as messaging:
        pruned = messaging.prune(exclusive=exclusive)
        left = messaging.coordinator.invalid_size()
    if as_json:
        echo_json(
            {"pruned": pruned.pruned, "invalid": left}
            | {"least_needed": pruned.least_needed, "held_back": pruned.held_back}
        )
        return
    click.echo(f"forgot {counted(pruned.pruned, 'invalid transaction')}, kept {left:,}")
    if pruned.least_needed is not None:
        click.echo(f"the data needs nothing below transaction {pruned.least_needed}")
    if pruned.held_back is not None:
        note(f"of the old ones {pruned.held_back}")


@transactions.command()
@json_option
@pass_session
def keepers(session: Session, *, as_json: bool) -> None:
    """List the participants that keep rows of their own.

    Nothing from its SMALLEST pointer on is forgotten. One registered `here`, in the
    program that owns the data, is asked itself, and does not answer before that program
    has registered it again. One registered `elsewhere`, over the network, reports by
    itself. An `unregistered` one only took part, so that all it may hold is kept.

    \b
    Example:
      txaware transaction keepers
    """
    with session.open() as messaging:
        found = messaging.keepers()
    if as_json:
        for one in found:
            echo_json(attrs.asdict(one))
        return
    echo_columns(
        ("KEEPER", "SINCE", "REGISTERED", "ANSWERS", "SMALLEST"),
        [
            (
                one.name,
                time_text(one.since_ms),
                "no" if one.kind == UNREGISTERED else one.kind,
                "yes" if one.answers else "no",
                one.smallest_pointer,
            )
            for one in found
        ],
        empty="no participant keeps rows of its own",
    )


@transactions.command("forget-keeper")
@click.argument("name")
@pass_session
def forget_keeper(session: Session, *, name: str) -> None:
    """Forget a participant whose own rows are gone, or hold nothing any more.

    `prune` no longer asks for it. If its rows are still there, those that were never
    committed count as committed once their transaction is forgotten.

    \b
    Example:
      txaware transaction forget-keeper notes
    """
    with session.open() as messaging:
        messaging.forget_keeper(name)
    click.echo(f"forgot keeper {name}; prune asks for it no more")


def _held_back(messaging: Messaging) -> str | None:
    """Tells why old ones are not forgotten, as far as this caller may see that."""
    try:
        return messaging.metrics().retention.held_back
    except NotAuthorized:
        return None


def _echo(found: list[Known], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            echo_json(one.as_json())
    else:
        rows = [one.as_row() for one in found]
        echo_columns(HEADER, rows, empty="no transactions")
