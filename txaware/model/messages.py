"""Messages and what goes with them: ids, pages, receipts, answers to a publish."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypedDict, cast

import attrs

from txaware.errors import BadRequest
from txaware.model.labels import (
    NO_HEADERS,
    FixedHeaders,
    Labels,
    more_of,
    packed_fields,
    unpacked,
)
from txaware.model.message_fields import FIELDS, HEADERS, KEY

if TYPE_CHECKING:  # type checkers bring their own; a default is of Python 3.13
    from typing_extensions import TypeVar

    # The type of a payload: bytes, unless something encodes or decodes it.
    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")
V = TypeVar("V")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID_BYTES = 20
ROW_KEY_BYTES = 10
# Ends the id of a message that has its payload in its own row.
NO_PAYLOAD_ROW = bytes(10)
_GREATEST = 2 ** (8 * ID_BYTES) - 1
_AFTER_PAYLOADS = b"\xff" * 10


class MessageId(bytes):
    """The place of a message in its topic: 20 bytes, whose order is the delivery order.

    `str` gives the 40 hex digits that `parse` reads.
    """

    __slots__ = ()

    @classmethod
    def of(
        cls,
        publish_time_ms: int,
        sequence: int = 0,
        write_time_ms: int = 0,
        payload_sequence: int = 0,
    ) -> Self:
        """Returns the id of these numbers; the last two are 0 without a payload row."""
        try:
            return cls(
                publish_time_ms.to_bytes(8, "big")
                + sequence.to_bytes(2, "big")
                + write_time_ms.to_bytes(8, "big")
                + payload_sequence.to_bytes(2, "big")
            )
        except (OverflowError, AttributeError) as error:
            raise BadRequest(f"no id has such a number: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads an id from 40 hex digits."""
        try:
            data = bytes.fromhex(text) if len(text) == 2 * ID_BYTES else b""
        except (ValueError, TypeError):
            data = b""
        if len(data) != ID_BYTES:
            raise BadRequest(f"{text!r} is no message id; 40 hex digits are")
        return cls(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads an id from the first 20 bytes; ignores what follows them."""
        if not isinstance(data, bytes):
            raise BadRequest(f"an id is read from bytes, not {data!r}")
        if len(data) < ID_BYTES:
            raise BadRequest(f"an id has {ID_BYTES} bytes, not {len(data)}")
        return cls(data[:ID_BYTES])

    @classmethod
    def of_row(cls, row_key: bytes) -> Self:
        """Returns the id of a message that has its payload in its own row."""
        return cls(row_key + NO_PAYLOAD_ROW)

    @classmethod
    def after_payloads(cls, row_key: bytes) -> Self:
        """Returns an id behind every message that one row can hold."""
        return cls(row_key + _AFTER_PAYLOADS)

    @property
    def row_key(self) -> bytes:
        """The publish time and the sequence: the key in the message table."""
        return bytes(self[:10])

    @property
    def payload_key(self) -> bytes:
        """The write time and the payload sequence; zeros without a payload row."""
        return bytes(self[10:])

    @property
    def publish_time_ms(self) -> int:
        """The time at which the message was published, in ms since the epoch."""
        return int.from_bytes(self[:8], "big")

    @property
    def publish_time(self) -> datetime:
        """The time at which the message was published, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.publish_time_ms)

    @property
    def sequence(self) -> int:
        """The number of the message within its millisecond."""
        return int.from_bytes(self[8:10], "big")

    @property
    def write_time_ms(self) -> int:
        """The time at which the payload was stored; 0 without a payload row."""
        return int.from_bytes(self[10:18], "big")

    @property
    def payload_sequence(self) -> int:
        """The number of the payload within its millisecond; 0 without a payload row."""
        return int.from_bytes(self[18:], "big")

    def before(self) -> "MessageId":
        """Returns the greatest id below this one; the least id returns itself."""
        return _from_number(max(int.from_bytes(self, "big") - 1, 0))

    def after(self) -> "MessageId":
        """Returns the least id above this one; the greatest id returns itself."""
        return _from_number(min(int.from_bytes(self, "big") + 1, _GREATEST))

    def later(self, number: int) -> "MessageId":
        """Returns the id of a message so many behind this one in the same publish."""
        if not number:
            return self
        place = int.from_bytes(self[8:10], "big") + number
        ms, sequence = divmod(place, 1 << 16)
        return MessageId.of(self.publish_time_ms + ms, sequence)

    def __str__(self) -> str:
        return self.hex()

    def __repr__(self) -> str:
        return f"MessageId({self.hex()})"


def _from_number(number: int) -> MessageId:
    return MessageId(number.to_bytes(ID_BYTES, "big"))


def text_or_base64(data: bytes) -> str | dict[str, str]:
    """Returns UTF-8 as a string, anything else as `{"base64": "..."}`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def shown_value(value: Any) -> Any:
    """Returns the value of a field as `text_or_base64` does; None stays None."""
    if isinstance(value, Mapping):
        return {name: text_or_base64(data) for name, data in value.items()}
    return None if value is None else text_or_base64(value)


class _Columns(NamedTuple):
    """Names what a message has: reading a named value takes a third of a property."""

    id: MessageId
    payload: Any
    key: bytes | None
    packed_headers: bytes


if TYPE_CHECKING:  # which would spell each message as a tuple of four types

    class _Row(tuple[Any, ...], Generic[T]):
        @property
        def id(self) -> MessageId: ...
        @property
        def payload(self) -> T: ...
        @property
        def key(self) -> bytes | None: ...
        @property
        def packed_headers(self) -> bytes: ...

else:

    class _Row(_Columns, Generic[T]):
        __slots__ = ()


class Message(_Row[T]):
    """A message as it was delivered: a tuple, since a poll may make millions.

    Its payload is bytes, or the value that a consumer with a `decode` made of them. The
    fourth value are the headers as they are stored; nobody reads most of them.
    """

    __slots__ = ()

    def __new__(
        cls,
        id: MessageId,  # noqa: A002
        payload: T,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        more: Mapping[str, bytes] | None = None,
        partition: int = 0,
        topic: str | None = None,
    ) -> Self:
        """Makes a message as a poll does; for doubles in tests."""
        made = (id, payload, key, packed_fields(headers, more))
        if topic is not None:
            return tuple.__new__(cls, (*made, partition, topic))
        return tuple.__new__(cls, (*made, partition) if partition else made)

    @property
    def partition(self) -> int:
        """The number of its partition; 0 in a topic of one."""
        return cast(int, self[4]) if len(self) > 4 else 0

    @property
    def topic(self) -> str | None:
        """The topic, where a member of a group polled it; else None."""
        return cast(str, self[5]) if len(self) > 5 else None

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers, in a new dict; empty where there are none."""
        return unpacked(self.packed_headers)

    @property
    def more(self) -> dict[str, bytes]:
        """The values of other fields that are declared, by the names of these."""
        return more_of(self.packed_headers)

    @property
    def time(self) -> datetime:
        """The time at which the message was published, in UTC."""
        return self.id.publish_time

    def decoded(self, decode: Callable[[T], V]) -> "Message[V]":
        """Returns the message with the value that a function makes of its payload."""
        message_id, payload, *others = self
        made: Any = tuple.__new__(Message, (message_id, decode(payload), *others))
        return cast(Message[V], made)

    @property
    def size_bytes(self) -> int:
        """The size of payload, key and headers, as the limits of a page count it."""
        return (
            len(cast(bytes, self.payload))
            + len(self.key or b"")
            + len(self.packed_headers)
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: `id`, `time`, `payload`, `key` and `headers`.

        Bytes are a string where they are UTF-8, else `{"base64": "..."}`. A payload
        that was decoded stays as it is.
        """
        payload = self.payload
        return {
            "id": str(self.id),
            "time": self.time.isoformat(timespec="milliseconds"),
            "payload": text_or_base64(payload)
            if isinstance(payload, bytes)
            else payload,
            **({"partition": self.partition} if self.partition else {}),
            **{field.name: shown_value(field.of(self)) for field in FIELDS},
        }

    def __getnewargs__(self) -> tuple[Any, ...]:
        labels = self.key, self.headers, self.more
        return self.id, self.payload, *labels, self.partition, self.topic

    def __repr__(self) -> str:
        labels = "" if self.key is None else f", key={self.key!r}"
        if self.packed_headers:
            labels += f", headers={self.headers!r}"
        if self.partition:
            labels += f", partition={self.partition}"
        return f"Message(id={self.id!r}, payload={self.payload!r}{labels})"


def messages_of(
    ids: Iterable[MessageId],
    payloads: Sequence[bytes],
    labels: Labels | None,
    partition: int = 0,
) -> list[Message]:
    """Makes messages of columns, without a call for each."""
    new, none = tuple.__new__, NO_HEADERS
    if partition:
        keys: Iterable[bytes | None] = repeat(None) if labels is None else labels.keys
        headers = repeat(none) if labels is None else labels.headers
        columns = zip(ids, payloads, keys, headers, repeat(partition), strict=False)
        return [new(Message, each) for each in columns]
    if labels is None:
        return [
            new(Message, (message_id, payload, None, none))
            for message_id, payload in zip(ids, payloads, strict=True)
        ]
    of_first = zip(ids, payloads, labels.keys, labels.headers, strict=True)
    return [new(Message, each) for each in of_first]


def in_partition(messages: Iterable[Message], number: int) -> list[Message]:
    """Returns messages as those of a partition, without a call for each."""
    if not number:
        return [*messages]
    new, more = tuple.__new__, (number,)
    return [new(Message, message + more) for message in messages]


def in_runs(
    messages: Sequence[Message], runs: Iterable[tuple[int, int]]
) -> list[Message]:
    """Returns messages as those of partitions: so many of each, one after another."""
    found: list[Message] = []
    for number, count in runs:
        found += in_partition(messages[len(found) : len(found) + count], number)
    return found


def in_topic(
    messages: Iterable[Message], topic: str, partition: int | None = None
) -> list[Message]:
    """Returns messages as those of a topic, and of a partition if it is named."""
    return [
        tuple.__new__(
            Message,
            (*one[:4], one.partition if partition is None else partition, topic),
        )
        for one in messages
    ]


@attrs.frozen
class Outgoing(Generic[T]):
    """A message to publish with a key, with headers, or for a shorter time.

    The `key` is bytes, `headers` are a dict of text to bytes. After `expire_after_s`
    nobody gets it any more, whatever time to live its topic has. `more` are the values
    of other fields that are declared, by the names of these.
    """

    payload: T
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    expire_after_s: float | None = None
    more: Mapping[str, bytes] | None = None

    def __attrs_post_init__(self) -> None:
        """Copies the headers, as it may lie in a transaction while others change."""
        if self.headers.__class__ is dict:
            object.__setattr__(self, "headers", {**cast(Any, self.headers)})

    @classmethod
    def of_fields(
        cls, payload: T, values: Mapping[str, Any], expire_after_s: float | None
    ) -> Self:
        """Returns a message with the values of fields, by the names of these."""
        more = dict(values)
        key, headers = more.pop(KEY.name, None), more.pop(HEADERS.name, None)
        return cls(payload, key, headers, expire_after_s, more or None)


class MessageOptions(TypedDict, total=False):
    """The options of every call that publishes one message: those of an `Outgoing`."""

    key: bytes | None
    headers: Mapping[str, bytes] | None
    expire_after_s: float | None


_OPTIONS = MessageOptions.__annotations__.keys()


def given(options: MessageOptions) -> MessageOptions:
    """Returns the options that are not None; `TypeError` for what is no option."""
    if not options.keys() <= _OPTIONS:
        wrong = ", ".join(options.keys() - _OPTIONS)
        raise TypeError(f"a message has no option {wrong}, but {', '.join(_OPTIONS)}")
    if None not in options.values():
        return options
    said = {name: value for name, value in options.items() if value is not None}
    return cast(MessageOptions, said)


def outgoing(payload: Any, options: MessageOptions) -> Any:
    """Returns a message with its options; as it is where there are none.

    An option replaces what an `Outgoing` has. Headers are packed here, and never again.
    """
    if not options or not (said := given(options)):
        return payload
    if (headers := said.get("headers")).__class__ is dict:
        said = {**said, "headers": FixedHeaders(cast(dict[str, bytes], headers))}
    if isinstance(payload, Outgoing):
        return attrs.evolve(payload, **said)
    return Outgoing(payload, **said)


@attrs.frozen
class BlockedBy:
    """The write pointer at which a poll stopped, and the publish time of that row."""

    pointer: int
    since_ms: int


# Where a poll of a topic of several partitions goes on: an id for each of them.
Places = dict[int, MessageId]


class PageEnd(NamedTuple):
    """The end of a poll: what a `Page` tells beside its messages.

    That of a topic of several partitions has `places` to go on at, and `runs`: the
    partition of each run of messages, and how many these are.
    """

    next: MessageId
    blocked_by: BlockedBy | None = None
    skipped_before: int | None = None
    last_stable: MessageId | None = None
    places: Places | None = None
    runs: tuple[tuple[int, int], ...] = ()


class Page(list[Message[T]]):
    """The messages of one poll, in order.

    The next poll goes on at `next`, exclusively; of a topic of several partitions that
    is the id of each, by its number. `blocked_by` says what stopped this
    poll before the end. `skipped_before` is the time up to which messages that were
    asked for are gone, as their time to live is over.

    `last_stable` is the last stable position (KIP-98) as this poll found it: from its
    start on, every message before it is decided. It is the first message whose
    transaction is open, or the place where the next one of the topic goes. It is None
    where the page was full before it, and where open transactions stop nobody.
    """

    __slots__ = ("blocked_by", "last_stable", "next", "skipped_before")

    def __init__(
        self,
        messages: Iterable[Message[T]],
        *,
        next_id: MessageId | Places,
        blocked_by: BlockedBy | None = None,
        skipped_before: int | None = None,
        last_stable: MessageId | None = None,
    ) -> None:
        super().__init__(messages)
        self.next: Any = next_id
        self.blocked_by = blocked_by
        self.skipped_before = skipped_before
        self.last_stable = last_stable


def page_of(messages: Iterable[Message[T]], end: PageEnd) -> Page[T]:
    """Makes a page of messages and how their poll ended."""
    next_id, blocked_by, skipped_before, last_stable, places, _ = end
    return Page(
        messages,
        next_id=next_id if places is None else places,
        blocked_by=blocked_by,
        skipped_before=skipped_before,
        last_stable=last_stable,
    )


def end_of(page: Page[Any]) -> PageEnd:
    """Returns how the poll of a page ended."""
    blocked_by, skipped_before = page.blocked_by, page.skipped_before
    if isinstance(page.next, dict):
        first = MessageId(bytes(ID_BYTES))
        return PageEnd(first, blocked_by, skipped_before, places=page.next)
    return PageEnd(page.next, blocked_by, skipped_before, page.last_stable)


@attrs.frozen
class PublishResponse:
    """The range that a transactional publish wrote, which `rollback` takes back."""

    transaction_write_pointer: int
    start_timestamp: int
    start_sequence_id: int
    end_timestamp: int
    end_sequence_id: int


@attrs.frozen
class Receipt:
    """A receipt for the payloads that one `store` of an attempt stored."""

    pointer: int
    topic: str
    attempt: bytes
    count: int


@attrs.frozen
class Bounds:
    """The ends of a topic, as ids for an inclusive `poll`.

    `first` and `last` are None where there is no message. Everything published from now
    on is at `next` or after it. In the bounds for committed readers `next` is the last
    stable position: no row before it waits for the end of a transaction.
    """

    first: MessageId | None
    last: MessageId | None
    next: MessageId
