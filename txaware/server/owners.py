"""Owners of transactions: nobody else ends these or writes in them."""

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import attrs

from coordinator.interfaces import Coordinator
from coordinator.optional_ports import in_process
from coordinator.transaction_status import OPEN, standings
from txaware.auth import ANYBODY, Principal
from txaware.errors import InvalidTransactionTimeout, NotAuthorized
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.settings import Settings
from txaware.server.admission import TooManyOpen

# For each principal: a flood of one does not push out the owners of others'
# transactions.
REMEMBERED = 100_000


T = TypeVar("T", bound=Any)


class ClientLine(Protocol):
    """A connection of a client, or a stream of it."""

    @property
    def connection(self) -> "ClientLine":
        """The connection as a whole."""

    @property
    def is_closed(self) -> bool:
        """True when nothing can be sent any more."""

    @property
    def host_and_port(self) -> str | None:
        """The address of the client."""


@attrs.frozen
class TransactionOwner:
    """The principal that began a transaction, by name, and its client's HOST:PORT.

    `line` leads to the connection that it was begun over.
    """

    name: str
    address: str | None
    line: "weakref.ref[ClientLine] | None" = attrs.field(default=None, eq=False)

    @property
    def is_there(self) -> bool:
        """True when that connection is still open, and so surely the client there."""
        line = None if self.line is None else self.line()
        return line is not None and not line.is_closed


class Owners:
    """Principals by transaction; pointers are times, which anybody could guess.

    All servers of a store share one. A transaction that the program itself began is
    nobody's on the network. The owner of one that was begun before a restart, or
    elsewhere, is not known here: any principal that may use transactions may go on with
    it, and it is not counted.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        settings: Settings | None = None,
        *,
        remembered: int = REMEMBERED,
        clock_ms: ClockMs = system_clock_ms,
    ) -> None:
        self._clock_ms = clock_ms
        self._coordinator = coordinator
        settings = settings or Settings()
        self._most_open = settings.max_open_transactions_per_principal
        self._most_invalid = settings.max_invalid_transactions_per_principal
        self.longest_timeout_s = max(
            settings.max_transaction_timeout_s, settings.transaction_timeout_s
        )
        here = in_process(coordinator)
        self._barrier = None if here is None else here.barrier
        self._remembered = remembered
        self._lock = threading.Lock()
        self._owners: dict[int, TransactionOwner] = {}
        self._heard_ms: dict[int, int] = {}
        self._by_name: dict[str, OrderedDict[int, None]] = {}
        # Of each principal: what it began and has not ended, and what it begins now.
        self._open: dict[str, set[int]] = {}
        self._beginning: Counter[str] = Counter()
        # What is invalid is kept apart, and as long as the coordinator remembers it.
        self._invalid: dict[str, set[int]] = {}
        self._refused = Counter(timeout=0, long=0, open=0, invalid=0)
        if self._barrier is not None:
            self._barrier.watch_invalid(self)

    def refusals(self) -> Mapping[str, int]:
        """Returns how many transactions were not begun, by reason."""
        with self._lock:
            return dict(self._refused)

    def check_length(
        self, principal: Principal, *, is_long: bool, timeout_s: float
    ) -> None:
        """Raises where rules and settings do not allow such a long transaction."""
        if is_long and not principal.may_use_long_transactions:
            self._count("long")
            raise NotAuthorized(
                f"{principal.name} may not begin a long transaction: no rule gives it "
                f"long = true"
            )
        if timeout_s > self.longest_timeout_s:
            self._count("timeout")
            raise InvalidTransactionTimeout(
                f"a time-out of {timeout_s:,.10g} s is too long: over the network a "
                f"short transaction may take {self.longest_timeout_s:,.10g} s at most "
                f"(max_transaction_timeout_s); what takes longer is a long one"
            )

    def take_place(self, principal: Principal) -> bool:
        """Keeps a place for one more until `give_back`; False where there is none."""
        most, name = self._most_open, principal.name
        with self._lock:
            found = self._open.setdefault(name, set())
            if len(found) + self._beginning[name] >= most:
                return False
            if len(self._invalid.get(name, ())) >= self._most_invalid:
                return False
            self._beginning[name] += 1
            return True

    def give_back(self, principal: Principal) -> None:
        """Gives the place back: the transaction was begun by now, or was not."""
        with self._lock:
            self._beginning[principal.name] -= 1

    def recount(self, principal: Principal) -> None:
        """Finds out which of the principal's transactions are still open; may wait."""
        with self._lock:
            believed = set(self._open.get(principal.name, ()))
        found = {one.transaction_id for one in standings(self._coordinator, OPEN)}
        with self._lock:
            self._open[principal.name] -= believed - found

    def too_many(self, principal: Principal) -> TooManyOpen:
        """Counts a refusal, and returns its error."""
        name = principal.name
        with self._lock:
            invalid = len(self._invalid.get(name, ()))
        if invalid >= self._most_invalid:
            self._count("invalid")
            return TooManyOpen(
                f"of the transactions of {name}, {invalid:,} timed out or were "
                f"invalidated, as many as may be remembered "
                f"(max_invalid_transactions_per_principal): they are forgotten "
                f"{self._coordinator.settle_grace_s:,.10g} s after their end"
            )
        self._count("open")
        return TooManyOpen(
            f"{name} has as many transactions open as it may have at once, "
            f"{self._most_open:,} (max_open_transactions_per_principal): end some of "
            f"them, or wait until they time out"
        )

    def began(
        self, pointer: int, principal: Principal, line: ClientLine | None = None
    ) -> None:
        """Notes who began a transaction, which counts until it is `ended`."""
        self.given((pointer,), principal, line)
        with self._lock:
            self._open.setdefault(principal.name, set()).add(pointer)
        barrier = self._barrier
        if barrier is None or barrier.is_open(pointer):
            return
        if barrier.is_invalid(pointer):  # since before anybody knew whose it is
            self.became_invalid((pointer,))

    def require_room(self, principal: Principal) -> None:
        """Raises where all that is remembered of a principal is open: it has no end."""
        own = self._by_name.get(principal.name, ())
        if len(own) >= self._remembered + self._most_open:
            self._count("open")
            raise TooManyOpen(
                f"the transactions of {principal.name} have {len(own):,} pointers, as "
                f"many as they may have at once: end some of them"
            )

    def became_invalid(self, pointers: Iterable[int]) -> None:
        """Keeps whose these are, and counts them, as long as they are remembered."""
        with self._lock:
            for pointer in pointers:
                owner = self._owners.get(pointer)
                if owner is not None:
                    self._by_name[owner.name].pop(pointer, None)
                    self._invalid.setdefault(owner.name, set()).add(pointer)

    def were_forgotten(self, pointers: Iterable[int]) -> None:
        """Counts them no more, and forgets whose they were."""
        with self._lock:
            for pointer in pointers:
                owner = self._owners.pop(pointer, None)
                self._heard_ms.pop(pointer, None)
                if owner is not None:
                    self._invalid.get(owner.name, set()).discard(pointer)

    def ended(self, pointer: int) -> None:
        """Notes that a transaction is over, whoever asked for its end."""
        with self._lock:
            owner = self._owners.get(pointer)
            if owner is not None:
                self._open.get(owner.name, set()).discard(pointer)

    def enrich(self, pointer: int, found: T) -> T:
        """Returns a report with who began its transaction, and whether they have it."""
        owner = self._owners.get(pointer)
        if owner is None:
            return found
        return attrs.evolve(
            found,
            principal=owner.name,
            address=owner.address,
            is_held=owner.is_there,
            heard_ms=self._heard_ms.get(pointer),
        )

    def given(
        self,
        pointers: Iterable[int],
        principal: Principal,
        line: ClientLine | None = None,
    ) -> None:
        """Notes whose these pointers are: those of transactions, and of checkpoints."""
        with self._lock:
            owner = (
                TransactionOwner(principal.name, None)
                if line is None
                else TransactionOwner(
                    principal.name, line.host_and_port, weakref.ref(line.connection)
                )
            )
            own = self._by_name.setdefault(principal.name, OrderedDict())
            for pointer in pointers:
                self._owners[pointer] = owner
                self._heard_ms[pointer] = self._clock_ms()
                own[pointer] = None
            for _ in range(len(own) - self._remembered):
                oldest, _ = own.popitem(last=False)
                if self._barrier is not None and self._barrier.is_open(oldest):
                    own[oldest] = None  # its owner still has to end it
                else:
                    self._owners.pop(oldest, None)
                    self._heard_ms.pop(oldest, None)

    def used(self, pointers: Iterable[int], principal: Principal) -> None:
        """Checks pointers as `check` does, and notes that their owner uses them now."""
        self.check(pointers, principal)
        for pointer in pointers:
            if pointer in self._heard_ms and self._name_of(pointer) == principal.name:
                self._heard_ms[pointer] = self._clock_ms()

    def check(self, pointers: Iterable[int], principal: Principal) -> None:
        """Raises where somebody else began one of them; operators may end any."""
        if not principal.is_operator:
            self.check_named(pointers, principal.name)

    def check_named(self, pointers: Iterable[int], principal: str) -> None:
        """Raises where another than the principal of that name began one of them."""
        for pointer in pointers:
            name = self._name_of(pointer)
            if name == principal:
                continue
            if name is not None or self._began_here(pointer):
                raise NotAuthorized(
                    f"{principal} may not use transaction {pointer}: somebody else "
                    f"began it"
                )

    def may_abort(self, pointers: Iterable[int], principal: Principal) -> bool:
        """Tells whether the principal surely began all, and so knows all is undone.

        Without tokens that is taken for granted.
        """
        if principal is ANYBODY:
            return True
        return all(self._name_of(pointer) == principal.name for pointer in pointers)

    def _count(self, reason: str) -> None:
        with self._lock:
            self._refused[reason] += 1

    def _name_of(self, pointer: int) -> str | None:
        owner = self._owners.get(pointer)
        return None if owner is None else owner.name

    def _began_here(self, pointer: int) -> bool:
        return self._barrier is not None and self._barrier.began_here(pointer)
