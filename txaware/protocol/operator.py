"""The verbs of operators: look into topics, clean up, check, and what keeps rows."""

from functools import partial
from typing import Annotated, Any

import attrs
from msgspec import Struct, field

from coordinator.remote.wire import shown
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.interfaces import OperatorService
from txaware.model.keeper import Keeper, checked_name, checked_report
from txaware.model.messages import MessageId
from txaware.model.metrics import Metrics
from txaware.model.queues import checked_count
from txaware.model.reports import (
    CleanUp,
    OpenPlan,
    Peeked,
    Pruned,
    Report,
    SearchPage,
    TopicReport,
)
from txaware.model.requests import (
    MAX_TIME_MS,
    MOST_CUTS,
    MOST_PIECES,
    Start,
    check_range,
    checked_limit,
    checked_piece,
    checked_pieces,
    checked_plan,
    checked_start,
    checked_wanted,
)
from txaware.model.search import (
    MOST_FOUND,
    Search,
    checked_sought_bytes,
    checked_sought_text,
    checked_until,
)
from txaware.model.shards import (
    MOST_SHARDS,
    Shard,
    checked_more,
    checked_server,
    checked_shard,
)
from txaware.protocol import places
from txaware.protocol.fields import (
    FLAG,
    ID,
    NAME,
    SNAPSHOT,
    START,
    Kind,
    by,
    plain,
    start_field,
    text,
)
from txaware.protocol.formats.json_format import START_FROM
from txaware.protocol.json_schema import BASE64, HEX_ID, TEXT, array, ref, whole
from txaware.protocol.json_values import from_base64, load
from txaware.protocol.rights import holder, monitor, on_topic, operator
from txaware.protocol.shape import GoOn
from txaware.protocol.verb import In, Nothing, Repeat, Verb, Work, verbs_in

TOPIC = "/v1/namespaces/{namespace}/topics/{topic}"
ADMIN, KEEPERS, SHARDS = "/v1/admin", "/v1/keepers", "/v1/shards"
TAG = "operators"
# The most rows that a server shows at once.
MOST_PEEKED = 1000

_Topic = Annotated[str, places.TOPIC]
_Called = Annotated[Any, GoOn()]


def _plan_id(value: object, *, what: str) -> str:
    """Reads the id of a plan; what no server gave out is a plan that is forgotten."""
    if isinstance(value, str):
        return value
    raise BadRequest(f"{what} is a string, not {shown(value)}")


_Plan = Annotated[str, Kind(_plan_id, TEXT, given=by(checked_plan), form=str)]


_Keeper = Annotated[str, attrs.evolve(NAME, given=by(checked_name))]


def _sought(name: str) -> Kind:
    return Kind(
        from_base64,
        BASE64,
        given=by(partial(checked_sought_bytes, name)),
    ).or_null()


_START = attrs.evolve(START_FROM, given=by(checked_start), write=start_field)
_UNTIL = plain(0, MAX_TIME_MS, given=by(checked_until)).or_null()
_SOME = TEXT | {"minLength": 1}
_NAME = text(_SOME, given=by(partial(checked_sought_text, "header"))).or_null()
_SOUGHT = text(_SOME, given=by(partial(checked_sought_text, "text"))).or_null()
_checked_found = partial(checked_count, "limit", most=MOST_FOUND)


class Peek(Struct, rename="camel"):
    """Asks for rows from a start on."""

    topic: _Topic
    start: Annotated[Start, START] = field(default=None, name="startFrom")
    limit: Annotated[int, plain(1, 10**19 - 1, given=by(checked_limit))] = 100


class SearchFor(Struct, forbid_unknown_fields=True, rename="camel"):
    """Says what is looked for, and from where on."""

    topic: _Topic
    start: Annotated[Start, _START] = field(default=None, name="startFrom")
    until: Annotated[int | None, _UNTIL] = None
    key: Annotated[bytes | None, _sought("key")] = None
    header: Annotated[str | None, _NAME] = None
    header_value: Annotated[bytes | None, _sought("header_value")] = None
    text: Annotated[str | None, _SOUGHT] = None
    limit: Annotated[int, plain(1, MOST_FOUND, given=by(_checked_found))] = 100


class Inspect(Struct):
    """Names a topic to read all of."""

    topic: _Topic
    go_on: _Called = None


class Splits(Struct, rename="camel"):
    """Names a range of a topic, and the size of its parts."""

    topic: _Topic
    start: Annotated[MessageId, ID] = field(name="from")
    stop: Annotated[MessageId, ID] = field(name="to")
    part_bytes: Annotated[int, plain(1)]


class Range(Struct, forbid_unknown_fields=True):
    """Names a range of a topic, and the snapshot of its reader."""

    topic: _Topic
    start: Annotated[MessageId, ID] = field(name="from")
    stop: Annotated[MessageId, ID] = field(name="to")
    snapshot: Annotated[Transaction, SNAPSHOT] = field(name="transaction")


class Check(Struct):
    """Has the progress shown where the engine is."""

    progress: _Called = None


class CleaningUp(Struct):
    """Has the progress shown where the engine is."""

    on_progress: _Called = None


class PlanCleanUp(Struct):
    """Says into how many pieces each topic is cut."""

    pieces: Annotated[int, plain(1, MOST_PIECES, given=by(checked_pieces))] = 1


class PlannedPiece(Struct):
    """Names a piece of a plan."""

    plan: _Plan
    piece: Annotated[int, plain(given=by(checked_piece))]


class Finish(Struct):
    """Names a plan."""

    plan: _Plan


class Prune(Struct, forbid_unknown_fields=True):
    """Says whether nobody else cleans up."""

    exclusive: Annotated[bool, FLAG] = False
    on_progress: _Called = None


class AddShards(Struct, forbid_unknown_fields=True):
    """Says how many shards more there will be."""

    count: Annotated[int, plain(1, MOST_SHARDS - 1, given=by(checked_more))]


class GiveShard(Struct, forbid_unknown_fields=True):
    """Names a shard, and the server that it goes to."""

    shard: Annotated[int, plain(0, MOST_SHARDS - 1, given=by(checked_shard))]
    server: Annotated[str, attrs.evolve(NAME, given=by(checked_server))]


class ReportKeeper(Struct, forbid_unknown_fields=True, rename="camel"):
    """Names a keeper, and the least pointer that its rows may hold."""

    name: _Keeper
    smallest_pointer: Annotated[int | None, plain().or_null()] = None


class ForgetKeeper(Struct, forbid_unknown_fields=True):
    """Names a keeper."""

    name: _Keeper


PEEK = Verb(
    does=OperatorService.peek,
    method="GET",
    path=TOPIC + "/peek",
    number=5,
    request=Peek,
    answer=Annotated[list[Peeked], array(ref("Peeked"), maxItems=MOST_PEEKED)],
    right=on_topic("consume"),
    work=Work.SLOW,
    summary="Rows of a topic as they stand, whatever became of their transactions.",
    tag=TAG,
)
SEARCH = Verb(
    does=OperatorService.search,
    method="POST",
    path=TOPIC + "/search",
    number=75,
    request=SearchFor,
    answer=SearchPage,
    right=on_topic("consume"),
    work=Work.SLOW,
    check=lambda request: Search.checked(
        request.key, request.header, request.header_value, request.text, request.until
    ),
    summary="Rows with a key, a header and a text, among those that one call looks at; "
    "`next` is where the following call begins.",
    tag=TAG,
    example={"key": "YW5u", "text": "refund", "limit": 10},
    load=load,
)
TOPIC_SIZES = Verb(
    does=OperatorService.topic_sizes,
    method="GET",
    path="/v1/namespaces/{namespace}/sizes",
    number=99,
    request=places.InNamespace,
    answer=dict[str, int],
    right=monitor,
    work=Work.SLOW,
    summary="About how many bytes the store has of each topic of a namespace.",
    tag=TAG,
)
INSPECT = Verb(
    does=OperatorService.inspect,
    method="GET",
    path=TOPIC + "/inspect",
    number=6,
    request=Inspect,
    answer=TopicReport,
    right=on_topic("consume"),
    work=Work.SLOW,
    summary="Counts, sizes, times, and who blocks a topic; reads all of it.",
    tag=TAG,
)
SPLITS = Verb(
    does=OperatorService.splits,
    method="GET",
    path=TOPIC + "/splits",
    number=7,
    request=Splits,
    answer=In("ids", Annotated[list[MessageId], array(HEX_ID, maxItems=MOST_CUTS)]),
    right=on_topic("consume"),
    work=Work.PLANNING,
    check=lambda request: checked_wanted(
        request.start, request.stop, request.part_bytes
    ),
    summary="Where to cut a range of a topic into parts of about equal size.",
    tag=TAG,
)
FIRST_UNDECIDED = Verb(
    does=OperatorService.first_undecided,
    method="POST",
    path=TOPIC + "/first-undecided",
    number=8,
    request=Range,
    answer=In("id", Annotated[MessageId, HEX_ID]),
    right=on_topic("consume"),
    work=Work.PLANNING,
    check=lambda request: check_range(request.start, request.stop, request.snapshot),
    summary="Where a reader with a snapshot stops in a range; sends no messages.",
    tag=TAG,
)
METRICS = Verb(
    does=OperatorService.metrics,
    method="GET",
    path="/v1/metrics",
    number=9,
    request=Nothing,
    answer=Metrics,
    right=monitor,
    work=Work.MONITOR,
    summary="What was counted, of topics that the caller may see.",
    tag=TAG,
)
# It does no harm, but is too dear to be done twice.
CHECK = Verb(
    does=OperatorService.check,
    method="POST",
    path=ADMIN + "/check",
    number=10,
    request=Check,
    answer=Report,
    right=operator,
    repeat=Repeat.NEVER,
    work=Work.SLOW,
    summary="Verifies every invariant of the data.",
    tag=TAG,
)
# It counts what it removes, so a repeat would differ.
CLEAN_UP = Verb(
    does=OperatorService.clean_up,
    method="POST",
    path=ADMIN + "/clean-up",
    number=11,
    request=CleaningUp,
    answer=CleanUp,
    right=operator,
    repeat=Repeat.NEVER,
    work=Work.SLOW,
    summary="Removes what has expired.",
    tag=TAG,
)
# A second one does no harm, as the first is forgotten.
PLAN_CLEAN_UP = Verb(
    does=OperatorService.plan_clean_up,
    method="POST",
    path=ADMIN + "/clean-up/plan",
    number=12,
    request=PlanCleanUp,
    answer=OpenPlan,
    right=operator,
    work=Work.SLOW,
    summary="Plans a clean-up that many processes share; kept for an hour after it "
    "was used last.",
    tag=TAG,
    example={"pieces": 4},
)
# The server remembers which pieces were done.
CLEAN_PIECE = Verb(
    does=OperatorService.clean_piece,
    method="POST",
    path=ADMIN + "/clean-up/piece",
    number=13,
    request=PlannedPiece,
    answer=In("rows", Annotated[int, whole(0)]),
    right=operator,
    work=Work.SLOW,
    summary="Does one piece of a plan; one that was done already is not done again.",
    tag=TAG,
    refuses=(409,),
)
# A second one would be refused, as the first ended the plan.
FINISH_CLEAN_UP = Verb(
    does=OperatorService.finish_clean_up,
    method="POST",
    path=ADMIN + "/clean-up/finish",
    number=14,
    request=Finish,
    answer=CleanUp,
    right=operator,
    repeat=Repeat.NEVER,
    work=Work.SLOW,
    summary="Does what comes after all pieces, and says what they did together.",
    tag=TAG,
    refuses=(409,),
)
# It counts what it removes, too.
PRUNE = Verb(
    does=OperatorService.prune,
    method="POST",
    path=ADMIN + "/prune",
    number=15,
    request=Prune,
    answer=Pruned,
    right=operator,
    repeat=Repeat.NEVER,
    work=Work.SLOW,
    summary="Has the coordinator forget what nothing here needs any more.",
    tag=TAG,
    example={"exclusive": False},
    refuses=(409,),
)
LIST_SHARDS = Verb(
    does=OperatorService.shards,
    method="GET",
    path=SHARDS,
    number=81,
    request=Nothing,
    answer=list[Shard],
    right=monitor,
    work=Work.MONITOR,
    summary="The shards of the store, how many partitions lie in each, and its size.",
    tag=TAG,
)
# Each call makes more.
ADD_SHARDS = Verb(
    does=OperatorService.add_shards,
    method="POST",
    path=SHARDS,
    number=82,
    request=AddShards,
    answer=In("shards", Annotated[list[int], array(whole(1))]),
    right=operator,
    repeat=Repeat.KEYED,
    work=Work.SLOW,
    summary="Makes so many shards more, and says their numbers. The first ones beside "
    "the first shard are used once the data is opened again.",
    tag=TAG,
    example={"count": 1},
)
GIVE_SHARD = Verb(
    does=OperatorService.give_shard,
    method="POST",
    path=SHARDS + "/give",
    number=89,
    request=GiveShard,
    right=operator,
    repeat=Repeat.KEYED,
    work=Work.SLOW,
    summary="Has a shard go to a server, where servers share the shards of a store in "
    "HBase; it stays there while that server is there.",
    tag=TAG,
    example={"shard": 1, "server": "http://two:11015"},
)
LIST_KEEPERS = Verb(
    does=OperatorService.keepers,
    method="GET",
    path=KEEPERS,
    number=16,
    request=Nothing,
    answer=list[Keeper],
    right=operator,
    work=Work.COORDINATOR,
    summary="Participants that keep rows of their own, registered or not.",
    tag=TAG,
)
REPORT_KEEPER = Verb(
    does=OperatorService.report_keeper,
    method="POST",
    path=KEEPERS,
    number=17,
    request=ReportKeeper,
    answer=Keeper,
    right=holder,
    check=lambda request: checked_report(request.name, request.smallest_pointer),
    work=Work.COORDINATOR,
    summary="Registers one, or raises the least pointer that its rows may hold: "
    "nothing from there on is forgotten.",
    tag=TAG,
    example={"name": "notes", "smallestPointer": None},
)
# A second call would find none of that name.
FORGET_KEEPER = Verb(
    does=OperatorService.forget_keeper,
    method="POST",
    path=KEEPERS + "/forget",
    number=18,
    request=ForgetKeeper,
    right=operator,
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Forgets one whose rows are gone.",
    tag=TAG,
    refuses=(404,),
)

VERBS = verbs_in(globals())
