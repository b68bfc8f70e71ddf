"""The coordinators against their limits: `pytest -m benchmark -s`."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from coordinator.codec import encode
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from tests.benchmarks.measure import (
    Figure,
    fdatasyncs_per_second,
    in_turns,
    per_second,
    per_second_of_threads,
)
from tests.benchmarks.recipe_tephra import RecipeTephra

ROUNDS = 5
MANY = 50_000

pytestmark = pytest.mark.benchmark


def cycle(coordinator: Coordinator, thread: int = 0) -> Callable[[], None]:
    """Start, can_commit of one key and commit; every cycle has a key of its own."""
    numbers = count()

    def run() -> None:
        tx = coordinator.start_short()
        coordinator.can_commit(tx, [b"%d %d" % (thread, next(numbers))])
        coordinator.commit(tx)

    return run


def start_and_encode(coordinator: Coordinator) -> Callable[[], None]:
    def run() -> None:
        tx = coordinator.start_short()
        encode(tx)
        coordinator.abort(tx)

    return run


def seconds_each(work: Callable[[], object]) -> float:
    return 1 / per_second(work)


def with_many_invalid(coordinator: Coordinator) -> Coordinator:
    for _ in range(MANY - coordinator.invalid_size()):
        coordinator.invalidate(coordinator.start_short())
    return coordinator


@pytest.fixture
def memory() -> EmbeddedCoordinator:
    return EmbeddedCoordinator()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[EmbeddedCoordinator]:
    with EmbeddedCoordinator.open(tmp_path / "coordinator") as coordinator:
        yield coordinator


@pytest.mark.tephra
def test_in_memory_against_tephra_over_thrift(
    memory: EmbeddedCoordinator, tephra_thrift: Coordinator
) -> None:
    found = in_turns(
        ROUNDS,
        ours=lambda: per_second(cycle(memory)),
        tephra=lambda: per_second(cycle(tephra_thrift)),
    )
    assert Figure(
        "embedded, in memory, 1 thread",
        "cycles/s",
        found["ours"],
        found["tephra"],
        "Tephra over Thrift",
    ).report(at_least=8)


def test_durable_against_the_disk(durable: EmbeddedCoordinator, tmp_path: Path) -> None:
    found = in_turns(
        ROUNDS,
        disk=lambda: fdatasyncs_per_second(tmp_path),
        main=lambda: per_second(cycle(durable)),
        one=lambda: per_second_of_threads(1, lambda thread: cycle(durable, thread)),
        sixteen=lambda: per_second_of_threads(
            16, lambda thread: cycle(durable, thread)
        ),
    )
    disk = found["disk"]
    # An interrupt reaches the main thread only, which is why it lets another one write.
    main = Figure(
        "durable, the main thread", "cycles/s", found["main"], disk, "fdatasync/s"
    )
    one = Figure("durable, 1 thread", "cycles/s", found["one"], disk, "fdatasync/s")
    many = Figure(
        "durable, 16 threads", "cycles/s", found["sixteen"], disk, "fdatasync/s"
    )
    kept = [
        main.report(at_least=0.4),
        one.report(at_least=0.6),
        many.report(at_least=2.5),
    ]
    assert all(kept)


@pytest.mark.tephra
def test_fifty_thousand_invalid_against_tephra_over_thrift(
    memory: EmbeddedCoordinator, tephra_thrift: Coordinator
) -> None:
    with_many_invalid(memory)
    with_many_invalid(tephra_thrift)
    found = in_turns(
        ROUNDS,
        ours=lambda: seconds_each(start_and_encode(memory)),
        tephra=lambda: seconds_each(start_and_encode(tephra_thrift)),
    )
    tephra_thrift.truncate_invalid_tx(tephra_thrift.snapshot().invalids)
    assert Figure(
        f"start and encode with {MANY:,} invalid",
        "s",
        found["ours"],
        found["tephra"],
        "Tephra over Thrift",
    ).report(at_most=0.5)


def test_a_start_does_not_grow_with_the_invalid(memory: EmbeddedCoordinator) -> None:
    def start(coordinator: EmbeddedCoordinator) -> Callable[[], None]:
        return lambda: coordinator.abort(coordinator.start_short())

    many = EmbeddedCoordinator()
    with_many_invalid(many)
    found = in_turns(
        ROUNDS,
        many=lambda: seconds_each(start(many)),
        none=lambda: seconds_each(start(memory)),
    )
    assert Figure(
        f"start with {MANY:,} invalid", "s", found["many"], found["none"], "with none"
    ).report(at_most=1.25)


@pytest.mark.tephra
def test_tephra_against_the_bare_calls_of_py4j(
    tephra: Coordinator, tephra_thrift: Coordinator, tmp_path: Path
) -> None:
    with RecipeTephra(tmp_path) as recipe:
        found = in_turns(
            ROUNDS,
            recipe=lambda: per_second(recipe.cycle),
            py4j=lambda: per_second(cycle(tephra)),
            thrift=lambda: per_second_of_threads(
                8, lambda thread: cycle(tephra_thrift, thread)
            ),
        )
    over_py4j = Figure(
        "Tephra over py4j, 1 thread",
        "cycles/s",
        found["py4j"],
        found["recipe"],
        "bare calls of py4j",
    )
    over_thrift = Figure(
        "Tephra over Thrift, 8 threads",
        "cycles/s",
        found["thrift"],
        found["recipe"],
        "bare calls of py4j, 1 thread",
    )
    kept = [over_py4j.report(at_least=0.8), over_thrift.report(at_least=3)]
    assert all(kept)
