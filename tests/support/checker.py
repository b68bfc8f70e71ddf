"""Judges what many clients did and saw: finds what no correct store allows.

Every value is sent once. Times are places in one order of all events: an operation that
`ended` at 5 was over before one that `began` at 6.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import attrs

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
NEVER = 1 << 62


@attrs.frozen
class Moved:
    """A group went on in a topic: it consumed what lies after `start`, up to `end`."""

    group: str
    topic: str
    start: bytes
    end: bytes


@attrs.frozen(kw_only=True)
class Publish:
    """Values sent together, as (topic, value): a plain publish, or a transaction.

    `asked` is when the commit was asked for; nobody may see anything before. `ended` is
    `NEVER` where the answer is missing. A transaction that polls has a `name`.
    """

    sent: tuple[tuple[str, str], ...]
    outcome: str
    began: int
    ended: int = NEVER
    asked: int = -1
    transactional: bool = False
    moved: Moved | None = None
    name: str = ""

    def values(self, topic: str) -> list[str]:
        """What it sent to one topic."""
        return [value for sent_to, value in self.sent if sent_to == topic]


@attrs.frozen(kw_only=True)
class Poll:
    """What one poll answered to a reader that goes on from its own last one.

    It looked at all after `start` up to `end`. `at_end`: nothing stopped it before the
    end of the topic. `blocked`: the row of an open transaction stopped it. Polls inside
    of a `transaction` go on from each other, and begin anywhere.
    """

    reader: str
    topic: str
    start: bytes = b""
    end: bytes
    seen: tuple[tuple[bytes, str], ...]
    committed: bool = True
    at_end: bool = True
    blocked: bool = False
    transaction: str = ""
    began: int
    ended: int


@attrs.frozen
class Anomaly:
    """One thing that must not be, and where."""

    kind: str
    detail: str


class _Topic:
    """What all readers of one topic together know of it."""

    def __init__(
        self, name: str, polls: list[Poll], own: Mapping[str, set[str]]
    ) -> None:
        self.name = name
        self.polls = polls
        self.places: dict[str, set[bytes]] = defaultdict(set)
        self.values: dict[bytes, set[str]] = defaultdict(set)
        self.committed: dict[bytes, str] = {}
        self.first_seen: dict[str, int] = {}
        for poll in polls:
            for message_id, value in poll.seen:
                self.places[value].add(message_id)
                self.values[message_id].add(value)
                if poll.committed and value not in own.get(poll.transaction, ()):
                    self.committed[message_id] = value
                    earlier = self.first_seen.get(value, NEVER)
                    self.first_seen[value] = min(earlier, poll.ended)
        self.readers: dict[str, list[Poll]] = defaultdict(list)
        self.inside: dict[str, list[Poll]] = defaultdict(list)
        for poll in sorted(polls, key=lambda poll: poll.began):
            if poll.transaction:
                self.inside[poll.transaction].append(poll)
            else:
                self.readers[poll.reader].append(poll)

    def complete_reads(self) -> Iterator[tuple[set[str], int]]:
        """What readers had seen who came to the end, and when that look began."""
        for polls in self.readers.values():
            at_end = [poll.began for poll in polls if poll.at_end]
            if at_end:
                yield {value for poll in polls for _, value in poll.seen}, at_end[-1]


def anomalies(
    publishes: Iterable[Publish], polls: Iterable[Poll], *, quiet: Iterable[int] = ()
) -> list[Anomaly]:
    """Everything that is wrong with a history; none for one that may be.

    `quiet` are moments when no transaction was open that had begun before.
    """
    by_topic: dict[str, list[Poll]] = defaultdict(list)
    for poll in polls:
        by_topic[poll.topic].append(poll)
    sent = list(publishes)
    own = {p.name: {value for _, value in p.sent} for p in sent if p.name}
    topics = {name: _Topic(name, found, own) for name, found in by_topic.items()}
    found: list[Anomaly] = []
    for topic in topics.values():
        found += _of_readers(topic)
        found += _of_transactions(topic)
        found += _stuck(topic, sent, sorted(quiet))
        found += _of_ids(topic, sent)
        found += _of_values(topic, sent)
        found += _of_order(topic, sent)
    found += _lost_or_torn(topics, sent)
    found += _of_groups(topics, sent)
    found += _cycles(topics, sent)
    return list(dict.fromkeys(found))


def kinds(publishes: Iterable[Publish], polls: Iterable[Poll]) -> set[str]:
    """Only what is wrong, not where."""
    return {anomaly.kind for anomaly in anomalies(publishes, polls)}


def _of_readers(topic: _Topic) -> Iterator[Anomaly]:
    """Each poll rises and goes on where the last one ended; none jumps over a row."""
    wanted = sorted(topic.committed)
    for reader, polls in topic.readers.items():
        where = f"{reader} in {topic.name}"
        for poll in polls:
            ids = [poll.start, *(message_id for message_id, _ in poll.seen), poll.end]
            rises = all(one < two for one, two in pairwise(ids[:-1]))
            if not rises or ids[-1] < ids[-2]:
                yield Anomaly("non-monotonic", f"{where}: {poll}")
            missing = {i for i in wanted if poll.start < i <= poll.end} - set(ids[1:-1])
            for message_id in missing:
                value = topic.committed[message_id]
                yield Anomaly("skipped", f"{where}: {message_id.hex()} {value}")
        for one, two in pairwise([None, *polls]):
            before, start = one.end if one else b"", two.start if two else b""
            if start < before:
                yield Anomaly("non-monotonic", f"{where}: back to {start.hex()}")
            elif start > before:
                yield Anomaly("skipped", f"{where}: from {before.hex()}")


def _of_transactions(topic: _Topic) -> Iterator[Anomaly]:
    """Polls of one transaction go on from each other, and jump over nothing."""
    wanted = sorted(topic.committed)
    for name, polls in topic.inside.items():
        where, before = f"{name} in {topic.name}", polls[0].start
        for poll in polls:
            seen = [message_id for message_id, _ in poll.seen]
            ids = [poll.start, *seen]
            if poll.start < before or any(two <= one for one, two in pairwise(ids)):
                yield Anomaly("internal non-monotonic", f"{where}: {poll}")
            missing = {i for i in wanted if before < i <= poll.end} - set(seen)
            for message_id in missing:
                yield Anomaly("internal skip", f"{where}: {message_id.hex()}")
            before = max(before, poll.end)


def _stuck(
    topic: _Topic, publishes: list[Publish], quiet: list[int]
) -> Iterator[Anomaly]:
    """A reader waits for a transaction only while one is open."""
    over = [(p.began, _over(p, quiet)) for p in publishes if p.transactional]
    for poll in topic.polls:
        if poll.blocked and not any(
            began <= poll.ended and poll.began <= until for began, until in over
        ):
            yield Anomaly("stuck", f"{poll.reader} in {topic.name} at {poll.began}")


def _over(publish: Publish, quiet: list[int]) -> int:
    """When it was over for sure: a client that gave up may have left it open."""
    if publish.outcome == OK:
        return publish.ended
    return next((at for at in quiet if at >= publish.began), NEVER)


def _cycles(topics: dict[str, _Topic], publishes: list[Publish]) -> Iterator[Anomaly]:
    """No transactions read from each other in a circle."""
    owners = {
        (name, value): publish.name
        for publish in publishes
        if publish.name
        for name, value in publish.sent
    }
    reads: dict[str, set[str]] = defaultdict(set)
    for topic in topics.values():
        for reader, polls in topic.inside.items():
            for poll in polls:
                seen = {owners.get((topic.name, value), "") for _, value in poll.seen}
                reads[reader] |= seen - {"", reader}
    while without := {one for one in reads if not reads[one] & reads.keys()}:
        for one in without:
            del reads[one]
    if reads:
        yield Anomaly("cycle", f"among {sorted(reads)}")


def _of_ids(topic: _Topic, publishes: list[Publish]) -> Iterator[Anomaly]:
    """A value has one id, and an id one value.

    A block that begins with its commit may leave rows of a first try, which a kill has
    ended, in other shards: once is what readers of committed messages see.
    """
    in_transactions = {
        value for p in publishes if p.transactional for value in p.values(topic.name)
    }
    for message_id, values in topic.values.items():
        if len(values) > 1:
            where = f"{topic.name} {message_id.hex()}: {sorted(values)}"
            yield Anomaly("inconsistent id", where)
    for value, all_ids in topic.places.items():
        is_one = value not in in_transactions
        ids = [one for one in all_ids if is_one or topic.committed.get(one) == value]
        if len(ids) > 1:
            places = [message_id.hex() for message_id in sorted(ids)]
            yield Anomaly("duplicate", f"{topic.name} {value}: {places}")


def _of_values(topic: _Topic, publishes: list[Publish]) -> Iterator[Anomaly]:
    """Nobody reads what nobody sent, what failed, or what cannot be there yet."""
    owners = {value: p for p in publishes for value in p.values(topic.name)}
    for poll in topic.polls:
        for _, value in poll.seen:
            owner = owners.get(value)
            if owner is None or poll.ended < owner.began:
                yield Anomaly("invented", f"{topic.name} {value}")
            elif owner.name and owner.name == poll.transaction:
                continue  # what it wrote itself
            elif poll.committed and owner.outcome == FAIL:
                yield Anomaly("aborted read", f"{topic.name} {value}")
            elif poll.committed and owner.transactional and poll.ended < owner.asked:
                yield Anomaly("early read", f"{topic.name} {value}")


def _of_order(topic: _Topic, publishes: list[Publish]) -> Iterator[Anomaly]:
    """Ids rise with time; within a request, without anything in between.

    Rows of a transaction that nobody sees committed have no place in time: a part of
    a commit may come to the server of its shard after home gave it up.
    """
    owners = {
        value: (number, p)
        for number, p in enumerate(publishes)
        for value in p.values(topic.name)
    }
    in_order = [
        value
        for message_id in sorted(topic.values)
        for value in sorted(topic.values[message_id])
        if value in owners
        and (
            not owners[value][1].transactional
            or topic.committed.get(message_id) == value
        )
    ]
    latest, closed, last, places = -1, set[int](), -1, dict[int, int]()
    for value in in_order:
        number, publish = owners[value]
        if publish.ended < latest:
            yield Anomaly("reordered", f"{topic.name} {value}: after a later one")
        latest = max(latest, publish.began)
        place = publish.values(topic.name).index(value)
        if place < places.get(number, -1):
            yield Anomaly("reordered", f"{topic.name} {value}: within its request")
        places[number] = place
        if number != last and number in closed and not publish.transactional:
            yield Anomaly("interleaved", f"{topic.name} {value}")
        closed.add(number)
        last = number


def _lost_or_torn(
    topics: dict[str, _Topic], publishes: list[Publish]
) -> Iterator[Anomaly]:
    complete = {name: list(topic.complete_reads()) for name, topic in topics.items()}
    for publish in publishes:
        if publish.outcome == FAIL:
            continue
        seen = [
            topics[name].first_seen.get(value, NEVER)
            for name, value in publish.sent
            if name in topics
        ]
        first_seen = min(seen, default=NEVER)
        for name, value in publish.sent:
            for values, began in complete.get(name, ()):
                if value in values:
                    continue
                if publish.outcome == OK and publish.ended < began:
                    yield Anomaly("lost", f"{name} {value}")
                if first_seen < began:
                    yield Anomaly("torn", f"{name} {value} of {publish.sent}")


def _of_groups(
    topics: dict[str, _Topic], publishes: list[Publish]
) -> Iterator[Anomaly]:
    """What a group has consumed is one piece, and no part of it twice."""
    moves: dict[tuple[str, str], list[Moved]] = defaultdict(list)
    for publish in publishes:
        if publish.moved is not None and (
            publish.outcome == OK or _was_seen(topics, publish)
        ):
            moved = publish.moved
            moves[moved.group, moved.topic].append(moved)
    for (group, name), found in moves.items():
        end = b""
        for moved in sorted(found, key=lambda moved: (moved.start, moved.end)):
            where = f"group {group} in {name}: {moved.start.hex()} after {end.hex()}"
            if moved.start < end:
                yield Anomaly("doubled", where)
            elif moved.start > end:
                yield Anomaly("skipped", where)
            end = max(end, moved.end)


def _was_seen(topics: dict[str, _Topic], publish: Publish) -> bool:
    return any(
        name in topics and value in topics[name].first_seen
        for name, value in publish.sent
    )
