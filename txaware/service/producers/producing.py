"""Publishes of producers: each request is stored once, however often it comes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import attrs

from coordinator.interfaces import OnWritten
from txaware.auth import Principal
from txaware.errors import (
    BadRequest,
    MissingExtra,
    OutOfOrderSequence,
    ProducerFenced,
    ProducerNotFound,
    SequenceAhead,
    Unavailable,
)
from txaware.model.compression import Packed
from txaware.model.interfaces import Write
from txaware.model.messages import NO_PAYLOAD_ROW, MessageId
from txaware.model.metrics import ProducerMetrics
from txaware.model.packed_batches import unpack
from txaware.model.partitions import number_of, parent_of, partition_of
from txaware.model.producers import (
    KeyReused,
    KnownProducer,
    ProducedTopic,
    ProducerIdentity,
    ProducerOpened,
    checked_identity,
    checked_producer_id,
    checked_sequence,
)
from txaware.model.requests import Payload, Payloads, check_plain, checked_payloads
from txaware.model.signatures import passed_on
from txaware.service.producers.producer_ids import may_use
from txaware.service.producers.sequences import SequenceGap, SequenceKey, Turn, repeated
from txaware.service.producers.transactional_ids import TransactionalIds
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import PartitionedTopic, TopicHandle, TopicHandles
from txaware.service.write.publishing import PlainPart, Publishing, check_plain_topic
from txaware.store.columns import PRODUCED, with_column
from txaware.store.producer_table import (
    ProducerRow,
    decode_state,
    encode_mark,
    epoch_of,
    producer_write,
    value_after,
)

T = TypeVar("T")

# No event loop unpacks a batch of more than this.
QUICK_UNPACKED_BYTES = 1 << 20


@attrs.define  # a frozen one takes twice the time, for each publish
class ProducerRequest:
    """A request of a producer: its messages, from sequence `base` on.

    `key` is the sequence that it belongs to, and `count` the number of messages.
    `opens` is the row of a producer that it opens, in this shard at least. `is_alone`
    is True for the only request of its producer: a repeat has the same messages.
    """

    place: TopicHandle
    payloads: Payloads
    producer: ProducerIdentity
    base: int
    key: SequenceKey
    count: int
    opens: ProducerRow | None = None
    is_alone: bool = False


class Written:
    """The rows of a request beside its messages, made with their keys."""

    def __init__(
        self,
        request: ProducerRequest,
        row_key: bytes,
        before: bytes | None,
        newest_format: Sequence[Write],
    ) -> None:
        self._request = request
        self._row_key = row_key
        self._newest = newest_format
        self._before = before
        self._keys: list[bytes] = []
        self.value: bytes | None = None

    def rows(self, keys: list[bytes], rows: list[Write]) -> list[Write]:
        """Adds the new sequence to message rows, and the mark to the first of them."""
        request, producer = self._request, self._request.producer
        self._keys = keys
        before = self._before
        if before is not None and epoch_of(before) != producer.epoch:
            before = None
        self.value = value_after(
            before,
            producer.epoch,
            base=request.base,
            count=request.count,
            first=keys[0],
        )
        more: list[Write] = [*self._newest, (self._row_key, self.value)]
        if request.opens is not None:
            more.append(producer_write(request.opens))
        if producer.by_client:  # nobody looks for the marks of short-lived producers
            return [*rows, *more]
        (key, value), *others = rows
        mark = encode_mark(producer, request.base, request.count)
        return [(key, with_column(value or b"", PRODUCED, mark)), *others, *more]

    def ids(self) -> list[MessageId]:
        """Returns the ids of the messages, once the rows were made.

        A sender counts on from the first.
        """
        if self._request.producer.is_sender:
            return [MessageId(self._keys[0] + NO_PAYLOAD_ROW)]
        return [MessageId(key + NO_PAYLOAD_ROW) for key in self._keys]


class Producing:
    """Opens producers, and publishes what they have not published yet."""

    def __init__(
        self,
        store_context: StoreContext,
        places: TopicHandles,
        publishing: Publishing,
        transactional_ids: TransactionalIds,
    ) -> None:
        self.ids = store_context.producer_ids
        self.counters = transactional_ids.counters
        self._transactional_ids = transactional_ids
        self._table = store_context.table
        self._settings = store_context.settings
        self._places = places
        self._publishing = publishing
        self._sequences = store_context.sequences
        self._removal = store_context.producer_removal

    def open_producer(
        self, transactional_id: str | None = None, *, owner: str | None = None
    ) -> ProducerOpened:
        """Opens a producer; `owner` is the principal that may use it."""
        if transactional_id is not None:
            return self._transactional_ids.open(transactional_id, owner)
        row = self.ids.open(owner)
        return ProducerOpened(row.producer_id, row.epoch)

    enter_transaction = passed_on(
        TransactionalIds.enter_transaction, to="_transactional_ids"
    )
    leave_transaction = passed_on(
        TransactionalIds.leave_transaction, to="_transactional_ids"
    )
    producer_commits = passed_on(
        TransactionalIds.producer_commits, to="_transactional_ids"
    )
    enter_at_once = passed_on(TransactionalIds.enter_at_once, to="_transactional_ids")
    producer_cargo = passed_on(TransactionalIds.producer_cargo, to="_transactional_ids")
    may_wait = passed_on(TransactionalIds.may_wait, to="_transactional_ids")

    @property
    def carrier(self) -> "Producing":
        """The service itself: a commit of this process may carry its rows."""
        return self

    def publish_once(
        self,
        topic: str,
        messages: Iterable[Payload] | Packed,
        *,
        producer: ProducerIdentity,
        sequence: int,
        caller: Principal | None = None,
    ) -> list[MessageId]:
        """Publishes in one piece, unless it did already; returns the ids either way."""
        request = self._request(self._places.at(topic), messages, producer, sequence)
        return self._counted(request, caller)

    def publish_alone(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        producer: ProducerIdentity,
        caller: Principal,
    ) -> None:
        """Publishes the only request of a producer, unless it did already.

        If other messages are there under that producer, it raises `KeyReused`. Where
        they are no longer there, only their number is compared. To a topic of several
        partitions it is a request for each that gets any, all in one batch.
        """
        place = self._places.find(topic)
        if isinstance(place, PartitionedTopic):
            requests = self._parts(place, messages, producer)
            publish = partial(self._publish_parts, requests, caller)
            self._counting(producer, publish)
            return
        request = self._request(place, messages, producer, 0)
        self._counted(attrs.evolve(request, is_alone=True), caller)

    def _parts(
        self,
        place: PartitionedTopic,
        messages: Iterable[Payload],
        producer: ProducerIdentity,
    ) -> list[ProducerRequest]:
        """Returns the request of each partition that gets any, in the order of rows."""
        limit_bytes = self._settings.message_limit_bytes
        payloads = checked_payloads(messages, limit_bytes=limit_bytes)
        check_plain(payloads, None)
        before = self._counts_before(place, producer)
        parts = place.split(payloads, _turn_before(place, payloads, before))
        if not before.keys() <= {handle.number for handle, _ in parts}:
            raise KeyReused
        parts.sort(key=lambda part: part[0].message_prefix)
        return [self._request(handle, part, producer, 0) for handle, part in parts]

    def _counts_before(
        self, place: PartitionedTopic, producer: ProducerIdentity
    ) -> dict[int, int]:
        """Returns how many messages a try before this one stored, by partition."""
        if self.ids.find(producer.producer_id) is None:
            return {}
        return {
            number_of(name): state.requests[0].count
            for name, state in self._sequences.rows.states(producer.producer_id)
            if parent_of(name) == place.topic.topic
        }

    def _publish_parts(
        self, requests: list[ProducerRequest], caller: Principal | None
    ) -> None:
        """Publishes the only requests of a producer together: all or none.

        Those that a try before this one has stored, of which there are some where the
        partitions lie in several shards, are not stored again.
        """
        turns, first = [Turn() for _ in requests], Turn()
        opens: ProducerRow | None = None
        try:
            missing: list[tuple[ProducerRequest, Turn]] = []
            for request, turn in zip(requests, turns, strict=True):
                self._sequences.enter(request.key, turn)
                if self._is_stored(request, turn):
                    turn.leave()  # whoever removes the producer waits for this one
                else:
                    missing.append((request, turn))
            if not missing:
                return
            self._sequences.enter_first(missing[0][0].key.producer_id, first)
            opens = self._admitted(missing[0][0], caller, is_first=True).opens
            parts: list[PlainPart] = []
            for request, turn in missing:
                opening = attrs.evolve(request, opens=opens)
                written = self._written(opening, turn, None)
                ended = partial(self._ended, opening, written, turn, Turn())
                place, payloads = request.place, request.payloads
                parts.append(PlainPart(place, payloads, written.rows, ended))
            self._publishing.plain_together(parts)
            first.leave()
        except Exception:
            first.leave()
            for turn in turns:
                turn.leave(sure=False)
            if opens is not None:
                self.ids.failed()
            raise
        except BaseException:
            first.interrupted()
            for turn in turns:
                turn.interrupted()
            raise

    def _is_stored(self, request: ProducerRequest, turn: Turn) -> bool:
        """Tells whether a request that is alone is a repeat, and counts that."""
        key = request.key
        before = turn.value(self._sequences.rows, key.producer_id, key.topic)
        if before is None:
            return False
        self._check_same(request, before)
        self.counters.add("repeated")
        return True

    def _counted(
        self, request: ProducerRequest, caller: Principal | None
    ) -> list[MessageId]:
        return self._counting(request.producer, partial(self._publish, request, caller))

    def _counting(self, producer: ProducerIdentity, publish: Callable[[], T]) -> T:
        """Publishes, and counts the errors that producers may have."""
        try:
            return publish()
        except ProducerFenced:
            self.counters.add("fenced")
            raise
        except SequenceAhead:
            raise  # it comes again
        except OutOfOrderSequence as error:
            self.counters.add("out_of_order")
            if isinstance(error, SequenceGap):
                self.ids.end(producer.producer_id)
                raise OutOfOrderSequence(str(error)) from error
            raise

    def publish_soon(
        self,
        place: TopicHandle,
        messages: Iterable[Payload] | Packed,
        *,
        producer: ProducerIdentity,
        sequence: int,
        caller: Principal | None,
        on_written: OnWritten,
    ) -> list[MessageId] | None:
        """Publishes and does not wait, for an event loop: `on_written` is told the end.

        Returns the ids. None means that this may have to wait, or raises: call
        `publish_once` in a thread.
        """
        if isinstance(messages, Packed) and messages.size_bytes > QUICK_UNPACKED_BYTES:
            return None
        request = self._request(place, messages, producer, sequence)
        row = self.ids.known(producer.producer_id)
        if row is None or _refuses(row, producer, caller):
            return None
        key = request.key
        turn = Turn()
        if not self._sequences.enter_at_once(key, turn):
            return None
        try:
            before = turn.value(self._sequences.rows, key.producer_id, key.topic)
            if before is None or self.ids.known(producer.producer_id) is not row:
                turn.leave()  # it may have to wait for its producer's removal
                return None
            try:
                ids = repeated(before, producer, sequence, request.count)
            except (OutOfOrderSequence, ProducerFenced):
                turn.leave()
                return None
            if ids is not None:
                turn.leave()
                self.counters.add("repeated")
                on_written(None)
                return ids
            written = self._written(request, turn, before)
            return self._write_soon(request, written, turn, on_written)
        except BaseException:
            turn.leave(sure=False)
            raise

    def metrics(self) -> ProducerMetrics:
        """Returns the counts of publishes, and how many producers are known.

        Those are counted once, when that is first asked for.
        """
        now = self.counters.snapshot()
        live, named = self.ids.totals()
        return attrs.evolve(now, live=live, transactional_ids=named)

    def producers(self) -> list[KnownProducer]:
        """Returns all producers, by their ids."""
        last_ms: dict[int, int] = {}
        for producer_id, _, state in self._sequences.rows.all_states():
            last_ms[producer_id] = max(last_ms.get(producer_id, 0), state.last_ms)
        return [
            self._known(row, last_ms.get(row.producer_id, 0))
            for row in self._sequences.rows.producers()
        ]

    def describe_producer(self, producer_id: int) -> KnownProducer:
        """Returns one producer, with its topics."""
        row = self._row(producer_id)
        topics = tuple(
            ProducedTopic(
                str(name), state.epoch, state.next, state.last_id, state.last_ms
            )
            for name, state in self._sequences.rows.states(producer_id)
        )
        last_ms = max([topic.last_ms for topic in topics], default=0)
        return attrs.evolve(self._known(row, last_ms), topics=topics)

    def _known(self, row: ProducerRow, last_ms: int) -> KnownProducer:
        return KnownProducer(
            row.producer_id,
            row.epoch,
            row.owner,
            row.opened_ms,
            max(row.opened_ms, last_ms),
            row.has_ended,
            row.transactional_id,
            transaction=self.ids.transactions.get(row.producer_id),
        )

    def forget_producer(self, producer_id: int) -> None:
        """Forgets a producer; what it publishes later is refused."""
        row = self._row(producer_id)
        if row.transactional_id is None:
            self._removal.remove(row)
            return
        with self._transactional_ids.fenced(row):
            self._removal.remove(row)

    def _row(self, producer_id: int) -> ProducerRow:
        row = self.ids.find(checked_producer_id(producer_id))
        if row is None:
            raise ProducerNotFound(f"there is no producer {producer_id} here")
        return row

    def _request(
        self,
        place: TopicHandle,
        messages: Iterable[Payload] | Packed,
        producer: ProducerIdentity,
        sequence: int,
    ) -> ProducerRequest:
        checked_identity(producer)
        limit_bytes = self._settings.message_limit_bytes
        given = _unpacked(messages) if isinstance(messages, Packed) else messages
        payloads = checked_payloads(given, limit_bytes=limit_bytes)
        check_plain(payloads, None)
        check_plain_topic(place)
        return ProducerRequest(
            place,
            payloads,
            producer,
            checked_sequence(sequence),
            SequenceKey(producer.producer_id, place.topic.topic),
            len(payloads),
        )

    def _publish(
        self, request: ProducerRequest, caller: Principal | None
    ) -> list[MessageId]:
        producer, key = request.producer, request.key
        turn, first = Turn(), Turn()
        try:
            self._sequences.enter(key, turn)
            before = turn.value(self._sequences.rows, key.producer_id, key.topic)
            if before is None:
                self._sequences.enter_first(key.producer_id, first)
            request = self._admitted(request, caller, is_first=before is None)
            if request.is_alone and before is not None:
                self._check_same(request, before)
            ids = repeated(before, producer, request.base, request.count)
            if ids is not None:
                turn.leave()
                self.counters.add("repeated")
                return ids
            written = self._written(request, turn, before)
            self._publishing.plain(
                request.place,
                request.payloads,
                also=written.rows,
                on_written=partial(self._ended, request, written, turn, first),
            )
            return written.ids()
        except Exception:
            first.leave()
            turn.leave(sure=False)
            if request.opens is not None:
                self.ids.failed()
            raise
        except BaseException:
            first.interrupted()
            turn.interrupted()
            raise

    def _check_same(self, request: ProducerRequest, before: bytes) -> None:
        first, publishing = decode_state(before).requests[0], self._publishing
        if first.count != request.count or not publishing.is_there(
            request.place, first.keys, request.payloads
        ):
            raise KeyReused

    def _admitted(
        self, request: ProducerRequest, caller: Principal | None, *, is_first: bool
    ) -> ProducerRequest:
        """Returns a request whose producer may publish; perhaps it opens it.

        One that its client draws is opened by its first request in each topic: the row
        is then in the same shard as its sequence, which may move to another server
        without the shard of its very first publish.
        """
        producer = request.producer
        begins = producer.by_client and not request.base
        if begins and self.ids.find(producer.producer_id) is None:
            if producer.epoch:
                raise BadRequest(
                    f"a producer that its client draws begins at epoch 0, not "
                    f"{producer.epoch}"
                )
            owner = None if caller is None else caller.name
            opens = self.ids.new(owner, producer_id=producer.producer_id)
            return attrs.evolve(request, opens=opens)
        row = self.ids.require(producer, caller)
        if row.has_ended:
            raise OutOfOrderSequence(
                f"producer {producer.producer_id} has ended, as messages of it are "
                f"missing; open a new one"
            )
        if producer.by_client and is_first:
            return attrs.evolve(request, opens=row)
        return request

    def _written(
        self, request: ProducerRequest, turn: Turn, before: bytes | None
    ) -> Written:
        return Written(request, turn.row_key, before, self._table.newest_format())

    def _write_soon(
        self,
        request: ProducerRequest,
        written: Written,
        turn: Turn,
        on_written: OnWritten,
    ) -> list[MessageId]:
        def ended(error: Unavailable | None) -> None:
            self._ended(request, written, turn, Turn(), error)
            on_written(error)

        self._publishing.plain_soon(
            request.place, request.payloads, ended, also=written.rows
        )
        return written.ids()

    def _ended(
        self,
        request: ProducerRequest,
        written: Written,
        turn: Turn,
        first: Turn,
        error: Unavailable | None,
    ) -> None:
        if request.opens is not None and error is None:
            self.ids.opened(request.opens)
        first.leave()
        if written.value is not None:
            turn.ended(written.value, error)


def _turn_before(
    place: PartitionedTopic, payloads: Payloads, before: Mapping[int, int]
) -> Callable[[], int] | None:
    """Returns where a try before this one put what has no key; None without one.

    `before` is how many messages it stored, by partition.
    """
    keys = [None] * len(payloads) if payloads.labels is None else payloads.labels.keys
    keyless = keys.count(None)
    keyed = Counter(
        partition_of(key, place.partitions) for key in keys if key is not None
    )
    for number, count in before.items():
        if keyless and count == keyed[number] + keyless:
            return lambda: number
    return None


def _refuses(
    row: ProducerRow, producer: ProducerIdentity, caller: Principal | None
) -> bool:
    is_that = producer.epoch == row.epoch and producer.by_client is row.by_client
    return not is_that or row.has_ended or not may_use(row, caller)


def _unpacked(packed: Packed) -> Payloads:
    """Returns the messages of a batch that somebody sent."""
    try:
        return unpack(packed)
    except MissingExtra as error:
        raise BadRequest(f"the batch cannot be read here: {error}") from error
