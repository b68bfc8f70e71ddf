"""The verbs of the messaging service as calls: pure, for a transport that waits."""

import os
import struct
from collections.abc import Iterable, Iterator
from functools import partial

import attrs

from coordinator.transaction import Transaction
from txaware.client.calls.call import (
    Steps,
    done,
    reading,
)
from txaware.client.calls.producer_calls import ProducerCalls
from txaware.client.calls.request_fit import msgpack_call, require_fit
from txaware.client.calls.verb_calls import call_of, steps_of
from txaware.client.link import Link
from txaware.client.server_info import ENVELOPE_BYTES, ServerInfo
from txaware.errors import (
    BadRequest,
    OutOfOrderSequence,
    PartitionNeeded,
    ProducerFenced,
    TxAwareError,
    changed_nothing,
)
from txaware.model.interfaces import UNCOMMITTED, Isolation
from txaware.model.labels import Labels, label_bytes
from txaware.model.messages import (
    MessageId,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.model.partitions import named_partition, parsed_rows
from txaware.model.queues import pipe_of
from txaware.model.requests import (
    Payload,
    Payloads,
    Pointer,
    Start,
    check_plain,
    checked_attempt,
    checked_flag,
    checked_isolation,
    checked_limit,
    checked_payloads,
    checked_pointer,
    checked_receipts,
    checked_response,
    checked_snapshot,
    checked_start,
    checked_wait_s,
)
from txaware.protocol.formats import (
    MAX_MESSAGES,
    ColumnarPage,
    PollRequest,
    PublishRequest,
    decode_columnar_page,
    decode_page,
    decode_publish_response,
    decode_receipt,
    encode_poll,
    encode_publish,
    encode_rollback,
)
from txaware.protocol.groups import POSITION, POSITION_SEEN, SAVE_POSITION
from txaware.protocol.messages import WAIT
from txaware.protocol.verb import Repeat
from txaware.publish.repeated_publish import OwnProducer

# The most that a message takes in a request beside its payload.
BESIDE_BYTES = 32
_MOST_LONG, _MOST_INT = 2**63 - 1, 2**31 - 1


def cut_to_fit(
    request: PublishRequest, payloads: Payloads, info: ServerInfo
) -> list[bytes]:
    """Returns one body where it fits, so that it is stored whole or not at all.

    Otherwise it returns several, of half of what the server takes at most, unless for a
    single large message.
    """
    body = encode_publish(request)
    if len(body) <= info.request_bytes and len(payloads) <= MAX_MESSAGES:
        return [body]
    pieces = [
        encode_publish(attrs.evolve(request, messages=piece))
        for piece in _pieces(payloads, info.request_bytes // 2)
    ]
    for piece in pieces:
        require_fit(1, len(piece), info)
    return pieces


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


_page, _columnar_page = reading(decode_page), reading(decode_columnar_page)
_response = reading(decode_publish_response)
_receipt = reading(decode_receipt)


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
        path = self._paths.topic(topic)
        info = yield from self.info()
        payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
        pointer = None if transaction is None else checked_pointer(transaction)
        named = _sendable_receipts(receipts)
        _check_publish(payloads, pointer, named)
        if pointer is None and info.takes_producers and topic not in self._partitioned:
            try:
                yield from self._publish_own(topic, payloads)
                return None
            except PartitionNeeded:  # each partition has sequences of its own
                self._partitioned.add(topic)
        body = encode_publish(PublishRequest(pointer, payloads, receipts=named))
        require_fit(len(payloads), len(body), info)
        read = done if pointer is None else _response
        response: PublishResponse | None = yield msgpack_call(
            path + "/publish", body, read, repeat=Repeat.KEYED
        )
        return response

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
                if changed_nothing(error):
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
        path = self._paths.topic(topic)
        info = yield from self.info()
        payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
        pointer, attempt = checked_pointer(transaction), checked_attempt(attempt)
        if not len(payloads):
            raise BadRequest("a store has messages")
        request = PublishRequest(pointer, payloads, attempt=attempt)
        receipts: list[Receipt] = []
        for body in cut_to_fit(request, payloads, info):
            call = msgpack_call(path + "/store", body, _receipt, repeat=Repeat.KEYED)
            receipts.append((yield call))
        return total_receipt(receipts)

    def rollback(self, topic: str, response: PublishResponse) -> Steps[None]:
        """Hides what a publish wrote; once more does no harm."""
        path = self._paths.topic(topic) + "/rollback"
        body = encode_rollback(_sendable_response(response))
        yield msgpack_call(path, body, done)

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Steps[Page]:
        """Asks again where the server waits for less than `wait_s`."""
        path = self._paths.topic(topic) + "/poll"
        until_s = self._link.clock_s() + _checked_wait(wait_s, transaction)
        checked_snapshot(transaction)
        number = named_partition(topic)[1] if "." in topic else None
        read = reading(partial(decode_page, partition=number)) if number else _page
        checked = (
            checked_start(start),
            checked_flag("inclusive", inclusive),
            checked_limit(limit),
            transaction,
            checked_isolation(isolation),
        )
        while True:
            asked_s, is_last = yield from self.turn(wait_s, until_s)
            body = _poll_body(*checked, asked_s)
            page: Page = yield msgpack_call(path, body, read, longer_s=asked_s)
            if page or is_last:
                return page

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
        path = self._paths.topic(topic) + "/poll"
        checked_snapshot(transaction)
        body = _poll_body(
            checked_start(start),
            checked_flag("inclusive", inclusive),
            checked_limit(limit),
            transaction,
            UNCOMMITTED,
            0,
            columns=True,
        )
        page: ColumnarPage = yield msgpack_call(path, body, _columnar_page)
        return page

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> Steps[MessageId | None]:
        """Asks how far a group has come."""
        verb, options = POSITION, {}
        if transaction is not None:
            verb, options = POSITION_SEEN, {"transaction": transaction}
        asked = verb.shape.asked(group, topic, **options)
        position: MessageId | None = yield call_of(verb, asked)
        return position

    save_position = steps_of(SAVE_POSITION)
    wait = steps_of(WAIT)


def _check_publish(
    payloads: Payloads, pointer: int | None, receipts: list[Receipt] | None
) -> None:
    if pointer is None:
        check_plain(payloads, receipts)
    if len(payloads) and receipts is not None:
        raise BadRequest("a publish has messages or receipts, not both")


def _poll_body(
    start: Start,
    inclusive: bool,
    limit: int,
    transaction: Transaction | None,
    isolation: str,
    wait_s: float,
    *,
    columns: bool = False,
) -> bytes:
    try:
        return encode_poll(
            PollRequest(
                start=start,
                inclusive=inclusive,
                limit=limit,
                transaction=transaction,
                isolation=isolation,
                wait_s=wait_s,
                columns=columns,
            )
        )
    except (struct.error, OverflowError) as error:
        raise BadRequest(f"the transaction has odd numbers: {error}") from error


def _checked_wait(wait_s: object, transaction: Transaction | None) -> float:
    if wait_s and transaction is not None:
        raise BadRequest(
            "a poll in a transaction cannot wait: its snapshot sees nothing that "
            "commits later; wait before the transaction begins"
        )
    return checked_wait_s(wait_s)


def _sendable_receipts(receipts: Iterable[Receipt] | None) -> list[Receipt] | None:
    """Returns receipts as `store` answered them, which the wire can carry."""
    if receipts is None:
        return None
    return [_sendable_receipt(receipt) for receipt in checked_receipts(receipts)]


def _sendable_receipt(receipt: Receipt) -> Receipt:
    if pipe_of(receipt.topic) is None:
        named_partition(receipt.topic)
    checked_pointer(receipt.pointer)
    _check_fits(receipt.count, "the count of a receipt", _MOST_INT)
    return attrs.evolve(receipt, attempt=checked_attempt(receipt.attempt))


def _sendable_response(response: PublishResponse) -> PublishResponse:
    """Returns a response that the wire can carry; the server knows if it names rows."""
    checked_response(response)
    for time_ms in (response.start_timestamp, response.end_timestamp):
        _check_fits(time_ms, "a time in it", _MOST_LONG, least=~_MOST_LONG)
    for sequence in (response.start_sequence_id, response.end_sequence_id):
        _check_fits(sequence, "a sequence in it", _MOST_INT, least=~_MOST_INT)
    return response


def _check_fits(value: object, name: str, most: int, *, least: int = 0) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name} is from {least} to {most}, not {value!r}")
