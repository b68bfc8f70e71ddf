"""`txaware group`: the positions of consumer groups, their lag, and moving one."""

from contextlib import suppress

import attrs
import click

from txaware.cli.group_members import COMMANDS, echo_found, named_group
from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    NOTHING,
    after_text,
    duration_text,
    echo_columns,
    echo_fields,
    echo_json,
    place_time,
)
from txaware.cli.values import (
    full_name,
    is_sure,
    json_option,
    namespace_option,
    to_option,
    yes_option,
)
from txaware.errors import BadRequest, NotAuthorized, TxAwareError
from txaware.messaging import Messaging
from txaware.model.markers import is_marker
from txaware.model.messages import MessageId
from txaware.model.metrics import GroupLag
from txaware.model.start_places import BEGINNING, StartAt, of_one, place_of
from txaware.service.administration import MOST_COUNTED


class NoPosition(TxAwareError):
    """A group has no position in that topic; it gets one when it first reads."""


@attrs.frozen
class Stand:
    """The position and the lag of a group; None for what this caller may not see."""

    group: str
    topic: str
    position: MessageId | None
    lag_ms: int
    rows: int | None
    oldest_unread_ms: int | None

    @classmethod
    def of(cls, messaging: Messaging, lag: GroupLag) -> "Stand":
        """Adds the position to a lag, if the caller may see it."""
        position = None
        with suppress(NotAuthorized):
            position = messaging.position(lag.group, lag.topic)
        return cls(
            *(lag.group, lag.topic, position),
            *(lag.lag_ms, lag.rows, lag.oldest_unread_ms),
        )

    @property
    def rows_text(self) -> int | str:
        """The number of rows; those above the limit are not counted."""
        if self.rows is None:
            return NOTHING
        return self.rows if self.rows < MOST_COUNTED else f"{MOST_COUNTED} or more"

    @property
    def unread_text(self) -> str:
        """The age of the oldest message that is still to be read."""
        if self.oldest_unread_ms is None:
            return NOTHING
        return duration_text(self.oldest_unread_ms / 1000)

    def as_json(self) -> dict[str, object]:
        """Returns it as `--json` prints it."""
        return {
            "group": self.group,
            "topic": self.topic,
            "position": self.position and str(self.position),
            "time": place_time(self.position),
            "lag_ms": self.lag_ms,
            "oldest_unread_ms": self.oldest_unread_ms,
            "rows": self.rows,
        }

    def as_row(self) -> tuple[object, ...]:
        """Returns it as a row of a table."""
        return (
            self.group,
            self.topic,
            place_time(self.position) or NOTHING,
            duration_text(self.lag_ms / 1000),
            self.unread_text,
            self.rows_text,
        )


@click.group(
    "group", short_help="List consumer groups, how far behind they are; move one."
)
def groups() -> None:
    """List consumer groups and how far behind they are, show one, move one.

    `create`, `delete`, `members`, `rewind` and `assign` are for groups whose members
    divide partitions.

    \b
    Example:
      txaware group list
      txaware group reset billing orders --to 2026-01-31T12:00:00Z
      txaware group members billing
    """


@groups.command("list")
@json_option
@pass_session
def list_(session: Session, *, as_json: bool) -> None:
    """List groups, the topics they read, and how far behind they are.

    BEHIND is the time from what they read last to the last committed message, and
    stands still where nothing is published. OLDEST UNREAD is how long the oldest
    message that they may read has been waiting. ROWS counts up to 10,000, and no
    further than to the first open transaction; some may be rolled back.
    What Spark remembers of its saves and streams (spark-save-..., spark- and the id of
    a query) is not listed.

    \b
    Example:
      txaware group list
    """
    with session.open() as messaging:
        found = [Stand.of(messaging, lag) for lag in messaging.metrics().groups]
    if as_json:
        for one in found:
            echo_json(one.as_json())
        return
    header = ("GROUP", "TOPIC", "HAS READ UP TO", "BEHIND", "OLDEST UNREAD", "ROWS")
    echo_columns(header, [one.as_row() for one in found], empty="no groups")


@groups.command()
@click.argument("group")
@click.argument("topic", required=False)
@namespace_option
@json_option
@pass_session
def show(
    session: Session, *, group: str, topic: str | None, namespace: str, as_json: bool
) -> None:
    """Show where a group stands in a topic, and what is still to come.

    Without a topic, show a group that has members: its topics, its generation and why
    that began.

    \b
    Example:
      txaware group show billing orders
      txaware group show billing
    """
    if topic is None:
        with session.open() as messaging:
            found = messaging.group(named_group(group, namespace))
        echo_found(found, as_json=as_json)
        return
    with session.open() as messaging:
        name = full_name(topic, namespace)
        messaging.topic(name)  # which has to be there
        _require_readers(group)
        position = messaging.position(group, name)
        if position is None:
            raise NoPosition(
                f"group {group} has no position in topic {name}; txaware group list "
                f"shows those that have one"
            )
        lag_ms = messaging.lag_ms(group, name)
        unread_ms = messaging.oldest_unread_ms(group, name)
        rows = _rows(messaging, group, name)
        stand = Stand(group, name, position, lag_ms, rows, unread_ms)
        newest = messaging.bounds(name, isolation="committed").last
    if as_json:
        echo_json(stand.as_json() | {"newest": newest and str(newest)})
        return
    echo_fields(
        [
            ("group", group),
            ("topic", name),
            ("position", position),
            ("has read up to", place_time(position) or "nothing"),
            ("behind", duration_text(stand.lag_ms / 1000)),
            ("oldest unread", stand.unread_text),
            ("rows behind", stand.rows_text),
            ("newest id", newest or NOTHING),
        ]
    )


def _rows(messaging: Messaging, group: str, topic: str) -> int | None:
    """Counts the rows behind; None for a caller that may not see the metrics."""
    with suppress(NotAuthorized):
        for lag in messaging.metrics().groups:
            if (lag.group, lag.topic) == (group, topic):
                return lag.rows
    return None


@groups.command()
@click.argument("group")
@click.argument("topic")
@to_option
@yes_option
@namespace_option
@json_option
@pass_session
def reset(
    session: Session,
    *,
    group: str,
    topic: str,
    start: StartAt,
    yes: bool,
    namespace: str,
    as_json: bool,
) -> None:
    """Move a group to another place in a topic. Asks first, on a terminal.

    It is a transaction of its own. If somebody reads for the group at that moment, one
    of the two is refused: the reader, which goes on from the new place, or this
    command, which may be repeated. A group that has no position yet gets one. Members
    that divide partitions hear nothing of it: `rewind` moves such a group.

    \b
    Example:
      txaware group reset billing orders --to first
      txaware group reset billing orders --to 2026-01-31T12:00:00Z --yes
    """
    with session.open() as messaging:
        name = full_name(topic, namespace)
        messaging.topic(name)  # which has to be there
        _require_readers(group)
        before = messaging.position(group, name)
        move = f"group {group} in {name} from {after_text(before)}"
        if not is_sure(f"Move {move}?", yes=yes):
            return
        position = of_one(place_of(messaging, name, start), name) or BEGINNING
        consumer = messaging.consumer(name, group=group)
        with messaging.transaction():
            consumer.seek(position, inclusive=False)
    if as_json:
        echo_json(
            {"group": group, "topic": name, "position": str(position)}
            | {"before": before and str(before)}
        )
    else:
        click.echo(f"moved {move} to {after_text(position)}")


def _require_readers(group: str) -> None:
    """Refuses the markers that Spark keeps beside the positions of groups."""
    if is_marker(group):
        raise BadRequest(
            f"{group} is not a consumer group: Spark keeps there what its saves and "
            f"streams have published, and moving it would lose or double messages"
        )


for command in COMMANDS:
    groups.add_command(command)
