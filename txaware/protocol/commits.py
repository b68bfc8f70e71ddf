"""The verb that commits a transaction, with the rows that come in the same request."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import attrs
from msgspec import field

from coordinator.remote.named_transactions import (
    NamedTransactions,
    checked_list,
    flag_or_null,
    read_keys,
)
from txaware.errors import BadRequest
from txaware.model.topics import LONGEST_ID
from txaware.protocol.fields import (
    ID,
    LEFT_OUT,
    Body,
    Field,
    Kind,
    Others,
    Reads,
    array_of,
    as_it_is,
    by,
    text,
)
from txaware.protocol.formats import format_of
from txaware.protocol.formats.json_format import MESSAGES
from txaware.protocol.formats.requests import Listed
from txaware.protocol.json_schema import BASE64, FULL_NAME, GROUP, TEXT
from txaware.protocol.json_values import from_base64
from txaware.protocol.rights import holder
from txaware.protocol.tables import CHANGES
from txaware.protocol.transactional_ids import INSTANCE, KEY
from txaware.protocol.transactions import KEYS, ONE, OneTransaction, of_one
from txaware.protocol.verb import DONE, Repeat, verbs_in

_NAME = text(FULL_NAME)
_GROUP = text(TEXT | {"pattern": GROUP})
_ID = text(TEXT | {"pattern": GROUP, "maxLength": LONGEST_ID})
_PUBLISH = Body("a publish", (Field("topic", _NAME), Field("messages", MESSAGES)))
# The form in which the client of this project sends messages.
_OWN_PUBLISH = Body(
    "a publish",
    (
        Field("topic", text()),
        Field("contentType", text()),
        Field("body", Kind(from_base64, BASE64)),
    ),
)
_POSITION = Body(
    "a position", (Field("group", _GROUP), Field("topic", _NAME), Field("position", ID))
)
_TABLE = Body("a table", (Field("table", _NAME), Field("changes", CHANGES)))
_PRODUCER = Body(
    "a producer",
    (
        Field("transactionalId", _ID),
        Field("producer", INSTANCE),
        Field("key", KEY, default=None),
    ),
)


class CommittedPublish(NamedTuple):
    """The messages for a topic, and the transaction that they name, if any."""

    topic: str
    messages: Listed
    pointer: int | None = None


def _read_publish(value: object, *, what: str) -> CommittedPublish:
    """Reads the messages for a topic: listed, or as the body of a publish."""
    if not isinstance(value, dict) or "body" not in value:
        return CommittedPublish(**_PUBLISH.read(value, what=what))
    sent = _OWN_PUBLISH.read(value, what=what)
    request = format_of(sent["contentType"]).publish_request(sent["body"])
    if request.receipts is not None or request.attempt is not None:
        raise BadRequest("a commit publishes messages, and refers to none")
    return CommittedPublish(sent["topic"], request.messages, request.pointer)


def _carried(name: str, kind: Reads) -> Field:
    return Field(name, array_of(kind), default=LEFT_OUT)


_CARRIED = Others(
    None,
    named=(
        _carried("publishes", Kind(_read_publish, _PUBLISH.schema)),
        _carried("positions", _POSITION),
        _carried("tables", _TABLE),
        _carried("producers", _PRODUCER),
    ),
)


# Who commits looks at it: a transactional id has the keys checked whatever is sent.
_CHECK = Kind(
    as_it_is,
    {
        "type": ["boolean", "null"],
        "description": "True where can-commit was not asked: it is now, for the "
        "changes.",
    },
    given=flag_or_null,
)
_REPEAT = Kind(
    flag_or_null,
    {
        "type": ["boolean", "null"],
        "description": "True where it is asked again after a lost answer, and what "
        "became of it the first time is to be told.",
    },
    given=flag_or_null,
)
_CHANGES = attrs.evolve(
    KEYS, read=by(lambda sent: read_keys(checked_list(sent, "changes")))
)


class CommitTransaction(OneTransaction, forbid_unknown_fields=True):
    """Says what is checked, and what is written with the commit.

    `carried` has the parts of each kind by the name of its field.
    """

    check: Annotated[bool | None, _CHECK] = False
    changes: Annotated[Sequence[bytes], _CHANGES] = ()
    repeat: Annotated[bool | None, _REPEAT] = False
    carried: Annotated[Mapping[str, list[Any]], _CARRIED] = field(default_factory=dict)


COMMIT = of_one(
    does=NamedTransactions.commit,
    path=ONE + "/commit",
    number=105,
    request=CommitTransaction,
    is_late=True,
    answer=DONE,
    right=holder,
    repeat=Repeat.NEVER,
    summary="Makes its writes visible, and what comes with the commit: all of it or "
    "nothing.",
    example={
        "check": True,
        "publishes": [{"topic": "orders", "messages": [{"utf8": "paid"}]}],
    },
    refuses=(404, 409),
)

VERBS = verbs_in(globals())
