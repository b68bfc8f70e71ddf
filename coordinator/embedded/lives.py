"""The lives of a coordinator, and the rule by which a pointer says whose it is.

A life goes from one opening to the next. A journal that is put back from a copy knows
nothing of the lives since, and their pointers must not be taken for its own.
"""

import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import attrs

from coordinator.embedded.records import Decided, Lived
from coordinator.errors import BadRequest
from coordinator.outcome import Outcome
from coordinator.transaction import POINTERS_PER_MS

# All pointers of a life that are of one ms lie so near to each other.
MOST_PER_MS = 256
# As a salt: every pointer between the first and the last one counts.
EVERY = -1
# The id of the life of an earlier version, which had none.
NAMELESS = 0
# The place of a journal that cannot tell.
NO_PLACE = bytes(16)
# Each takes 48 bytes. Outcomes in older lives are forgotten.
MOST_LIVES = 10_000

# The outcomes that somebody decided, as the records have them.
_NUMBERS = {Outcome.FORGOTTEN: -1, Outcome.ROLLED_BACK: 0, Outcome.COMMITTED: 1}
_OUTCOMES = {number: outcome for outcome, number in _NUMBERS.items()}


def name_of(life: int) -> str:
    """Returns the id of a life as others keep it; empty for one that has none."""
    return "" if life == NAMELESS else f"{life:016x}"


def life_named(name: object) -> int:
    """Reads the id of a life; raises `BadRequest` for what is none."""
    if name == "":
        return NAMELESS
    try:
        life = int(name, 16) if isinstance(name, str) else NAMELESS
    except ValueError:
        life = NAMELESS
    if life == NAMELESS or name != name_of(life):
        raise BadRequest(f"the id of a life has 16 hex digits, and is not {name!r:.50}")
    return life


def new_life(first: int, salt: int, place: bytes) -> Lived:
    """Draws the id of a life that begins now."""
    return Lived(secrets.randbits(63) + 1, first, 0, salt, place)


def new_salt() -> int:
    """Draws what the pointers of a life end in."""
    return secrets.randbelow(POINTERS_PER_MS - MOST_PER_MS)


def is_of(life: Lived, pointer: int, *, last: int) -> bool:
    """Tells whether a life gave out a pointer, if `last` was its last one."""
    if not life.first <= pointer <= last:
        return False
    return life.salt == EVERY or (pointer - life.salt) % POINTERS_PER_MS < MOST_PER_MS


class Lives:
    """The lives that a coordinator knows, the one that goes on as the last of them.

    `forgotten` are the oldest ones, where they are too many.
    """

    def __init__(self, lives: Sequence[Lived]) -> None:
        *self._past, self.current = lives[-MOST_LIVES:]
        self.forgotten = lives[:-MOST_LIVES]
        self._firsts = [life.first for life in self._past]

    def of(self, pointer: int, *, last: int) -> Lived | None:
        """Returns the life that gave out a pointer; `last` is the last one of all."""
        current = self.current
        if pointer >= current.first:
            return current if is_of(current, pointer, last=last) else None
        place = bisect_right(self._firsts, pointer)
        if not place:
            return None
        found = self._past[place - 1]
        return found if is_of(found, pointer, last=found.last) else None

    def ended(self, last: int) -> Iterator[Lived]:
        """Yields all, without places, as they are if `last` is the last pointer."""
        for life in (*self._past, attrs.evolve(self.current, last=last)):
            if life.first <= life.last:
                yield attrs.evolve(life, place=NO_PLACE)


class Decisions:
    """The outcomes that a person decided, where the coordinator could not know them."""

    def __init__(self, records: Iterable[Decided] = ()) -> None:
        self._by_pointer: dict[tuple[int, int], int] = {}
        for record in records:
            self.add(record)

    def add(self, record: Decided) -> None:
        """Adds one, in place of an earlier one about the same."""
        self._by_pointer[record.pointer, record.life] = record.outcome

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decisions):
            return NotImplemented
        return self._by_pointer == other._by_pointer

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> "Decisions":
        """Returns a copy that may be changed on its own."""
        return Decisions(self)

    def of(self, pointer: int, life: int) -> Outcome | None:
        """Returns what was decided; None where nothing was."""
        number = self._by_pointer.get((pointer, life))
        return None if number is None else _OUTCOMES[number]

    def __iter__(self) -> Iterator[Decided]:
        for (pointer, life), outcome in self._by_pointer.items():
            yield Decided(pointer, life, outcome)


def decided(pointer: int, life: int, outcome: Outcome) -> Decided:
    """Makes the record of a decision."""
    return Decided(pointer, life, _NUMBERS[outcome])


def with_life(lives: Sequence[Lived], new: Lived, *, reserved: int) -> list[Lived]:
    """Returns the lives with a new one, or with one of them as it is known now.

    The one before a new one has ended then: no pointer above `reserved` was its own.
    One that gave out nothing is left out.
    """
    *past, latest = lives or [new]
    if latest.life == new.life:
        return [*past, new]
    if not latest.last:
        latest = attrs.evolve(latest, last=reserved)
    ended = [*past, latest] if latest.first <= latest.last else past
    return [*ended, new]
