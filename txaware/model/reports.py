"""Reports: the answers that an operator gets, about a store and about work on it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import attrs

from txaware.model.messages import BlockedBy, Bounds, MessageId
from txaware.model.numbers import gauge

# Called with the rows done so far, and about the part of all; None if not known.
Progress = Callable[[int, float | None], object]
# Called with the topic that is done, how many are done, and how many there are.
OnProgress = Callable[[str, int, int], object]


@attrs.frozen
class SetAsideFor:
    """Tells how many rows an outbox has set aside for one topic or queue, and why.

    The reason, and since when it is there, are those of the first row.
    """

    destination: str
    count: int
    reason: str
    since_ms: int


@attrs.frozen
class OutboxReport:
    """The outbox of a user's database, as its relay saw it last.

    It is a row of the table in which relays say what they carried over.
    """

    TABLE: ClassVar[str] = "txaware:participants"
    PREFIX: ClassVar[bytes] = b"outbox-report:"

    outbox: str
    database: str
    waiting: Annotated[
        int,
        gauge(
            "outbox_waiting",
            "Messages and items that wait in the outbox of a database, as its relay "
            "saw it last.",
        ),
    ]
    set_aside: Annotated[
        int,
        gauge(
            "outbox_set_aside",
            "Messages and items that its relay could not carry over, and set aside "
            "there.",
        ),
    ]
    looked_ms: Annotated[
        int,
        gauge(
            "outbox_last_look_seconds",
            "When a relay looked there last, in seconds since 1970.",
        ),
    ]
    aside: Sequence[SetAsideFor] = ()  # the first ones, the oldest first

    @property
    def key(self) -> bytes:
        """The key of its row."""
        return self.PREFIX + self.outbox.encode()

    def to_bytes(self) -> bytes:
        """Returns the value of its row."""
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def of(cls, value: bytes) -> Self:
        """Reads the value of its row."""
        found = json.loads(value)
        aside = [SetAsideFor(**one) for one in found.pop("aside", ())]
        return cls(**found, aside=aside)


@attrs.frozen
class Peeked:
    """A row of a topic as it stands: `payload` is None for a reference."""

    id: MessageId
    payload: bytes | None
    pointer: int | None
    state: str
    key: bytes | None = None
    headers: dict[str, bytes] = attrs.field(factory=dict)

    @property
    def size_bytes(self) -> int:
        """The size of its payload."""
        return len(self.payload or b"")


@attrs.frozen
class SearchPage:
    """The rows that a search has found among the `looked` ones that it looked at.

    `next` is where it goes on: the first that was not looked at, or None at the end.
    """

    rows: list[Peeked]
    next: MessageId | None
    looked: int


@attrs.frozen
class TopicReport:
    """The content of a topic: rows, with expired ones that are not removed yet.

    `stored` counts payload rows, `bytes` the payloads of all. `in_progress` are the
    transactions whose rows keep committed readers waiting, `blocked_by` the first.
    """

    messages: int
    references: int
    stored: int
    bytes: int
    rolled_back: int
    oldest_ms: int | None
    newest_ms: int | None
    in_progress: list[int]
    blocked_by: BlockedBy | None
    bounds: Bounds


@attrs.frozen
class Problem:
    """One thing that is not as it has to be: what kind, at which key, in a sentence."""

    kind: str
    key: str
    sentence: str

    def __str__(self) -> str:
        where = f"{self.kind} {self.key}" if self.key else self.kind
        return f"{where}: {self.sentence}"


@attrs.frozen
class Report:
    """The result of a check.

    `needed` is, for each topic, the smallest pointer among its rows that is invalid and
    not yet marked in the row: the coordinator must not forget it before. It is None
    where a coordinator elsewhere was not asked which are invalid: then nobody knows.
    `coordinator` is `embedded`, the address of another one, or None if that is unknown.
    """

    counts: Mapping[str, int]
    problems: tuple[Problem, ...]
    problem_count: int
    needed: Mapping[str, int] | None
    coordinator: str | None = None

    @property
    def is_clean(self) -> bool:
        """True when nothing is wrong."""
        return not self.problem_count

    @property
    def least_needed(self) -> int | None:
        """The smallest pointer that any topic still needs; None also for unknown."""
        return min((self.needed or {}).values(), default=None)

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "clean": self.is_clean,
            "counts": dict(self.counts),
            "problem_count": self.problem_count,
            "problems": [attrs.asdict(problem) for problem in self.problems],
            "needed": None if self.needed is None else dict(self.needed),
            "least_needed": self.least_needed,
            "coordinator": self.coordinator,
        }


@attrs.frozen
class CleanUp:
    """The rows that one clean-up removed or marked, by reason.

    Where pieces were done beside each other, two that found the same expired reference
    may both have counted it.

    Every invalid transaction below `least_needed` may be forgotten by its coordinator.
    It is None where the coordinator was not asked, as nothing had to be judged. It is
    also None where a topic failed, or a piece of it (the log says why; all others were
    cleaned up).

    `superseded_messages` were not the newest of their key, in a compact topic.

    `forgotten` counts the invalid transactions that the coordinator has forgotten.
    `held_back` says why others of more than a day ago were kept, or is None.
    """

    topics: int = 0
    failed_topics: int = 0
    expired_messages: int = 0
    expired_payloads: int = 0
    old_generation_rows: int = 0
    marked_rows: int = 0
    positions: int = 0
    table_versions: int = 0
    producers: int = 0
    least_needed: int | None = None
    forgotten: int = 0
    held_back: str | None = None
    superseded_messages: int = 0


@attrs.frozen
class OpenPlan:
    """A plan that is kept where it was made, for processes that ask for its pieces."""

    id: str
    topics: int
    pieces: int


@attrs.frozen
class Pruned:
    """The number of invalid transactions that the coordinator has forgotten.

    `held_back` says why others of more than a day ago were kept, or is None.
    `held_back_count` is the number of those.
    """

    pruned: int
    least_needed: int | None
    held_back: str | None = None
    held_back_count: int = 0


@attrs.frozen
class MessagingStatus:
    """The way from a `Messaging` to its data.

    `transport` is "embedded" where this process has the data, and else "http" or
    "frames": how calls go to the `server` that answers at that URL, of that `version`.
    """

    transport: str
    version: str
    server: str | None = None

    def __str__(self) -> str:
        where = "" if self.server is None else f" to {self.server}"
        return f"{self.transport}{where}, txaware {self.version}"
