"""The verbs that read messages: poll and wait, ends, the newest by key."""

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from msgspec import Struct, field

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.compression import usable_compressions
from txaware.model.interfaces import (
    COMMITTED,
    UNCOMMITTED,
    Isolation,
    MessagingService,
    Start,
)
from txaware.model.latest import LatestPage
from txaware.model.message_fields import FIELDS, HEADERS, KEY
from txaware.model.messages import Bounds, Message, MessageId, in_partition
from txaware.model.partitions import named_partition
from txaware.model.requests import (
    MAX_TIME_MS,
    check_wait_of_poll,
    checked_isolation,
    checked_limit,
    checked_offsets_at,
    checked_position,
    checked_start,
    checked_wait_s,
)
from txaware.protocol import places
from txaware.protocol.fields import (
    FLAG,
    ID,
    SEEN_BY,
    START,
    Kind,
    by,
    long,
    plain,
    start_field,
    text,
)
from txaware.protocol.formats import (
    Format,
    PollRequest,
    decode_columnar_page,
    decode_page,
    encode_poll,
)
from txaware.protocol.formats.json_format import START_FROM
from txaware.protocol.json_schema import (
    BASE64,
    HEX_ID,
    INT_MAX,
    any_of,
    array,
    fields,
    or_null,
    ref,
    whole,
)
from txaware.protocol.json_schema import FLAG as FLAG_SCHEMA
from txaware.protocol.json_values import camel, load, milliseconds, seconds
from txaware.protocol.rights import on_topic
from txaware.protocol.shape import BodyFormats, Described
from txaware.protocol.topics import TOPIC
from txaware.protocol.values import structured, unstructured
from txaware.protocol.verb import Form, In, Verb, Work, verbs_in

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
_LIMIT = plain(given=by(checked_limit))
_BEHIND = attrs.evolve(ID, given=by(checked_position)).or_null()
_Topic = Annotated[str, places.TOPIC]


class Wait(Struct, forbid_unknown_fields=True, rename="camel"):
    """Says from where on there is to be a message, and how long to wait for it."""

    topic: _Topic
    start: Annotated[Start, _START] = field(default=None, name="startFrom")
    inclusive: Annotated[bool, FLAG] = True
    isolation: Annotated[Isolation, _ISOLATION] = COMMITTED
    timeout_s: Annotated[float, _WAIT] = field(default=0.0, name="waitMs")


class Poll(Struct):
    """Says which messages to read; `columns` asks for them as columns."""

    topic: _Topic
    start: Annotated[Start, _START] = None
    inclusive: Annotated[bool, FLAG] = True
    limit: Annotated[int, _LIMIT] = 100
    transaction: Annotated[Transaction | None, SEEN_BY] = None
    isolation: Annotated[Isolation, _ISOLATION] = UNCOMMITTED
    wait_s: Annotated[float, _WAIT] = 0.0
    columns: Annotated[bool, FLAG] = False


def _read_poll(format_: Format, body: bytes) -> dict[str, Any]:
    sent = attrs.asdict(format_.poll_request(body), recurse=False)
    if sent["limit"] is None:
        sent["limit"] = INT_MAX
    return {name: value for name, value in sent.items() if name in _POLLED}


def _pack_poll(request: Poll, *, compressions: frozenset[str] = frozenset()) -> bytes:
    return encode_poll(
        PollRequest(
            start=request.start,
            inclusive=request.inclusive,
            limit=request.limit,
            transaction=request.transaction,
            isolation=request.isolation,
            wait_s=request.wait_s,
            columns=request.columns,
            compressions=compressions,
        )
    )


def _pack_framed_poll(request: Poll) -> bytes:
    """Says also which batches may come as they are stored."""
    return _pack_poll(request, compressions=frozenset(usable_compressions()))


def _unpack_page(request: Poll, body: bytes) -> Any:
    if request.columns:
        return decode_columnar_page(body)
    number = named_partition(request.topic)[1] if "." in request.topic else None
    return decode_page(body, partition=number or 0)


_POLLED = frozenset(Poll.__struct_fields__) - {"topic"}


class AskBounds(Struct, forbid_unknown_fields=True):
    """Says from where on a topic is looked at, and for which readers."""

    topic: _Topic
    start: Annotated[Start, START] = field(default=None, name="startFrom")
    isolation: Annotated[Isolation, _ISOLATION_ASKED] = UNCOMMITTED


def _at_in_text(text: str, *, what: str) -> str | int:
    return checked_offsets_at(int(text[:20]) if text.isdecimal() else text)


def _at(value: object, *, what: str) -> str | int:
    return checked_offsets_at(value)


_AT = Kind(
    _at,
    any_of({"enum": ["first", "last", "stable"]}, whole(0, MAX_TIME_MS)),
    given=by(checked_offsets_at),
    read_text=_at_in_text,
)


class AskOffsets(Struct, forbid_unknown_fields=True):
    """Says which place is asked for: that of a message, or of a time in ms."""

    topic: _Topic
    at: Annotated[Any, _AT] = "last"


def _shown_offsets(offsets: dict[int, MessageId | None]) -> dict[str, str | None]:
    shown = offsets.items()
    return {str(number): None if one is None else str(one) for number, one in shown}


def _read_offsets(_: Any, value: Any) -> dict[int, MessageId | None]:
    sent = structured(dict[str, Any], value)
    kind: Any = MessageId | None
    return {int(number): structured(kind, one) for number, one in sent.items()}


_OFFSETS = Form(
    _shown_offsets,
    _read_offsets,
    fields({}, others=or_null(HEX_ID)) | {"propertyNames": {"pattern": "^[0-9]+$"}},
    schema_name="Offsets",
)


class AskLatest(Struct, forbid_unknown_fields=True):
    """Says behind which id a topic is read, and what sees it."""

    topic: _Topic
    start: Annotated[MessageId | None, _BEHIND] = field(default=None, name="after")
    transaction: Annotated[Transaction | None, SEEN_BY] = None


def _shown_message(message: Message) -> dict[str, Any]:
    beside = {camel(field.name): field.of(message) for field in FIELDS}
    shown = {"id": str(message.id), "payload": message.payload, **beside}
    found: dict[str, Any] = unstructured(shown)
    return found


def _read_message(sent: Mapping[str, Any]) -> Message:
    beside: dict[str, Any] = {}
    for one in FIELDS:
        kind: Any = dict[str, bytes] if one.is_map else bytes | None
        value = structured(kind, sent.get(camel(one.name)))
        if value is not None:
            beside[one.name] = value
    return Message(
        structured(MessageId, sent["id"]),
        structured(bytes, sent["payload"]),
        beside.pop(KEY.name, None),
        beside.pop(HEADERS.name, None),
        beside,
    )


def _shown_latest(page: LatestPage) -> dict[str, Any]:
    return {
        "messages": [*map(_shown_message, page.messages)],
        "gone": [*map(unstructured, page.gone)],
        "next": str(page.next),
        "isLast": page.is_last,
    }


def _read_latest(request: AskLatest, value: Any) -> LatestPage:
    sent = structured(dict[str, Any], value)
    messages = structured(list[dict[str, Any]], sent.get("messages"))
    number = named_partition(request.topic)[1]
    return LatestPage(
        in_partition(map(_read_message, messages), number or 0),
        structured(list[bytes], sent.get("gone")),
        structured(MessageId, sent.get("next")),
        structured(bool, sent.get("isLast")),
    )


def _field_schema(*, is_map: bool) -> Any:
    return fields({}, others=BASE64) if is_map else or_null(BASE64)


_LATEST = Form(
    _shown_latest,
    _read_latest,
    fields(
        {
            "messages": array(
                fields(
                    {"id": HEX_ID, "payload": BASE64}
                    | {
                        camel(field.name): _field_schema(is_map=field.is_map)
                        for field in FIELDS
                    }
                )
            ),
            "gone": array(BASE64),
            "next": HEX_ID,
            "isLast": FLAG_SCHEMA,
        }
    ),
    schema_name="LatestPage",
)
LATEST = Verb(
    does=MessagingService.latest_page,
    method="POST",
    path=TOPIC + "/latest",
    number=62,
    request=AskLatest,
    answer=_LATEST,
    right=on_topic("consume"),
    work=Work.SEEN,
    summary="The newest message of each key in the next piece of a topic, as a "
    "transaction or a fresh snapshot sees it; of keys that are `gone` it has expired.",
    tag=TAG,
    example={},
    load=load,
)
WAIT = Verb(
    does=MessagingService.wait,
    method="POST",
    path=TOPIC + "/wait",
    number=60,
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
# Its answer is written as it is read, in pieces.
POLL = Verb(
    does=MessagingService.poll,
    method="POST",
    path=TOPIC + "/poll",
    number=79,
    request=Poll,
    formats=BodyFormats(
        body=Described(
            schema=ref("ConsumeRequest"), avro="ConsumeRequest", msgpack="PollRequest"
        ),
        read=_read_poll,
        pack=_pack_poll,
        pack_framed=_pack_framed_poll,
        answer=Described(
            schema=any_of(ref("ConsumeResponse"), ref("Page")),
            avro="ConsumeResponse",
            msgpack="PollResponse",
        ),
        unpack=_unpack_page,
    ),
    right=on_topic("consume"),
    waits="wait_s",
    check=lambda request: check_wait_of_poll(request.wait_s, request.transaction),
    summary="Reads messages, and waits for some where it is asked to.",
    tag=TAG,
    example={"startFrom": None, "limit": 10, "page": True},
)
BOUNDS = Verb(
    does=MessagingService.bounds,
    method="GET",
    path=TOPIC + "/bounds",
    number=61,
    request=AskBounds,
    answer=Bounds,
    right=on_topic("consume"),
    summary="The first and the last id, and where the next one goes; for committed "
    "readers, where they stop.",
    tag=TAG,
    spaced=True,
)
OFFSETS = Verb(
    does=MessagingService.offsets,
    method="GET",
    path=TOPIC + "/offsets",
    number=74,
    request=AskOffsets,
    answer=_OFFSETS,
    right=on_topic("consume"),
    work=Work.COORDINATOR,
    summary="An id in each partition: of its first or last message, up to where all is "
    "decided, or of the first message from a time on.",
    tag=TAG,
)

VERBS = verbs_in(globals())
