"""Values that travel over HTTP, as hypothesis strategies, and fastavro beside ours."""

import io
from itertools import pairwise
from typing import Any

import fastavro
from hypothesis import strategies as st

from tests.support.strategies import transactions
from txaware.model.labels import MAX_KEY_BYTES
from txaware.model.messages import (
    BlockedBy,
    Message,
    MessageId,
    Outgoing,
    Page,
    PublishResponse,
    Receipt,
    end_of,
)
from txaware.protocol.formats import PageWriter, PollRequest, PublishRequest, schemas

AVRO_TYPE = "avro/binary"
MAX_LONG, MAX_INT = 2**63 - 1, 2**31 - 1

longs = st.integers(-MAX_LONG - 1, MAX_LONG)
ints = st.integers(-MAX_INT - 1, MAX_INT)
ids = st.binary(min_size=20, max_size=20).map(MessageId.from_bytes)
# Lengths around the steps of a head, and any bytes.
payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([63, 64, 127, 128, 255, 256, 2047, 8192, 65_535, 65_536]).map(
        bytes
    ),
)
messages = st.tuples(ids, payloads).map(lambda pair: Message(*pair))
keys = st.none() | st.binary(max_size=40) | st.just(bytes(MAX_KEY_BYTES))
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
headers = st.dictionaries(names, st.binary(max_size=300), max_size=3)
labelled = st.builds(Message, ids, payloads, keys, headers)
receipts = st.builds(
    Receipt,
    pointer=longs,
    topic=st.text(max_size=20),
    attempt=st.binary(max_size=20),
    count=ints,
)
responses = st.builds(
    PublishResponse,
    transaction_write_pointer=longs,
    start_timestamp=longs,
    start_sequence_id=ints,
    end_timestamp=longs,
    end_sequence_id=ints,
)
expiry_ms = st.integers(1, 2**50)
outgoing = st.one_of(
    payloads,
    st.builds(
        Outgoing,
        payloads,
        keys,
        headers,
        st.none() | expiry_ms.map(lambda ms: (ms + 0.25) / 1000),
    ),
)
publish_requests = st.builds(
    PublishRequest,
    pointer=st.none() | longs,
    messages=st.lists(outgoing, max_size=8),
    receipts=st.none() | st.lists(receipts, max_size=4),
    attempt=st.none() | st.binary(max_size=20),
)
poll_requests = st.builds(
    PollRequest,
    start=st.none() | longs | ids,
    inclusive=st.booleans(),
    limit=st.none() | ints,
    transaction=st.none() | transactions,
    isolation=st.text(max_size=12),
    wait_s=st.integers(0, 2**40).map(lambda ms: ms / 8),
)
blocked = st.none() | st.builds(BlockedBy, longs, longs)
pages = st.builds(
    Page,
    st.lists(messages, max_size=8),
    next_id=ids,
    blocked_by=blocked,
    skipped_before=st.none() | longs,
)
labelled_pages = st.builds(
    Page,
    st.lists(labelled, max_size=8),
    next_id=ids,
    blocked_by=blocked,
    skipped_before=st.none() | longs,
    last_stable=st.none() | ids,
)


def schema(name: str) -> Any:
    """A published schema, as fastavro takes it."""
    return fastavro.parse_schema(schemas()[AVRO_TYPE][name])


def avro_write(name: str, *, value: object) -> bytes:
    """The bytes that fastavro makes of a value."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema(name), value)
    return out.getvalue()


def avro_read(name: str, *, body: bytes) -> Any:
    """What fastavro reads, all of it."""
    source = io.BytesIO(body)
    value = fastavro.schemaless_reader(source, schema(name), None)
    assert source.tell() == len(body)
    return value


def written(writer: PageWriter, page: Page, *, cuts: list[int] | None = None) -> bytes:
    """A page as it is sent, cut before the messages of these numbers."""
    bounds = [0, *sorted(cuts or []), len(page)]
    parts = [writer.messages(page[start:stop]) for start, stop in pairwise(bounds)]
    return b"".join((writer.begin(), *parts, writer.end(end_of(page))))


def same_page(one: Page, other: Page) -> bool:
    """Whether two pages are equal in everything."""
    return end_of(one) == end_of(other) and [*one] == [*other]
