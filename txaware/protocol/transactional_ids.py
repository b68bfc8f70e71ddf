"""The verbs of transactional ids: the transactions of an instance, and its commits."""

from typing import Annotated, Any

import attrs
from msgspec import Struct

from coordinator.remote.wire import is_number, shown
from coordinator.transaction import Transaction, checked_timeout_s
from txaware.errors import BadRequest
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    BeginsTransactions,
    Begun,
    Entered,
    ProducerIdentity,
    ProducerService,
    checked_identity,
    checked_key,
    checked_left_key,
)
from txaware.model.requests import checked_transaction
from txaware.protocol import places
from txaware.protocol.fields import (
    FLAG,
    POINTER,
    SNAPSHOT,
    Body,
    Field,
    Kind,
    by,
    encoded_transaction,
    plain,
    read_transaction,
    text,
)
from txaware.protocol.json_schema import BASE64, TIMEOUT_S, fields, whole
from txaware.protocol.json_schema import FLAG as FLAG_SCHEMA
from txaware.protocol.producers import TAG
from txaware.protocol.rights import with_transactional_id
from txaware.protocol.values import structured, unstructured
from txaware.protocol.verb import Form, In, Repeat, Verb, Work, verbs_in

TRANSACTIONAL_ID = "/v1/transactional-ids/{transactional_id}"


def _seconds(value: object, *, what: str) -> object:
    """Returns a number; whether it is a time-out the coordinator says."""
    if not is_number(value):
        raise BadRequest(f"{what} is a number of seconds, not {shown(value)}")
    return value


_INSTANCE = Body(
    "the producer",
    (
        Field("producerId", plain(0, MAX_PRODUCER_ID)),
        Field("epoch", plain(0, MAX_EPOCH)),
    ),
)


def _read_instance(value: object, *, what: str) -> ProducerIdentity:
    sent = _INSTANCE.read(value, what=what)
    return ProducerIdentity(sent["producerId"], sent["epoch"])


def instance_fields(producer: ProducerIdentity) -> dict[str, Any]:
    """Returns an instance as a body has it."""
    return {"producerId": producer.producer_id, "epoch": producer.epoch}


INSTANCE = Kind(
    _read_instance, _INSTANCE.schema, given=by(checked_identity), write=instance_fields
)
KEY = text(given=by(checked_key)).or_null()
_TIMEOUT = Kind(_seconds, TIMEOUT_S, given=by(checked_timeout_s)).or_null()
_ENTERED = fields(
    {"commits": whole(0), "isDone": FLAG_SCHEMA, "isWritten": FLAG_SCHEMA}
)


def _shown_begun(begun: Begun) -> dict[str, Any]:
    transaction = encoded_transaction(begun.transaction)
    return {"transaction": transaction, **unstructured(begun.entered)}


def _read_begun(_: Any, value: Any) -> Begun:
    """Reads the transaction, and beside it what an `Entered` has."""
    if not isinstance(value, dict) or "transaction" not in value:
        raise BadRequest("it has no transaction")
    begun = read_transaction(value.pop("transaction"), what="its transaction")
    return Begun(begun, structured(Entered, value))


_BEGUN = Form(
    _shown_begun,
    _read_begun,
    fields({**_ENTERED["properties"], "transaction": BASE64}),
)


class OfId(Struct, forbid_unknown_fields=True):
    """Names a transactional id."""

    transactional_id: Annotated[str, places.TRANSACTIONAL_ID]


class SeenCommits(OfId, forbid_unknown_fields=True):
    """Names the instance that asks, if any."""

    producer: Annotated[
        ProducerIdentity | None, attrs.evolve(INSTANCE, given=INSTANCE.or_null().given)
    ] = None


class BeginOfId(OfId, forbid_unknown_fields=True, rename="camel"):
    """Says whose transaction begins; not `ahead` where its commit has the rows."""

    producer: Annotated[ProducerIdentity, INSTANCE]
    timeout_s: Annotated[Any, _TIMEOUT] = None
    key: Annotated[str | None, KEY] = None
    ahead: Annotated[bool, FLAG] = True


class Enter(OfId, forbid_unknown_fields=True):
    """Says whose transaction it is; not `ahead` where its commit has the rows."""

    producer: Annotated[ProducerIdentity, INSTANCE]
    transaction: Annotated[
        Transaction, attrs.evolve(SNAPSHOT, given=by(checked_transaction))
    ]
    key: Annotated[str | None, KEY] = None
    ahead: Annotated[bool, FLAG] = True


class LeaveTransaction(OfId, forbid_unknown_fields=True):
    """Says whose transaction it is no more."""

    transaction: Annotated[int, POINTER]
    key: Annotated[str | None, attrs.evolve(KEY, given=by(checked_left_key))] = None


PRODUCER_COMMITS = Verb(
    does=ProducerService.producer_commits,
    method="POST",
    path=TRANSACTIONAL_ID + "/commits",
    number=56,
    request=SeenCommits,
    needs_body=True,
    answer=In("commits", Annotated[int, whole(0)]),
    right=with_transactional_id,
    work=Work.COORDINATOR,
    summary="How many of its transactions have committed; refused to an instance "
    "that is named and was replaced.",
    tag=TAG,
    example={},
    refuses=(409,),
)
# Those that change something are keyed, so that a first try that comes late changes
# nothing more.
BEGIN_TRANSACTION = Verb(
    does=BeginsTransactions.begin_transaction,
    method="POST",
    path=TRANSACTIONAL_ID + "/begin",
    number=57,
    request=BeginOfId,
    answer=_BEGUN,
    right=with_transactional_id,
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Begins a short transaction, and makes it that of an instance.",
    tag=TAG,
    refuses=(409, 429),
    spaced=True,
)
ENTER_TRANSACTION = Verb(
    does=ProducerService.enter_transaction,
    method="POST",
    path=TRANSACTIONAL_ID + "/enter",
    number=58,
    request=Enter,
    answer=Form(unstructured, lambda _, sent: structured(Entered, sent), _ENTERED),
    right=with_transactional_id,
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Makes a transaction that of an instance; with a key, unless that was "
    "committed before.",
    tag=TAG,
    refuses=(409,),
)
LEAVE_TRANSACTION = Verb(
    does=ProducerService.leave_transaction,
    method="POST",
    path=TRANSACTIONAL_ID + "/leave",
    number=59,
    request=LeaveTransaction,
    right=with_transactional_id,
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Takes that back, for a transaction that is rolled back.",
    tag=TAG,
    example={"transaction": 1},
    refuses=(409,),
)

VERBS = verbs_in(globals())
