"""Memory for bodies: what has come counts, by shares, and what stalls makes room."""

import pytest

from txaware.model.settings import Settings
from txaware.server.admission import FLOW_BYTES, STALL_S, Admission, Full, Memory

LIMIT, SHARE = 100_000, 60_000


class Bodies:
    """Bodies of one server, and its clock."""

    def __init__(self, **settings: int) -> None:
        self.now_s = 0.0
        self.stopped: list[str] = []
        limits = {"body_memory_bytes": LIMIT, "body_share_bytes": SHARE} | settings
        self.admission = Admission(Settings(**limits), lambda: self.now_s)  # type: ignore[arg-type]

    def of(self, holder: str, name: str = "", *, more: bool = False) -> Memory:
        memory = Memory(self.admission, lambda: self.stopped.append(name))
        memory.holder = holder
        if more:
            memory.expect_more()
        return memory


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


def test_what_came_counts_until_it_is_given_back(bodies: Bodies) -> None:
    first, second = bodies.of("ann"), bodies.of("bob")
    first.take(SHARE)
    second.take(LIMIT - SHARE)
    with pytest.raises(Full, match=f"bodies of {SHARE} bytes are in memory"):
        second.take(1)
    first.give_back()
    first.give_back()
    second.take(1)
    second.give_back()
    assert bodies.admission.body_bytes == 0
    assert not bodies.admission._of_holders


def test_a_holder_has_its_share_and_leaves_the_rest_to_others(bodies: Bodies) -> None:
    bodies.of("ann").take(SHARE)
    with pytest.raises(Full, match="from ann are in memory already"):
        bodies.of("ann").take(1)
    bodies.of("bob").take(LIMIT - SHARE)


def test_a_body_that_is_alone_may_be_larger_than_all(bodies: Bodies) -> None:
    memory = bodies.of("ann")
    memory.take(SHARE + 1)
    memory.take(LIMIT)


def test_the_share_is_half_unless_something_is_said() -> None:
    bodies = Bodies(body_share_bytes=0)
    bodies.of("ann").take(LIMIT // 2)
    with pytest.raises(Full):
        bodies.of("ann").take(1)


def test_a_body_that_stalls_gives_its_place_up_once_others_need_it(
    bodies: Bodies,
) -> None:
    slow = bodies.of("ann", "slow", more=True)
    slow.came(SHARE)
    bodies.now_s = STALL_S - 0.1
    with pytest.raises(Full):
        bodies.of("bob").take(SHARE)
    bodies.now_s = STALL_S
    bodies.of("bob").take(LIMIT - SHARE)  # for which there is room
    assert bodies.stopped == []
    bodies.of("cid").take(1)
    assert bodies.stopped == ["slow"]
    slow.give_back()
    assert bodies.admission.body_bytes == LIMIT - SHARE + 1


def test_no_more_give_up_than_it_takes_and_the_oldest_first(bodies: Bodies) -> None:
    for name in ("first", "second", "third"):
        bodies.of(name, name, more=True).came(30_000)
    bodies.now_s = STALL_S
    bodies.of("bob").take(40_000)
    assert bodies.stopped == ["first"]


def test_one_whose_share_is_used_up_takes_no_place_of_others(bodies: Bodies) -> None:
    bodies.of("ann", "of ann", more=True).came(1)
    bodies.of("bob").take(SHARE)
    bodies.now_s = STALL_S
    with pytest.raises(Full):
        bodies.of("bob").take(1)
    assert bodies.stopped == []


def test_a_body_that_flows_keeps_its_place_and_one_that_drips_does_not(
    bodies: Bodies,
) -> None:
    flows = bodies.of("ann", "flows", more=True)
    drips = bodies.of("bob", "drips", more=True)
    drips.came(LIMIT - SHARE - 10_000)
    while bodies.now_s < 3 * STALL_S:
        bodies.now_s += STALL_S / 2
        flows.came(FLOW_BYTES)
        drips.came(1)
    bodies.of("cid").take(SHARE)
    bodies.of("dan").take(10_000)
    assert bodies.stopped == ["drips"]
    with pytest.raises(Full):
        bodies.of("eve").take(LIMIT - SHARE)


def test_a_body_that_has_come_keeps_its_place(bodies: Bodies) -> None:
    memory = bodies.of("ann", "ann", more=True)
    memory.came(SHARE)
    memory.has_come()
    bodies.now_s = 10 * STALL_S
    with pytest.raises(Full):
        bodies.of("bob").take(SHARE)
    assert bodies.stopped == []


def test_requests_that_stall_are_stopped_where_there_are_too_many() -> None:
    bodies = Bodies(in_flight_requests=1)
    admission = bodies.admission
    admission.enter(waits=False)
    slow = Memory(admission, lambda: admission.leave(waits=False))
    slow.expect_more()
    with pytest.raises(Full):
        admission.enter(waits=False)
    bodies.now_s = STALL_S
    admission.enter(waits=False)
    assert admission.in_flight == 1
