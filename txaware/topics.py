"""Topics: their names, their properties, and the bytes that are kept of them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

import attrs

from txaware.errors import BadRequest

DEFAULT_NAMESPACE = "default"
DEFAULT_TTL_S = 604_800
MAX_TTL_S = 2**31 - 1
MAX_DIGITS = 6  # of the number in `prefix:N`
_TOPIC = re.compile(r"[A-Za-z0-9_-]+")
_NAMESPACE = re.compile(r"[A-Za-z0-9_]+")
_GROUP = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")
_WHOLE = re.compile(r"[0-9]{1,18}")


@attrs.frozen(cache_hash=True)
class TopicName:
    """A topic's name in its namespace; `str` of one in `default` is the bare name."""

    name: str
    namespace: str = DEFAULT_NAMESPACE

    @classmethod
    def parse(cls, text: object) -> Self:
        """Reads `name` or `namespace:name`; `BadRequest` for anything else."""
        if not isinstance(text, str):
            raise BadRequest(f"a topic is named by a str, not {text!r}")
        namespace, colon, name = text.rpartition(":")
        if not colon:
            namespace = DEFAULT_NAMESPACE
        checked_namespace(namespace)
        if not _TOPIC.fullmatch(name):
            raise BadRequest(
                f"{name!r} is no topic name; letters, digits, - and _ make one"
            )
        return cls(name, namespace)

    @property
    def key(self) -> bytes:
        """What its rows begin with, before the generation."""
        return f"{self.namespace}:{self.name}:".encode("ascii")

    def __str__(self) -> str:
        if self.namespace == DEFAULT_NAMESPACE:
            return self.name
        return f"{self.namespace}:{self.name}"


def checked_namespace(namespace: object) -> str:
    """The namespace, where it is one; `BadRequest` otherwise."""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise BadRequest(
            f"{namespace!r} is no namespace; letters, digits and _ make one"
        )
    return namespace


def checked_group(group: object) -> str:
    """The name of a consumer group, where it is one; `BadRequest` otherwise."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise BadRequest(
            f"{group!r} is no group name; letters, digits, - _ and . make one"
        )
    return group


def checked_ttl_s(ttl: object) -> int:
    """A time to live from a whole number or its text; `BadRequest` otherwise."""
    number = int(ttl) if isinstance(ttl, str) and _WHOLE.fullmatch(ttl) else ttl
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadRequest(f"a ttl is a whole number of seconds, not {ttl!r}")
    if not 0 < number <= MAX_TTL_S:
        raise BadRequest(f"a ttl is from 1 to {MAX_TTL_S} seconds")
    return number


# What a topic accepts: the property `publishing`.
PUBLISHING = ("any", "transactional", "plain")


@attrs.frozen
class Topic:
    """A topic as it stands: `properties` are all but its time to live.

    The property `publishing` says what it accepts: `any`, `transactional` or `plain`.
    """

    topic: TopicName
    generation: int
    ttl_s: int = DEFAULT_TTL_S
    properties: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """Its name within the namespace."""
        return self.topic.name

    @property
    def namespace(self) -> str:
        """The namespace it is in."""
        return self.topic.namespace

    @property
    def ttl_ms(self) -> int:
        """Its time to live in milliseconds."""
        return self.ttl_s * 1000

    @property
    def publishing(self) -> str:
        """`any`, `transactional` or `plain`."""
        return self.properties.get("publishing", "any")

    @property
    def prefix(self) -> bytes:
        """What all its rows of this generation begin with."""
        return data_prefix(self.topic, self.generation)

    def changed(self, ttl_s: int | None, changes: Mapping[str, str | None]) -> Self:
        """The topic after an update; a change to None takes a property away."""
        merged = {**self.properties, **changes}
        return attrs.evolve(
            self,
            ttl_s=self.ttl_s if ttl_s is None else ttl_s,
            properties={k: v for k, v in merged.items() if v is not None},
        )

    def to_bytes(self) -> bytes:
        """As the topic table keeps it; a negative generation is a deleted topic."""
        kept = {**self.properties, "ttl": str(self.ttl_s)}
        kept["generation"] = str(self.generation)
        return json.dumps(kept, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, topic: TopicName, data: bytes) -> Self:
        """Reads what `to_bytes` wrote."""
        kept: dict[str, str] = json.loads(data)
        generation, ttl_s = int(kept.pop("generation")), int(kept.pop("ttl"))
        return cls(topic, generation, ttl_s, MappingProxyType(kept))


def data_prefix(topic: TopicName, generation: int) -> bytes:
    """What the rows of one generation of a topic begin with."""
    return topic.key + generation.to_bytes(4, "big")


def checked_properties(properties: Mapping[str, Any] | None) -> dict[str, str]:
    """Free properties: a flat map of text; `BadRequest` otherwise."""
    if properties is not None and not isinstance(properties, Mapping):
        raise BadRequest(f"properties are a map of text, not {properties!r}")
    checked: dict[str, str] = {}
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadRequest(f"a property is text, not {key!r}: {value!r}")
        if not (_is_unicode(key) and _is_unicode(value)):
            raise BadRequest(f"half of a surrogate pair is in {key!r}: {value!r}")
        if key in ("ttl", "generation"):
            raise BadRequest(f"{key} is not a free property")
        checked[key] = value
    if checked.get("publishing", "any") not in PUBLISHING:
        raise BadRequest(
            f"publishing is one of {', '.join(PUBLISHING)}, not "
            f"{checked['publishing']!r}"
        )
    return checked


def checked_changes(
    properties: Mapping[str, Any] | None,
) -> dict[str, str | None]:
    """Properties to set, and those to take away, which are None; else `BadRequest`."""
    if not isinstance(properties, Mapping):
        return {**checked_properties(properties)}
    removed = {key for key, value in properties.items() if value is None}
    checked_properties(dict.fromkeys(removed, "any"))  # a name is checked like others
    kept = {key: value for key, value in properties.items() if key not in removed}
    return {**checked_properties(kept), **dict.fromkeys(removed)}


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair can be in a str, and be neither printed nor sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_names(text: str) -> Iterator[str]:
    """Names from a list like `audit, metrics:10`, where `prefix:N` stands for N names.

    What cannot be a name is answered as it is, for the caller to warn about.
    """
    for item in filter(None, (part.strip() for part in text.split(","))):
        prefix, colon, count = item.partition(":")
        if colon and _WHOLE.fullmatch(count) and len(count) < MAX_DIGITS:
            yield from (f"{prefix}{number}" for number in range(int(count)))
        else:
            yield item


def valid_names(names: Iterable[str]) -> Iterator[str]:
    """Those that can be topic names."""
    return (name for name in names if _TOPIC.fullmatch(name))
