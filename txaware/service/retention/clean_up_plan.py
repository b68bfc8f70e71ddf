"""A clean-up as values: the plan, its pieces, and the result of each piece."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby

import attrs

from coordinator.codec import decode
from coordinator.transaction import Transaction

# The reasons for which a piece removes or marks rows: fields of `CleanUp`.
EXPIRED, PAYLOADS = "expired_messages", "expired_payloads"
OLD_GENERATIONS, MARKED = "old_generation_rows", "marked_rows"
SUPERSEDED = "superseded_messages"


@attrs.frozen
class Piece:
    """Rows of one topic from `start` on and before `stop`, and the reason `what`.

    Bounds are keys without the prefix of the topic. Those of messages are a time and a
    sequence, those of payloads and their marks a pointer. Those of old generations
    begin with the generation. None is the end of the topic.
    """

    topic: str
    generation: int
    what: str
    start: bytes = b""
    stop: bytes | None = None


@attrs.frozen
class Plan:
    """One clean-up, as it was planned at `planned_ms`: the same for all its pieces.

    `snapshot` is the transaction that judges, in the bytes of the codec, or None where
    there was nothing to judge. `seen_by_all` is an earlier one, or the same, that every
    open transaction sees all of. `invalid` are the pointers whose rows are marked.
    `unplanned` names the `topics` that could not be looked at.
    """

    planned_ms: int
    snapshot: bytes | None
    invalid: tuple[int, ...]
    topics: tuple[str, ...]
    unplanned: tuple[str, ...]
    pieces: tuple[Piece, ...]
    seen_by_all: bytes | None = None

    @cached_property
    def shared_judge(self) -> Transaction | None:
        """The snapshot that everybody sees all of as a transaction, or None."""
        return None if self.seen_by_all is None else decode(self.seen_by_all)

    @cached_property
    def judge(self) -> Transaction | None:
        """The snapshot as a transaction, or None."""
        return None if self.snapshot is None else decode(self.snapshot)

    @cached_property
    def marked(self) -> frozenset[int]:
        """The pointers of `invalid` as a set."""
        return frozenset(self.invalid)

    @cached_property
    def by_topic(self) -> Mapping[str, Sequence[int]]:
        """The numbers of the pieces of each topic."""
        numbered = groupby(enumerate(self.pieces), key=lambda one: one[1].topic)
        return {topic: [number for number, _ in found] for topic, found in numbered}


@attrs.frozen
class Touched:
    """A range, by whole keys, in which rows were deleted."""

    start: bytes
    stop: bytes


@attrs.frozen
class PieceResult:
    """The number of rows that a piece removed or marked, and the ranges touched.

    `unseen` is the transaction that kept readers from expired messages, or None.
    `references` counts expired references that went before their payloads.
    """

    rows: int = 0
    touched: tuple[Touched, ...] = ()
    unseen: int | None = None
    references: int = 0


# By the number of the piece in its plan; a missing piece failed, or never began.
Results = Mapping[int, PieceResult]
