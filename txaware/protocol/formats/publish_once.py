"""The bodies of a publish that a producer may repeat, and of its answer."""

import json

from txaware.errors import BadRequest
from txaware.model.messages import MessageId
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    SEQUENCES,
    ProducerIdentity,
)
from txaware.protocol.fields import Body, Field, plain
from txaware.protocol.formats import msgpack_format
from txaware.protocol.formats.avro_format import AVRO
from txaware.protocol.formats.interfaces import Format
from txaware.protocol.formats.json_format import JSON, MessageArrays
from txaware.protocol.formats.msgpack_format import MSGPACK
from txaware.protocol.formats.requests import OnceRequest
from txaware.protocol.json_values import read_quickly

ONCE = Body(
    "a PublishOnceRequest",
    (
        Field("producerId", plain(0, MAX_PRODUCER_ID)),
        Field("epoch", plain(0, MAX_EPOCH)),
        Field("sequence", plain(0, SEQUENCES - 1)),
        Field("messages", MessageArrays(least=1)),
    ),
)


def read_once(body: bytes, format_: Format) -> OnceRequest:
    """Reads a publish that may be repeated."""
    if format_ is MSGPACK:
        return msgpack_format.read_once(body)
    if format_ is AVRO:
        raise BadRequest(
            f"{AVRO.media_type} has no producer; {MSGPACK.media_type} and "
            f"{JSON.media_type} have"
        )
    sent = read_quickly(body, ONCE.read)
    identity = ProducerIdentity(sent["producerId"], sent["epoch"])
    return OnceRequest(identity, sent["sequence"], sent["messages"])


def write_ids(ids: list[MessageId], format_: Format) -> bytes:
    """Writes the answer: the ids of the messages, in order."""
    if format_ is MSGPACK:
        return msgpack_format.write_ids(ids)
    return json.dumps({"ids": [str(one) for one in ids]}).encode()
