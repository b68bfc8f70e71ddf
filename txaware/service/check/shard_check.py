"""Checks of a store of several shards: whose they are, and what lies where."""

from collections.abc import Iterator, Mapping

from txaware.errors import StoreCorrupted
from txaware.model.shards import HOME
from txaware.model.topics import Topic, TopicName
from txaware.service.check.findings import Findings
from txaware.store.interfaces import CheckedRows
from txaware.store.journaled_table import FORMAT, SHARDED_FORMAT
from txaware.store.keys import (
    MARK,
    MESSAGE,
    PAYLOAD,
    SEQUENCE_ROW,
    STATE,
    STORE_SHARD,
    TOPIC,
    after,
    topic_key,
)
from txaware.store.kinds import KINDS
from txaware.store.shard_rows import (
    ShardIdentity,
    StoreShards,
    identity_of,
    shards_in,
    shown_instead,
)
from txaware.store.sharded_rows import ShardPlaces

_IN_SHARDS = {MESSAGE, PAYLOAD, MARK, TOPIC, STATE, SEQUENCE_ROW[:1]}


def check_shards(
    shards: Mapping[int, CheckedRows], findings: Findings, *, durable: bool
) -> dict[int, CheckedRows]:
    """Checks that each shard is the store's own, and that its rows belong there.

    Returns those that are the store's own.
    """
    home, own = shards[HOME], dict[int, CheckedRows]()
    known = shards_in(home) or StoreShards("")
    findings.counts["shards"] = len(known.shards)
    if durable and (home.get(FORMAT) or b"") < SHARDED_FORMAT:
        findings.problem(
            "format",
            FORMAT,
            f"there are several shards, which come with {SHARDED_FORMAT!r}: a version "
            f"that does not know them opens the data",
        )
    places = ShardPlaces(home.get)
    for number in known.shards:
        if number not in shards:
            continue  # whoever opened the others has said so
        rows, wanted = shards[number], ShardIdentity(known.store, number)
        if number != HOME and not _is_own(wanted, rows, findings):
            continue
        own[number] = rows
        _check_places(number, rows, places, findings)
        if number != HOME:
            _check_shard(number, rows, home, findings)
    return own


def _is_own(wanted: ShardIdentity, rows: CheckedRows, findings: Findings) -> bool:
    number = wanted.number
    try:
        found = identity_of(rows)
    except StoreCorrupted as error:
        findings.problem("shard", STORE_SHARD, f"shard {number}: {error}")
        return False
    if found != wanted:
        what = shown_instead(wanted, found)
        findings.problem("shard", b"", f"{what} is in the place of shard {number}")
    return found == wanted


def _check_shard(
    number: int, rows: CheckedRows, home: CheckedRows, findings: Findings
) -> None:
    for tag in KINDS.tables:
        if tag not in _IN_SHARDS and rows.scan(tag, limit=1):
            findings.problem(
                "shard", tag, f"shard {number} has rows that are in the first one alone"
            )
    for key in _keys(rows, TOPIC):
        copy = rows.get(key)
        name = key[len(TOPIC) :].decode("ascii", "replace").split(":")
        if home.get(key) == copy or rows.get(key) != copy:  # it changes just now
            continue
        findings.problem(
            "shard",
            key,
            f"shard {number} has another row of topic {name[-2]} than the first one; "
            f"whoever opens the data brings it up to date",
        )
    for key in _keys(home, TOPIC):
        if rows.get(key) is None and number in _serving(home, key):
            findings.problem(
                "shard", key, f"shard {number} serves this topic, and has no row of it"
            )


def _serving(home: CheckedRows, key: bytes) -> frozenset[int]:
    namespace, name, _ = key[len(TOPIC) :].decode("ascii").split(":")
    try:
        topic = Topic.from_bytes(TopicName(name, namespace), home.get(key) or b"")
    except (ValueError, KeyError):
        return frozenset()  # whoever checks topics says so
    assert topic_key(topic.topic) == key
    return topic.serving


def _keys(rows: CheckedRows, tag: bytes) -> Iterator[bytes]:
    start = b""
    while found := rows.scan(tag, start=start):
        for key, _ in found:
            yield tag + key
        start = found[-1][0] + b"\0"


def _check_places(
    number: int, rows: CheckedRows, places: ShardPlaces, findings: Findings
) -> None:
    """Looks at the first row of each partition, and passes the others over."""
    for tag in (MESSAGE, PAYLOAD, MARK):
        start = b""
        while found := rows.scan(tag, start=start, limit=1):
            key = found[0][0]
            end = key.find(b":", key.find(b":") + 1) + 1
            if not end:
                start = key + b"\0"  # it names no topic, and somebody else says so
                continue
            place = places.of(tag + key)
            if place != number:
                findings.problem(
                    "shard",
                    tag + key,
                    f"shard {number} has rows of {key[:end]!r}, which lies in {place}",
                )
            start = after(key[:end])
