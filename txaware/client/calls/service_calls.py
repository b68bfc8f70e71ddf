"""The verbs of the messaging service as calls: pure, for a transport that waits."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, cast

import attrs
from msgspec import structs

from coordinator.transaction import Transaction
from txaware.client.calls.call import Steps
from txaware.client.calls.producer_calls import ProducerCalls
from txaware.client.calls.verb_calls import (
    call_of,
    limited,
    performed,
    require_fit,
    steps_of,
)
from txaware.client.link import Link
from txaware.client.server_info import ENVELOPE_BYTES, ServerInfo
from txaware.errors import (
    BadRequest,
    OutOfOrderSequence,
    PartitionNeeded,
    ProducerFenced,
    TxAwareError,
    leaves_no_doubt,
)
from txaware.model.labels import Labels, label_bytes
from txaware.model.messages import MessageId, PublishResponse, Receipt
from txaware.model.partitions import parsed_rows
from txaware.model.requests import Payload, Payloads, Pointer, Start, check_plain
from txaware.protocol.formats import MAX_MESSAGES, ColumnarPage
from txaware.protocol.groups import POSITION, POSITION_SEEN
from txaware.protocol.messages import POLL, WAIT
from txaware.protocol.publishes import PUBLISH, STORE, Store
from txaware.publish.repeated_publish import OwnProducer

# The most that a message takes in a request beside its payload.
BESIDE_BYTES = 32


def cut_to_fit(request: Store, info: ServerInfo) -> list[tuple[Store, bytes]]:
    """Returns one request where it fits, so that it is stored whole or not at all.

    Otherwise it returns several, of half of what the server takes at most, unless for a
    single large message. Each has its body.
    """
    packed = STORE.shape.packed_body
    payloads, body = request.messages, packed(request)
    if len(body) <= info.request_bytes and len(payloads) <= MAX_MESSAGES:
        return [(request, body)]
    pieces = [
        structs.replace(request, messages=piece)
        for piece in _pieces(payloads, info.request_bytes // 2)
    ]
    found = [(piece, packed(piece)) for piece in pieces]
    for _, body in found:  # before any of them is sent
        require_fit(1, len(body), info)
    return found


def total_receipt(receipts: list[Receipt]) -> Receipt:
    """Returns the receipt of all pieces of one attempt."""
    return attrs.evolve(receipts[0], count=sum(receipt.count for receipt in receipts))


def _pieces(payloads: Payloads, limit_bytes: int) -> Iterator[Payloads]:
    first = last = 0
    room_bytes = limit_bytes - ENVELOPE_BYTES
    for last, size_bytes in enumerate(_sizes_bytes(payloads)):
        if last > first and (size_bytes > room_bytes or last - first == MAX_MESSAGES):
            yield payloads.part(first, last)
            first, room_bytes = last, limit_bytes - ENVELOPE_BYTES
        room_bytes -= size_bytes
    yield payloads.part(first, last + 1)


def _sizes_bytes(payloads: Payloads) -> Iterator[int]:
    """Yields the most that each message takes in a request."""
    labels = payloads.labels or Labels.nothing(len(payloads))
    labelled = zip(payloads.payloads, labels.keys, labels.headers, strict=True)
    for payload, key, headers in labelled:
        yield len(payload) + label_bytes(key, headers) + BESIDE_BYTES


class ServiceCalls(ProducerCalls):
    """All verbs of a `MessagingService`."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        # The latest first, so that those of a rare crowd are forgotten again. A forked
        # child has its own: with a parent's its messages would be taken for repeats.
        self._own: list[OwnProducer] = []
        self._partitioned: set[str] = set()
        self._process_id = os.getpid()

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> Steps[PublishResponse | None]:
        """Makes one request, whatever its size, so that all stays in one piece."""
        request = PUBLISH.build_request(
            topic, messages, transaction=transaction, receipts=receipts
        )
        info = yield from self.info()
        request = limited(PUBLISH, request, info)
        if request.transaction is None:
            check_plain(request.messages, request.receipts)
        if len(request.messages) and request.receipts is not None:
            raise BadRequest("a publish has messages or receipts, not both")
        is_plain = request.transaction is None and topic not in self._partitioned
        if is_plain and info.takes_producers:
            try:
                yield from self._publish_own(topic, request.messages)
                return None
            except PartitionNeeded:  # each partition has sequences of its own
                self._partitioned.add(topic)
        return (yield from performed(self, PUBLISH, request))

    def _publish_own(self, topic: str, messages: Payloads) -> Steps[None]:
        """Publishes by a producer of this client: each request is stored once.

        Requests are under way beside each other, each by another producer. One whose
        outcome is unknown is used no more.
        """
        name = str(parsed_rows(topic))  # of a topic alone and its partition, the same
        if self._process_id != os.getpid():
            self._own, self._process_id = [], os.getpid()
        while True:
            own = self._own_producer()
            try:
                yield from self.publish_once(
                    topic, messages, producer=own.identity, sequence=own.next(name)
                )
            except (ProducerFenced, OutOfOrderSequence):
                if own.is_new:
                    raise
                continue  # it was idle for too long, and nothing is stored
            except TxAwareError as error:
                if leaves_no_doubt(error):
                    self._own.append(own)
                raise
            own.stored(name, len(messages))
            self._own.append(own)
            return

    def _own_producer(self) -> OwnProducer:
        try:
            return self._own.pop()
        except IndexError:
            return OwnProducer()

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Steps[Receipt]:
        """Makes as many requests of one attempt as it takes.

        Where one of several fails, others may be stored, and the attempt must not be
        named in a reference.
        """
        request = STORE.build_request(
            topic, messages, transaction=transaction, attempt=attempt
        )
        info = yield from self.info()
        request = limited(STORE, request, info)
        receipts: list[Receipt] = []
        for piece, body in cut_to_fit(request, info):
            receipts.append((yield call_of(STORE, piece, body=body)))
        return total_receipt(receipts)

    def poll_columns(
        self,
        topic: str,
        *,
        start: Start,
        inclusive: bool,
        limit: int,
        transaction: Transaction | None,
    ) -> Steps[ColumnarPage]:
        """Polls once, and returns the answer as columns."""
        request = POLL.build_request(
            topic,
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
        )
        request.columns = True
        page: Any = yield call_of(POLL, request)
        return cast(ColumnarPage, page)

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> Steps[MessageId | None]:
        """Asks how far a group has come."""
        verb, options = POSITION, {}
        if transaction is not None:
            verb, options = POSITION_SEEN, {"transaction": transaction}
        request = verb.shape.build_request(group, topic, **options)
        position: MessageId | None = yield call_of(verb, request)
        return position

    wait = steps_of(WAIT)
