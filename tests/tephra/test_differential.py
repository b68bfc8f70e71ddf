"""Random histories on the embedded coordinator and on the real Tephra, side by side."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionRefused
from coordinator.tephra import TephraCoordinator
from coordinator.tephra.calls import TephraCalls
from coordinator.tephra.thrift_calls import ThriftCalls
from coordinator.tephra.thrift_pool import ThriftPool
from coordinator.transaction import NO_POINTER, Transaction
from tests.support.differences import WANTED, Difference
from tests.support.doubles import Clock

pytestmark = pytest.mark.tephra

HISTORY_STEPS = 40
SHORT_OPERATIONS = 2_500
LONG_OPERATIONS = 10_000
SOAK_OPERATIONS = 100_000
FUTURE = 10**12

CALLS = (
    *["short"] * 4,
    *["can_commit"] * 5,
    *["commit"] * 5,
    *["long", "abort", "invalidate", "checkpoint", "checkpoint", "truncate"],
    "truncate_all",
)


class Side:
    """One coordinator, with the transactions of a history by name."""

    def __init__(self) -> None:
        self.first: dict[str, Transaction] = {}
        self.latest: dict[str, Transaction] = {}

    def do(self, call: str, name: str, keys: Iterable[bytes] = ()) -> str:
        """Makes one call and answers how it ended."""
        try:
            answer = self._do(call, name, frozenset(keys))
        except TransactionRefused as error:
            return type(error).__name__
        return "ok" if answer is None else str(answer)

    def _do(self, call: str, name: str, keys: frozenset[bytes]) -> object:
        if call in ("short", "long"):
            self.first[name] = self.latest[name] = self.start(call)
            return None
        tx = self.latest.get(name, Transaction(self.last + FUTURE, 0))
        if call == "checkpoint":
            self.latest[name] = self.checkpoint(tx)
            return None
        if call == "state":
            return state(self.snapshot(), tx.transaction_id)
        return self.end(call, tx, keys)

    @property
    def last(self) -> int:
        """The greatest id of this history."""
        return max((tx.transaction_id for tx in self.first.values()), default=1)

    def pointers(self) -> dict[str, int]:
        """Every pointer of the history under a name that both sides use."""
        return {
            f"{name}{chr(39) * number}": pointer
            for name, tx in self.latest.items()
            for number, pointer in enumerate(tx.pointers)
        }

    def seen(self, tx: Transaction) -> dict[str, object]:
        """What a snapshot says of this history, in names."""
        names = {pointer: name for name, pointer in self.pointers().items()}
        return {
            "visible": {name for p, name in names.items() if tx.is_visible(p)},
            "invalid": [names[p] for p in tx.invalids if p in names],
            "in progress": [names.get(p, "?") for p in tx.in_progress],
            "first short": (
                "none"
                if tx.first_short_in_progress == NO_POINTER
                else names.get(tx.first_short_in_progress, "?")
            ),
            "type": tx.type,
        }

    def start(self, kind: str) -> Transaction:
        raise NotImplementedError

    def checkpoint(self, tx: Transaction) -> Transaction:
        raise NotImplementedError

    def snapshot(self) -> Transaction:
        raise NotImplementedError

    def end(self, call: str, tx: Transaction, keys: frozenset[bytes]) -> object:
        raise NotImplementedError


class Embedded(Side):
    """Ours, on a clock that stands still."""

    def __init__(self, *, settle_grace_s: float = 0) -> None:
        super().__init__()
        self.clock = Clock()
        self.inner = EmbeddedCoordinator(
            clock_ms=self.clock, settle_grace_s=settle_grace_s
        )

    def start(self, kind: str) -> Transaction:
        return self.inner.start_short() if kind == "short" else self.inner.start_long()

    def checkpoint(self, tx: Transaction) -> Transaction:
        return self.inner.checkpoint(tx)

    def snapshot(self) -> Transaction:
        """As Tephra's has to be made: its abort moves the read pointer."""
        tx = self.inner.start_short()
        self.inner.abort(tx)
        return tx

    def end(self, call: str, tx: Transaction, keys: frozenset[bytes]) -> object:
        calls: dict[str, Callable[[], object]] = {
            "can_commit": lambda: self.inner.can_commit(tx, keys),
            "commit": lambda: self.inner.commit(tx),
            "abort": lambda: self.inner.abort(tx),
            "invalidate": lambda: self.inner.invalidate(tx),
            "truncate": lambda: self.inner.truncate_invalid_tx([tx.transaction_id]),
            "truncate_all": lambda: self.inner.truncate_invalid_tx_before(
                self.clock.now_ms + 1000
            ),
        }
        return calls[call]()


class Tephra(Side):
    """The real one, with nothing of ours in between but the wire."""

    def __init__(self, calls: TephraCalls) -> None:
        super().__init__()
        self.inner = calls

    def start(self, kind: str) -> Transaction:
        return (
            self.inner.start_short(None) if kind == "short" else self.inner.start_long()
        )

    def checkpoint(self, tx: Transaction) -> Transaction:
        return self.inner.checkpoint(tx)

    def snapshot(self) -> Transaction:
        tx = self.inner.start_short(None)
        self.inner.abort(tx)
        return tx

    def end(self, call: str, tx: Transaction, keys: frozenset[bytes]) -> object:
        calls: dict[str, Callable[[], object]] = {
            "can_commit": lambda: self.inner.can_commit(tx.transaction_id, keys),
            "commit": lambda: self.inner.commit(tx.transaction_id),
            "abort": lambda: self.inner.abort(tx),
            "invalidate": lambda: self.inner.invalidate(tx.transaction_id),
            "truncate": lambda: self.inner.truncate_invalid_tx([tx.transaction_id]),
            "truncate_all": lambda: self.inner.truncate_invalid_tx_before(
                max(self.snapshot().start_ms, self.last // 10**6) + 1000
            ),
        }
        return calls[call]()

    def forget(self) -> None:
        """Leaves nothing of this history for the next one."""
        pointers = list(self.pointers().values())
        for tx in self.first.values():
            self.inner.invalidate(tx.transaction_id)
        self.inner.truncate_invalid_tx(pointers)


def state(snapshot: Transaction, pointer: int) -> str:
    """What a snapshot says of one pointer."""
    if pointer in snapshot.invalids:
        return "invalid"
    if pointer in snapshot.in_progress:
        return "in progress"
    return "visible" if snapshot.is_visible(pointer) else "not visible"


@pytest.fixture(scope="module")
def raw_tephra(
    java: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TephraCalls]:
    """A Tephra that nothing else uses."""
    with TephraCoordinator(tmp_path_factory.mktemp("raw")) as coordinator:
        pool = ThriftPool(coordinator.serve_thrift)
        yield ThriftCalls(pool)
        pool.close()


class Pair:
    """Both sides, which a history takes step by step."""

    def __init__(self, tephra: TephraCalls) -> None:
        self.ours, self.tephra = Embedded(), Tephra(tephra)
        self._refused: set[str] = set()
        self._invalid: set[str] = set()
        self._kinds: dict[str, str] = {}
        self.operations = 0

    def step(self, call: str, place: int, keys: Iterable[bytes]) -> None:
        """One call on both sides, and then what it can have changed compared."""
        if call in ("short", "long"):
            name = f"t{len(self._kinds)}"
            self._kinds[name] = call
        elif not self._kinds:
            return
        else:
            name = f"t{place % len(self._kinds)}"
        if self._is_wanted(call, name):
            return
        ours = self.ours.do(call, name, keys)
        theirs = self.tephra.do(call, name, keys)
        assert ours == theirs, f"{call} {name}"
        self._remember(call, name, ours)
        self.operations += 1
        assert self.ours.seen(self.ours.snapshot()) == self.tephra.seen(
            self.tephra.snapshot()
        )
        self._compare(name)

    def _is_wanted(self, call: str, name: str) -> bool:
        """The rows of `differences.py`, by which the two sides would drift apart."""
        if call == "commit" and name in self._refused:
            assert self.ours.do(call, name) in (
                "TransactionRefused",
                "TransactionNotInProgress",
            )
            return True
        return call == "abort" and name in self._invalid

    def _remember(self, call: str, name: str, outcome: str) -> None:
        if call in ("can_commit", "commit"):
            self._refused.discard(name)
            if outcome == "TransactionConflict":
                self._refused.add(name)
        if outcome == "True" and call == "invalidate":
            self._invalid.add(name)
        if call == "abort" and self._kinds[name] == "long":
            self._invalid.add(name)

    def end(self) -> None:
        """Compares what every transaction sees of all that came after it, too."""
        for name in self.ours.latest:
            self._compare(name)

    def _compare(self, name: str) -> None:
        ours, theirs = self.ours.latest.get(name), self.tephra.latest.get(name)
        assert (ours is None) == (theirs is None), name
        if ours is not None and theirs is not None:
            assert self.ours.seen(ours) == self.tephra.seen(theirs), name


steps = st.tuples(
    st.sampled_from(CALLS),
    st.integers(0, 30),
    st.frozensets(st.sampled_from([b"a", b"b", b"c"]), max_size=2),
)


def test_thousands_of_random_operations_end_alike(
    raw_tephra: TephraCalls, pytestconfig: pytest.Config
) -> None:
    is_long = pytestconfig.getoption("--long")
    wanted = LONG_OPERATIONS if is_long else SHORT_OPERATIONS
    operations = 0

    @settings(
        max_examples=wanted // 20,
        phases=(Phase.generate,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(steps, min_size=HISTORY_STEPS, max_size=HISTORY_STEPS))
    def histories(history: list[tuple[str, int, frozenset[bytes]]]) -> None:
        nonlocal operations
        pair = Pair(raw_tephra)
        try:
            for call, place, keys in history:
                pair.step(call, place, keys)
            pair.end()
        finally:
            operations += pair.operations
            pair.tephra.forget()

    histories()
    assert operations >= wanted


@pytest.mark.soak
def test_long_random_histories_end_alike(raw_tephra: TephraCalls) -> None:
    seed = random.randrange(2**32)
    print(f"\nseed {seed}")
    chance, operations = random.Random(seed), 0
    while operations < SOAK_OPERATIONS:
        pair = Pair(raw_tephra)
        for _ in range(4 * HISTORY_STEPS):
            keys = chance.sample([b"a", b"b", b"c", b"d"], chance.randrange(3))
            newest = max(0, len(pair.tephra.first) - 8)
            pair.step(chance.choice(CALLS), newest + chance.randrange(8), keys)
        pair.end()
        operations += pair.operations
        pair.tephra.forget()
    print(f"{operations:,} operations compared")


@pytest.mark.parametrize("difference", WANTED, ids=lambda row: row.name)
def test_every_wanted_difference_is_still_there(
    raw_tephra: TephraCalls, difference: Difference
) -> None:
    ours, tephra = Embedded(settle_grace_s=86_400), Tephra(raw_tephra)
    *before, last = difference.steps
    for step in before:
        assert run(ours, step) == run(tephra, step), step
    assert run(ours, last) == difference.ours
    assert run(tephra, last) == difference.tephra
    assert difference.why
    tephra.forget()


def run(side: Side, step: str) -> str:
    """One line of a difference."""
    call, name, *keys = step.split()
    if call == "abort_first":
        side.latest[name], latest = side.first[name], side.latest[name]
        answer = side.do("abort", name)
        side.latest[name] = latest
        return answer
    if call.endswith("_future"):
        return in_the_future(side, call.removesuffix("_future"), name)
    if name.endswith("'"):
        return state(side.snapshot(), side.pointers()[name])
    return side.do(call, name, [key.encode() for key in keys])


def in_the_future(side: Side, call: str, name: str) -> str:
    """A call about a pointer that was not given out; `see` looks whether it shows."""
    pointer = side.last + FUTURE
    if call == "see":
        return state(side.latest[name], side.first["a"].transaction_id + FUTURE // 2)
    answer: Any = side.do(call, f"nobody {pointer}")
    return str(answer)
