"""Checks of what callers pass in, and the types of it: payloads, starts, ranges."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal, cast

import attrs

from coordinator.transaction import Transaction
from txaware.errors import BadRequest, RequestTooLarge, TopicNotFound
from txaware.model.compression import Packed
from txaware.model.labels import (
    MAX_KEY_BYTES,
    MOST_LABEL_BYTES,
    NO_HEADERS,
    FixedHeaders,
    Labels,
    checked_keys,
    compact,
    is_any_said,
    label_bytes,
    labels_or_none,
    more_of,
    packed,
    packed_fields,
    size_bytes_of,
    unpacked,
)
from txaware.model.messages import (
    ID_BYTES,
    MessageId,
    Outgoing,
    PublishResponse,
    Receipt,
)
from txaware.model.partitions import full_name, partition_of
from txaware.model.topics import checked_group

Payload = bytes | Outgoing
Pointer = Transaction | int
# In a topic of several partitions an id for each of them stands for an id.
Start = MessageId | int | Mapping[int, MessageId] | None

# The place in each partition that is asked for: of the first or the last message, up to
# where all is decided, or of the first message from a time on.
OffsetsAt = Literal["first", "last", "stable"] | datetime | int

# The rows that a poll without a transaction delivers: all, or the committed ones.
Isolation = Literal["uncommitted", "committed"]
UNCOMMITTED: Isolation = "uncommitted"
COMMITTED: Isolation = "committed"


class _Unsaid(str):
    """The isolation of a call whose caller named none."""


# The transaction of a block decides only if the caller named no isolation.
UNSAID = cast(Isolation, _Unsaid(UNCOMMITTED))

MAX_POINTER = 2**63 - 1
MAX_TIME_MS = 2**63 - 1
MAX_ATTEMPT_BYTES = 16
MAX_PART_BYTES = 2**63 - 1
# A message costs about 400 bytes as objects and rows, however short it is, and takes
# one byte of a body: without a bound, a body of 10 MiB would ask for 4 GB.
MAX_MESSAGES = 250_000
# A clean-up cuts one topic into at most so many pieces for each reason.
MOST_PIECES = 1000
# With more cuts than this the parts become larger than asked for.
MOST_CUTS = 10_000


@attrs.frozen
class Payloads:
    """The payloads of one request, and what some of them have beside it.

    `size_bytes` is the size of all payloads together, with their keys and headers.
    `expire_after_s` is None if none of them expires, `labels` if none has any. `packed`
    are the same messages, compressed, where they are to be stored so.
    """

    payloads: list[bytes]
    size_bytes: int
    expire_after_s: list[float | None] | None = None
    labels: Labels | None = None
    packed: Packed | None = None

    @classmethod
    def joined(cls, parts: Sequence["Payloads"]) -> "Payloads":
        """Returns the payloads of parts, none of which has any that expire."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [*chain.from_iterable([part.payloads for part in parts])],
            sum([part.size_bytes for part in parts]),
            None,
            Labels.joined([(part.labels, len(part)) for part in parts]),
        )

    def part(self, first: int, last: int) -> "Payloads":
        """Returns some of the payloads."""
        payloads, labels = self.payloads[first:last], self.labels
        size_bytes = sum(map(len, payloads))
        if labels is not None:
            labels = labels.part(first, last)
            size_bytes += labels.size_bytes
        after_s = self.expire_after_s and self.expire_after_s[first:last]
        return Payloads(payloads, size_bytes, after_s, labels)

    def by_partition(
        self, partitions: int, keyless: Callable[[], int]
    ) -> "dict[int, Payloads]":
        """Returns the payloads of each partition, in their order, by its number.

        What has no key goes to the one that `keyless` answers, all of a request.
        """
        labels = self.labels
        if labels is None:
            return {keyless(): self}
        rest = keyless() if None in labels.keys else 0
        numbers = [
            rest if key is None else partition_of(key, partitions)
            for key in labels.keys
        ]
        if numbers.count(numbers[0]) == len(numbers):
            return {numbers[0]: self}
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(number, []).append(place)
        return {number: self._picked(each) for number, each in sorted(places.items())}

    def _picked(self, places: list[int]) -> "Payloads":
        payloads = [self.payloads[place] for place in places]
        size_bytes, labels, after_s = sum(map(len, payloads)), None, None
        if self.labels is not None and (sizes := self.labels.sizes) is not None:
            keys = [self.labels.keys[place] for place in places]
            picked = [sizes[place] for place in places]
            labels = Labels(keys, [NO_HEADERS] * len(keys), compact(picked))
            size_bytes += sum(picked)
        elif self.labels is not None:
            keys = [self.labels.keys[place] for place in places]
            headers = [self.labels.headers[place] for place in places]
            labels = labels_or_none(keys, headers)
            size_bytes += size_bytes_of(labels)
        if self.expire_after_s is not None:
            after_s = [self.expire_after_s[place] for place in places]
        return Payloads(payloads, size_bytes, after_s, labels)

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Payload]:
        return iter(self.messages())

    def messages(self) -> list[Payload]:
        """Returns them as they are published."""
        if self.expire_after_s is None and self.labels is None:
            return list(self.payloads)
        labels = self.labels or Labels.nothing(len(self))
        after_s = self.expire_after_s or [None] * len(self)
        columns = (self.payloads, labels.keys, labels.headers, after_s)
        return [
            payload
            if key is None and not headers and seconds is None
            else Outgoing(
                payload,
                key,
                unpacked(headers) or None,
                seconds,
                more_of(headers) or None,
            )
            for payload, key, headers, seconds in zip(*columns, strict=True)
        ]


def checked_flag(name: str, flag: object) -> bool:
    """Returns True or False; raises `BadRequest` for anything that only seems so."""
    if not isinstance(flag, bool):
        raise BadRequest(f"{name} is True or False, not {flag!r:.100}")
    return flag


def checked_payloads(messages: Iterable[Payload], *, limit_bytes: int) -> Payloads:
    """Returns bytes and `Outgoing` as payloads; anything else is a `BadRequest`.

    What was checked before is taken as it is, but for its size.
    """
    payloads = messages if isinstance(messages, Payloads) else _checked(messages)
    if (
        payloads.size_bytes > limit_bytes
        and (largest := _largest(payloads, limit_bytes)) > limit_bytes
    ):
        raise RequestTooLarge(
            f"a message of {largest} bytes is above the limit of {limit_bytes} bytes"
        )
    return payloads


def _checked(messages: Iterable[Payload]) -> Payloads:
    if messages.__class__ is not list and (
        isinstance(messages, bytes | str) or not isinstance(messages, Iterable)
    ):
        raise BadRequest(f"messages are a list of bytes, not {messages!r:.100}")
    listed = list(messages)
    found = alike(listed)
    return _with_labels(listed) if found is None else found


def alike(listed: list[Payload]) -> Payloads | None:
    """Returns messages that are all bytes, or all have a key and nothing else.

    One alone may have headers. None for any others, right or wrong. The caller keeps
    the list as it is.
    """
    kind = type(listed[0]) if listed else bytes
    if kind is bytes:
        plain: list[Any] = listed  # of bytes, told without a call
        if len(plain) == 1:  # without a loop, as many a call has
            return Payloads(plain, len(plain[0]))
        sizes = _exact_sizes(plain)
        return Payloads(plain, sum(sizes)) if len(sizes) == len(plain) else None
    if kind is not Outgoing:
        return None
    described = cast(list[Outgoing], listed)
    if len(described) == 1 and described[0].headers is not None:
        return _with_headers(described[0])
    return _all_keyed(described)


def _with_headers(message: Outgoing) -> Payloads | None:
    """Returns a message with headers, and perhaps a key, as the whole check does.

    Each message in a trace has headers, and each event of a class.
    """
    size_bytes = usual_bytes(message)
    headers = packed(message.headers) if size_bytes else NO_HEADERS
    if not headers:
        return None
    return Payloads(
        [message.payload], size_bytes, None, Labels([message.key], [headers])
    )


def _exact_sizes(values: Iterable[Any]) -> list[int]:
    """Returns the sizes of the values whose type is bytes itself, in one loop."""
    return [len(value) for value in values if value.__class__ is bytes]


def _all_keyed(listed: list[Outgoing]) -> Payloads | None:
    """Returns messages that all have a key and nothing else; None for any others."""
    keys = [
        message.key
        for message in listed
        if message.__class__ is Outgoing
        and message.headers is None
        and message.expire_after_s is None
        and message.more is None
    ]
    if len(keys) < len(listed):
        return None
    payloads = [message.payload for message in listed]
    sizes, key_sizes = _exact_sizes(payloads), compact(_exact_sizes(keys))
    if len(sizes) < len(listed) or len(key_sizes) < len(listed):
        return None
    if key_sizes.__class__ is not bytes and max(key_sizes) > MAX_KEY_BYTES:
        return None
    labels = Labels(keys, [NO_HEADERS] * len(keys), key_sizes)
    return Payloads(payloads, sum(sizes) + sum(key_sizes), None, labels)


def _largest(payloads: Payloads, limit_bytes: int) -> int:
    """Returns the size of the largest message, if it may be above the limit."""
    labels, largest = payloads.labels, max(map(len, payloads.payloads))
    if labels is None or largest + MOST_LABEL_BYTES <= limit_bytes:
        return largest
    columns = zip(payloads.payloads, labels.keys, labels.headers, strict=True)
    return max([len(data) + label_bytes(key, h) for data, key, h in columns])


def _outgoing(message: object) -> Outgoing:
    return message if isinstance(message, Outgoing) else Outgoing(_payload(message))


def _with_labels(listed: Sequence[Payload]) -> Payloads:
    """Checks column by column: a key must cost little more than the payload alone."""
    described = [*map(_outgoing, listed)]
    payloads = [message.payload for message in described]
    if not {*map(type, payloads)} <= {bytes}:
        payloads = [*map(_payload, payloads)]
    keys = checked_keys([message.key for message in described])
    given = [message.headers for message in described]
    more = [message.more for message in described]
    headers = [NO_HEADERS] * len(listed)
    if is_any_said(more):
        headers = [*map(packed_fields, given, more)]
    elif is_any_said(given):
        headers = [*map(packed, given)]
    expiries = [message.expire_after_s for message in described]
    labels = labels_or_none(keys, headers)
    return Payloads(
        payloads,
        sum(map(len, payloads)) + size_bytes_of(labels),
        [*map(_expire_after_s, expiries)] if is_any_said(expiries) else None,
        labels,
    )


def _payload(payload: object) -> bytes:
    if not isinstance(payload, bytes):
        raise BadRequest(f"a message is bytes or Outgoing(bytes), not {payload!r}")
    return bytes(payload)


def _expire_after_s(seconds: object) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadRequest(f"expire_after_s is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= MAX_TIME_MS / 2000:
        raise BadRequest(f"expire_after_s is above 0, not {seconds!r}")
    return float(seconds)


def usual_bytes(message: object) -> int:
    """Returns the size of a message whose key and headers cannot be wrong.

    It has a key, or headers, and nothing else. For any other it returns 0; the whole
    check then tells.
    """
    if message.__class__ is not Outgoing:
        return 0
    payload, key, headers = message.payload, message.key, message.headers
    size_bytes = 0
    if headers.__class__ is FixedHeaders:
        size_bytes = len(headers.packed)
    elif headers.__class__ is dict:
        try:
            size_bytes = len(packed(headers))
        except BadRequest:
            return 0
    elif headers is not None or key is None:
        return 0
    if key is not None:
        if key.__class__ is not bytes or len(key) > MAX_KEY_BYTES:
            return 0
        size_bytes += len(key)
    if (
        payload.__class__ is not bytes
        or message.expire_after_s is not None
        or message.more is not None
    ):
        return 0
    return size_bytes + len(payload)


def checked_pointer(transaction: object) -> int:
    """Returns the first write pointer of a `Transaction`, or the number that is one."""
    if isinstance(transaction, Transaction):
        pointer: object = transaction.transaction_id
    else:
        pointer = transaction
    if isinstance(pointer, bool) or not isinstance(pointer, int):
        raise BadRequest(
            f"transaction is a Transaction or its write pointer, not {pointer!r}; "
            f"that of a context is its .transaction"
        )
    if not 0 < pointer <= MAX_POINTER:
        raise BadRequest(f"a write pointer is from 1 to {MAX_POINTER}, not {pointer}")
    return pointer


def checked_attempt(attempt: object) -> bytes:
    """Returns the name of an attempt; None becomes the empty name."""
    if attempt is None:
        return b""
    if not isinstance(attempt, bytes) or len(attempt) > MAX_ATTEMPT_BYTES:
        raise BadRequest(
            f"an attempt is named by up to {MAX_ATTEMPT_BYTES} bytes, not {attempt!r}"
        )
    return attempt


def checked_start(start: object) -> Start:
    """Returns a start: a message id, a time in ms, ids by partition, or None."""
    if start is None:
        return None
    if isinstance(start, Mapping) and start:
        return {_number(key): _place(place) for key, place in start.items()}
    if isinstance(start, MessageId) and len(start) == ID_BYTES:
        return start
    if isinstance(start, bytes):
        return MessageId.from_bytes(start)
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRequest(
            f"start is a MessageId, a time in ms or None, not {start!r:.100}; "
            f"MessageId.parse reads text"
        )
    if not 0 <= start <= MAX_TIME_MS:
        raise BadRequest(f"a time is from 0 to {MAX_TIME_MS} ms, not {start}")
    return start


def checked_offsets_at(at: object) -> str | int:
    """Returns a word, or a time in ms; raises `BadRequest` for anything else."""
    if isinstance(at, datetime):
        return max(0, _ms_of(at))  # no message is older
    if at in ("first", "last", "stable"):
        return str(at)
    if isinstance(at, bool) or not isinstance(at, int):
        raise BadRequest(
            f"at is first, last, stable, a datetime or a time in ms, not {at!r:.100}"
        )
    if not 0 <= at <= MAX_TIME_MS:
        raise BadRequest(f"a time is from 0 to {MAX_TIME_MS} ms, not {at}")
    return at


def _number(number: object) -> int:
    if isinstance(number, str) and number.isascii() and number.isdecimal():
        number = int(number[:9])
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise BadRequest(f"a partition is a whole number, not {number!r:.100}")
    return number


def _place(place: object) -> MessageId:
    if isinstance(place, str):
        return MessageId.parse(place)
    if not isinstance(place, bytes):
        raise BadRequest(f"a partition goes on at a MessageId, not {place!r:.100}")
    return MessageId.from_bytes(place)


def check_places(places: Mapping[int, MessageId], *, most: int) -> None:
    """Raises `TopicNotFound` for a place in a partition that is not among `most`."""
    if (last := max(places)) >= most:
        raise TopicNotFound(
            f"partition {last} does not exist: the topic has {most}, from 0 on"
        )


def place_in(start: Start, number: int) -> MessageId | int | None:
    """Returns the start in one partition.

    A partition that the places do not name is new, and begins at its beginning, as one
    of which nothing was read.
    """
    if not isinstance(start, dict):
        return cast(MessageId | int | None, start)
    place = start.get(number)
    return place if place and any(place) else None


def parsed_start(text: str, *, words: str) -> MessageId | int:
    """Reads a start as text: an id of 40 hex digits, ms since 1970, or an ISO time.

    `words` names what else the caller takes, for the error.
    """
    try:
        if len(text) == 2 * ID_BYTES:
            return MessageId.parse(text)
        return MessageId.of(_time_ms(text)).publish_time_ms
    except (BadRequest, ValueError, OverflowError) as error:
        raise BadRequest(
            f"{text!r} is no place in a topic; an id of 40 hex digits, a time "
            f"(2026-01-31T12:00:00Z, or ms since 1970), {words} are"
        ) from error


def _time_ms(text: str) -> int:
    """Reads a time in ms since the epoch; an ISO time without a zone is UTC."""
    if text.isdecimal():
        return int(text)
    return _ms_of(datetime.fromisoformat(text))


def _ms_of(time: datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def checked_limit(limit: object) -> int:
    """Returns the number of messages asked for, at least one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise BadRequest(f"limit is a whole number above 0, not {limit!r}")
    return limit


LONGEST_WAIT_S = 1e300


def check_wait_of_poll(wait_s: object, transaction: object) -> None:
    """Refuses a time to wait that is none, and any in a transaction."""
    if checked_wait_s(wait_s) and transaction is not None:
        raise BadRequest(
            "a poll in a transaction cannot wait: its snapshot sees nothing that "
            "commits later; wait before the transaction begins"
        )


def checked_wait_s(wait_s: object) -> float:
    """Returns the time to wait; below 0 there is no wait."""
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float):
        raise BadRequest(f"wait_s is a number of seconds, not {wait_s!r}")
    if wait_s != wait_s:
        raise BadRequest("wait_s is a number of seconds, not NaN")
    # No float is as large as a whole number may be.
    return wait_s if wait_s < LONGEST_WAIT_S else math.inf


def checked_isolation(isolation: object) -> str:
    """Returns the isolation; raises `BadRequest` unless it is one of the two."""
    if isolation not in (COMMITTED, UNCOMMITTED):
        raise BadRequest(
            f"isolation is {COMMITTED!r} or {UNCOMMITTED!r}, not {isolation!r}"
        )
    return str(isolation)


def checked_snapshot(transaction: object) -> None:
    """Refuses all but a `Transaction` or None: a bare pointer has no snapshot."""
    if transaction is not None and not isinstance(transaction, Transaction):
        raise BadRequest(
            f"transaction is a Transaction, by whose snapshot is judged, not "
            f"{transaction!r}; that of a context is its .transaction"
        )


def checked_transaction(transaction: object) -> Transaction:
    """Refuses all but a `Transaction`: a bare pointer does not say what it sees."""
    checked_snapshot(transaction)
    if transaction is None:
        raise BadRequest("transaction is a Transaction, not None")
    return cast(Transaction, transaction)


def checked_receipts(receipts: Iterable[Receipt]) -> list[Receipt]:
    """Returns receipts of `store` as a list; raises `BadRequest` for anything else."""
    if isinstance(receipts, Iterable) and not isinstance(receipts, bytes | str):
        listed = list(receipts)
        if all(isinstance(receipt, Receipt) for receipt in listed):
            return listed
    raise BadRequest(f"receipts are what `store` answered, not {receipts!r}")


def check_plain(payloads: Payloads, receipts: Iterable[Receipt] | None) -> None:
    """Refuses what a publish without a transaction cannot have."""
    if not len(payloads) or receipts is not None:
        raise BadRequest(
            "a publish without a transaction has messages, and no receipts"
        )


def checked_response(response: object) -> PublishResponse:
    """Returns the answer to a transactional publish, as `rollback` takes it."""
    if not isinstance(response, PublishResponse):
        raise BadRequest(
            f"rollback takes the answer of a transactional publish, not {response!r}"
        )
    checked_pointer(response.transaction_write_pointer)
    numbers = (
        *(response.start_timestamp, response.start_sequence_id),
        *(response.end_timestamp, response.end_sequence_id),
    )
    for number in numbers:
        if number.__class__ is not int:
            raise BadRequest(f"times and sequences are whole numbers, not {number!r}")
    return response


def checked_position(position: object) -> MessageId:
    """Returns the position of a group."""
    if not isinstance(position, MessageId) or len(position) != ID_BYTES:
        raise BadRequest(f"a position is a MessageId, not {position!r}")
    return position


def checked_positions(group: str, positions: object) -> dict[str, MessageId]:
    """Returns the positions of a group by topic, all of which are looked at first."""
    checked_group(group)
    if not isinstance(positions, Mapping):
        raise BadRequest(f"positions are {{topic: id}}, not {positions!r:.100}")
    return {
        full_name(topic): checked_position(position)
        for topic, position in positions.items()
    }


@attrs.frozen
class Wanted:
    """The range to cut, from `start` to before `stop`, and the size of a part."""

    start: MessageId
    stop: MessageId
    part_bytes: int

    @property
    def is_empty(self) -> bool:
        """True when the range holds no id."""
        return self.start >= self.stop


def checked_wanted(start: object, stop: object, part_bytes: object) -> Wanted:
    """Returns the range to cut; raises `BadRequest` unless all three are valid."""
    if (
        isinstance(part_bytes, bool)
        or not isinstance(part_bytes, int)
        or not 1 <= part_bytes <= MAX_PART_BYTES
    ):
        raise BadRequest(
            f"part_bytes is a whole number from 1 to {MAX_PART_BYTES}, not "
            f"{part_bytes!r:.100}"
        )
    return Wanted(_checked_end(start, "start"), _checked_end(stop, "stop"), part_bytes)


def _checked_end(end: object, name: str) -> MessageId:
    if not isinstance(end, MessageId) or len(end) != ID_BYTES:
        raise BadRequest(
            f"{name} is a MessageId, not {end!r:.100}; MessageId.of makes one of a "
            f"time, and MessageId.parse reads text"
        )
    return end


def check_range(start: object, stop: object, snapshot: object) -> None:
    """Raises `BadRequest` unless it gets two ids and a transaction to judge by."""
    for end in (start, stop):
        if not isinstance(end, MessageId) or len(end) != ID_BYTES:
            raise BadRequest(f"a range has two MessageIds, not {end!r:.100}")
    if not isinstance(snapshot, Transaction):
        raise BadRequest(f"a snapshot is a Transaction, not {snapshot!r:.100}")


def checked_pieces(pieces: object) -> int:
    """Returns the number of pieces of a topic; raises `BadRequest` if it is wrong."""
    number = _whole(pieces, "the number of pieces")
    if not 1 <= number <= MOST_PIECES:
        raise BadRequest(f"a topic is cut into 1 to {MOST_PIECES} pieces")
    return number


def checked_piece(number: object) -> int:
    """Returns the number of a piece; raises `BadRequest` for anything else."""
    return _whole(number, "a piece")


def checked_plan(plan: object) -> str:
    """Returns the id of a plan, known or not; raises `BadRequest` unless a str."""
    if not isinstance(plan, str):
        raise BadRequest(f"a plan is named by a str, not {plan!r:.100}")
    return plan


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{what} is a whole number, not {value!r:.100}")
    return value
