"""The verbs that write messages: publish, store, take back, and publish once."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import attrs
from msgspec import Struct

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId, PublishResponse, Receipt
from txaware.model.partitions import named_partition
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    SEQUENCES,
    ProducerIdentity,
    ProducerService,
    checked_identity,
    checked_sequence,
)
from txaware.model.queues import pipe_of
from txaware.model.requests import (
    Pointer,
    checked_attempt,
    checked_pointer,
    checked_receipts,
    checked_response,
)
from txaware.protocol import places
from txaware.protocol.fields import Body, Field, Kind, by, plain
from txaware.protocol.formats import (
    AVRO,
    JSON,
    MSGPACK,
    Format,
    OnceRequest,
    PublishRequest,
    decode_ids,
    decode_publish_response,
    decode_receipt,
    encode_once,
    encode_publish,
    encode_rollback,
    msgpack_format,
)
from txaware.protocol.formats.json_format import MessageArrays
from txaware.protocol.json_schema import (
    HEX_ID,
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    any_of,
    array,
    fields,
    ref,
)
from txaware.protocol.json_values import read_quickly
from txaware.protocol.producers import TAG as PRODUCERS
from txaware.protocol.rights import on_topic, to_publish
from txaware.protocol.shape import BodyFormats, Described
from txaware.protocol.topics import TOPIC
from txaware.protocol.verb import Repeat, Verb, verbs_in

TAG = "messages"
_EXAMPLE_POINTER = 1_700_000_000_000_000_000
_WRITES = (404, 409)
_Topic = Annotated[str, places.TOPIC]


# ---- kinds of fields: what a program passes is checked, formats do the rest
def _given(check: Any, *, is_own: bool = False) -> Kind:
    return Kind(lambda value, *, what: value, {}, given=by(check), is_own=is_own)


def _sendable_receipts(receipts: Iterable[Receipt] | None) -> list[Receipt] | None:
    """Returns receipts as `store` answered them, which the wire can carry."""
    if receipts is None:
        return None
    return [_sendable_receipt(receipt) for receipt in checked_receipts(receipts)]


def _sendable_receipt(receipt: Receipt) -> Receipt:
    if pipe_of(receipt.topic) is None:
        named_partition(receipt.topic)
    checked_pointer(receipt.pointer)
    _check_fits(receipt.count, "the count of a receipt", INT_MAX)
    return attrs.evolve(receipt, attempt=checked_attempt(receipt.attempt))


def _sendable_response(response: object) -> PublishResponse:
    """Returns a response that the wire can carry; the server knows if it names rows."""
    found = checked_response(response)
    for time_ms in (found.start_timestamp, found.end_timestamp):
        _check_fits(time_ms, "a time in it", LONG_MAX, least=LONG_MIN)
    for sequence in (found.start_sequence_id, found.end_sequence_id):
        _check_fits(sequence, "a sequence in it", INT_MAX, least=~INT_MAX)
    return found


def _check_fits(value: object, name: str, most: int, *, least: int = 0) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name} is from {least} to {most}, not {value!r}")


def _or_none(check: Any) -> Any:
    return lambda value: None if value is None else check(value)


_MESSAGES = _given(lambda messages: messages)  # with the limit of the server
_POINTER = _given(checked_pointer, is_own=True)
_ANY_POINTER = _given(_or_none(checked_pointer), is_own=True)
_RECEIPTS = _given(_sendable_receipts)
_ATTEMPT = _given(checked_attempt)
_RESPONSE = _given(_sendable_response, is_own=True)
_PRODUCER = _given(checked_identity)
_SEQUENCE = _given(checked_sequence)


# ---- requests
class Publish(Struct):
    """Says what to publish, and in which transaction."""

    topic: _Topic
    messages: Annotated[Any, _MESSAGES]
    transaction: Annotated[Pointer | None, _ANY_POINTER] = None
    receipts: Annotated[list[Receipt] | None, _RECEIPTS] = None


class Store(Struct):
    """Says what to store ahead of which commit."""

    topic: _Topic
    messages: Annotated[Any, _MESSAGES]
    transaction: Annotated[Pointer | None, _POINTER]
    attempt: Annotated[bytes | None, _ATTEMPT] = None


class Rollback(Struct):
    """Says what to take back."""

    topic: _Topic
    response: Annotated[PublishResponse, _RESPONSE]


class PublishOnce(Struct):
    """Says what a producer publishes, from a sequence on."""

    topic: _Topic
    messages: Annotated[Any, _MESSAGES]
    producer: Annotated[ProducerIdentity, _PRODUCER]
    sequence: Annotated[int, _SEQUENCE]


# ---- their bodies
def _named(pointer: int | None) -> Transaction | None:
    """Returns as much of a transaction as a write needs to put its start on disk."""
    return None if pointer is None else Transaction(checked_pointer(pointer), 0)


def _read_publish(format_: Format, body: bytes) -> dict[str, Any]:
    sent = format_.publish_request(body)
    return {
        "messages": sent.messages,
        "transaction": _named(sent.pointer),
        "receipts": sent.receipts,
    }


def _read_store(format_: Format, body: bytes) -> dict[str, Any]:
    sent = format_.publish_request(body)
    return {
        "messages": sent.messages,
        "transaction": _named(sent.pointer),
        "attempt": sent.attempt,
    }


_ONCE = Body(
    "a PublishOnceRequest",
    (
        Field("producerId", plain(0, MAX_PRODUCER_ID)),
        Field("epoch", plain(0, MAX_EPOCH)),
        Field("sequence", plain(0, SEQUENCES - 1)),
        Field("messages", MessageArrays(least=1)),
    ),
)


def _read_once(format_: Format, body: bytes) -> dict[str, Any]:
    if format_ is MSGPACK:
        sent = msgpack_format.read_once(body)
        return {
            "messages": sent.messages,
            "producer": sent.producer,
            "sequence": sent.sequence,
        }
    if format_ is AVRO:
        raise BadRequest(
            f"{AVRO.media_type} has no producer; {MSGPACK.media_type} and "
            f"{JSON.media_type} have"
        )
    found = read_quickly(body, _ONCE.read)
    producer = ProducerIdentity(found["producerId"], found["epoch"])
    messages, sequence = found["messages"], found["sequence"]
    return {"messages": messages, "producer": producer, "sequence": sequence}


def _check_store(request: Store) -> None:
    if request.transaction is None:
        raise BadRequest("a store names the write pointer of its transaction")


def _pack_publish(request: Publish) -> bytes:
    sent = PublishRequest(
        _number(request.transaction), request.messages, receipts=request.receipts
    )
    return encode_publish(sent)


def _pack_store(request: Store) -> bytes:
    sent = PublishRequest(
        _number(request.transaction), request.messages, attempt=request.attempt
    )
    return encode_publish(sent)


def _pack_once(request: PublishOnce) -> bytes:
    return encode_once(
        OnceRequest(request.producer, request.sequence, request.messages)
    )


def _number(pointer: Pointer | None) -> int | None:
    return None if pointer is None else checked_pointer(pointer)


def _write_ids(format_: Format, ids: list[MessageId]) -> bytes:
    """Writes the ids of the messages, in order; nothing where there are none."""
    if not ids:
        return b""
    if format_ is MSGPACK:
        return msgpack_format.write_ids(ids)
    return json.dumps({"ids": [str(one) for one in ids]}).encode()


def _unpack_ids(request: PublishOnce, body: bytes) -> list[MessageId]:
    """Reads the ids; a plain publish, which our client makes of these, has none."""
    is_told = request.producer.is_sender or not request.producer.by_client
    return decode_ids(body) if is_told else []


_PUBLISH_EXAMPLE = {
    "messages": [
        "ann paid 5",
        {"utf8": "grüße", "key": "ann", "headers": {"source": "till 3"}},
        {"base64": "AAEC", "expireAfterMs": 60_000},
    ]
}
_AS_PUBLISH = Described(
    schema=ref("PublishRequest"), avro="PublishRequest", msgpack="PublishRequest"
)

PUBLISH = Verb(
    does=MessagingService.publish,
    method="POST",
    path=TOPIC + "/publish",
    number=76,
    request=Publish,
    formats=BodyFormats(
        body=_AS_PUBLISH,
        read=_read_publish,
        pack=_pack_publish,
        answer=Described(
            schema=any_of(ref("PublishResponse"), fields({})),
            avro="PublishResponse",
            msgpack="PublishResponse",
        ),
        write=lambda format_, response: (
            b"" if response is None else format_.publish_response(response)
        ),
        unpack=lambda request, body: (
            None if request.transaction is None else decode_publish_response(body)
        ),
        done_in_json=True,
        has_messages=True,
    ),
    right=to_publish(),
    repeat=Repeat.KEYED,
    finds_topic=True,
    summary="Publishes messages; in a transaction answers what rollback takes, and "
    "else nothing: {} in JSON.",
    tag=TAG,
    example=_PUBLISH_EXAMPLE,
    refuses=_WRITES,
)
STORE = Verb(
    does=MessagingService.store,
    method="POST",
    path=TOPIC + "/store",
    number=77,
    request=Store,
    formats=BodyFormats(
        body=_AS_PUBLISH,
        read=_read_store,
        pack=_pack_store,
        answer=Described(schema=ref("Receipt"), msgpack="Receipt"),
        write=lambda format_, receipt: format_.receipt(receipt),
        unpack=lambda _, body: decode_receipt(body),
        has_messages=True,
        none="a store has messages",
    ),
    right=to_publish(transactions=True),
    repeat=Repeat.KEYED,
    finds_topic=True,
    check=_check_store,
    summary="Stores messages ahead of the commit that a publish refers to.",
    tag=TAG,
    example={"transactionWritePointer": _EXAMPLE_POINTER, "messages": ["a", "b"]},
    refuses=_WRITES,
)
# Once more does no harm.
ROLLBACK = Verb(
    does=MessagingService.rollback,
    method="POST",
    path=TOPIC + "/rollback",
    number=78,
    request=Rollback,
    formats=BodyFormats(
        body=Described(
            schema=any_of(ref("PublishResponse"), ref("NestedPublishResponse")),
            avro="PublishResponse",
            msgpack="PublishResponse",
        ),
        read=lambda format_, body: {"response": format_.rollback_request(body)},
        pack=lambda request: encode_rollback(request.response),
        # CDAP's clients name none, and send what they were answered: Avro.
        unnamed=AVRO,
    ),
    right=to_publish(transactions=True),
    summary="Takes back what a publish in a transaction answered.",
    tag=TAG,
    example={
        "transactionWritePointer": _EXAMPLE_POINTER,
        "startTimestamp": 1_700_000_000_000,
        "startSequenceId": 0,
        "endTimestamp": 1_700_000_000_000,
        "endSequenceId": 1,
    },
    refuses=_WRITES,
)
# It does no harm however often it comes.
PUBLISH_ONCE = Verb(
    does=ProducerService.publish_once,
    method="POST",
    path=TOPIC + "/publish-once",
    number=80,
    request=PublishOnce,
    formats=BodyFormats(
        body=Described(schema=_ONCE.schema, msgpack="PublishOnceRequest"),
        read=_read_once,
        pack=_pack_once,
        answer=Described(
            schema=any_of(fields({"ids": array(HEX_ID)}), fields({})),
            msgpack="PublishedIds",
        ),
        write=_write_ids,
        unpack=_unpack_ids,
        has_messages=True,
    ),
    right=on_topic("publish"),
    summary="Publishes messages of a producer, unless it did already, and answers "
    "their ids.",
    tag=PRODUCERS,
    refuses=_WRITES,
)

VERBS = verbs_in(globals())
