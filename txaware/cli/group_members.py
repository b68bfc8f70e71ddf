"""`txaware group` for groups with members: who they are, and what they have."""

import json
from typing import Any, cast

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    NOTHING,
    after_text,
    counted,
    echo_columns,
    echo_fields,
    echo_json,
    time_text,
)
from txaware.cli.values import (
    is_sure,
    json_option,
    namespace_option,
    to_option,
    yes_option,
)
from txaware.errors import BadRequest
from txaware.model.groups import (
    ASSIGNMENTS,
    Assignment,
    GroupDescription,
    GroupStart,
    owned_by_topic,
)
from txaware.model.start_places import StartAt


def named_group(group: str, namespace: str) -> str:
    """Returns a group with its namespace."""
    return group if ":" in group else f"{namespace}:{group}"


def _json_of(found: GroupDescription) -> dict[str, Any]:
    """Returns a group as `--json` prints it."""
    return {
        "group": found.group,
        "generation": found.generation,
        "since": time_text(found.generation_ms),
        "why": found.why,
        "assignment": found.assignment,
        "session_ms": found.session_ms,
        "heartbeat_ms": found.heartbeat_ms,
        "ephemeral": found.ephemeral,
        "topics": found.topics,
        "members": [
            {
                "member": one.member,
                "incarnation": one.incarnation,
                "static": one.static,
                "since": time_text(one.since_ms),
                "session_ms": one.session_ms,
                "client": one.client,
                "partitions": owned_by_topic(p.pair for p in one.partitions),
            }
            for one in found.members
        ],
    }


def _echo_group(found: GroupDescription) -> None:
    """Prints the topics of a group, its generation, and its settings."""
    topics = [f"{t} ({counted(n, 'partition')})" for t, n in found.topics.items()]
    echo_fields(
        [
            ("group", found.group),
            ("generation", found.generation),
            ("since", time_text(found.generation_ms)),
            ("because", found.why or NOTHING),
            ("topics", ", ".join(topics) or NOTHING),
            ("members", len(found.members)),
            ("assignment", found.assignment),
            ("session", f"{found.session_ms} ms"),
            ("heartbeat", f"{found.heartbeat_ms} ms"),
            ("ephemeral", "yes" if found.ephemeral else "no"),
        ]
    )


@click.command()
@click.argument("group")
@namespace_option
@json_option
@pass_session
def members(session: Session, *, group: str, namespace: str, as_json: bool) -> None:
    """List the members of a group, and the partitions that each has.

    \b
    Example:
      txaware group members billing
    """
    with session.open() as messaging:
        found = messaging.group(named_group(group, namespace))
    if as_json:
        for one in _json_of(found)["members"]:
            echo_json(one)
        return
    header = ("MEMBER", "SINCE", "INCARNATION", "CLIENT", "TOPIC", "PARTITIONS")
    rows = []
    for one in found.members:
        owned = owned_by_topic(partition.pair for partition in one.partitions)
        for topic, numbers in owned.items() or [(NOTHING, [])]:
            listed = ", ".join(map(str, numbers)) or NOTHING
            since = time_text(one.since_ms)
            client = one.client or NOTHING
            rows.append((one.member, since, one.incarnation, client, topic, listed))
    echo_columns(header, rows, empty="no members")


@click.command()
@click.argument("group")
@click.option("--session-s", type=float, help="After so long without a sign of life.")
@click.option("--heartbeat-s", type=float, help="The time between two heartbeats.")
@click.option(
    "--ephemeral/--lasting", default=None, help="Whether it goes with its last member."
)
@click.option(
    "--assignment",
    type=click.Choice(ASSIGNMENTS),
    help="How partitions are shared; sticky unless it is said.",
)
@namespace_option
@json_option
@pass_session
def create(
    session: Session,
    *,
    group: str,
    session_s: float | None,
    heartbeat_s: float | None,
    ephemeral: bool | None,
    assignment: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Create a group for members, or change what is named of one that is there.

    A group that is not created is made by the first who joins it.

    \b
    Example:
      txaware group create billing --session-s 20 --assignment range
    """
    with session.open() as messaging:
        found = messaging.create_group(
            named_group(group, namespace),
            session_s=session_s,
            heartbeat_s=heartbeat_s,
            ephemeral=ephemeral,
            assignment=cast(Assignment | None, assignment),
        )
    echo_found(found, as_json=as_json)


@click.command()
@click.argument("group")
@yes_option
@namespace_option
@pass_session
def delete(session: Session, *, group: str, yes: bool, namespace: str) -> None:
    """Delete a group that has no members; its positions stay.

    \b
    Example:
      txaware group delete billing
    """
    with session.open() as messaging:
        if is_sure(f"Delete group {group}?", yes=yes):
            messaging.delete_group(named_group(group, namespace))
            click.echo(f"deleted group {group}; its positions stay")


@click.command()
@click.argument("group")
@click.argument("topic")
@to_option
@click.option("--partition", type=int, help="That partition alone.")
@yes_option
@namespace_option
@json_option
@pass_session
def rewind(
    session: Session,
    *,
    group: str,
    topic: str,
    start: StartAt,
    partition: int | None,
    yes: bool,
    namespace: str,
    as_json: bool,
) -> None:
    """Move a group in all partitions of a topic; its members go on from there.

    \b
    Example:
      txaware group rewind billing orders --to first
      txaware group rewind billing orders --to 2026-01-31T12:00:00Z --partition 3
    """
    to = cast(GroupStart, start)
    with session.open() as messaging:
        if not is_sure(f"Move group {group} in {topic}?", yes=yes):
            return
        moved = messaging.rewind_group(
            named_group(group, namespace),
            topic,
            to=to if partition is None else {str(partition): to},
        )
    if as_json:
        for one in moved:
            echo_json(
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "position": str(one.position),
                }
            )
        return
    for one in moved:
        where = after_text(one.position)
        click.echo(f"moved partition {one.partition} of {one.topic} to {where}")


@click.command()
@click.argument("group")
@click.argument("assignment")
@namespace_option
@json_option
@pass_session
def assign(
    session: Session, *, group: str, assignment: str, namespace: str, as_json: bool
) -> None:
    """Say which member has which partitions; the assignment becomes `own`.

    ASSIGNMENT is JSON: members, with topics, with the numbers of partitions.

    \b
    Example:
      txaware group assign billing '{"worker-1": {"orders": [0, 1]}}'
    """
    try:
        members = json.loads(assignment)
    except ValueError as error:
        raise BadRequest(f"the assignment is no JSON: {error}") from error
    with session.open() as messaging:
        found = messaging.assign_group(named_group(group, namespace), members)
    echo_found(found, as_json=as_json)


def echo_found(found: GroupDescription, *, as_json: bool) -> None:
    """Prints a group, as columns or as JSON."""
    if as_json:
        echo_json(_json_of(found))
    else:
        _echo_group(found)


COMMANDS = (assign, create, delete, members, rewind)
