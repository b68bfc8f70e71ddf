"""The verbs of producers themselves: they open, and operators see and forget them."""

from typing import Annotated

from msgspec import Struct

from txaware.model.producers import (
    MAX_PRODUCER_ID,
    KnownProducer,
    ProducerOpened,
    ProducerService,
    checked_producer_id,
)
from txaware.model.topics import checked_transactional_id
from txaware.protocol.fields import by, plain, text
from txaware.protocol.places import Place
from txaware.protocol.rights import anybody, monitor
from txaware.protocol.verb import Nothing, Repeat, Verb, Work, verbs_in

PRODUCERS = "/v1/producers"
TAG = "producers"

_PRODUCER = Place(
    lambda producer_id: {"producer": str(checked_producer_id(producer_id))},
    lambda words: int(words["producer"]),
)
_NAME = text(given=by(checked_transactional_id)).or_null()
_ID = plain(0, MAX_PRODUCER_ID, given=by(checked_producer_id))


class Open(Struct, forbid_unknown_fields=True, rename="camel"):
    """Names what stays the same from one instance to the next."""

    transactional_id: Annotated[str | None, _NAME] = None


class OfProducer(Struct):
    """Names a producer."""

    producer_id: Annotated[int, _PRODUCER]


class Forget(Struct, forbid_unknown_fields=True, rename="camel"):
    """Names a producer."""

    producer_id: Annotated[int, _ID]


# It is keyed, so that a first try that comes late does not fence the instance that the
# second one opened. One whose answer was lost is never used, and expires; so a server
# that was started since the first try is asked for another.
OPEN_PRODUCER = Verb(
    does=ProducerService.open_producer,
    method="POST",
    path=PRODUCERS,
    number=19,
    request=Open,
    answer=ProducerOpened,
    right=anybody,
    repeat=Repeat.ANEW,
    work=Work.COORDINATOR,
    summary="Opens a producer, which belongs to the caller; with a name, a new "
    "instance: older ones are fenced, and what they left open has ended.",
    tag=TAG,
    example={"transactionalId": "loader-7"},
    refuses=(409,),
)
LIST_PRODUCERS = Verb(
    does=ProducerService.producers,
    method="GET",
    path=PRODUCERS,
    number=20,
    request=Nothing,
    answer=list[KnownProducer],
    right=monitor,
    summary="All producers.",
    tag=TAG,
)
DESCRIBE_PRODUCER = Verb(
    does=ProducerService.describe_producer,
    method="GET",
    path=PRODUCERS + "/{producer}",
    number=21,
    request=OfProducer,
    answer=KnownProducer,
    right=monitor,
    summary="A producer, and how far it has come in each topic.",
    tag=TAG,
)
FORGET_PRODUCER = Verb(
    does=ProducerService.forget_producer,
    method="POST",
    path=PRODUCERS + "/forget",
    number=22,
    request=Forget,
    right=anybody,
    repeat=Repeat.KEYED,
    summary="Forgets a producer of the caller, or for an operator any.",
    tag=TAG,
    refuses=(404,),
)

VERBS = verbs_in(globals())
