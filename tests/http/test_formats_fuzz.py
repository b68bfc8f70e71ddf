"""Any bytes at all: every decoder answers a value or a `BadRequest`, soon and small."""

import io
import json
import random
import time
from collections.abc import Callable

import fastavro
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.codec import encode
from coordinator.transaction import Transaction
from tests.support.format_values import schema, written
from txaware.errors import BadRequest
from txaware.model.messages import (
    BlockedBy,
    Message,
    MessageId,
    Outgoing,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.model.producers import ProducerIdentity
from txaware.model.rows import RowChange
from txaware.protocol import formats
from txaware.protocol.formats import (
    AVRO,
    JSON,
    MSGPACK,
    OnceRequest,
    PollRequest,
    PublishRequest,
    msgpack_format,
)
from txaware.protocol.formats.avro_format import long_bytes

ID = MessageId.of(1_700_000_000_000, 1, 1_700_000_000_001, 2)
TX = Transaction(7, 5, invalids=[2, 3], in_progress=[6], checkpoint_write_pointers=[8])
RESPONSE = PublishResponse(5, 1_700_000_000_000, 0, 1_700_000_000_000, 70_000)
RECEIPT = Receipt(5, "ns:t", b"a1", 300)
POLL = PollRequest(start=ID, limit=300, transaction=TX, wait_s=5.0)
PUBLISH = PublishRequest(
    5,
    [b"a", Outgoing(bytes(200), expire_after_s=5.0), b""],
    receipts=[RECEIPT] * 2,
    attempt=b"a1",
)
PAGE = Page(
    [Message(ID, b"a", b"k"), Message(ID, bytes(200), None, {"h": b"v"})],
    next_id=ID,
    blocked_by=BlockedBy(5, 7),
    skipped_before=9,
    last_stable=ID,
)
JSON_PUBLISH = {
    "transactionWritePointer": {"long": 5},
    "messages": ["a\u00ff", {"utf8": "\u20ac"}, {"base64": "AP8=", "expireAfterMs": 5}],
    "receipts": [{"pointer": 5, "topic": "t", "attempt": "YTE=", "count": 3}],
    "attempt": "YTE=",
}
JSON_POLL = {
    "startFrom": {"bytes": ID.decode("latin-1")},
    "inclusive": False,
    "limit": {"int": 10},
    "transaction": {"bytes": encode(TX).decode("latin-1")},
    "isolation": "committed",
    "waitMs": 50,
    "page": True,
    "payloadAs": "utf8",
}
KEYED = PublishRequest(
    5, [Outgoing(b"a", b"k"), b"", Outgoing(b"bc", b"kk", {"h": b"v"})]
)
CHANGES = [RowChange(b"k", b"v"), RowChange(b"l", None), RowChange(b"m", b"", 5.0)]
POLL_BYTES = b"\0\x28" + ID + b"\1\0\x14\0" + long_bytes(len(encode(TX)))
COLUMNS = PollRequest(columns=True)
ONCE = OnceRequest(ProducerIdentity(5, 6), 7, KEYED.messages)
BODIES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "avro publish": (AVRO.publish_request, bytes.fromhex("000a0602610262026300")),
    "avro rollback": (AVRO.rollback_request, AVRO.publish_response(RESPONSE)),
    "avro poll": (AVRO.poll_request, POLL_BYTES + encode(TX)),
    "publish": (MSGPACK.publish_request, formats.encode_publish(PUBLISH)),
    "keyed publish": (MSGPACK.publish_request, formats.encode_publish(KEYED)),
    "publish once": (msgpack_format.read_once, formats.encode_once(ONCE)),
    "ids": (formats.decode_ids, msgpack_format.write_ids([ID, ID])),
    "poll": (MSGPACK.poll_request, formats.encode_poll(POLL)),
    "receipt": (formats.decode_receipt, MSGPACK.receipt(RECEIPT)),
    "response": (formats.decode_publish_response, MSGPACK.publish_response(RESPONSE)),
    "page": (formats.decode_page, written(MSGPACK.page_writer(POLL), PAGE, cuts=[1])),
    "columns": (
        formats.decode_columnar_page,
        written(MSGPACK.page_writer(COLUMNS), PAGE, cuts=[1]),
    ),
    "changes": (msgpack_format.read_changes, formats.encode_changes(5, CHANGES)),
    "json publish": (JSON.publish_request, json.dumps(JSON_PUBLISH).encode()),
    "json rollback": (JSON.rollback_request, JSON.publish_response(RESPONSE)),
    "json poll": (JSON.poll_request, json.dumps(JSON_POLL).encode()),
}
every_body = pytest.mark.parametrize(("read", "body"), BODIES.values(), ids=BODIES)
avro_names = {
    "avro publish": "PublishRequest",
    "avro rollback": "PublishResponse",
    "avro poll": "ConsumeRequest",
}
# Bytes that mean much here: ends of varints, lengths, and what JSON is made of.
TELLING = b"\0\1\2\3\x28\x7f\x80\x81\xfe\xff" + b'"\\{}[],:-0159.eEnNtu'


def refused(read: Callable[[bytes], object], body: bytes) -> bool:
    """Whether it is refused; any other exception fails the test."""
    try:
        read(body)
    except BadRequest as error:
        str(error).encode()
        return True
    return False


@every_body
def test_every_body_here_is_a_whole_one(
    read: Callable[[bytes], object], body: bytes
) -> None:
    assert not refused(read, body)


@every_body
def test_a_body_that_ends_anywhere_earlier_is_refused(
    read: Callable[[bytes], object], body: bytes
) -> None:
    for size in range(len(body)):
        assert refused(read, body[:size]), size


@every_body
@given(st.binary(min_size=1, max_size=20))
def test_a_body_with_more_behind_it_is_refused(
    read: Callable[[bytes], object], body: bytes, more: bytes
) -> None:
    assume(more.strip(b" \t\r\n"))
    assert refused(read, body + more)


@every_body
@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_refused(
    read: Callable[[bytes], object], body: bytes, any_bytes: bytes
) -> None:
    refused(read, any_bytes)


edits = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.integers(0, 5),
        st.binary(max_size=4)
        | st.sampled_from(TELLING).map(lambda byte: bytes([byte])),
    ),
    min_size=1,
    max_size=4,
)


def edited(body: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Some bytes replaced by others, here and there."""
    for at, count, more in changes:
        start = at % (len(body) + 1)
        body = body[:start] + more + body[start + count :]
    return body


@every_body
@given(edits)
def test_a_body_that_was_edited_is_a_body_or_refused(
    read: Callable[[bytes], object],
    body: bytes,
    changes: list[tuple[int, int, bytes]],
) -> None:
    refused(read, edited(body, changes))


@pytest.mark.parametrize("name", avro_names)
@given(edits)
def test_what_is_taken_fastavro_takes_as_well(
    name: str, changes: list[tuple[int, int, bytes]]
) -> None:
    read, body = BODIES[name]
    changed = edited(body, changes)
    if not refused(read, changed):
        source = io.BytesIO(changed)
        fastavro.schemaless_reader(source, schema(avro_names[name]), None)
        assert source.tell() == len(changed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["long", "int", "bytes", "utf8", "base64", "expireAfterMs"]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("name", [name for name in BODIES if name.startswith("json")])
@given(st.data())
def test_a_json_field_of_any_value_is_taken_or_refused(
    name: str, data: st.DataObject
) -> None:
    read, body = BODIES[name]
    fields = json.loads(body)
    field = data.draw(st.sampled_from([*fields, "unknown"]))
    fields[field] = data.draw(json_values)
    refused(read, json.dumps(fields).encode())


@pytest.mark.soak
def test_a_million_bodies_are_bodies_or_refused() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    taken, slowest_s, began_s = 0, 0.0, time.perf_counter()
    for _ in range(1_000_000):
        read, body = chance.choice([*BODIES.values()])
        changed = mutated(body, chance)
        start_s = time.perf_counter()
        taken += not refused(read, changed)
        slowest_s = max(slowest_s, time.perf_counter() - start_s)
    print(
        f"{taken} taken, {1_000_000 - taken} refused, slowest {slowest_s * 1000:.1f} ms"
    )
    print(f"{time.perf_counter() - began_s:.0f} s in all")
    assert 0 < taken < 1_000_000
    assert slowest_s < 1


def mutated(body: bytes, chance: random.Random) -> bytes:
    """A body with up to five changes, or bytes by chance."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(64))
    data = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = chance.choice(TELLING)
        elif kind == 2:
            data[at:at] = bytes([chance.choice(TELLING)]) * chance.randrange(1, 12)
        elif kind == 3:
            del data[at : at + chance.randrange(1, 8)]
        else:
            start = chance.randrange(len(data) + 1)
            data[at:at] = data[start : start + chance.randrange(1, 30)]
    return bytes(data)
