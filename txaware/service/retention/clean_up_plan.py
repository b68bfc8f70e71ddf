"""A clean-up as values: what is to be done, piece by piece, and what was done."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby

import attrs

from coordinator.codec import decode
from coordinator.transaction import Transaction
from txaware.errors import BadRequest

# What a piece removes or marks rows for: fields of `CleanUp`.
EXPIRED, PAYLOADS = "expired_messages", "expired_payloads"
OLD_GENERATIONS, MARKED = "old_generation_rows", "marked_rows"
# Of one topic, for each of these.
MOST_PIECES = 1000


@attrs.frozen
class Piece:
    """Rows of one topic from `start` on and before `stop`, and what goes of them.

    Bounds are keys behind what the topic's rows begin with: a time and a sequence of
    messages, a pointer of payloads and their marks. Of old generations they begin with
    the generation. None is the end of the topic.
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
    there was nothing to judge. `invalid` are the pointers whose rows are marked.
    `unplanned` are those of the `topics` that could not be looked at.
    """

    planned_ms: int
    snapshot: bytes | None
    invalid: tuple[int, ...]
    topics: tuple[str, ...]
    unplanned: tuple[str, ...]
    pieces: tuple[Piece, ...]

    @cached_property
    def judge(self) -> Transaction | None:
        """The snapshot, read."""
        return None if self.snapshot is None else decode(self.snapshot)

    @cached_property
    def marked(self) -> frozenset[int]:
        """`invalid`, to look pointers up in."""
        return frozenset(self.invalid)

    @cached_property
    def by_topic(self) -> Mapping[str, Sequence[int]]:
        """The numbers of the pieces of each topic."""
        numbered = groupby(enumerate(self.pieces), key=lambda one: one[1].topic)
        return {topic: [number for number, _ in found] for topic, found in numbered}


@attrs.frozen
class Touched:
    """From which whole key to which one rows were deleted."""

    start: bytes
    stop: bytes


@attrs.frozen
class PieceResult:
    """How many rows a piece removed or marked, and where.

    `unseen` is the transaction that kept readers from what expired, if one did;
    `references` are messages that had expired and went before their payloads.
    """

    rows: int = 0
    touched: tuple[Touched, ...] = ()
    unseen: int | None = None
    references: int = 0


# By the number of the piece in its plan; what is missing has failed, or never began.
Results = Mapping[int, PieceResult]


@attrs.frozen
class OpenPlan:
    """A plan that is kept where it was made, for whoever has its pieces done."""

    id: str
    topics: int
    pieces: int


def checked_pieces(pieces: object) -> int:
    """Into how many pieces a topic is cut; `BadRequest` otherwise."""
    number = _whole(pieces, "the number of pieces")
    if not 1 <= number <= MOST_PIECES:
        raise BadRequest(f"a topic is cut into 1 to {MOST_PIECES} pieces")
    return number


def checked_piece(number: object) -> int:
    """The number of a piece in its plan; `BadRequest` otherwise."""
    return _whole(number, "a piece")


def checked_plan(plan: object) -> str:
    """The id of a plan, known or not; `BadRequest` otherwise."""
    if not isinstance(plan, str):
        raise BadRequest(f"a plan is named by a str, not {plan!r:.100}")
    return plan


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{what} is a whole number, not {value!r:.100}")
    return value
