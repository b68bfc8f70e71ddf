"""Makes and opens the further shards of a store, beside its first one."""

import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from txaware.errors import BadRequest, ShardMissing
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.model.shards import HOME, MOST_SHARDS
from txaware.model.topics import SHARDS, Topic
from txaware.shards.placement import EvenPlacement, KeepElsewhere, mend_copies
from txaware.shards.shard_place import (
    ShardDirectories,
    ShardPlace,
    place_beside,
)
from txaware.shards.sharded_table import ShardedTable
from txaware.store.keys import STORE_SHARD, STORE_SHARDS, TOPIC
from txaware.store.leveldb import LevelDbTable
from txaware.store.shard_rows import (
    STORE_ID_BYTES,
    ShardIdentity,
    StoreShards,
    identity_of,
    shards_in,
    shown_instead,
)
from txaware.store.topic_table import TopicTable

# So many shards are opened at the same time.
MOST_AT_ONCE = 8


def with_shards(
    home: OrderedTable, settings: Settings, *, least: int = 1
) -> OrderedTable:
    """Returns a table with all shards of a store opened, and at least so many made.

    A store that has no other shard is its table alone. If it fails, the shards are
    closed, and `home` is left open.
    """
    place = place_beside(home, settings)
    known = shards_in(home)
    if place is None or (known is None and least < 2):
        return home
    found = ShardedTable({HOME: home, **open_shards(home, place)})
    try:
        missing = least - len(found.shards)
        if missing > 0:
            add_shards(found, place, missing)
    except BaseException:
        for number in found.shards:
            if number != HOME:
                found.store_of(number).close()
        raise
    return found


def require_no_shard(table: OrderedTable) -> None:
    """Raises `BadRequest` for a table that is a further shard of some store."""
    found = identity_of(table)
    if found is not None:
        raise BadRequest(found.refusal)


def place_topics(
    table: OrderedTable, topics: TopicTable, keep_elsewhere: KeepElsewhere | None = None
) -> None:
    """Has topics be placed in the shards of a table, where there are several.

    `keep_elsewhere` has a shard keep the copy of a topic that is not in this process.
    """
    if not isinstance(table, ShardedTable):
        return
    home, known = table.store_of(HOME), list(TopicTable(table).all())
    for number in table.shards:
        if number != HOME:
            mend_copies(known, number, table.store_of(number))

    def keep_copy(number: int, topic: Topic) -> None:
        if (
            keep_elsewhere is None
            or number in table.shards
            or not keep_elsewhere(number, topic)
        ):
            TopicTable(table.store_of(number)).keep(topic)  # it comes and goes

    topics.placement = EvenPlacement(home, lambda: _shards_of(home).shards, keep_copy)


def open_shards(
    home: OrderedTable, place: ShardPlace, numbers: Iterable[int] | None = None
) -> dict[int, OrderedTable]:
    """Opens further shards of a store, all by default; or none of them."""
    known = _shards_of(home)

    def opened(number: int) -> OrderedTable:
        identity = ShardIdentity(known.store, number)
        return open_shard(place, identity, home.clock.now_ms)

    return _all_or_none(opened, known.further if numbers is None else numbers)


def _all_or_none(
    opened: Callable[[int], OrderedTable], numbers: Iterable[int]
) -> dict[int, OrderedTable]:
    """Opens shards at the same time: each one may wait for its former owner."""
    listed = list(numbers)
    if len(listed) < 2:
        return {number: opened(number) for number in listed}
    with ThreadPoolExecutor(MOST_AT_ONCE, "txaware-shards") as pool:
        opening = {number: pool.submit(opened, number) for number in listed}
    errors = [error for one in opening.values() if (error := one.exception())]
    if errors:
        for one in opening.values():
            if one.exception() is None:
                one.result().close()
        raise errors[0]
    return {number: one.result() for number, one in opening.items()}


def open_shard(
    place: ShardPlace, wanted: ShardIdentity, clock_ms: ClockMs
) -> OrderedTable:
    """Opens one shard; raises `ShardMissing` where it is not in its place."""
    number, name = wanted.number, place.name_of(wanted.number)
    if not place.has(number):
        raise ShardMissing(
            f"shard {number} is missing: there is no {name} with its rows; put it "
            f"back, or restore all of the data"
        )
    table = place.open(number, clock_ms)
    try:
        found = identity_of(table)
        if found != wanted:
            raise ShardMissing(_another(name, wanted, found))
    except BaseException:
        table.close()
        raise
    return table


def _another(name: str, wanted: ShardIdentity, found: ShardIdentity | None) -> str:
    return (
        f"shard {wanted.number} is not where it belongs: {name} is "
        f"{shown_instead(wanted, found)}; put the right directory there"
    )


def add_shards(table: ShardedTable, place: ShardPlace, count: int) -> tuple[int, ...]:
    """Makes so many shards more, which the table takes; returns their numbers.

    What an interrupt leaves is taken by the next call.
    """
    home = table.store_of(HOME)
    _check_count(home, count)
    known = shards_in(home)
    if known is None:
        _require_free_property(home)
        known = StoreShards(secrets.token_hex(STORE_ID_BYTES))
        writes = [*home.sharded_format(), (STORE_SHARDS, known.to_bytes())]
        home.submit(writes)()
    more = known.with_more(count)
    made: dict[int, OrderedTable] = {}
    try:
        for number in more.shards[-count:]:
            identity = ShardIdentity(known.store, number)
            made[number] = _make(place, identity, home.clock.now_ms)
        home.submit([(STORE_SHARDS, more.to_bytes())])()
    except BaseException:
        for each in made.values():
            each.close()
        raise
    for number, each in made.items():
        table.add(number, each)
    return tuple(made)


def _make(
    place: ShardPlace, identity: ShardIdentity, clock_ms: ClockMs
) -> OrderedTable:
    """Makes a shard; one that was made for this store before is taken as it is."""
    table = place.open(identity.number, clock_ms)
    name = place.name_of(identity.number)
    try:
        found = identity_of(table)
        if found is None:
            if table.scan(TOPIC, limit=1):
                raise BadRequest(
                    f"{name} has topics already, and becomes no shard: take it away"
                )
            writes = [*table.sharded_format(), (STORE_SHARD, identity.to_bytes())]
            table.submit(writes)()
        elif found != identity:
            raise ShardMissing(_another(name, identity, found))
    except BaseException:
        table.close()
        raise
    return table


def make_further(home: OrderedTable, settings: Settings, *, least: int) -> StoreShards:
    """Makes what is missing of so many shards beside a table, and closes them."""
    place = place_beside(home, settings)
    assert place is not None
    missing = least - len(_shards_of(home).shards)
    if missing > 0:
        alone = ShardedTable({HOME: home})
        for number in add_shards(alone, place, missing):
            alone.store_of(number).close()
    return _shards_of(home)


def make_shards(directory: Path, settings: Settings, *, least: int) -> StoreShards:
    """Makes what is missing of so many shards of a directory, and closes all again."""
    home = LevelDbTable.open(directory, settings, clock_ms=system_clock_ms)
    try:
        require_no_shard(home)
        table = with_shards(home, settings, least=least)
    except BaseException:
        home.close()
        raise
    try:
        return _shards_of(home)
    finally:
        table.close()


def open_some(
    directory: Path,
    known: StoreShards,
    numbers: Iterable[int],
    settings: Settings,
    *,
    clock_ms: ClockMs = system_clock_ms,
) -> ShardedTable:
    """Opens some shards of a directory, for a process that has no others.

    Without the first one among them, what is no message is this process's own.
    """
    place = ShardDirectories(directory, settings)
    tables: dict[int, OrderedTable] = {}
    try:
        for number in sorted(numbers):
            if number == HOME:
                tables[number] = LevelDbTable.open(
                    directory, settings, clock_ms=clock_ms
                )
                continue
            now_ms = tables[HOME].clock.now_ms if HOME in tables else clock_ms
            identity = ShardIdentity(known.store, number)
            tables[number] = open_shard(place, identity, now_ms)
    except BaseException:
        for table in tables.values():
            table.close()
        raise
    return ShardedTable(tables)


def _shards_of(home: OrderedTable) -> StoreShards:
    return shards_in(home) or StoreShards("")


def _check_count(home: OrderedTable, count: object) -> None:
    left = MOST_SHARDS - len(_shards_of(home).shards)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= left:
        raise BadRequest(f"from 1 to {left} shards can be added, not {count!r:.100}")


def _require_free_property(home: OrderedTable) -> None:
    """Raises where a topic has a property `shards` of an earlier version's program."""
    for topic in TopicTable(home).all():
        if SHARDS in topic.properties:
            raise BadRequest(
                f"topic {topic.topic} has a property {SHARDS} of yours, which a store "
                f"of several shards has itself: remove it with an earlier version"
            )
