"""The verbs of messages that JSON is enough for: wait for one, and a topic's ends."""

from typing import Annotated

import attrs
from msgspec import Struct, field

from txaware.errors import BadRequest
from txaware.model.interfaces import (
    COMMITTED,
    UNCOMMITTED,
    Isolation,
    MessagingService,
    Start,
)
from txaware.model.messages import Bounds
from txaware.model.requests import checked_isolation, checked_start, checked_wait_s
from txaware.protocol import places
from txaware.protocol.fields import FLAG, START, Kind, by, long, start_field, text
from txaware.protocol.formats.json_format import START_FROM
from txaware.protocol.formats.requests import milliseconds, seconds
from txaware.protocol.json_values import load
from txaware.protocol.rights import on_topic
from txaware.protocol.topics import TOPIC
from txaware.protocol.verb import In, Verb, verbs_in

TAG = "messages"
_WAIT_MS = long(0)


def _wait_s(value: object, *, what: str) -> float:
    wait_ms: int = _WAIT_MS.read(value, what=what)
    if wait_ms < 0:
        raise BadRequest(f"{what} is 0 or more, not {wait_ms}")
    return seconds(wait_ms)


_ISOLATION = text({"enum": [UNCOMMITTED, COMMITTED]}, given=by(checked_isolation))
_ISOLATION_ASKED = attrs.evolve(
    _ISOLATION, schema={"type": "string", **_ISOLATION.schema}
)
_START = attrs.evolve(START_FROM, given=by(checked_start), write=start_field)
_WAIT = Kind(_wait_s, _WAIT_MS.schema, given=by(checked_wait_s), write=milliseconds)
_Topic = Annotated[str, places.TOPIC]


class Wait(Struct, forbid_unknown_fields=True, rename="camel"):
    """Says from where on there is to be a message, and how long to wait for it."""

    topic: _Topic
    start: Annotated[Start, _START] = field(default=None, name="startFrom")
    inclusive: Annotated[bool, FLAG] = True
    isolation: Annotated[Isolation, _ISOLATION] = COMMITTED
    timeout_s: Annotated[float, _WAIT] = field(default=0.0, name="waitMs")


class AskBounds(Struct, forbid_unknown_fields=True):
    """Says from where on a topic is looked at, and for which readers."""

    topic: _Topic
    start: Annotated[Start, START] = field(default=None, name="startFrom")
    isolation: Annotated[Isolation, _ISOLATION_ASKED] = UNCOMMITTED


WAIT = Verb(
    does=MessagingService.wait,
    method="POST",
    path=TOPIC + "/wait",
    request=Wait,
    body_name="a WaitRequest",
    schema_name="WaitRequest",
    needs_body=True,
    answer=In("ready", bool),
    right=on_topic("consume"),
    waits="timeout_s",
    finds_topic=True,
    summary="Waits until there is something to poll.",
    tag=TAG,
    example={"startFrom": 0, "isolation": "committed", "waitMs": 10},
    load=load,
)
BOUNDS = Verb(
    does=MessagingService.bounds,
    method="GET",
    path=TOPIC + "/bounds",
    request=AskBounds,
    answer=Bounds,
    right=on_topic("consume"),
    summary="The first and the last id, and where the next one goes; for committed "
    "readers, where they stop.",
    tag=TAG,
    spaced=True,
)

VERBS = verbs_in(globals())
