"""The verbs of transactions, those of one named by its id in the path."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Struct, field

from coordinator import codec
from coordinator.outcome import KnownOutcome, Outcome
from coordinator.prepared_transactions import LONGEST_NAME as LONGEST_PREPARED
from coordinator.prepared_transactions import NAME, PreparedTransaction
from coordinator.remote.calls import ROOT
from coordinator.remote.named_transactions import (
    DECIDABLE,
    HANGING_S,
    NamedTransactions,
    checked_before_ms,
    checked_beginning,
    checked_checkpoints,
    checked_decision,
    checked_keys,
    checked_kind,
    checked_life,
    checked_name,
    checked_names,
    checked_older_than,
    checked_pointer_list,
    checked_prepared_id,
    checked_state,
    checked_truncation,
    older_than_in_text,
    read_keys,
)
from coordinator.remote.wire import BYTES as BYTES_TYPE
from coordinator.remote.wire import LONGEST_NAME, fields_of
from coordinator.transaction import checked_timeout_s
from coordinator.transaction_status import (
    ENDED,
    INVALID,
    NEVER,
    OPEN,
    STATES,
    Standing,
    TransactionCounts,
)
from txaware.protocol import places
from txaware.protocol.fields import Kind, as_it_is, by, encoded_transaction
from txaware.protocol.json_schema import (
    BASE64,
    FLAG,
    NULL,
    TEXT,
    TIMEOUT_S,
    Schema,
    any_of,
    array,
    fields,
    or_null,
    whole,
)
from txaware.protocol.rights import (
    holder,
    holder_or_operator,
    monitor,
    operator,
    to_prepare,
)
from txaware.protocol.values import structured
from txaware.protocol.verb import (
    DONE,
    Form,
    In,
    InBytes,
    Nothing,
    Repeat,
    Verb,
    Work,
    verbs_in,
)

TAG = "transactions"
ONE = ROOT + "/{transaction}"
POINTERS: Schema = array(whole(0))
LIFE: Schema = TEXT | {
    "pattern": "^([0-9a-f]{16})?$",
    "description": "The life of the data, from one opening to the next, that gave out "
    "the pointer; empty for those of earlier versions, and where there is none.",
}
PARTICIPANT: Schema = TEXT | {"minLength": 1, "maxLength": LONGEST_NAME}
_PREPARED_NAME: Schema = TEXT | {"pattern": NAME, "maxLength": LONGEST_PREPARED}
_KEYS = array(BASE64)

_KIND = Kind(by(checked_kind), {"enum": ["short", "long"]}, given=by(checked_kind))
_CHECKPOINTS = Kind(
    by(checked_checkpoints),
    POINTERS | {"description": "Its further write pointers."},
    given=by(checked_checkpoints),
    write=list,
)
KEYS = Kind(by(read_keys), _KEYS, given=by(checked_keys))
_PARTICIPANTS = Kind(
    by(checked_names),
    or_null(
        array(PARTICIPANT, description="Who writes them, by name; none is nobody.")
    ),
    given=by(checked_names),
)
_NAME = Kind(
    by(checked_name),
    _PREPARED_NAME,
    given=by(checked_name),
    missing="name: null is not the name of a prepared transaction",
)

_PREPARED_ID = Kind(
    by(checked_prepared_id),
    or_null(whole(0))
    | {"description": "Its id, where the call is repeated: it may have ended already."},
    given=by(checked_prepared_id),
)
_PREPARER = or_null(TEXT) | {
    "description": "Who prepared it; null for the program with the data."
}
_PREPARED = Form(
    lambda found: [one.fields() for one in found],
    lambda _, sent: [*map(PreparedTransaction.of, sent)],
    array(
        fields(
            {
                "name": _PREPARED_NAME,
                "transactionId": whole(0),
                "sinceMs": whole(0),
                "principal": _PREPARER,
            }
        )
    ),
)


def _check_beginning(request: Any) -> None:
    """Refuses what no transaction begins with."""
    checked_beginning(request.kind, request.timeout_s)
    if request.timeout_s is not None:
        checked_timeout_s(request.timeout_s)


STANDING = fields(
    {
        "transactionId": whole(0),
        "state": {"enum": [OPEN, INVALID, ENDED, NEVER]},
        "pointers": POINTERS,
        "type": or_null({"enum": ["short", "long"]}),
        "stage": or_null(TEXT),
        "expiresMs": or_null(whole()),
        "changes": or_null(whole(0)),
        "beganMs": whole(0),
        "principal": or_null(TEXT) | {"description": "Who began it, where known."},
        "address": or_null(TEXT)
        | {"description": "From where: HOST:PORT, or the coordinator's own process."},
        "isHeld": FLAG | {"description": "Whether that client surely still has it."},
        "heardMs": or_null(whole(0))
        | {"description": "When that client last used it, where known."},
    }
)
_COUNTS = fields(
    {
        "status": TEXT,
        "open": whole(0),
        "oldestMs": or_null(whole(0)),
        "invalid": whole(0),
    }
)
_TRANSACTION = InBytes(
    BYTES_TYPE,
    encoded_transaction,
    codec.decode,
    "As Tephra's codec writes it.",
    fields(
        {
            "transactionId": whole(0),
            "writePointer": whole(0),
            "readPointer": whole(0),
            "type": {"enum": ["short", "long"]},
            "timeoutS": or_null({"type": "number"})
            | {"description": "null for a long one, and where it is not known here."},
            "transaction": BASE64 | {"description": "The bytes, as a poll takes them."},
        }
    ),
)
# A coordinator looks at both together.
_KIND_TO_BEGIN = Kind(as_it_is, {"enum": ["short", "long"]})
TIMEOUT = Kind(as_it_is, or_null(TIMEOUT_S))
_BEGIN = any_of(
    fields({}, {"type": {"const": "short"}, "timeoutS": or_null(TIMEOUT_S)}),
    fields({"type": {"const": "long"}}, {"timeoutS": NULL}),
)
_STATE = Kind(
    by(checked_state), {"enum": [*STATES]}, given=by(checked_state), write=str
)


_STANDINGS = Form(
    lambda found: [one.fields() for one in found],
    lambda _, sent: [*map(Standing.of, sent)],
    array(STANDING),
)


def _or_none(check: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns the `given` of a field that a program may leave out, and JSON too."""
    return by(lambda value: None if value is None else check(value))


_LIFE = Kind(by(checked_life), LIFE, given=_or_none(checked_life))
_DECISION = Kind(
    by(checked_decision),
    {"enum": [*DECIDABLE]},
    given=by(checked_decision),
    missing=f"outcome is one of {', '.join(DECIDABLE)}, not null",
)
_OLDER_THAN = Kind(
    by(checked_older_than),
    {"type": "number", "minimum": 0},
    given=by(checked_older_than),
    read_text=by(older_than_in_text),
)
_BEFORE_MS = Kind(by(checked_before_ms), whole(0), given=_or_none(checked_before_ms))
_FORGOTTEN = partial(checked_pointer_list, name="pointers")
_POINTERS = Kind(by(_FORGOTTEN), POINTERS, given=_or_none(_FORGOTTEN), write=list)
_TRUNCATE = any_of(
    fields({"beforeMs": whole(0)}),
    fields({}, {"pointers": POINTERS}),
)


class Beginning(Struct, forbid_unknown_fields=True):
    """Says how long it may take: a long one has no time-out."""

    kind: Annotated[str, _KIND_TO_BEGIN] = field(default="short", name="type")
    timeout_s: Annotated[float | None, TIMEOUT] = field(default=None, name="timeoutS")


class NoFields(Struct, forbid_unknown_fields=True):
    """Says nothing, and no more."""


class ListTransactions(Struct):
    """Says which are listed."""

    state: Annotated[str, _STATE] = OPEN


class FindHanging(Struct, rename="camel"):
    """Says how long those are open at least that hang."""

    older_than_s: Annotated[float, _OLDER_THAN] = HANGING_S


class Truncate(Struct, forbid_unknown_fields=True, rename="camel"):
    """Says which invalid pointers are forgotten: those of before a time, or these."""

    before_ms: Annotated[int | None, _BEFORE_MS] = None
    pointers: Annotated[Sequence[int] | None, _POINTERS] = None


class AskOutcome(Struct):
    """Names a pointer that was written with, and its life where that is known."""

    transaction: Annotated[int, places.WRITTEN_POINTER]
    life: Annotated[str | None, _LIFE] = None


class Decide(Struct, forbid_unknown_fields=True):
    """Names a pointer that was written with, and says what became of it."""

    transaction: Annotated[int, places.TRANSACTION]
    outcome: Annotated[str, _DECISION]
    life: Annotated[str | None, _LIFE] = None


class NamesTransaction(Struct):
    """Names a transaction."""

    transaction: Annotated[int, places.TRANSACTION]


class OneTransaction(Struct, forbid_unknown_fields=True):
    """Names a transaction, with what its calls have to know of it."""

    transaction: Annotated[int, places.TRANSACTION]
    kind: Annotated[str, _KIND] = field(default="short", name="type")
    checkpoints: Annotated[Sequence[int], _CHECKPOINTS] = ()


class CanCommit(OneTransaction, forbid_unknown_fields=True):
    """Says which keys it changed."""

    changes: Annotated[Sequence[bytes], KEYS] = ()


class Persist(OneTransaction, forbid_unknown_fields=True):
    """Says who writes rows elsewhere next, if that is known."""

    participants: Annotated[Sequence[str] | None, _PARTICIPANTS] = None


class Prepare(OneTransaction, forbid_unknown_fields=True, kw_only=True):
    """Gives it a name."""

    name: Annotated[str, _NAME]


class EndPrepared(Struct, forbid_unknown_fields=True, rename="camel"):
    """Says the name, and the id where the call may be a repeat."""

    name: Annotated[str, _NAME]
    transaction_id: Annotated[int | None, _PREPARED_ID] = None


of_one: Callable[..., Verb[..., Any]] = partial(
    Verb,
    method="POST",
    load=fields_of,
    work=Work.COORDINATOR,
    tag=TAG,
    example={"type": "short"},
    refuses=(409,),
)
_looks: Callable[..., Verb[..., Any]] = partial(
    Verb, method="GET", work=Work.COORDINATOR, tag=TAG, spaced=True
)
BEGIN = of_one(
    does=NamedTransactions.begin,
    path=ROOT,
    number=93,
    request=Beginning,
    check=_check_beginning,
    answer=_TRANSACTION,
    right=holder,
    repeat=Repeat.KEYED,
    summary="Begins a transaction.",
    example={"type": "short", "timeoutS": 30},
    schema=_BEGIN,
    refuses=(429,),
)
SNAPSHOT = Verb(
    does=NamedTransactions.snapshot,
    method="POST",
    path=ROOT + "/snapshot",
    number=94,
    request=NoFields,
    empty_body=True,
    load=fields_of,
    answer=_TRANSACTION,
    right=holder,
    work=Work.COORDINATOR,
    summary="A read-only transaction.",
    tag=TAG,
)
LIST_TRANSACTIONS = _looks(
    does=NamedTransactions.standings,
    path=ROOT,
    number=95,
    request=ListTransactions,
    answer=_STANDINGS,
    right=operator,
    summary="All that are open, or invalid.",
)
DESCRIBE_TRANSACTION = _looks(
    does=NamedTransactions.standing,
    path=ONE,
    number=96,
    request=NamesTransaction,
    answer=Form(Standing.fields, lambda _, sent: Standing.of(sent), STANDING),
    right=holder_or_operator,
    summary="One transaction, whatever became of it.",
)
COORDINATOR_STATUS = _looks(
    does=NamedTransactions.status,
    path=ROOT + "/status",
    number=97,
    request=Nothing,
    answer=In("status", str),
    right=holder,
    summary="OK, or a sentence about what is wrong.",
)
COUNT_TRANSACTIONS = _looks(
    does=NamedTransactions.counts,
    path=ROOT + "/state",
    number=98,
    request=Nothing,
    answer=Form(
        TransactionCounts.fields,
        lambda _, sent: structured(TransactionCounts, sent),
        _COUNTS,
    ),
    right=monitor,
    summary="How many there are.",
)
FIND_HANGING = _looks(
    does=NamedTransactions.find_hanging,
    path=ROOT + "/find-hanging",
    number=100,
    request=FindHanging,
    answer=_STANDINGS,
    right=operator,
    summary="Those that are open for long, and that nobody has or has used since.",
)
INVALID_SIZE = _looks(
    does=NamedTransactions.invalid_size,
    path=ROOT + "/invalid-size",
    number=101,
    request=Nothing,
    answer=In("invalidSize", Annotated[int, whole(0)]),
    right=monitor,
    summary="How many pointers are invalid.",
)
TRUNCATE = of_one(
    does=NamedTransactions.truncate,
    path=ROOT + "/truncate",
    number=102,
    request=Truncate,
    check=lambda request: checked_truncation(request.before_ms, request.pointers),
    answer=In("truncated", bool),
    right=operator,
    repeat=Repeat.NEVER,
    summary="Forgets invalid pointers, those named or those begun before a time.",
    example={"pointers": []},
    schema=_TRUNCATE,
)
OUTCOME = _looks(
    does=NamedTransactions.outcome,
    path=ONE + "/outcome",
    number=103,
    request=AskOutcome,
    answer=Form(
        KnownOutcome.fields,
        lambda _, sent: KnownOutcome.of(sent),
        fields({"outcome": {"enum": [one.value for one in Outcome]}, "life": LIFE}),
    ),
    right=holder_or_operator,
    summary="What became of what was written with a pointer.",
)
DECIDE = of_one(
    does=NamedTransactions.decide,
    path=ONE + "/decide",
    number=104,
    request=Decide,
    answer=DONE,
    right=operator,
    repeat=Repeat.NEVER,
    summary="Writes down the outcome of a pointer that nobody knows.",
    example=None,
)
CAN_COMMIT = of_one(
    does=NamedTransactions.can_commit,
    path=ONE + "/can-commit",
    number=83,
    request=CanCommit,
    answer=DONE,
    right=holder,
    summary="Checks the keys that it changed.",
)
PERSIST = of_one(
    does=NamedTransactions.persist,
    path=ONE + "/persist",
    number=84,
    request=Persist,
    answer=In("life", Annotated[str, LIFE]),
    right=holder,
    summary="Sees to it that it outlives a crash; called before rows are written "
    "elsewhere with its pointer.",
)
ABORT = of_one(
    does=NamedTransactions.abort,
    path=ONE + "/abort",
    number=85,
    request=OneTransaction,
    answer=DONE,
    right=holder,
    repeat=Repeat.NEVER,
    summary="Ends one whose writes are all undone; of one that others may have begun, "
    "nobody ever sees what it wrote.",
)
# After a second one, the settling of an outcome finds what the first one did.
INVALIDATE = of_one(
    does=NamedTransactions.invalidate,
    path=ONE + "/invalidate",
    number=86,
    request=OneTransaction,
    answer=In("invalidated", bool),
    right=holder_or_operator,
    summary="Aborts one whose writes are not undone: nobody ever sees them.",
)
CHECKPOINT = of_one(
    does=NamedTransactions.checkpoint,
    path=ONE + "/checkpoint",
    number=87,
    request=OneTransaction,
    answer=In("pointers", Annotated[list[int], POINTERS]),
    right=holder,
    repeat=Repeat.KEYED,
    summary="Gives it a further write pointer.",
)
PREPARE = of_one(
    does=NamedTransactions.prepare,
    path=ONE + "/prepare",
    number=88,
    request=Prepare,
    # A server says who asks.
    fixed={"principal": None},
    answer=DONE,
    right=to_prepare,
    summary="Prepares it: it never times out, and only its name ends it.",
    example={"name": "order-7"},
)
LIST_PREPARED = Verb(
    does=NamedTransactions.prepared,
    method="GET",
    path=ROOT + "/prepared",
    number=90,
    request=Nothing,
    answer=_PREPARED,
    right=holder_or_operator,
    work=Work.COORDINATOR,
    summary="Those that are prepared, and that the caller may end.",
    tag=TAG,
    spaced=True,
)
COMMIT_PREPARED = of_one(
    does=NamedTransactions.commit_prepared,
    path=ROOT + "/commit-prepared",
    number=91,
    request=EndPrepared,
    answer=DONE,
    right=holder_or_operator,
    summary="Commits a prepared transaction.",
    example={"name": "order-7"},
    refuses=(404, 409),
)
ROLLBACK_PREPARED = of_one(
    does=NamedTransactions.rollback_prepared,
    path=ROOT + "/rollback-prepared",
    number=92,
    request=EndPrepared,
    answer=DONE,
    right=holder_or_operator,
    summary="Rolls one back: nobody ever sees it.",
    example={"name": "order-8"},
    refuses=(404, 409),
)

VERBS = verbs_in(globals())
