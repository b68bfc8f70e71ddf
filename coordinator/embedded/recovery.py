"""Restores a coordinator from its journal, and reserves pointers to give out."""

from collections.abc import Iterable, Iterator

import attrs

from coordinator.embedded.commit_log import AHEAD_MS, Reserve
from coordinator.embedded.history import History, outcome_records
from coordinator.embedded.invalid_pointers import Ended, InvalidPointers
from coordinator.embedded.journal import Journal
from coordinator.embedded.ledger import ChangeLimits, Ledger
from coordinator.embedded.lives import (
    EVERY,
    NAMELESS,
    NO_PLACE,
    Lives,
    decided,
    new_life,
    with_life,
)
from coordinator.embedded.open_transactions import OPEN, PREPARED, OpenTransaction
from coordinator.embedded.records import Decided, Lived, Reached, Record, Seen, Started
from coordinator.outcome import Outcome
from coordinator.pointers import Pointers
from coordinator.transaction import (
    NO_POINTER,
    POINTERS_PER_MS,
    ClockMs,
    TransactionType,
)

UNCHECKED = "the coordinator was restarted since its changes were checked"


def recover(
    journal: Journal,
    reserve: Reserve,
    limits: ChangeLimits,
    clock_ms: int,
    elapsed_ms: ClockMs,
    *,
    salt: int | None = None,
) -> Ledger:
    """Makes the ledger from the journal's history; writes changes before it returns.

    Transactions that were open are invalid now, except those that outlive a process and
    have time left, and those that are prepared. In a copy only the latter stay open:
    the original may have gone on with all others. Pointers go on above all that may
    have been given out. Commits that a crash kept from becoming visible are visible
    now, above all that survived.
    """
    history = journal.history
    new = not history.first
    last = clock_ms * POINTERS_PER_MS if new else history.reserved
    first = last if new else history.first
    ledger = Ledger(limits, first, last, elapsed_ms, salt=salt)
    now_ms = ledger.now_ms(clock_ms)
    is_copy = _is_copy(history, journal.place)
    records: list[Record] = [Reached(last, last)] if new else [*history.unrecorded()]
    records += _begin_life(ledger, history, journal.place, now_ms, is_copy=is_copy)
    lost = history.lost_pointers(crashed=not new)
    now = Ended(now_ms, elapsed_ms())
    ledger.invalid = InvalidPointers.restored(history.invalid, now, lost)
    if history.knows_outcomes:
        ledger.aborts = history.aborts.copy()
    else:  # nobody knows the outcomes of what an earlier version ended
        ledger.aborts.forget(last)
        records += outcome_records(ledger.aborts)
    for forgotten in ledger.lives.forgotten:
        ledger.aborts.forget(forgotten.last)
    ledger.restore(_entry(started, history, now) for started in history.open.values())
    records += _end_what_is_over(ledger, now_ms, is_copy=is_copy)
    for commit_pointer, keys in history.changes:
        ledger.committed.add(commit_pointer, frozenset(keys))
    for transaction_id, keys in history.unseen.items():
        ledger.committed.add(last + 1, frozenset(keys))
        records.append(Seen(transaction_id, last + 1))
    # Pointers go on above the last one, and that may be ahead of the clock.
    reserved = reserve.due(now_ms, pointer=last)
    journal.append(*records, *reserved)
    reserve.extend(reserved)
    return ledger


def _entry(started: Started, history: History, now: Ended) -> OpenTransaction:
    """Makes the entry of a transaction that was open; the clock alone gives its time.

    If the clock was ahead when it began, it may be open for its whole length again, but
    not for all the time by which the clock was ahead.
    """
    left_ms = started.expires_ms - now.clock_ms
    length_ms = started.expires_ms - started.transaction_id // POINTERS_PER_MS
    if length_ms >= 0:  # otherwise ids are ahead of the clock, and tell nothing
        left_ms = min(left_ms, length_ms + AHEAD_MS)
    prepared = history.prepared.get(started.transaction_id)
    keys = frozenset(() if prepared is None else prepared.keys)
    return OpenTransaction(
        started.transaction_id,
        TransactionType.LONG if started.long else TransactionType.SHORT,
        started.expires_ms,
        started.outlives_process,
        Pointers(history.checkpoints.get(started.transaction_id, ())),
        changes=keys,
        refusal=UNCHECKED if prepared is None else None,
        stage=OPEN if prepared is None else PREPARED,
        reserved=keys,
        name=None if prepared is None else prepared.name,
        prepared=prepared,
        due_ms=now.elapsed_ms + left_ms if prepared is None else NO_POINTER,
    )


def _is_copy(history: History, place: bytes) -> bool:
    """Tells whether the journal was kept elsewhere before; it may go on there."""
    before = history.lives[-1].place if history.lives else NO_PLACE
    return NO_PLACE not in (before, place) and before != place


def _begin_life(
    ledger: Ledger, history: History, place: bytes, now_ms: int, *, is_copy: bool
) -> list[Record]:
    """Begins a life; returns the records that its first pointer waits for."""
    salt = EVERY if ledger.salt is None else ledger.salt
    life = new_life(ledger.next_pointer(now_ms), salt, place)
    ended = history.open.keys() - history.prepared.keys()
    known = [*parted(history, ended)] if is_copy else [*_nameless(history)]
    ledger.decisions = history.decisions.copy()
    lives = history.lives
    for record in (*known, life):
        if isinstance(record, Lived):
            lives = with_life(lives, record, reserved=history.reserved)
        else:
            ledger.decisions.add(record)
    ledger.lives = Lives(lives)
    return [*known, life]


def parted(history: History, ended: Iterable[int]) -> Iterator[Lived | Decided]:
    """Yields records for a copy, whose original may have gone on after it was made.

    What its journal does not name is not known to be lost. Transactions that were open
    have `ended` here, and nobody knows what became of them there.
    """
    lives = history.lives or [*_nameless(history)]
    if not lives:
        return
    latest = lives[-1]
    yield latest if latest.last else attrs.evolve(latest, last=history.highest)
    known = Lives(lives)
    for transaction_id in ended:
        checkpoints = history.checkpoints.get(transaction_id, ())
        for pointer in (transaction_id, *checkpoints):
            began_in = known.of(pointer, last=history.highest) or latest
            yield decided(pointer, began_in.life, Outcome.FORGOTTEN)


def _nameless(history: History) -> Iterator[Lived]:
    """Yields the life of a journal of an earlier version, if it is one."""
    if history.first and not history.lives:
        yield Lived(NAMELESS, history.first, history.reserved, EVERY, NO_PLACE)


def _end_what_is_over(ledger: Ledger, now_ms: int, *, is_copy: bool) -> list[Record]:
    over = [
        entry
        for entry in ledger.open.by_id.values()
        if entry.prepared is None
        and (is_copy or not entry.outlives_process or ledger.has_timed_out(entry))
    ]
    return [ledger.time_out(over, now_ms)] if over else []
