"""The pytest plugin: what a program's own tests get from it."""

from importlib.metadata import entry_points

import pytest

from txaware import Unavailable
from txaware.testing import FailingCoordinator

A_TEST = """
import pytest
import txaware


def test_a_message_is_gone_after_its_time(messaging, messaging_clock):
    messaging.create_topic("orders", ttl_s=60)
    messaging.publisher("orders").publish(b"ann bought 5")
    assert len(messaging.poll("orders")) == 1
    messaging_clock.advance_s(61)
    assert messaging.poll("orders") == []


def test_another_process_could_reach_it(messaging, messaging_server):
    messaging.create_topic("orders")
    with txaware.connect(messaging_server.url) as remote:
        assert remote.topics() == ["orders"]


def test_a_coordinator_fails_as_the_test_says(failing_coordinator):
    with txaware.connect("memory:", coordinator=failing_coordinator) as messaging:
        messaging.create_topic("orders")
        failing_coordinator.fail("start_short")
        with pytest.raises(txaware.Unavailable):
            messaging.transaction().start()
        failing_coordinator.work("start_short")
        failing_coordinator.lose("commit")
        with messaging.transaction():
            messaging.publisher("orders").publish(b"1")
        assert len(messaging.poll("orders", isolation="committed")) == 1
"""


def test_its_fixtures_serve_a_program_s_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(A_TEST)
    run = pytester.runpytest_subprocess("-q")
    run.assert_outcomes(passed=3)


def test_pytest_finds_it_by_itself() -> None:
    (found,) = entry_points(group="pytest11", name="txaware")
    assert found.value == "txaware.testing.plugin"


def test_a_call_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'comit' is none of abort, can_commit"):
        FailingCoordinator(None).fail("comit")  # type: ignore[arg-type]


def test_the_usual_error_is_one_of_a_coordinator_that_is_away() -> None:
    failing = FailingCoordinator(None)  # type: ignore[arg-type]
    failing.fail("snapshot")
    with pytest.raises(Unavailable, match="the test has snapshot fail"):
        failing.instead["snapshot"](lambda: None)
