"""The verbs of topics themselves: create, change, describe, list, delete."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Struct, field

from coordinator.remote.wire import shown
from txaware.errors import BadRequest
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.partitions import named_partition
from txaware.model.shards import MOST_SHARDS, checked_shards
from txaware.model.topics import (
    DEFAULT_TTL_S,
    FLAGS,
    MAX_TTL_S,
    MOST_PARTITIONS,
    PUBLISHING,
    Topic,
    TopicName,
    checked_changes,
    checked_compact,
    checked_partitions,
    checked_properties,
    checked_ttl_s,
    number_of_text,
)
from txaware.protocol import places
from txaware.protocol.fields import FLAG, LEFT_OUT, Field, Kind, Others, by
from txaware.protocol.json_schema import FLAG as FLAG_SCHEMA
from txaware.protocol.json_schema import NULL, TEXT, any_of, fields, or_null, ref, whole
from txaware.protocol.rights import anybody, on_topic, to_list, to_see
from txaware.protocol.values import structured
from txaware.protocol.verb import Form, Nothing, Repeat, Verb, verbs_in

NAMESPACES = "/v1/namespaces"
TOPICS = NAMESPACES + "/{namespace}/topics"
TOPIC = TOPICS + "/{topic}"
TAG = "topics"
_EXAMPLE = {"ttl": 86_400, "publishing": "any", "owner": "billing"}


def _load(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _ttl(value: object, *, what: str) -> object:
    if not _is_number_or_text(value):
        raise BadRequest(f"{what} is a whole number of seconds, not {shown(value)}")
    return number_of_text(value)


def _partitions(value: object, *, what: str) -> object:
    if not _is_number_or_text(value):
        raise BadRequest(f"{what} is a whole number, not {shown(value)}")
    return number_of_text(value)


def _given_partitions(partitions: object, *, what: str) -> int | None:
    return None if partitions is None else checked_partitions(partitions)


def _shards(value: object, *, what: str) -> object:
    if value is not None and not isinstance(value, str | list | tuple):
        raise BadRequest(f"{what} are a list of numbers, not {shown(value)}")
    return value


def _given_shards(shards: object, *, what: str) -> list[int] | None:
    found = checked_shards(shards)
    return None if found is None else [*found]


def _given_ttl(ttl: object, *, what: str) -> int | None:
    return None if ttl is None else checked_ttl_s(ttl)


def _compact(value: object, *, what: str, takes_away: bool) -> bool:
    if takes_away and value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in FLAGS.values():
        return value == FLAGS[True]
    or_null = " or null" if takes_away else ""
    raise BadRequest(f"{what} is true or false{or_null}, not {shown(value)}")


def _given_compact(compact: object, *, what: str) -> bool | None:
    return None if compact is None else checked_compact(compact)


def _generation(value: object, *, what: str) -> None:
    if value is not None and not _is_generation(value):
        raise BadRequest(f"{what} is a number above 0, not {shown(value)}")


def _is_generation(value: object) -> bool:
    if not _is_number_or_text(value):
        return False
    text = str(value)
    return text.isascii() and text.isdigit() and int(text[:20]) > 0


def _text(value: object, *, what: str, kind: str, takes_away: bool) -> object:
    if isinstance(value, str) or (takes_away and value is None):
        return value
    kind = kind.format(" or null" if takes_away else "")
    raise BadRequest(f"{what} is {kind}, not {shown(value)}")


_GENERATION = any_of(
    NULL,
    {"type": "integer", "minimum": 1},
    {"type": "string", "pattern": "^0{0,19}[1-9][0-9]*$"},
)


def _compact_kind(*, takes_away: bool) -> Kind:
    words = {"type": "string", "enum": [*FLAGS.values()]}
    schema = any_of(FLAG_SCHEMA, words, *([NULL] if takes_away else []))
    description = "Whether the newest message of each key stays."
    return Kind(
        partial(_compact, takes_away=takes_away),
        schema | {"description": description},
        given=_given_compact,
    )


_IS_COMPACT = _compact_kind(takes_away=False)
_IS_OURS = Kind(_generation, _GENERATION | {"description": "It is passed over."})
_WORDS = f"one of {', '.join(PUBLISHING)}{{}}"
# A field that is not known, and no text, may be a misspelt one.
_FREE = (
    "text{}, as all properties are but ttl, generation, publishing, compact, "
    "partitions and shards"
)


def _ttl_kind(where_missing: str) -> Kind:
    schema = any_of(
        whole(1, MAX_TTL_S), {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}
    )
    description = f"Seconds; {where_missing} where it is missing."
    return Kind(_ttl, schema | {"description": description}, given=_given_ttl)


_PARTITIONS = Kind(
    _partitions,
    any_of(
        whole(1, MOST_PARTITIONS), {"type": "string", "pattern": "^[1-9][0-9]{0,4}$"}
    )
    | {"description": "Partitions, which are only added; 1 for a new topic."},
    given=_given_partitions,
)


_SHARDS = Kind(
    _shards,
    or_null({"type": "array", "items": whole(0, MOST_SHARDS - 1), "minItems": 1})
    | {
        "description": "The shards that the partitions lie in; all where it is missing."
    },
    given=_given_shards,
)


def _properties(check: Any, *, takes_away: bool) -> Others:
    """Returns the kind of properties; where it `takes_away`, null removes one."""
    words = [*PUBLISHING, None] if takes_away else [*PUBLISHING]
    publishing = partial(_text, kind=_WORDS, takes_away=takes_away)
    free = partial(_text, kind=_FREE, takes_away=takes_away)
    return Others(
        Kind(free, or_null(TEXT) if takes_away else TEXT),
        named=(
            Field("generation", _IS_OURS, default=LEFT_OUT),
            Field("publishing", Kind(publishing, {"enum": words}), default=LEFT_OUT),
        ),
        passed_over=("generation",),
        given=by(check),
    )


def _shown_topic(topic: Topic) -> dict[str, Any]:
    """Shows a topic as CDAP does: its bare name, and properties as text."""
    ours = {"generation": str(topic.generation), "ttl": str(topic.ttl_s)}
    return {"name": topic.name, "properties": {**topic.properties, **ours}}


def _read_topic(request: "OneTopic", value: Any) -> Topic:
    """Reads what `_shown_topic` showed of a topic in that namespace."""
    sent = structured(dict[str, Any], value)
    name = structured(str, sent.get("name"))
    properties = dict(structured(dict[str, str], sent.get("properties")))
    generation = properties.pop("generation", "")
    ttl_s = checked_ttl_s(number_of_text(properties.pop("ttl", None)))
    if not (generation.isascii() and generation.isdigit()):
        raise BadRequest(f"{generation!r} is no generation of a topic")
    namespace = named_partition(request.topic)[0].namespace
    return Topic(TopicName(name, namespace), int(generation), ttl_s, properties)


_WHOLE = {"type": "string", "pattern": "^[1-9][0-9]*$"}
_TOPIC = Form(
    _shown_topic,
    _read_topic,
    fields(
        {
            "name": TEXT,
            "properties": fields({"generation": _WHOLE, "ttl": _WHOLE}, others=TEXT),
        }
    ),
    schema_name="Topic",
)


class OneTopic(Struct):
    """Names a topic."""

    topic: Annotated[str, places.TOPIC]


class TopicSettings(OneTopic):
    """Says how long the messages of a topic live, and its properties."""

    ttl_s: Annotated[Any, _ttl_kind(str(DEFAULT_TTL_S))] = field(
        default=None, name="ttl"
    )
    properties: Annotated[
        Mapping[str, str] | None, _properties(checked_properties, takes_away=False)
    ] = None


class Properties(TopicSettings):
    """Says all properties of a topic; partitions that are not said stay."""

    compact: Annotated[bool | None, _IS_COMPACT] = None
    partitions: Annotated[Any, _PARTITIONS] = None


class NewTopic(TopicSettings, rename="camel"):
    """Says the properties of a new topic, and whether it may exist."""

    exist_ok: Annotated[bool, FLAG] = False
    compact: Annotated[bool | None, _IS_COMPACT] = None
    partitions: Annotated[Any, _PARTITIONS] = None
    shards: Annotated[Any, _SHARDS] = None


class Changes(OneTopic):
    """Says what changes of a topic."""

    ttl_s: Annotated[Any, _ttl_kind("it stays")] = field(default=None, name="ttl")
    properties: Annotated[
        Mapping[str, str | None] | None, _properties(checked_changes, takes_away=True)
    ] = None
    compact: Annotated[bool | None, _compact_kind(takes_away=True)] = None
    partitions: Annotated[Any, _PARTITIONS] = None


CREATE_TOPIC = Verb(
    does=MessagingService.create_topic,
    method="PUT",
    path=TOPIC,
    number=48,
    request=NewTopic,
    query=("exist_ok",),
    right=on_topic("admin"),
    repeat=Repeat.KEYED,
    summary="Creates a topic. With `existOk` it may exist where it is as the body "
    "says; what the body leaves out may differ.",
    tag=TAG,
    example=_EXAMPLE,
    refuses=(409,),
    load=_load,
    typed=True,
    schema_name="Properties",
)
DESCRIBE_TOPIC = Verb(
    does=MessagingService.topic,
    method="GET",
    path=TOPIC,
    number=49,
    request=OneTopic,
    answer=_TOPIC,
    right=to_see,
    summary="A topic as it stands.",
    tag=TAG,
)
DELETE_TOPIC = Verb(
    does=MessagingService.delete_topic,
    method="DELETE",
    path=TOPIC,
    number=50,
    request=OneTopic,
    right=on_topic("admin"),
    repeat=Repeat.KEYED,
    summary="Deletes a topic with its messages.",
    tag=TAG,
)
# A client updates with it where a server knows no other way.
REPLACE_TOPIC = Verb(
    does=MessagingService.update_topic,
    method="PUT",
    path=TOPIC + "/properties",
    number=51,
    request=Properties,
    without_body="the body is a JSON object of all properties",
    right=on_topic("admin"),
    repeat=Repeat.KEYED,
    summary="Replaces all properties of a topic.",
    tag=TAG,
    example=_EXAMPLE,
    load=_load,
    typed=True,
    schema_name="Properties",
)
UPDATE_TOPIC = Verb(
    does=MessagingService.update_topic,
    method="PATCH",
    path=TOPIC + "/properties",
    number=52,
    request=Changes,
    without_body="the body is a JSON object of what to change",
    right=on_topic("admin"),
    repeat=Repeat.KEYED,
    summary="Changes what is named and leaves the rest; null takes away.",
    tag=TAG,
    example={"ttl": 86_400, "owner": None},
    load=_load,
    typed=True,
    schema_name="PropertyChanges",
)
LIST_TOPICS = Verb(
    does=MessagingService.topics,
    method="GET",
    path=TOPICS,
    number=53,
    request=places.InNamespace,
    answer=Annotated[list[str], ref("Names")],
    right=to_list,
    summary="The topics of a namespace, as far as the caller may see them.",
    tag=TAG,
    spaced=True,
)
LIST_NAMESPACES = Verb(
    does=OperatorService.namespaces,
    method="GET",
    path=NAMESPACES,
    number=54,
    request=Nothing,
    answer=Annotated[list[str], ref("Names")],
    right=anybody,
    summary="Namespaces with a topic that the caller may see.",
    tag=TAG,
    spaced=True,
)

VERBS = verbs_in(globals())
