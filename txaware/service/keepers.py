"""Participants that keep rows of their own, and the pointers to keep for them."""

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from coordinator.interfaces import Coordinator
from coordinator.transaction import NO_POINTER, Transaction
from txaware.errors import (
    BadRequest,
    KeeperMissing,
    KeeperNotFound,
    NotAuthorized,
    StoreCorrupted,
)
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable
from txaware.model.keeper import (
    ELSEWHERE,
    HERE,
    KINDS,
    UNREGISTERED,
    Keeper,
    KeepsRows,
    checked_name,
    checked_report,
    checked_smallest,
    lower_bound,
    named_pointer,
)
from txaware.store.keys import KEEPER, UNWATCHED

log = logging.getLogger(__name__)

# So many that only took part have a row each; all others share one.
MOST_UNREGISTERED = 100
OTHERS = "(others)"
# So many known keepers are named in the error about an unknown one.
NAMED = 20
HOW_TO_GO_ON = (
    "register it (messaging.register_keeper), or forget it when its rows are gone "
    "(txaware transaction forget-keeper, messaging.forget_keeper)"
)


@attrs.frozen
class Kept:
    """The needs of keepers: no pointer from `bound` on may be forgotten.

    `bounds` is by name of keeper, and `unregistered` names keepers that nobody asks.
    """

    bounds: Mapping[str, int]
    unregistered: tuple[str, ...]

    @property
    def bound(self) -> int:
        """The least pointer that any keeper may hold; `NO_POINTER` without keepers."""
        return min(self.bounds.values(), default=NO_POINTER)

    def of_registered(self) -> "Kept":
        """Returns the same without participants that only took part."""
        registered = {
            n: b for n, b in self.bounds.items() if n not in self.unregistered
        }
        return Kept(registered, ())

    def names_below(self, pointer: int) -> list[str]:
        """Returns the keepers that may hold rows of a pointer."""
        return [name for name, bound in self.bounds.items() if bound <= pointer]


class Keepers:
    """The keepers of a store, each with a durable row; those of this process are asked.

    A participant with rows elsewhere that is not registered has a row too. All pointers
    that its rows may have are kept until it is registered or forgotten.
    """

    def __init__(
        self, table: OrderedTable, coordinator: Coordinator, clock_ms: ClockMs
    ) -> None:
        self._table = table
        self._coordinator = coordinator
        self._clock_ms = clock_ms
        self._lock = threading.RLock()
        self._live: dict[str, KeepsRows] = {}
        self._rows = {row.name: row for row in self._read()}
        value = table.get(UNWATCHED)
        # Up to this pointer, participants with rows elsewhere were not written down.
        self.unwatched = 0 if value is None else int.from_bytes(value, "big")

    def register(self, participant: KeepsRows) -> Keeper:
        """Has `prune` ask a participant of this process from now on."""
        name, bound = named_pointer(participant, self._coordinator)
        with self._lock:
            self._live[name] = participant
            return self._save(name, bound, HERE)

    def report(
        self,
        name: str,
        smallest_pointer: int | None,
        *,
        principal: str | None = None,
        is_operator: bool = True,
    ) -> Keeper:
        """Records what a keeper in another process says; nobody asks it again.

        Pointers are kept from that one on, or from the oldest open transaction on, as
        the keeper may write with that next. The keeper reports anew to raise the bound.
        """
        checked_report(name, smallest_pointer)
        bound = lower_bound(self._coordinator.snapshot(), smallest_pointer)
        with self._lock:
            row = self._rows.get(name)
            if name in self._live:
                raise BadRequest(
                    f"a keeper {name!r} is registered in the process that owns this "
                    f"data; another one needs a name of its own"
                )
            known = row is not None and row.kind == ELSEWHERE and row.principal
            if known and known != principal and not is_operator:
                raise NotAuthorized(
                    f"{principal} may not speak for keeper {name!r}: somebody else "
                    f"registered it"
                )
            return self._save(name, bound, ELSEWHERE, principal)

    def forget(self, name: str) -> None:
        """Removes a keeper whose rows are gone."""
        checked_name(name)
        with self._lock:
            if name not in self._rows:
                known = ", ".join(sorted(self._rows)[:NAMED]) or "none"
                raise KeeperNotFound(
                    f"there is no keeper {name!r:.100}; those known: {known:.1000}"
                )
            self._table.submit([(_key(name), None)])()
            del self._rows[name]
            self._live.pop(name, None)

    def all(self) -> list[Keeper]:
        """Returns all keepers, by name."""
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda row: row.name)
            return [attrs.evolve(row, answers=self._answers(row)) for row in rows]

    def took_part(self, transaction_id: int, names: Sequence[str]) -> None:
        """Writes down participants that are about to write elsewhere, if not yet known.

        They may write with any transaction that is open now.
        """
        for name in names:
            if name not in self._rows and OTHERS not in self._rows:
                self._note_unregistered(name, transaction_id)

    def ask(self) -> Kept:
        """Asks all keepers; raises `KeeperMissing` where one does not answer.

        A row that is written later can only be of a transaction that was open before.
        """
        with self._lock:
            rows, live = dict(self._rows), dict(self._live)
        missing = [n for n, row in rows.items() if row.kind == HERE and n not in live]
        if missing:
            raise _missing(missing)
        snapshot = self._coordinator.snapshot() if live else None
        bounds = {name: row.smallest_pointer for name, row in rows.items()}
        for name, participant in live.items():
            if snapshot is not None:
                bounds[name] = self._smallest_of(name, participant, snapshot)
        return Kept(bounds, _unregistered(rows))

    def least_needed(self) -> int:
        """Returns the least pointer that any keeper may hold.

        Where a keeper does not answer, the rows of all tell it; they hold for good.
        """
        try:
            return self.ask().bound
        except KeeperMissing:
            with self._lock:
                rows = list(self._rows.values())
            return min([row.smallest_pointer for row in rows], default=NO_POINTER)

    def _smallest_of(
        self, name: str, participant: KeepsRows, snapshot: Transaction
    ) -> int:
        try:
            smallest = checked_smallest(name, participant)
        except Exception as error:
            raise KeeperMissing(
                f"keeper {name!r} could not say what it still needs: {error!r}; "
                f"nothing was forgotten"
            ) from error
        bound = lower_bound(snapshot, smallest)
        with self._lock:
            if name in self._rows and self._rows[name].smallest_pointer != bound:
                self._save(name, bound, HERE)
        # The answer itself is exact; the row also has to cover what it writes later.
        return NO_POINTER if smallest is None else smallest

    def _note_unregistered(self, name: str, transaction_id: int) -> None:
        snapshot = self._coordinator.snapshot()
        # After an earlier version, which wrote down nobody, it may have any pointer.
        bound = 1 if self.unwatched else lower_bound(snapshot, transaction_id)
        with self._lock:
            if name in self._rows:
                return
            if len(_unregistered(self._rows)) >= MOST_UNREGISTERED:
                name = OTHERS
            self._save(name, bound, UNREGISTERED)
        log.info(
            "participant %s keeps rows elsewhere and is not registered: invalid "
            "transactions from %s on are not forgotten; %s",
            *(name, bound, HOW_TO_GO_ON),
        )

    def _answers(self, row: Keeper) -> bool:
        return row.kind != HERE or row.name in self._live

    def _save(
        self, name: str, bound: int, kind: str, principal: str | None = None
    ) -> Keeper:
        """Saves a keeper's row; on disk when it returns. Called under the lock."""
        known = self._rows.get(name)
        is_new = known is None or known.kind == UNREGISTERED != kind
        since_ms = self._clock_ms() if known is None or is_new else known.since_ms
        row = Keeper(name, since_ms, bound, kind, True, principal)
        self._table.submit([(_key(name), _value(row))])()
        self._rows[name] = row
        return row

    def _read(self) -> Iterable[Keeper]:
        start = b""
        while rows := self._table.scan(KEEPER, start=start):
            for key, value in rows:
                yield read_keeper(key, value)
            start = rows[-1][0] + b"\0"


def read_keeper(key: bytes, value: bytes) -> Keeper:
    """Reads a keeper's row; the key comes without the table's byte."""
    try:
        fields: dict[str, Any] = json.loads(value)
        principal = fields.get("principal")
        row = Keeper(
            checked_name(key.decode()),
            int(fields["since_ms"]),
            int(fields["smallest_pointer"]),
            str(fields["kind"]),
            False,
            None if principal is None else str(principal),
        )
        if row.kind not in KINDS:
            raise ValueError(f"{row.kind!r} is no kind of keeper")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise StoreCorrupted(
            f"the row of keeper {key!r:.100} cannot be read: {error}; txaware check "
            f"tells more"
        ) from error
    return row


def _key(name: str) -> bytes:
    return KEEPER + name.encode()


def _value(row: Keeper) -> bytes:
    fields = {
        "since_ms": row.since_ms,
        "smallest_pointer": row.smallest_pointer,
        "kind": row.kind,
        "principal": row.principal,
    }
    return json.dumps(fields).encode()


def _unregistered(rows: Mapping[str, Keeper]) -> tuple[str, ...]:
    return tuple(sorted(n for n, row in rows.items() if row.kind == UNREGISTERED))


def _missing(names: Sequence[str]) -> KeeperMissing:
    listed = ", ".join(repr(name) for name in names)
    return KeeperMissing(
        f"keeper {listed} does not answer: nobody registered it in the process that "
        f"owns this data since that was started. Nothing was forgotten; {HOW_TO_GO_ON}"
    )
