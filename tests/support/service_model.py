"""What the messaging service must answer, as plain lists without any table."""

from collections.abc import Iterable

import attrs

from txaware.model.messages import BlockedBy, MessageId, PublishResponse

DELIVER, SKIP, STOP = "deliver", "skip", "stop"
OPEN, COMMITTED, ABORTED, INVALID = "open", "committed", "aborted", "invalid"


@attrs.define(eq=False)
class Entry:
    """One payload; its id is known once it was listed for the first time."""

    payload: bytes
    expires_ms: int | None = None
    attempt: bytes = b""
    id: MessageId | None = None


@attrs.define(eq=False)
class Row:
    """A row of the message table: a message, or a reference to stored ones."""

    key: bytes
    pointer: int | None
    entries: list[Entry]
    is_reference: bool = False
    rolled_back: bool = False

    def is_before(self, start: MessageId, *, inclusive: bool) -> bool:
        """Whether a poll from there does not look at this row at all."""
        if self.key != start.row_key:
            return self.key < start.row_key
        if self.is_reference:
            return start.payload_key == b"\xff" * 10
        own = MessageId(self.key + bytes(10))
        return own < start or (own == start and not inclusive)


@attrs.define(eq=False)
class Stored:
    """What a transaction has stored in a topic, and what its references named."""

    entries: list[Entry] = attrs.field(factory=list)
    named: set[bytes] = attrs.field(factory=set)
    closed: bool = False

    def counts(self) -> dict[bytes, int]:
        counts: dict[bytes, int] = {}
        for entry in self.entries:
            counts[entry.attempt] = counts.get(entry.attempt, 0) + 1
        return counts


@attrs.define(eq=False)
class View:
    """Whose writes a reader sees; a fresh one knows only our own coordinator's."""

    own: int | None
    over: frozenset[int]
    invalid: frozenset[int]
    is_fresh: bool = False

    def verdict(self, pointer: int | None, *, rolled_back: bool, foreign: bool) -> str:
        if pointer is None:
            return DELIVER
        if rolled_back:
            return SKIP
        if pointer == self.own or pointer in self.over:
            return DELIVER
        if foreign and not self.is_fresh:
            return DELIVER
        return SKIP if pointer in self.invalid else STOP


@attrs.define(eq=False)
class ModelPage:
    """What a poll must answer."""

    entries: list[Entry]
    next: MessageId
    blocked_by: BlockedBy | None = None
    skipped_before: int | None = None


@attrs.define(eq=False)
class ModelTopic:
    """One generation of a topic."""

    ttl_s: int
    generation: int
    rows: list[Row] = attrs.field(factory=list)
    stored: dict[int, Stored] = attrs.field(factory=dict)

    def store_of(self, pointer: int) -> Stored:
        return self.stored.setdefault(pointer, Stored())

    def range(self, response: PublishResponse) -> list[Row]:
        """The rows that a rollback of that response would change."""
        first = MessageId.of(response.start_timestamp, response.start_sequence_id)
        last = MessageId.of(response.end_timestamp, response.end_sequence_id)
        return [
            row
            for row in self.rows
            if first.row_key <= row.key <= last.row_key
            and row.pointer == response.transaction_write_pointer
            and not row.rolled_back
        ]


@attrs.define(eq=False)
class Model:
    """Topics, who has ended and how, and the positions of groups."""

    topics: dict[str, ModelTopic] = attrs.field(factory=dict)
    generations: dict[str, int] = attrs.field(factory=dict)
    states: dict[int, str] = attrs.field(factory=dict)
    positions: dict[tuple[str, str], dict[int, MessageId]] = attrs.field(factory=dict)

    def view(self, own: int | None = None) -> View:
        """A snapshot taken now, of a transaction or a fresh one."""
        over = [p for p, state in self.states.items() if state in (COMMITTED, ABORTED)]
        invalid = [p for p, state in self.states.items() if state == INVALID]
        return View(own, frozenset(over), frozenset(invalid), is_fresh=own is None)

    def verdict(self, row: Row, view: View | None) -> str:
        if view is None:
            return DELIVER
        return view.verdict(
            row.pointer,
            rolled_back=row.rolled_back,
            foreign=row.pointer not in self.states,
        )

    def position(self, group: str, topic: str, view: View) -> MessageId | None:
        """The one saved by the greatest pointer that is seen."""
        saved = self.positions.get((group, topic), {})
        for pointer in sorted(saved, reverse=True):
            foreign = pointer not in self.states
            if view.verdict(pointer, rolled_back=False, foreign=foreign) == DELIVER:
                return saved[pointer]
        return None

    def page(
        self,
        topic: ModelTopic,
        start: MessageId | int | None,
        *,
        inclusive: bool,
        limit: int,
        view: View | None,
        now_ms: int,
    ) -> ModelPage:
        bound_ms = max(0, now_ms - topic.ttl_s * 1000)
        at, skipped_before = start, None
        if not isinstance(at, MessageId):
            at, inclusive = MessageId.of(at or 0), True
        before = at.before() if inclusive else at
        if at < MessageId.of(bound_ms):
            skipped_before = None if start is None else bound_ms
            at, inclusive = MessageId.of(bound_ms), True
        page = ModelPage([], before, skipped_before=skipped_before)
        for row in topic.rows:
            if row.is_before(at, inclusive=inclusive):
                continue
            if len(page.entries) == limit:
                break
            verdict = self.verdict(row, view)
            if verdict == STOP:
                time_ms = int.from_bytes(row.key[:8], "big")
                page.blocked_by = BlockedBy(row.pointer or 0, time_ms)
                break
            entries = alive(row.entries, now_ms) if verdict == DELIVER else []
            if row.key == at.row_key:
                entries = [entry for entry in entries if _from(entry, at, inclusive)]
            room = limit - len(page.entries)
            page.entries += entries[:room]
            if len(entries) > room:
                page.next = known(entries[room - 1])
                break
            ending = b"\xff" if row.is_reference else b"\0"
            page.next = MessageId(row.key + ending * 10)
        return page


def alive(entries: Iterable[Entry], now_ms: int) -> list[Entry]:
    """Those that have not expired."""
    return [e for e in entries if e.expires_ms is None or e.expires_ms > now_ms]


def known(entry: Entry) -> MessageId:
    """The id of what was listed before."""
    assert entry.id is not None
    return entry.id


def _from(entry: Entry, start: MessageId, inclusive: bool) -> bool:
    return known(entry) > start or (inclusive and entry.id == start)
