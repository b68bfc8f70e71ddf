"""The verbs that commit, with the rows that come in the same request."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import attrs
from msgspec import Struct, field

from coordinator.remote.calls import ROOT
from coordinator.remote.named_transactions import (
    NamedTransactions,
    checked_list,
    flag_or_null,
    read_keys,
)
from coordinator.remote.wire import fields_of
from txaware.errors import BadRequest
from txaware.model.commit_slots import (
    CLIENT_BYTES,
    MOST_SLOTS,
    CommitsInSlots,
    check_timeout,
    checked_client,
    checked_instance,
    checked_number,
    checked_open_ms,
    checked_slot,
)
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
from txaware.protocol.json_schema import (
    BASE64,
    FULL_NAME,
    GROUP,
    TEXT,
    or_null,
    whole,
)
from txaware.protocol.json_values import from_base64
from txaware.protocol.rights import holder
from txaware.protocol.tables import CHANGES
from txaware.protocol.transactional_ids import INSTANCE, KEY
from txaware.protocol.transactions import (
    KEYS,
    ONE,
    TAG,
    TIMEOUT,
    OneTransaction,
    of_one,
)
from txaware.protocol.verb import DONE, In, Repeat, Verb, Work, verbs_in

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


_PUBLISHES = _carried("publishes", Kind(_read_publish, _PUBLISH.schema))
_CARRIED = Others(
    None,
    named=(
        _PUBLISHES,
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

_CLIENT = Kind(
    by(checked_client),
    TEXT
    | {
        "pattern": f"^[0-9a-f]{{{2 * CLIENT_BYTES}}}$",
        "description": "Whose slot it is: random, and of this client alone.",
    },
    given=by(checked_client),
)
_SLOT = Kind(
    by(checked_slot),
    whole(0, MOST_SLOTS - 1)
    | {"description": "One of its places for a commit at a time."},
    given=by(checked_slot),
)
_NUMBER = Kind(
    by(checked_number),
    whole(1) | {"description": "Greater than those of earlier commits in the slot."},
    given=by(checked_number),
)
_LIFE = Kind(
    by(checked_instance),
    TEXT
    | {
        "description": "The instance of the server that the client had heard of last. "
        "Another one takes it only as a repeat: it may be a copy of one refused before."
    },
    given=by(checked_instance),
)
_OPEN_MS = Kind(
    by(checked_open_ms),
    whole(0) | {"description": "How long its block was open before."},
    given=by(checked_open_ms),
)


class SettleCommit(Struct, forbid_unknown_fields=True, rename="camel"):
    """Names a commit: whose it is, in which slot, and its number there."""

    client: Annotated[str, _CLIENT]
    slot: Annotated[int, _SLOT]
    number: Annotated[int, _NUMBER]


class CommitAtOnce(SettleCommit, forbid_unknown_fields=True, rename="camel"):
    """Names a commit, and says what is written with it."""

    life: Annotated[str, _LIFE] = ""
    repeat: Annotated[bool | None, _REPEAT] = False
    timeout_s: Annotated[float | None, TIMEOUT] = None
    open_ms: Annotated[int, _OPEN_MS] = 0
    carried: Annotated[Mapping[str, list[Any]], Others(None, named=(_PUBLISHES,))] = (
        field(default_factory=dict)
    )


_in_slot: Callable[..., Verb[..., Any]] = partial(
    Verb, method="POST", load=fields_of, work=Work.COORDINATOR, tag=TAG
)
_IN_SLOT = {"client": "0123456789abcdef" * 2, "slot": 0, "number": 1}
COMMIT_AT_ONCE = _in_slot(
    does=CommitsInSlots.commit_at_once,
    path=ROOT + "/commit",
    number=110,
    request=CommitAtOnce,
    is_late=True,
    check=lambda request: check_timeout(request.timeout_s),
    answer=In("transaction", Annotated[int, whole(1)]),
    right=holder,
    repeat=Repeat.NEVER,
    summary="Begins a transaction and commits it with these messages; a repeat is "
    "answered as the first one was, in any life.",
    example=_IN_SLOT
    | {"publishes": [{"topic": "orders", "messages": [{"utf8": "paid"}]}]},
    refuses=(404, 409, 429),
)
SETTLE_COMMIT = _in_slot(
    does=CommitsInSlots.settle_commit,
    path=ROOT + "/settle",
    number=111,
    request=SettleCommit,
    answer=In("transaction", Annotated[int | None, or_null(whole(1))]),
    right=holder,
    summary="Tells what such a commit has committed. With null it has nothing, and "
    "never will.",
    example=_IN_SLOT,
    refuses=(409,),
)

VERBS = verbs_in(globals())
