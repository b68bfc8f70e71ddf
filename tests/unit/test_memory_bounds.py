"""What clients make a server remember has a bound, or goes once nobody needs it."""

import gc
from weakref import ref

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from tests.support.doubles import Clock
from txaware.auth import Principal
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.server.admission import TooManyOpen
from txaware.server.owners import Owners
from txaware.service.monitor.attention import RecentCounts
from txaware.service.producers.transactional_holders import Holders
from txaware.service.read import scan_cache
from txaware.service.read.scan_cache import ScanCache

pytestmark = pytest.mark.in_process

ANN, BOB = (Principal(name=name, rules=()) for name in ("ann", "bob"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(clock: Clock) -> EmbeddedCoordinator:
    return EmbeddedCoordinator(clock_ms=clock, settle_grace_s=60)


def owners_of(coordinator: Coordinator, *, most: int) -> Owners:
    settings = Settings(
        max_invalid_transactions_per_principal=most,
        max_open_transactions_per_principal=20,
    )
    return Owners(coordinator, settings, remembered=10)


def begun(coordinator: EmbeddedCoordinator, owners: Owners, who: Principal) -> int:
    """A transaction of a principal, if it may begin one more."""
    if not owners.take_place(who):
        owners.recount(who)
        if not owners.take_place(who):
            raise owners.too_many(who)
    pointer = coordinator.start_short(5).transaction_id
    owners.began(pointer, who)
    owners.give_back(who)
    return pointer


# ---- transactions that nobody ends
def test_a_principal_abandons_so_many_transactions_and_no_more(
    coordinator: EmbeddedCoordinator, clock: Clock
) -> None:
    owners = owners_of(coordinator, most=30)
    for _ in range(3):
        for _ in range(10):
            begun(coordinator, owners, ANN)
        clock.advance_s(6)
        assert coordinator.invalid_size()  # by then they have timed out
    with pytest.raises(TooManyOpen, match="max_invalid_transactions_per_principal"):
        begun(coordinator, owners, ANN)
    assert owners.refusals() == {"timeout": 0, "long": 0, "open": 0, "invalid": 1}
    begun(coordinator, owners, BOB)
    clock.advance_s(61)
    pointers = coordinator.snapshot().invalids
    assert coordinator.truncate_invalid_tx(pointers[:30])
    begun(coordinator, owners, ANN)


def test_what_is_invalidated_counts_as_what_times_out_and_commits_do_not(
    coordinator: EmbeddedCoordinator,
) -> None:
    owners = owners_of(coordinator, most=3)
    for _ in range(3):
        pointer = begun(coordinator, owners, ANN)
        coordinator.invalidate(pointer)
        owners.ended(pointer)
        committed = coordinator.start_short()
        owners.began(committed.transaction_id, BOB)
        coordinator.commit(committed)
        owners.ended(committed.transaction_id)
    with pytest.raises(TooManyOpen):
        begun(coordinator, owners, ANN)
    begun(coordinator, owners, BOB)


def test_one_that_is_invalid_before_its_owner_is_known_counts(
    coordinator: EmbeddedCoordinator,
) -> None:
    owners = owners_of(coordinator, most=1)
    pointer = coordinator.start_short().transaction_id
    coordinator.invalidate(pointer)
    owners.began(pointer, ANN)
    with pytest.raises(TooManyOpen):
        begun(coordinator, owners, ANN)


def test_all_stores_of_a_coordinator_count_what_was_begun_at_them(
    coordinator: EmbeddedCoordinator, clock: Clock
) -> None:
    both = [owners_of(coordinator, most=1) for _ in range(2)]
    for owners in both:
        begun(coordinator, owners, ANN)
    clock.advance_s(6)
    assert coordinator.invalid_size() == 2
    for owners in both:
        with pytest.raises(TooManyOpen):
            begun(coordinator, owners, ANN)
    clock.advance_s(61)
    assert coordinator.truncate_invalid_tx(coordinator.snapshot().invalids)
    for owners in both:
        begun(coordinator, owners, ANN)
    del both, owners
    gc.collect()
    assert not coordinator._ledger.invalid.watchers  # of stores that are closed


def test_the_owner_of_what_is_invalid_is_known_as_long_as_that_is_remembered(
    coordinator: EmbeddedCoordinator, clock: Clock
) -> None:
    owners = owners_of(coordinator, most=30)
    invalid = begun(coordinator, owners, ANN)
    coordinator.invalidate(invalid)
    for _ in range(100):
        tx = coordinator.start_short()
        owners.began(tx.transaction_id, ANN)
        coordinator.commit(tx)
    assert owners.may_abort((invalid,), ANN)
    assert len(owners._owners) == len(owners._heard_ms) == 11
    clock.advance_s(61)
    assert coordinator.truncate_invalid_tx([invalid])
    assert not owners.may_abort((invalid,), ANN)
    assert len(owners._owners) == len(owners._heard_ms) == 10


def test_a_transaction_has_no_more_pointers_than_its_principal_may_have(
    coordinator: EmbeddedCoordinator,
) -> None:
    owners = owners_of(coordinator, most=30)
    tx = coordinator.start_short()
    owners.began(tx.transaction_id, ANN)
    for _ in range(29):
        owners.require_room(ANN)
        tx = coordinator.checkpoint(tx)
        owners.given([tx.write_pointer], ANN)
    with pytest.raises(TooManyOpen, match="30 pointers"):
        owners.require_room(ANN)
    owners.require_room(BOB)
    coordinator.commit(tx)
    owners.given((), ANN)
    owners.require_room(ANN)


# ---- names that nobody has any more
def test_a_transactional_id_without_a_producer_is_forgotten_with_its_last_user() -> (
    None
):
    holders = Holders()
    first = holders.of("a")
    assert holders.of("a") is first
    assert holders.known("a") is None
    is_there = ref(first)
    del first
    gc.collect()
    assert is_there() is None


def test_one_with_a_producer_stays_until_that_is_removed() -> None:
    holders = Holders()
    holders.keep("a", holders.of("a"))
    gc.collect()
    kept = holders.known("a")
    assert kept is not None
    assert holders.of("a") is kept
    holders.let_go("a")
    assert holders.known("a") is None
    assert holders.of("a") is kept  # who waits for its lock has no other one
    is_there = ref(kept)
    del kept
    gc.collect()
    assert is_there() is None


def test_topics_that_are_gone_share_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "MOST_VERSIONS", 3)
    cache = ScanCache(1_000_000)
    seen = {bytes([n]): cache.version(bytes([n])) for n in range(9)}
    for prefix in seen:
        cache.drop(prefix)
    assert len(cache._versions) <= 3
    for prefix, version in seen.items():
        assert cache.version(prefix) != version  # what was read before is outdated
    latest = cache.version(b"other")
    cache.drop(max(seen))
    assert cache.version(b"other") == latest


def test_counts_that_nobody_tells_any_more_are_forgotten() -> None:
    counts = RecentCounts(system_clock_ms())
    for hour in range(5):
        counts.rise(f"queue {hour}", 1, hour)
    counts.forget_before(3)
    assert counts._kept.keys() == {"queue 3", "queue 4"}
