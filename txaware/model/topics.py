"""Topics: their names, their properties, and the bytes that a table keeps of them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import attrs

from txaware.errors import BadRequest, TopicExists
from txaware.model.shards import HOME, checked_shards, shards_text

DEFAULT_NAMESPACE = "default"
DEFAULT_TTL_S = 604_800
MAX_TTL_S = 2**31 - 1
LONGEST_ID = 255  # of a transactional id, in characters
MAX_DIGITS = 6  # the number N in `prefix:N` has fewer digits
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAMESPACE = re.compile(r"[A-Za-z0-9_]+")
_GROUP = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")
_WHOLE = re.compile(r"[0-9]{1,18}")
_SHARDS = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4})*")


@attrs.frozen(cache_hash=True)
class NamespacedName:
    """A name in its namespace; `str` leaves out the namespace `default`.

    `kind` says in errors what it is the name of.
    """

    kind: ClassVar[str]

    name: str
    namespace: str = DEFAULT_NAMESPACE

    @classmethod
    def parse(cls, text: object) -> Self:
        """Reads `name` or `namespace:name`; `BadRequest` for anything else."""
        if not isinstance(text, str):
            raise BadRequest(f"a {cls.kind} is named by a str, not {text!r:.100}")
        namespace, colon, name = text.rpartition(":")
        if not colon:
            namespace = DEFAULT_NAMESPACE
        checked_namespace(namespace)
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"{name!r:.100} is no {cls.kind} name; letters, digits, - and _ make "
                f"one"
            )
        return cls(name, namespace)

    @cached_property
    def key(self) -> bytes:
        """The beginning of the keys of its rows, before anything else in them."""
        return f"{self.namespace}:{self.name}:".encode("ascii")

    def __str__(self) -> str:
        if self.namespace == DEFAULT_NAMESPACE:
            return self.name
        return f"{self.namespace}:{self.name}"


@attrs.frozen(cache_hash=True)
class TopicName(NamespacedName):
    """A topic's name in its namespace; `str` leaves out the namespace `default`."""

    kind: ClassVar[str] = "topic"


@attrs.frozen(cache_hash=True)
class QueueName(NamespacedName):
    """A queue's name in its namespace; `str` leaves out the namespace `default`."""

    kind: ClassVar[str] = "queue"


@attrs.frozen(cache_hash=True)
class TableName(NamespacedName):
    """A table's name in its namespace; `str` leaves out the namespace `default`."""

    kind: ClassVar[str] = "table"


def checked_namespace(namespace: object) -> str:
    """Returns the namespace if it is valid; raises `BadRequest` otherwise."""
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise BadRequest(
            f"{namespace!r} is no namespace; letters, digits and _ make one"
        )
    return namespace


def checked_group(group: object) -> str:
    """Returns the name of a consumer group if valid; raises `BadRequest` otherwise."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise BadRequest(
            f"{group!r} is no group name; letters, digits, - _ and . make one"
        )
    return group


def checked_transactional_id(name: object) -> str:
    """Returns a transactional id if it is valid; raises `BadRequest` otherwise."""
    return checked_id(name, "transactional id")


def checked_id(name: object, what: str) -> str:
    """Returns a name that a program gives itself, with the letters of a group's."""
    if (
        not isinstance(name, str)
        or len(name) > LONGEST_ID
        or not _GROUP.fullmatch(name)
    ):
        raise BadRequest(
            f"{name!r:.100} is no {what}; up to {LONGEST_ID} letters, digits, - _ and "
            f". make one"
        )
    return name


def number_of_text(value: object) -> object:
    """Returns the whole number that a text has, as bodies and properties have it.

    What is none is returned as it is, for whoever checks it. Programs give numbers.
    """
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


def checked_ttl_s(ttl: object) -> int:
    """Returns a time to live, a whole number of seconds; else a `BadRequest`."""
    if isinstance(ttl, bool) or not isinstance(ttl, int):
        raise BadRequest(f"a ttl is a whole number of seconds, not {ttl!r}")
    if not 0 < ttl <= MAX_TTL_S:
        raise BadRequest(f"a ttl is from 1 to {MAX_TTL_S} seconds")
    return ttl


# The values of the property `publishing`: the publishes that a topic accepts.
PUBLISHING = ("any", "transactional", "plain")
# The property of a topic that keeps the newest message of each key, and its values.
COMPACT = "compact"
FLAGS = {False: "false", True: "true"}
MOST_PARTITIONS = 65_535
_PARTITIONS, _FORMER_PARTITIONS = "partitions", "former_partitions"
# The property that says, by partition, in which shards a topic lies.
SHARDS = "shards"


def checked_partitions(partitions: object) -> int:
    """Returns a number of partitions, a whole number; else a `BadRequest`."""
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise BadRequest(f"partitions are a whole number, not {partitions!r:.100}")
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise BadRequest(
            f"a topic has from 1 to {MOST_PARTITIONS} partitions, not {partitions}"
        )
    return partitions


@attrs.frozen
class Topic:
    """A topic as it is now; `properties` are all but its time to live.

    The property `publishing` says what the topic accepts: `any`, `transactional` or
    `plain`. With the property `compact`, which is `true` or `false`, the newest message
    of each key stays beyond the time to live. A topic of several partitions has their
    number as the property `partitions`. Earlier generations had up to
    `former_partitions`, where that is more. The property `shards` says in which shard
    each partition lies, also a former one; without it all lie in the first shard.
    """

    topic: TopicName
    generation: int
    ttl_s: int = DEFAULT_TTL_S
    properties: Mapping[str, str] = attrs.field(
        factory=dict, repr=lambda kept: repr(dict(kept))
    )
    former_partitions: int = attrs.field(default=0, repr=False)

    @property
    def name(self) -> str:
        """The name of the topic within its namespace."""
        return self.topic.name

    @property
    def namespace(self) -> str:
        """The namespace of the topic."""
        return self.topic.namespace

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return self.ttl_s * 1000

    @property
    def publishing(self) -> str:
        """The publishes that the topic accepts: `any`, `transactional` or `plain`."""
        return self.properties.get("publishing", "any")

    @property
    def is_compact(self) -> bool:
        """True where the newest message of each key stays."""
        return self.properties.get(COMPACT) == FLAGS[True]

    def keyless_from_ms(self, now_ms: int) -> int:
        """Returns the time before which a message without a key has expired."""
        return max(0, now_ms - self.ttl_ms)

    def live_from_ms(self, now_ms: int) -> int:
        """Returns the time before which every message has expired."""
        return 0 if self.is_compact else self.keyless_from_ms(now_ms)

    @property
    def partitions(self) -> int:
        """The number of partitions, each of which has an order of its own."""
        text = self.properties.get(_PARTITIONS, "1")
        return int(text) if _WHOLE.fullmatch(text) else 1  # it was anybody's once

    @property
    def shards(self) -> tuple[int, ...]:
        """The shard of each partition, and of former ones; empty where all is home."""
        text = self.properties.get(SHARDS, "")
        if not _SHARDS.fullmatch(text):  # it was anybody's once
            return ()
        return tuple(map(int, text.split(",")))

    def shard_of(self, number: int) -> int:
        """Returns the shard that a partition lies in."""
        if SHARDS not in self.properties:  # nearly always
            return HOME
        shards = self.shards
        return shards[number] if number < len(shards) else HOME

    @property
    def serving(self) -> frozenset[int]:
        """The shards that a partition lies in, or lay in before."""
        most = max(self.partitions, self.former_partitions)
        return frozenset(map(self.shard_of, range(most)))

    @property
    def prefix(self) -> bytes:
        """The beginning of the keys of all rows of this generation."""
        return data_prefix(self.topic, self.generation)

    def changed(self, ttl_s: int | None, changes: Mapping[str, str | None]) -> Self:
        """Returns the topic after an update; a change to None removes a property.

        Partitions are only added: fewer than before are a `BadRequest`, and so are more
        of a compact topic.
        """
        if _PARTITIONS in changes:
            self._check_partitions(int(changes[_PARTITIONS] or "1"))
        if SHARDS in changes:
            self._check_shards(changes[SHARDS])
            changes = {key: v for key, v in changes.items() if key != SHARDS}
        merged = {**self.properties, **changes}
        return attrs.evolve(
            self,
            ttl_s=self.ttl_s if ttl_s is None else ttl_s,
            properties={k: v for k, v in merged.items() if v is not None},
        )

    def replaced(self, described: "Topic") -> "Topic":
        """Returns the topic as described; partitions that are not named stay.

        So do its shards in any case.
        """
        named, kept = described.properties, {SHARDS}
        if _PARTITIONS in named:
            self._check_partitions(described.partitions)
        else:
            kept.add(_PARTITIONS)
        if SHARDS in named:
            self._check_shards(named[SHARDS])
        more = {key: v for key, v in self.properties.items() if key in kept}
        return attrs.evolve(described, properties={**named, **more})

    def followed(self, topic: "Topic") -> "Topic":
        """Returns what follows this topic, which remembers how many partitions it had.

        A topic of one partition loses the property, and so has the bytes that older
        versions wrote.
        """
        properties, partitions = topic.properties, topic.partitions
        if partitions == 1 and _PARTITIONS in properties:
            properties = {k: v for k, v in properties.items() if k != _PARTITIONS}
        former = max(self.partitions, self.former_partitions)
        former = former if former > partitions else 0
        return attrs.evolve(topic, properties=properties, former_partitions=former)

    def _check_shards(self, shards: str | None) -> None:
        named = set(checked_shards(shards) or ())
        if named != set(self.shards or (HOME,)):
            raise BadRequest(
                f"topic {self.topic} lies in shards "
                f"{shards_text(sorted(set(self.shards or (HOME,))))}, and stays there: "
                f"make a new topic in {shards}"
            )

    def _check_partitions(self, partitions: int) -> None:
        if partitions < self.partitions:
            raise BadRequest(
                f"topic {self.topic} has {self.partitions} partitions, which are only "
                f"added: {partitions} would be fewer"
            )
        if partitions > self.partitions and self.is_compact:
            raise BadRequest(
                f"topic {self.topic} is compact, and with {partitions} partitions its "
                f"keys would go to other ones; make a new topic of so many"
            )

    def agreeing(self, ttl_s: int | None, properties: Mapping[str, str]) -> Self:
        """Returns the topic if it is as was named; else `TopicExists` says how it is.

        `properties` are those that were named; a topic may have more.
        """
        kept = {
            "publishing": "any",
            COMPACT: FLAGS[False],
            _PARTITIONS: "1",
            **self.properties,
        }
        named: list[tuple[str, object, object]] = [
            (f"its property {key}", kept.get(key), value)
            for key, value in properties.items()
            if key != SHARDS
        ]
        if SHARDS in properties:
            found, wanted = set(self.shards or (HOME,)), properties[SHARDS]
            if found != set(checked_shards(wanted) or ()):
                named.append(("its property shards", kept.get(SHARDS, "0"), wanted))
        if ttl_s is not None:
            named.insert(0, ("its ttl_s", self.ttl_s, ttl_s))
        if differs := differences(named):
            raise TopicExists(
                f"topic {self.topic} exists already, and {differs}; update_topic "
                f"changes it"
            )
        return self

    def to_bytes(self) -> bytes:
        """Encodes the topic for its table; a negative generation is a deleted topic."""
        kept = {**self.properties, "ttl": str(self.ttl_s)}
        kept["generation"] = str(self.generation)
        if self.former_partitions:
            kept[_FORMER_PARTITIONS] = str(self.former_partitions)
        return json.dumps(kept, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, topic: TopicName, data: bytes) -> Self:
        """Reads a topic that `to_bytes` wrote."""
        kept: dict[str, str] = json.loads(data)
        generation, ttl_s = int(kept.pop("generation")), int(kept.pop("ttl"))
        former = int(kept.pop(_FORMER_PARTITIONS, "0"))
        return cls(topic, generation, ttl_s, MappingProxyType(kept), former)


def differences(named: Iterable[tuple[str, object, object]]) -> str:
    """Says what is not as was named, of names with what there is and what was named."""
    return " and ".join(
        f"{name} is {found!r}, not {wanted!r:.100}"
        for name, found, wanted in named
        if found != wanted
    )


def data_prefix(topic: TopicName, generation: int) -> bytes:
    """Returns the beginning of the keys of one generation of a topic."""
    return topic.key + generation.to_bytes(4, "big")


def checked_properties(
    properties: Mapping[str, Any] | None, compact: object = None
) -> dict[str, str]:
    """Returns properties, a flat map of text; raises `BadRequest` otherwise.

    Where `compact` is not None it is one of them.
    """
    if properties is not None and not isinstance(properties, Mapping):
        raise BadRequest(f"properties are a map of text, not {properties!r}")
    checked: dict[str, str] = {}
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadRequest(f"a property is text, not {key!r}: {value!r}")
        if not (_is_unicode(key) and _is_unicode(value)):
            raise BadRequest(f"half of a surrogate pair is in {key!r}: {value!r}")
        if key in ("ttl", "generation", _FORMER_PARTITIONS):
            raise BadRequest(f"{key} is no property of yours: the topic has it itself")
        checked[key] = value
    if compact is not None:
        checked[COMPACT] = FLAGS[checked_compact(compact)]
    if checked.get("publishing", "any") not in PUBLISHING:
        raise BadRequest(
            f"publishing is one of {', '.join(PUBLISHING)}, not "
            f"{checked['publishing']!r}"
        )
    if checked.get(COMPACT, FLAGS[True]) not in FLAGS.values():
        raise BadRequest(f"{COMPACT} is true or false, not {checked[COMPACT]!r}")
    if _PARTITIONS in checked:
        checked[_PARTITIONS] = str(
            checked_partitions(number_of_text(checked[_PARTITIONS]))
        )
    if SHARDS in checked:
        checked[SHARDS] = shards_text(checked_shards(checked[SHARDS]) or ())
    return checked


def checked_compact(compact: object) -> bool:
    """Returns whether a topic is compact; raises `BadRequest` for no bool."""
    if not isinstance(compact, bool):
        raise BadRequest(f"{COMPACT} is True or False, not {compact!r:.100}")
    return compact


def with_partitions(
    properties: Mapping[str, Any] | None, partitions: object, shards: object = None
) -> Mapping[str, Any] | None:
    """Returns properties with a number of partitions, and shards, if they are said."""
    more = {}
    if partitions is not None:
        more[_PARTITIONS] = str(checked_partitions(partitions))
    if (listed := checked_shards(shards)) is not None:
        more[SHARDS] = shards_text(listed)
    if not more or not (properties is None or isinstance(properties, Mapping)):
        return properties  # whoever checks them says what they are
    return {**(properties or {}), **more}


def checked_changes(
    properties: Mapping[str, Any] | None, compact: object = None
) -> dict[str, str | None]:
    """Returns properties to set, and None for those to remove; else a `BadRequest`.

    Where `compact` is not None it is one that is set.
    """
    if not isinstance(properties, Mapping):
        return {**checked_properties(properties, compact)}
    removed = {key for key, value in properties.items() if value is None}
    if _PARTITIONS in removed:
        raise BadRequest("partitions are only added, and not taken away")
    if SHARDS in removed:
        raise BadRequest("a topic stays in its shards, which are not taken away")
    # A name is checked like others.
    checked_properties(dict.fromkeys(removed - {COMPACT}, "any"))
    kept = {key: value for key, value in properties.items() if key not in removed}
    return {**dict.fromkeys(removed), **checked_properties(kept, compact)}


def _is_unicode(text: str) -> bool:
    """Tells whether text has no half of a surrogate pair, which cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_names(text: str) -> Iterator[str]:
    """Lists the names in text like `audit, metrics:10`; `prefix:N` stands for N names.

    An item that cannot be a name is returned as it is, for the caller to warn about.
    """
    for item in filter(None, (part.strip() for part in text.split(","))):
        prefix, colon, count = item.partition(":")
        if colon and _WHOLE.fullmatch(count) and len(count) < MAX_DIGITS:
            yield from (f"{prefix}{number}" for number in range(int(count)))
        else:
            yield item


def valid_names(names: Iterable[str]) -> Iterator[str]:
    """Returns the names that can be topic names."""
    return (name for name in names if _NAME.fullmatch(name))
