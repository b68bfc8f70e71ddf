"""Requests to a whole topic whose partitions are at several servers, put together.

Each partition is asked by the request that a client would send to it: here, or at its
owner with the token of the caller. So rights, repeats and rules are those of one.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Self

import attrs
import msgspec

from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, TxAwareError, Unavailable, changed_nothing
from txaware.model.interfaces import COMMITTED
from txaware.model.messages import (
    BlockedBy,
    Message,
    MessageId,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
)
from txaware.model.partitions import name_of_rows, partition_name, partition_needed
from txaware.model.requests import (
    Payloads,
    Start,
    check_places,
    check_plain,
    checked_payloads,
    checked_pointer,
    place_in,
)
from txaware.model.settings import Settings
from txaware.model.topics import Topic
from txaware.protocol.formats import (
    AVRO,
    Format,
    PollRequest,
    PublishRequest,
    decode_page,
    decode_publish_response,
    decode_receipt,
    encode_poll,
    encode_publish,
    encode_rollback,
    format_of,
)
from txaware.protocol.formats.msgpack_format import MSGPACK_TYPE
from txaware.protocol.formats.requests import Listed
from txaware.protocol.frames import ANY_ROUTE
from txaware.protocol.messages import OFFSETS, WAIT
from txaware.protocol.publishes import PUBLISH, ROLLBACK, STORE, Publish
from txaware.protocol.rights import to_publish
from txaware.protocol.shape import Unread
from txaware.protocol.topics import TOPIC
from txaware.protocol.values import field_of
from txaware.protocol.verb import Verb
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.exchange import (
    JSON,
    Reply,
    Request,
    Settable,
    Stream,
    gathered,
    json_reply,
)
from txaware.server.idempotency import INSTANCE, KEY, OutcomeUnknown
from txaware.server.routes.verb_routes import in_its_format
from txaware.server.routing import Answer, Match, Route
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import QUICK_BYTES
from txaware.service.topic_handles import PartitionedTopic
from txaware.service.write.spreading import receipts_by_partition

# Performs a request to a partition that is here; passes on one that is elsewhere.
Perform = Callable[[Match, Request], Coroutine[Any, Any, Answer]]
KNOWN_TOPICS = 10_000
# The last word of a publish's path.
PUBLISH_END = "publish"
# These wait for messages, and end with their client.
_WAITING = frozenset(("poll", "wait"))
Find = Callable[[str, str], Match | Reply]


class PartFailed(Exception):
    """A partition's server refused its part; `reply` is what it said."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class _PartPeer:
    """The client of a request, as one of its parts sees it."""

    def __init__(self, whole: "_Parts") -> None:
        self._whole = whole
        self._event: Settable | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole.request.peer, name)

    def set_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the client goes; None takes that back."""
        if self._event is not None:
            self._whole.events.discard(self._event)
        self._event = event
        if event is not None:
            self._whole.events.add(event)
            if self._whole.request.peer.is_gone:
                event.set()


@attrs.frozen(eq=False)
class _Parts:
    """The parts of one request to a whole topic."""

    request: Request
    place: PartitionedTopic
    perform: Perform
    find: Find
    events: set[Settable] = attrs.field(factory=set)

    async def ask(
        self,
        number: int,
        end: str,
        body: bytes,
        content_type: str = MSGPACK_TYPE,
        *,
        method: str = "POST",
        query: bytes = b"",
    ) -> bytes:
        """Returns the body of a partition's answer."""
        topic = self.place.topic.topic
        path = TOPIC.format(
            namespace=topic.namespace, topic=partition_name(topic.name, number)
        )
        match = self.find(method, f"{path}/{end}")
        assert isinstance(match, Match)
        request = self.request
        kind = content_type.encode()
        part = msgspec.structs.replace(
            request,
            method=method,
            path=match.path,
            params=match.params,
            headers={**request.headers, b"content-type": kind, b"accept": kind},
            query_string=query,
            body=body,
            peer=_PartPeer(self),
            arguments=None,
            verb=ANY_ROUTE,
        )
        answer = await self.perform(match, part)
        if isinstance(answer, Stream):
            answer = await gathered(answer)
        if answer.status != 200:
            raise PartFailed(answer)
        return answer.body

    async def all(
        self, asking: Iterable[Coroutine[Any, Any, bytes]], *, writes: bool = True
    ) -> list[bytes]:
        """Returns what all parts answered, asked at once.

        Once one of them has written, no error says that nothing changed.
        """
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        errors = [one for one in outcomes if isinstance(one, BaseException)]
        if not errors:
            return [one for one in outcomes if isinstance(one, bytes)]
        if writes and len(errors) < len(outcomes):
            _raise_in_part(errors[0])
        raise errors[0]


def _raise_in_part(error: BaseException) -> None:
    """Raises what says that a part is done, where an error says that nothing is."""
    said = ""
    if isinstance(error, PartFailed):
        said = str(json.loads(error.reply.body).get("message", ""))
    elif isinstance(error, TxAwareError) and changed_nothing(error):
        said = str(error)
    if said:
        raise Unavailable(f"a part of it is written, and then: {said}") from error


@attrs.frozen
class _Spread:
    """Tells where a topic lies, as a server with these shards sees it."""

    topic: Topic
    shards: frozenset[int]
    here: list[int]
    is_spread: bool
    # The shard and the name of each partition.
    parts: list[tuple[int, str]]

    @classmethod
    def of(cls, topic: Topic, shards: frozenset[int]) -> Self:
        """Looks at each partition."""
        numbers, name = range(topic.partitions), topic.topic.name
        parts = [(topic.shard_of(one), partition_name(name, one)) for one in numbers]
        here = [one for one in numbers if parts[one][0] in shards]
        return cls(topic, shards, here, not shards.issuperset(topic.serving), parts)


class WholeTopics:
    """Performs requests to topics whose partitions are at several servers."""

    def __init__(
        self,
        membership: ClusterPart,
        coordinator: Coordinator,
        settings: Settings,
        *,
        perform: Perform,
        find: Find,
    ) -> None:
        self._membership = membership
        self._coordinator = coordinator
        self._settings = settings
        self._perform = perform
        self._find = find
        self._turns = count()
        self._known: dict[tuple[str, str], _Spread] = {}
        self._by_end: Mapping[str, Callable[[_Parts], Coroutine[Any, Any, Answer]]] = {
            PUBLISH_END: self._publish,
            "store": self._store,
            "rollback": self._rollback,
            "poll": self._poll,
            "wait": self._wait,
            "offsets": self._offsets,
        }

    def knows(self, end: str) -> bool:
        """Tells whether requests with this last word of their path are split."""
        return end in self._by_end

    def is_spread(self, place: PartitionedTopic) -> bool:
        """Tells whether a partition of a topic is at another server."""
        return self._spread(place).is_spread

    def _spread(self, place: PartitionedTopic) -> "_Spread":
        """Returns what is here of a topic, which each publish without a key asks."""
        topic, shards = place.topic, self._membership.shards
        name = topic.topic.namespace, topic.topic.name
        found = self._known.get(name)
        if found is None or found.topic is not topic or found.shards is not shards:
            if len(self._known) >= KNOWN_TOPICS:
                self._known.clear()
            found = self._known[name] = _Spread.of(topic, shards)
        return found

    def of_one_partition(
        self, place: PartitionedTopic, request: Request
    ) -> tuple[int, Request] | None:
        """Returns a plain publish as one to the partition here that gets all of it.

        With it comes the shard of that. Most publishes are such. What is read to know
        that is not read again. Returns None for all others, and for what may be a
        repeat.
        """
        headers = request.headers
        is_first = KEY not in headers and INSTANCE not in headers
        if not is_first or len(request.body) > QUICK_BYTES:
            return None
        unread: Unread = _arguments_of(PUBLISH, request)
        arguments: Publish = unread.read()
        if arguments.transaction is not None or arguments.receipts is not None:
            return None
        arguments.messages = payloads = self._checked(arguments.messages)
        number, spread = self._alone(place, payloads), self._spread(place)
        if number is None:
            return None
        shard, name = spread.parts[number]
        if not self._membership.has(shard):
            return None
        words = {**request.params, "topic": name}
        arguments.topic = f"{words['namespace']}:{name}"
        return shard, request.of_partition(words, unread.known_as(arguments))

    async def handle(
        self, end: str, place: PartitionedTopic, request: Request
    ) -> Answer:
        """Answers a request."""
        parts = _Parts(request, place, self._perform, self._find)
        try:
            if end not in _WAITING:
                return await self._by_end[end](parts)
            gone = asyncio.Event()
            request.peer.set_when_gone(gone)
            telling = asyncio.ensure_future(_set_once_gone(gone, parts.events))
            try:
                return await self._by_end[end](parts)
            finally:
                request.peer.set_when_gone(None)
                telling.cancel()
        except PartFailed as error:
            return error.reply

    # ---- writing
    async def _publish(self, parts: _Parts) -> Answer:
        format_, body = _formatted(parts.request)
        publish_request = format_.publish_request(body)
        if publish_request.pointer is None:
            payloads = self._checked(publish_request.messages)
            check_plain(payloads, publish_request.receipts)
            _check_repeat(parts.request, payloads)
            split = self._split(parts.place, payloads)
            if len(split) == 1:  # as it came
                [number] = split
                await parts.ask(number, "publish", body, format_.media_type)
            else:
                await self._publish_parts(parts, split, None)
            return _answer_in(parts.request, PUBLISH, format_, None)
        if len(publish_request.messages) and publish_request.receipts is not None:
            raise BadRequest("a publish has messages or receipts, not both")
        if len(publish_request.messages):
            payloads = self._checked(publish_request.messages)
            split = self._split(parts.place, payloads)
            answers = await self._publish_parts(parts, split, publish_request.pointer)
        else:
            answers = await self._refer(parts, publish_request)
        found = [decode_publish_response(one) for one in answers]
        return _answer_in(parts.request, PUBLISH, format_, _together(found))

    def _checked(self, messages: Listed) -> Payloads:
        limit_bytes = self._settings.message_limit_bytes
        return checked_payloads(messages, limit_bytes=limit_bytes)

    def _alone(self, place: PartitionedTopic, payloads: Payloads) -> int | None:
        """Returns the partition that gets all of the payloads, if one does."""
        if payloads.labels is None:
            return self._next(place)
        split = self._split(place, payloads)
        return next(iter(split)) if len(split) == 1 else None

    def _split(
        self, place: PartitionedTopic, payloads: Payloads
    ) -> dict[int, Payloads]:
        return payloads.by_partition(place.partitions, partial(self._next, place))

    async def _publish_parts(
        self, parts: _Parts, split: dict[int, Payloads], pointer: int | None
    ) -> list[bytes]:
        return await parts.all(
            parts.ask(number, "publish", encode_publish(PublishRequest(pointer, each)))
            for number, each in split.items()
        )

    def _next(self, place: PartitionedTopic) -> int:
        """Returns the partition whose turn it is, of those here if there are any."""
        among = self._spread(place).here or range(place.partitions)
        return among[next(self._turns) % len(among)]

    async def _store(self, parts: _Parts) -> Answer:
        topic = parts.place.topic.topic
        format_, sent = _formatted(parts.request)
        publish_request = format_.publish_request(sent)
        if publish_request.pointer is None:
            raise BadRequest("a store names the write pointer of its transaction")
        payloads = self._checked(publish_request.messages)
        if not len(payloads):
            raise BadRequest("a store has messages")
        pointer, attempt = publish_request.pointer, publish_request.attempt or b""
        answers = await parts.all(
            parts.ask(
                number,
                "store",
                encode_publish(
                    PublishRequest(pointer, each, attempt=publish_request.attempt)
                ),
            )
            for number, each in self._split(parts.place, payloads).items()
        )
        receipts = [decode_receipt(one) for one in answers]
        attempt = receipts[0].attempt
        receipt = Receipt(pointer, str(topic), attempt, len(payloads))
        return _answer_in(parts.request, STORE, format_, receipt)

    async def _refer(
        self, parts: _Parts, publish_request: PublishRequest
    ) -> list[bytes]:
        """Publishes what was stored in each partition, with a reference there."""
        topic, numbers = parts.place.topic.topic, range(parts.place.partitions)
        if publish_request.receipts is None:  # none of them takes anything more
            body = encode_publish(PublishRequest(publish_request.pointer, []))
            return await parts.all(parts.ask(n, "publish", body) for n in numbers)
        assert publish_request.pointer is not None
        question = json.dumps(
            {"transactionWritePointer": publish_request.pointer}
        ).encode()
        answers = await parts.all(
            (parts.ask(number, "stored", question, JSON) for number in numbers),
            writes=False,
        )
        names = {number: str(name_of_rows(topic, number)) for number in numbers}
        stored = {
            names[number]: {
                bytes.fromhex(attempt): count for attempt, count in found.items()
            }
            for number, answer in zip(numbers, answers, strict=True)
            if (found := json.loads(answer))
        }
        listed = receipts_by_partition(
            str(topic), publish_request.pointer, publish_request.receipts, stored
        )
        bodies = {
            number: encode_publish(
                PublishRequest(
                    publish_request.pointer, [], receipts=listed[names[number]]
                )
            )
            for number in numbers
            if names[number] in listed
        } or {
            0: encode_publish(PublishRequest(publish_request.pointer, [], receipts=[]))
        }
        return await parts.all(
            parts.ask(number, "publish", body) for number, body in bodies.items()
        )

    async def _rollback(self, parts: _Parts) -> Answer:
        format_, sent = _formatted(parts.request, unnamed=AVRO)
        body = encode_rollback(format_.rollback_request(sent))
        await parts.all(
            parts.ask(number, "rollback", body)
            for number in range(parts.place.partitions)
        )
        return _answer_in(parts.request, ROLLBACK, format_, None)

    # ---- reading
    async def _poll(self, parts: _Parts) -> Answer:
        format_, sent = _formatted(parts.request)
        if format_ is AVRO:
            raise partition_needed(parts.place.topic)
        poll_request = format_.poll_request(sent)
        if poll_request.wait_s and poll_request.transaction is not None:
            raise BadRequest(
                "a poll in a transaction cannot wait: its snapshot sees nothing that "
                "commits later; wait before the transaction begins"
            )
        until_s = asyncio.get_running_loop().time() + poll_request.wait_s
        page = await self._page(parts, poll_request)
        while not page.count and poll_request.wait_s:
            left_s = until_s - asyncio.get_running_loop().time()
            if left_s <= 0 or parts.request.peer.is_gone:
                break
            await self._await_any(parts, poll_request, left_s)
            page = await self._page(parts, poll_request)
        return Reply(200, page.written(format_, poll_request), format_.media_type)

    async def _page(self, parts: _Parts, poll_request: PollRequest) -> "_WholePage":
        """Polls the partitions, the one whose place is the oldest first."""
        place, snapshot = parts.place, poll_request.transaction
        if snapshot is None and poll_request.isolation == COMMITTED:
            snapshot = await self._snapshot()
        limit = self._settings.poll_limit_messages
        if poll_request.limit is not None:
            limit = min(limit, poll_request.limit)
        page = _WholePage()
        starts = {
            number: _start_in(place, number, poll_request.start)
            for number in range(place.partitions)
        }
        order = sorted(starts, key=lambda number: (_place(starts[number]), number))
        inclusive = dict.fromkeys(order, poll_request.inclusive)
        while order and page.count < limit and page.size_bytes < self._most_bytes:
            share = max(1, (limit - page.count) // len(order))
            polls = {
                number: attrs.evolve(
                    poll_request,
                    start=starts[number],
                    inclusive=inclusive[number],
                    limit=share,
                    transaction=snapshot,
                    wait_s=0,
                    columns=False,
                )
                for number in order[: limit - page.count]
            }
            for number, found in await self._polled(parts, polls):
                page.add(number, found)
                starts[number], inclusive[number] = found.next, False
                if len(found) < share:
                    order.remove(number)
        for number, start in starts.items():
            page.places.setdefault(number, _place(start))
        return page

    async def _polled(
        self, parts: _Parts, polls: Mapping[int, PollRequest]
    ) -> list[tuple[int, Page]]:
        """Polls some partitions at once, and returns what each has."""
        asked = [
            parts.ask(number, "poll", encode_poll(poll))
            for number, poll in polls.items()
        ]
        answers = await parts.all(asked, writes=False)
        return [
            (number, decode_page(answer, number))
            for number, answer in zip(polls, answers, strict=True)
        ]

    @property
    def _most_bytes(self) -> int:
        return self._settings.poll_limit_bytes

    async def _snapshot(self) -> Transaction:
        return await asyncio.get_running_loop().run_in_executor(
            None, self._coordinator.snapshot
        )

    async def _await_any(
        self, parts: _Parts, poll_request: PollRequest, timeout_s: float
    ) -> bool:
        """Returns once a partition has something, or at that time."""
        place = parts.place
        waiting = {
            asyncio.ensure_future(
                parts.ask(
                    number,
                    "wait",
                    WAIT.shape.body_of(
                        WAIT.shape.build_request(
                            partition_name(str(place.topic.topic), number),
                            start=_start_in(place, number, poll_request.start),
                            inclusive=poll_request.inclusive,
                            isolation=poll_request.isolation,
                            timeout_s=timeout_s,
                        )
                    ),
                    JSON,
                )
            )
            for number in range(place.partitions)
        }
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, return_when=asyncio.FIRST_COMPLETED
                )
                if any(json.loads(one.result())["ready"] for one in done):
                    return True
            return False
        finally:
            for one in waiting:
                one.cancel()
            for one in waiting:
                with suppress(asyncio.CancelledError, Exception):
                    await one

    async def _wait(self, parts: _Parts) -> Answer:
        arguments = _arguments_of(WAIT, parts.request)
        poll = PollRequest(
            start=arguments.start,
            inclusive=arguments.inclusive,
            isolation=arguments.isolation,
        )
        is_ready = await self._await_any(parts, poll, arguments.timeout_s)
        return _verb_answer(parts.request, WAIT, is_ready)

    async def _offsets(self, parts: _Parts) -> Answer:
        arguments = _arguments_of(OFFSETS, parts.request)
        _, _, query = OFFSETS.shape.path_of(arguments).partition("?")
        answers = await parts.all(
            (
                parts.ask(
                    *(number, "offsets", b"", JSON),
                    method="GET",
                    query=query.encode(),
                )
                for number in range(parts.place.partitions)
            ),
            writes=False,
        )
        found: dict[int, MessageId | None] = {}
        for answer in answers:
            found |= OFFSETS.answered(arguments, answer)
        return _verb_answer(parts.request, OFFSETS, found)


class _WholePage:
    """A page of several partitions, as far as it has come."""

    def __init__(self) -> None:
        self.count = self.size_bytes = 0
        self.places: dict[int, MessageId] = {}
        self._runs: list[tuple[int, list[Message]]] = []
        self._blocked_by: BlockedBy | None = None
        self._skipped_before: int | None = None

    def add(self, number: int, found: Page[Any]) -> None:
        """Adds what a partition has."""
        self.places[number] = found.next
        self._blocked_by = self._blocked_by or found.blocked_by
        self._skipped_before = self._skipped_before or found.skipped_before
        if found:
            self.count += len(found)
            self.size_bytes += sum(len(one.payload) for one in found)
            self._runs.append((number, [*found]))

    def written(self, format_: Format, poll_request: PollRequest) -> bytes:
        """Returns the answer."""
        writer = format_.page_writer(poll_request)
        written = [writer.begin()]
        for number, messages in self._runs:
            writer.partition = number
            written.append(writer.messages(messages))
        end = PageEnd(
            MessageId(bytes(20)),
            self._blocked_by,
            self._skipped_before,
            places=dict(sorted(self.places.items())),
            runs=tuple((number, len(found)) for number, found in self._runs),
        )
        return b"".join([*written, writer.end(end)])


def _check_repeat(request: Request, payloads: Payloads) -> None:
    """Raises where a first try may have gone to partitions of another server.

    One that came here is remembered by its key, and was answered before.
    """
    keys = [None] if payloads.labels is None else payloads.labels.keys
    if None in keys and INSTANCE in request.headers:
        raise OutcomeUnknown(
            "the first try of this call may have gone to another server; whether that "
            "took place is not known here"
        )


def _formatted(
    request: Request, *, unnamed: Format | None = None
) -> tuple[Format, bytes]:
    """Returns the format of a body, and the body, which a frame has as a field."""
    if isinstance(request.arguments, Unread):
        return request.arguments.format, request.arguments.body
    if request.content_type is None and unnamed is not None:
        return unnamed, request.body
    return format_of(request.content_type), request.body


def _answer_in(
    request: Request, verb: Verb[..., Any], format_: Format, value: Any
) -> Reply:
    """Returns the answer that the verb's own route would give to this value."""
    if request.verb != ANY_ROUTE:
        return Reply(200, verb.packed(value))
    return in_its_format(request, verb, format_, value)


def _arguments_of(verb: Verb[..., Any], request: Request) -> Any:
    """Returns the fields of a verb's request, which a frame has read already."""
    if request.arguments is not None:
        return request.arguments
    return verb.shape.read(
        request.params, request.query, request.body, request.content_type
    )


def _verb_answer(request: Request, verb: Verb[..., Any], value: Any) -> Reply:
    if request.verb != ANY_ROUTE:
        return Reply(200, verb.packed(value))
    return Reply(200, verb.written(value) or b"", JSON)


def _start_in(
    place: PartitionedTopic, number: int, start: Start
) -> MessageId | int | None:
    """Returns the start in a partition, which places may name among others."""
    if isinstance(start, dict):
        check_places(start, most=place.partitions)
    return place_in(start, number)


def _place(start: MessageId | int | None) -> MessageId:
    """Returns the greatest id below a start."""
    if isinstance(start, MessageId):
        return start
    if not start:
        return MessageId(bytes(20))
    return MessageId(int(start - 1).to_bytes(8, "big") + b"\xff" * 12)


def _together(found: list[PublishResponse]) -> PublishResponse:
    first = min((one.start_timestamp, one.start_sequence_id) for one in found)
    last = max((one.end_timestamp, one.end_sequence_id) for one in found)
    return PublishResponse(found[0].transaction_write_pointer, *first, *last)


async def _set_once_gone(gone: asyncio.Event, events: set[Settable]) -> None:
    await gone.wait()
    for event in [*events]:
        event.set()


def stored_route(server_context: ServerContext) -> Route:
    """Returns the route that tells another server what is stored in a partition."""

    async def describe(request: Request) -> Reply:
        pointer = checked_pointer(field_of(request.body, "transactionWritePointer"))
        server_context.owners.used((pointer,), request.principal)
        service = server_context.service
        found = await server_context.in_thread(
            service.stored_in, request.topic, pointer
        )
        return json_reply({attempt.hex(): count for attempt, count in found.items()})

    right = to_publish(transactions=True)
    return Route("POST", TOPIC + "/stored", describe, right, harmless=True)
