"""`txaware producer`: who publishes, how far each has come, and forgetting one."""

import attrs
import click

from txaware.cli.failures import Failure
from txaware.cli.session import Session, pass_session
from txaware.cli.show import NOTHING, echo_columns, echo_json, time_text
from txaware.cli.values import is_sure, json_option, yes_option
from txaware.messaging import Messaging
from txaware.model.producers import (
    MAX_PRODUCER_ID,
    SEQUENCES,
    KnownProducer,
    ProducedTopic,
)


def _number(text: str) -> int:
    """Reads the id of a producer."""
    if not text.isdecimal() or int(text) > MAX_PRODUCER_ID:
        raise click.BadParameter(
            f"{text!r:.100} is no producer id; --transactional-id names one by that"
        )
    return int(text)


producer_argument = click.argument("producer_id", type=_number, required=False)
name_option = click.option(
    "--transactional-id", help="Instead of PRODUCER_ID: the producer of this id."
)
HEADER = ("ProducerId", "ProducerEpoch", "TransactionalId", "State")
TOPIC_HEADER = ("Topic", "ProducerEpoch", "LastSequence", "LastTimestamp", "LastId")


@click.group(
    "producer", short_help="List producers and how far they have come; forget one."
)
def producers() -> None:
    """List producers and their epochs, show one, forget one.

    \b
    Example:
      txaware producer list
      txaware producer describe 6004861582214639321
    """


@producers.command("list")
@click.option("--transactional-id", help="Only the producer of this id.")
@json_option
@pass_session
def list_producers(
    session: Session, *, transactional_id: str | None, as_json: bool
) -> None:
    """List all producers that are known.

    An ended one had a gap in its sequences: it publishes nothing more.

    \b
    Example:
      txaware producer list
      txaware producer list --transactional-id loader-7
    """
    with session.open() as messaging:
        found = messaging.producers()
    if transactional_id is not None:
        found = [one for one in found if one.transactional_id == transactional_id]
    if as_json:
        for one in found:
            echo_json(_as_json(one))
        return
    rows = [(*_identity(one), one.owner or NOTHING, *_times(one)) for one in found]
    header = (*HEADER, "Owner", "Opened", "LastTimestamp")
    echo_columns(header, rows, empty="no producers")


@producers.command()
@producer_argument
@name_option
@json_option
@pass_session
def describe(
    session: Session,
    *,
    producer_id: int | None,
    transactional_id: str | None,
    as_json: bool,
) -> None:
    """Show how far a producer has come in each topic.

    \b
    Example:
      txaware producer describe 6004861582214639321
      txaware producer describe --transactional-id loader-7
    """
    _check_named(producer_id, transactional_id)
    with session.open() as messaging:
        number = _found(messaging, producer_id, transactional_id)
        found = messaging.describe_producer(number)
    if as_json:
        echo_json(_as_json(found))
        return
    rows = [_topic_row(topic) for topic in found.topics]
    echo_columns(TOPIC_HEADER, rows, empty="it has published nothing")


@producers.command()
@producer_argument
@name_option
@yes_option
@pass_session
def forget(
    session: Session,
    *,
    producer_id: int | None,
    transactional_id: str | None,
    yes: bool,
) -> None:
    """Forget a producer: what it publishes later is refused. Asks first, on a terminal.

    With a transactional id go its number of commits and the keys of `run_once`.

    \b
    Example:
      txaware producer forget 6004861582214639321 --yes
    """
    _check_named(producer_id, transactional_id)
    named = transactional_id or producer_id
    if not is_sure(f"Forget producer {named}?", yes=yes):
        return
    with session.open() as messaging:
        number = _found(messaging, producer_id, transactional_id)
        messaging.forget_producer(number)
    click.echo(f"forgot producer {number}")


def _check_named(producer_id: int | None, transactional_id: str | None) -> None:
    if (producer_id is None) is (transactional_id is None):
        raise click.UsageError("one of PRODUCER_ID or --transactional-id is needed")


def _found(
    messaging: Messaging, producer_id: int | None, transactional_id: str | None
) -> int:
    """Returns the id of the producer that is named; the newest one of its name."""
    if producer_id is not None:
        return producer_id
    known = messaging.producers()
    named = [one for one in known if one.transactional_id == transactional_id]
    if not named:
        raise Failure(f"no producer of transactional id {transactional_id} is here")
    return max(named, key=lambda one: one.opened_ms).producer_id


def _identity(one: KnownProducer) -> tuple[object, ...]:
    state = "Ended" if one.has_ended else "Live"
    name = one.transactional_id or NOTHING
    return one.producer_id, one.epoch, name, state


def _times(one: KnownProducer) -> tuple[str, str]:
    return time_text(one.opened_ms), time_text(one.last_ms)


def _topic_row(one: ProducedTopic) -> tuple[object, ...]:
    last = (one.next_sequence - 1) % SEQUENCES
    return one.topic, one.epoch, last, time_text(one.last_ms), str(one.last_id)


def _as_json(one: KnownProducer) -> dict[str, object]:
    topics = [
        attrs.asdict(topic) | {"last_id": str(topic.last_id)} for topic in one.topics
    ]
    return attrs.asdict(one) | {"topics": topics}
