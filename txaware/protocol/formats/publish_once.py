"""The bodies of a publish that a producer may repeat, and of its answer."""

import json
from collections.abc import Callable, Iterable
from functools import partial

import attrs

from txaware.errors import BadRequest
from txaware.model.avro_items import ID_HEAD, long_bytes
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    SEQUENCES,
    ProducerIdentity,
)
from txaware.model.requests import Payload
from txaware.protocol.fields import Body, Field, Kind, plain
from txaware.protocol.formats.avro_format import (
    OWN,
    PUBLISH,
    LabelledAvro,
    OwnAvro,
    read_labelled_publish,
    read_own_publish,
)
from txaware.protocol.formats.avro_reading import Cursor, read
from txaware.protocol.formats.avro_writing import array
from txaware.protocol.formats.interfaces import Format
from txaware.protocol.formats.json_format import JSON, MESSAGES
from txaware.protocol.formats.own_client import encode_publish
from txaware.protocol.formats.requests import PublishRequest
from txaware.protocol.json_values import INT_BITS, load

ONCE = Body(
    "a PublishOnceRequest",
    (
        Field("producerId", plain(0, MAX_PRODUCER_ID)),
        Field("epoch", plain(0, MAX_EPOCH)),
        Field("sequence", plain(0, SEQUENCES - 1)),
        Field("messages", Kind(MESSAGES.read, MESSAGES.schema | {"minItems": 1})),
    ),
)


@attrs.frozen
class OnceRequest:
    """The messages that a producer publishes, from a sequence on."""

    producer: ProducerIdentity
    sequence: int
    request: PublishRequest

    @property
    def messages(self) -> Iterable[Payload]:
        """The messages, with their keys and headers."""
        return self.request.labelled


def encode_once(request: OnceRequest) -> bytes:
    """Writes the body of a publish that may be repeated."""
    producer = request.producer
    return b"".join(
        (
            long_bytes(producer.producer_id),
            long_bytes(producer.epoch),
            b"\1" if producer.by_client else b"\0",
            long_bytes(request.sequence),
            encode_publish(request.request),
        )
    )


def read_once(body: bytes, format_: Format) -> OnceRequest:
    """Reads a publish that may be repeated, in JSON or in a type of txaware's own."""
    if format_ is JSON:
        sent = ONCE.read(load(body))
        identity = ProducerIdentity(sent["producerId"], sent["epoch"])
        return OnceRequest(
            identity, sent["sequence"], PublishRequest(None, sent["messages"])
        )
    if not isinstance(format_, OwnAvro):
        raise BadRequest(
            f"{format_.media_type} has no producer; {OWN.media_type} and "
            f"{JSON.media_type} have"
        )
    is_labelled = isinstance(format_, LabelledAvro)
    read_publish = read_labelled_publish if is_labelled else read_own_publish
    return read(body, partial(_read, read_publish), what=PUBLISH)


def _read(
    read_publish: Callable[[Cursor], PublishRequest], cursor: Cursor
) -> OnceRequest:
    producer_id, epoch = cursor.number(), cursor.number(INT_BITS)
    identity = ProducerIdentity(producer_id, epoch, cursor.flag())
    sequence, request = cursor.number(INT_BITS), read_publish(cursor)
    if (request.pointer, request.attempt, request.receipts) != (None, None, None):
        raise BadRequest(f"{cursor.what} of a producer has messages and nothing else")
    return OnceRequest(identity, sequence, request)


def write_ids(ids: list[MessageId], format_: Format) -> bytes:
    """Writes the answer: the ids of the messages, in order."""
    if format_ is JSON:
        return json.dumps({"ids": [str(one) for one in ids]}).encode()
    return array([ID_HEAD + one for one in ids])


def decode_ids(body: bytes) -> list[MessageId]:
    """Reads the answer to a publish of a producer."""
    return read(body, _read_ids, what="the ids")


def _read_ids(cursor: Cursor) -> list[MessageId]:
    ids: list[MessageId] = []
    for count in cursor.blocks():
        ids += _read_block(cursor, count)
    return ids


def _read_block(cursor: Cursor, count: int) -> list[MessageId]:
    """Reads ids at once if each is encoded as we do; one by one takes five times."""
    item_bytes = len(ID_HEAD) + ID_BYTES
    data = cursor.body[cursor.at : cursor.at + item_bytes * count]
    if len(data) != item_bytes * count or data[::item_bytes] != ID_HEAD * count:
        return [MessageId.from_bytes(cursor.data()) for _ in range(count)]
    cursor.at += len(data)
    starts = range(len(ID_HEAD), len(data), item_bytes)
    return [MessageId(data[at : at + ID_BYTES]) for at in starts]
