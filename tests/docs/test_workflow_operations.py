"""What people do to workflows of the example, and the times that it looks at them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from examples.workflow_scheduler.__main__ import scheduler
from examples.workflow_scheduler.definitions import read_workflow
from examples.workflow_scheduler.operations import Operations, Refused, times_within
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.scheduler import LONGEST_WAIT_S, Wakes
from tests.support.messagings import Site
from tests.support.workflow_office import TRUE, Office

DAILY = {"on": {"cron": "30 2 * * *", "zone": "Europe/Berlin"}, **TRUE}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """One behind a server, where operations reach it too."""
    site = Site("http", tmp_path)
    yield Office(site)
    site.close()


@pytest.fixture
def operations(office: Office) -> Operations:
    return Operations(Place(office.site.messaging.reach().url))


def day(number: int, month: int = 3) -> datetime:
    return datetime(2026, month, number)


def test_a_range_is_filled_once_unless_it_is_asked_for_again(
    office: Office, operations: Operations
) -> None:
    office.deploy({"daily": DAILY})
    assert operations.backfill("daily", day(28), day(31)) == 3
    office.work()
    assert operations.backfill("daily", day(27), day(31)) == 1
    office.work()
    assert operations.backfill("daily", day(28), day(29), again=True) == 1
    office.work()
    times = [
        datetime.fromtimestamp(run.at_ms / 1000, UTC).strftime("%d %H:%M")
        for run in office.runs("daily")
    ]
    # The clocks went ahead on the 29th, from two to three.
    assert times == ["28 01:30", "29 01:00", "30 00:30", "27 01:30", "28 01:30"]
    assert set(office.states("daily")) == {"succeeded"}


def test_a_time_whose_run_failed_is_filled_again(
    office: Office, operations: Operations
) -> None:
    fails = {**DAILY, "steps": {"only": {"command": ["false"]}}}
    office.deploy({"daily": fails})
    operations.backfill("daily", day(28), day(29))
    office.work()
    assert operations.backfill("daily", day(28), day(29)) == 1


def test_more_times_than_anybody_means_are_refused() -> None:
    workflow = read_workflow("w", {"on": {"cron": "* * * * *"}, **TRUE})
    with pytest.raises(Refused, match="more than 10000 times"):
        times_within(workflow, day(1), day(30))


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_very_many_times_are_filled_each_once(
    office: Office, operations: Operations, count: int
) -> None:
    every = {"on": {"cron": "* * * * *"}, "concurrency": 1, **TRUE}
    office.deploy({"often": every})
    begins, minutes = day(1), timedelta(minutes=count)
    assert operations.backfill("often", begins, begins + minutes) == count
    office.scheduler().run_until_idle()
    assert len(office.state("often").pending) == count - 1
    assert operations.backfill("often", begins, begins + minutes) == 0
    runs = office.runs("often")
    assert len({run.at_ms for run in runs}) == len(runs) == count
    office.deploy({})
    assert {run.state for run in office.runs("often")} == {"running", "obsolete"}


@pytest.mark.parametrize("name", ["often-" + "9" * 5000, "often-", "", "-1", "often-0"])
def test_what_is_no_run_is_said(operations: Operations, name: str) -> None:
    with pytest.raises(Refused, match="no run is called"):
        operations.run(name)


def test_a_trigger_with_an_id_of_before_does_nothing(
    office: Office, operations: Operations
) -> None:
    office.deploy({"load": {"on": {"event": "arrived"}, **TRUE}})
    for mark in ("a", "b", "a"):
        operations.trigger("load", event="arrived", once=mark)
    office.work()
    assert [run.triggers[0].id for run in office.runs("load")] == ["a", "b"]
    ended = operations.wait_for("load", "b", timeout_s=10)
    assert ended is not None
    assert ended.run == "load-2"
    assert operations.wait_for("load", "c", timeout_s=0.3) is None


def test_parameters_of_a_run_by_hand_are_added_to_those_of_the_file(
    office: Office, operations: Operations
) -> None:
    office.deploy({"load": {"parameters": {"a": "1", "b": "2"}, **TRUE}})
    operations.trigger("load", parameters={"b": "3"})
    office.work()
    assert office.runs("load")[0].parameters == {"a": "1", "b": "3"}


def test_a_paused_workflow_is_resumed(office: Office, operations: Operations) -> None:
    office.deploy({"load": TRUE})
    operations.pause("load")
    operations.trigger("load")
    office.work()
    assert office.states("load") == ["pending constraint"]
    operations.resume("load")
    office.work()
    assert office.states("load") == ["succeeded"]
    with pytest.raises(Refused, match="run load-1 is succeeded already"):
        operations.cancel("load-1")


def test_a_clock_that_was_far_ahead_is_told_and_times_are_counted_anew(
    office: Office,
) -> None:
    office.deploy({"daily": {**DAILY, "catch_up": "last"}})
    office.advance_s(30 * 86_400)
    office.work()
    assert len(office.runs("daily")) == 1
    office.site.clock.set_s(-20 * 86_400)
    office.tell("resume", "daily")  # which has it looked at
    office.work()
    assert "the clock was" in office.state("daily").problem
    office.advance_s(86_400)
    office.work()
    assert len(office.runs("daily")) == 2


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), max_size=30),
    st.integers(0, 25),
)
def test_what_is_due_is_what_was_last_set_to_a_time_that_has_come(
    set_to: list[tuple[str, int]], now_ms: int
) -> None:
    wakes, model = Wakes(), dict[str, int]()
    for name, wake_ms in set_to:
        wakes.set(name, wake_ms)
        model[name] = wake_ms
        due = {name for name, at in model.items() if 0 < at <= now_ms}
        assert set(wakes.due(now_ms)) == due
        later = [at for at in model.values() if at]
        pause_s = max(0, min(later, default=10**9) - now_ms) / 1000
        assert wakes.pause_s(now_ms) == min(LONGEST_WAIT_S, pause_s)


def test_a_damaged_state_is_named_by_check_and_by_the_list(
    office: Office, operations: Operations
) -> None:
    def said(*words: str) -> tuple[int, list[str]]:
        url = office.site.messaging.reach().url
        ended = CliRunner().invoke(scheduler, ["--url", url, *words])
        return ended.exit_code, ended.output.splitlines()

    office.deploy({"daily": DAILY, "other": TRUE})
    assert said("check") == (0, ["no damaged rows"])
    rows = office.site.messaging.table("workflow-states")
    (key,) = [key for key, _ in rows.scan() if b"daily" in key]
    rows.put(key, b"{")
    why = f"row {key.decode()} of table workflow-states is damaged: b'{{' is no JSON"
    code, [row, count] = said("check")
    assert (code, row[: len(why)], count) == (1, why, "1 damaged rows")
    assert operations.names() == ["daily", "other"]
    assert f"{'daily':30} left out: {row}" in said("list", "--long")[1]
    assert said("show", "daily") == (1, [f"Error: {row}"])
