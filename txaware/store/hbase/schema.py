"""The schema of our tables in HBase: makes them, and checks them."""

from collections.abc import Iterable
from operator import methodcaller
from typing import Any

import attrs

from txaware.errors import BadRequest, RequestTooLarge, Unavailable
from txaware.model.interfaces import Write
from txaware.store.hbase.cells import FAMILY
from txaware.store.hbase.connections import Call, HBaseConnections
from txaware.store.hbase.salting import BUCKETS
from txaware.store.keys import FIRST_PAYLOAD, MESSAGE, PAYLOAD

MESSAGES, PAYLOADS, META = "messages", "payloads", "meta"
KINDS = (MESSAGES, PAYLOADS, META)
SALTED = (MESSAGES, PAYLOADS)

# META's own rows come before all rows of the table, whose keys begin with letters.
OWN_ROWS = b"\0"
HEAD_KEY = OWN_ROWS + b"head"
OWNER_ROWS, REDO_ROWS, TALLY_ROWS = (
    OWN_ROWS + name for name in (b"owner", b"redo", b"tally")
)

# A row that is overwritten is read as it was until its batch is settled. Messages are
# overwritten when they are rolled back or marked, the head with every batch.
VERSIONS = {MESSAGES: 3, PAYLOADS: 2, META: 10}
BLOOM_FILTER = "ROW"
# Java's own compression, which every HBase has.
COMPRESSION = "GZ"
COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "LZO", "BZIP2")
FOREVER_S = 2**31 - 1
# The limits of HBase (hbase.client.keyvalue.maxsize), with room for the rest of a cell.
MOST_KEY_BYTES, MOST_ROW_BYTES = 32_000, (10 << 20) - (64 << 10)
# Parts of HBase's errors when it cannot make a table as it is wanted.
_REFUSALS = (
    "IllegalArgument",
    "sanity checks",
    "NamespaceNotFound",
    "AccessDenied",
)


@attrs.frozen
class Family:
    """The settings of the one family of a table.

    They let nothing expire: messages expire by their topic or by their own time.
    """

    versions: int
    bloom_filter: str = BLOOM_FILTER
    compression: str = COMPRESSION


def kind_of(key: bytes) -> str:
    """Returns the kind of table of a key, or of the prefix of one.

    A redo record of the first format has payloads under that format's tag.
    """
    if key[:1] == MESSAGE:
        return MESSAGES
    return PAYLOADS if key[:1] in (PAYLOAD, FIRST_PAYLOAD) else META


def family_of(kind: str, compression: str = COMPRESSION) -> Family:
    """Returns the wanted settings for the family of a table."""
    return Family(VERSIONS[kind], compression=compression)


def check_fits(writes: Iterable[Write]) -> None:
    """Refuses rows that HBase would refuse for ever, once they are in a redo record."""
    for key, value in writes:
        if len(key) > MOST_KEY_BYTES:
            raise BadRequest(
                f"a key of {len(key):,} bytes is too long for HBase, which takes "
                f"{MOST_KEY_BYTES:,}: give the topic or the group a shorter name"
            )
        size = len(key) + len(value or b"")
        if size > MOST_ROW_BYTES:
            raise RequestTooLarge(
                f"a row of {size:,} bytes is too large for HBase, which takes "
                f"{MOST_ROW_BYTES:,}"
            )


def split_keys(kind: str) -> list[bytes]:
    """Returns where a table's regions begin, but the first: one for each bucket."""
    return [bytes([n]) for n in range(1, BUCKETS)] if kind in SALTED else []


def missing_tables(connections: HBaseConnections) -> list[str]:
    """Returns the kinds of tables that are missing."""
    found = set(connections.repeat(methodcaller("getTableNames")))
    return [kind for kind in KINDS if connections.address.table(kind) not in found]


def create_tables(
    connections: HBaseConnections, *, compression: str = COMPRESSION
) -> list[str]:
    """Makes the tables that are missing, of one region each; answers their names.

    Thrift knows no split keys: HBase's own Admin makes tables of more regions.
    """
    made = []
    for kind in missing_tables(connections):
        name = connections.address.table(kind)
        creation = _creation(connections, name, family_of(kind, compression))
        try:
            connections.repeat(creation)
        except Unavailable as error:
            raise Unavailable(
                f"HBase did not make the table {name.decode()} in time, and may do so "
                f"still: {error}"
            ) from error
        made.append(name.decode("ascii"))
    return made


def differences(connections: HBaseConnections, *, compression: str) -> list[str]:
    """Writes a sentence for each difference between the tables and what is wanted."""
    found, missing = [], missing_tables(connections)
    for kind in KINDS:
        name = connections.address.table(kind)
        if kind in missing:
            found.append(f"{name.decode()} is missing")
            continue
        families = connections.repeat(methodcaller("getColumnDescriptors", name))
        wanted = family_of(kind, compression)
        found += [f"{name.decode()}: {one}" for one in _of_families(families, wanted)]
    return found


def unsplit_tables(connections: HBaseConnections) -> list[str]:
    """Returns the names of tables in which not every bucket begins a region."""
    found = []
    for kind in SALTED:
        name = connections.address.table(kind)
        regions = connections.repeat(methodcaller("getTableRegions", name))
        if not {region.startKey for region in regions}.issuperset(split_keys(kind)):
            found.append(name.decode("ascii"))
    return found


def _of_families(families: dict[bytes, Any], wanted: Family) -> list[str]:
    family = families.get(FAMILY + b":")
    if family is None:
        return [f"it has no family {FAMILY.decode()}"]
    found = []
    if family.maxVersions < wanted.versions:
        found.append(f"keeps {family.maxVersions} versions, not {wanted.versions}")
    for what, has, wants in (
        ("bloom filter", _text(family.bloomFilterType), wanted.bloom_filter),
        ("compression", _text(family.compression), wanted.compression),
    ):
        if has != wants:
            found.append(f"its {what} is {has}, not {wants}")
    if not family.blockCacheEnabled:
        found.append("blocks that were read are not kept (BLOCKCACHE)")
    if 0 < family.timeToLive < FOREVER_S:
        found.append(f"everything is lost after {family.timeToLive} s (TTL)")
    return found


def _creation(connections: HBaseConnections, name: bytes, family: Family) -> Call[None]:
    descriptor = connections.structs.ColumnDescriptor(
        name=FAMILY + b":",
        maxVersions=family.versions,
        bloomFilterType=family.bloom_filter,
        compression=family.compression,
        blockCacheEnabled=True,
        timeToLive=-1,
    )
    exists = connections.structs.AlreadyExists

    def create(client: Any) -> None:
        try:
            client.createTable(name, [descriptor])
        except exists:
            pass  # by an earlier try, whose answer was lost
        except Exception as error:
            raise _refused(name, error) from error

    return create


def _refused(name: bytes, error: Exception) -> Exception:
    text = _text(getattr(error, "message", "") or str(error)).partition("\n")[0]
    if any(refusal in text for refusal in _REFUSALS):
        return BadRequest(f"HBase does not make {name.decode()}: {text}")
    return error


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
