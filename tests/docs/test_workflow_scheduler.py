"""The scheduler of the examples: what triggers, constraints and steps make of runs."""

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

import txaware
from coordinator import retry_on_conflict
from examples.workflow_scheduler import StepContext
from examples.workflow_scheduler.runs import Run, Told, WorkflowState
from examples.workflow_scheduler.scheduler import Scheduler
from examples.workflow_scheduler.store import (
    SHARDS,
    Definition,
    Store,
    inbox_of,
    shard_of,
)
from examples.workflow_scheduler.triggers import DATA, EVENTS
from examples.workflow_scheduler.worker import (
    MOST_LOG_CHARS,
    MOST_LOG_LINES,
    StepWorker,
)
from tests.support.messagings import Site
from tests.support.workflow_office import TRUE, Office

STATES = ("pending_launch_ms", "launched_ms", "ended_ms")
ON_EVENT = {"on": {"event": "arrived"}, **TRUE}
CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)
NO_RESULTS = {
    "object": object(),
    "large": "x" * 70_000,
    "no number": float("nan"),
    "surrogate": "\ud800",
    "circle": CIRCLE,
    "many digits": 10**5000,
}


@pytest.fixture
def office(site: Site) -> Office:
    return Office(site)


def run_of(office: Office, name: str, number: int = 1) -> Any:
    return office.runs(name)[number - 1]


def steps_of(office: Office, name: str) -> dict[str, str]:
    return {step: of.state for step, of in run_of(office, name).steps.items()}


# Triggers


def test_each_event_is_one_run_and_no_run_has_two(office: Office) -> None:
    office.deploy({"load": ON_EVENT})
    for mark in ("a", "b", "c"):
        office.event("load", "arrived", mark=mark)
    office.work()
    assert office.states("load") == ["succeeded"] * 3
    marks = [[note.id for note in run.triggers] for run in office.runs("load")]
    assert marks == [["a"], ["b"], ["c"]]


def test_a_collecting_workflow_has_one_run_for_what_came_before_its_launch(
    office: Office,
) -> None:
    office.deploy({"load": {**ON_EVENT, "collect": True, "delay": "60s"}})
    office.event("load", "arrived")
    office.work()
    for mark in ("a", "b", "c"):
        office.event("load", "arrived", mark=mark)
    office.work()
    assert office.states("load") == ["succeeded", "pending constraint"]
    office.advance_s(60)
    office.work()
    assert office.states("load") == ["succeeded"] * 2
    assert [note.id for note in run_of(office, "load", 2).triggers] == ["a", "b", "c"]


def test_a_count_of_messages_of_a_topic_is_one_run(office: Office) -> None:
    office.deploy({"load": {"on": {"topic": "orders", "count": 3}, **TRUE}})
    for number in range(7):
        office.site.messaging.publish("orders", [b"order %d" % number])
    office.work()
    assert len(office.runs("load")) == 2
    assert len(office.state("load").notes) == 1


def test_a_partition_that_is_told_twice_counts_once(office: Office) -> None:
    office.deploy({"load": {"on": {"dataset": "clicks", "partitions": 2}, **TRUE}})
    publisher = office.site.messaging.publisher(DATA)
    for partition in (b"monday", b"monday", b"tuesday"):
        publisher.publish(partition, key=b"clicks")
    publisher.publish(b"tuesday", key=b"orders")
    office.work()
    values = [note.value for note in run_of(office, "load").triggers]
    assert values == ["monday", "monday", "tuesday"]
    assert len(office.runs("load")) == 1


def test_messages_from_before_a_workflow_waited_for_their_topic_are_no_triggers(
    office: Office,
) -> None:
    office.deploy({"other": TRUE})
    office.site.messaging.publisher(EVENTS).publish(b"", key=b"arrived")
    office.deploy({"load": ON_EVENT})
    office.work()
    assert office.runs("load") == []
    office.site.messaging.publisher(EVENTS).publish(b"", key=b"arrived")
    office.site.messaging.publisher(EVENTS).publish(b"", key=b"something else")
    office.work()
    assert office.states("load") == ["succeeded"]


def test_a_workflow_follows_another_one_that_ended_as_it_waits_for(
    office: Office,
) -> None:
    office.deploy(
        {
            "good": TRUE,
            "bad": {"steps": {"only": {"command": ["false"]}}},
            "after-good": {"on": {"workflow": "good"}, **TRUE},
            "after-bad": {"on": {"workflow": "bad", "state": "failed"}, **TRUE},
            "never": {"on": {"workflow": "bad"}, **TRUE},
        }
    )
    office.tell("run", "good")
    office.tell("run", "bad")
    office.work()
    assert office.states("after-good") == ["succeeded"]
    assert [note.value for note in run_of(office, "after-bad").triggers] == ["bad-1"]
    assert office.runs("never") == []


def test_all_of_several_triggers_take_one_each(office: Office) -> None:
    both = {"all": [{"event": "orders"}, {"event": "prices"}]}
    office.deploy({"load": {"on": both, **TRUE}})
    for name in ("orders", "orders", "prices"):
        office.event("load", name)
    office.work()
    assert len(office.runs("load")) == 1
    assert [note.source for note in office.state("load").notes] == ["event orders"]


def test_a_new_file_is_one_run_and_so_is_one_that_changed(
    office: Office, tmp_path: Path
) -> None:
    office.deploy({"load": {"on": {"file": f"{tmp_path}/in/*.csv"}, **TRUE}})
    scheduler = office.scheduler()
    path = tmp_path / "in" / "orders.csv"
    path.parent.mkdir()
    path.write_text("1,2,3")
    age_s = office.now_ms / 1000 - path.stat().st_mtime
    assert not scheduler.look_for_files() or age_s > 2
    office.advance_s(max(0, -age_s) + 10)
    scheduler.look_for_files()
    assert not scheduler.look_for_files()
    office.work()
    assert [note.value for note in run_of(office, "load").triggers] == [str(path)]
    path.write_text("1,2,3,4")
    scheduler.look_for_files()
    office.work()
    assert office.states("load") == ["succeeded"] * 2


def test_either_of_two_triggers_is_a_run_and_takes_no_more_than_it_needs(
    office: Office,
) -> None:
    either = {"any": [{"event": "orders", "count": 2}, {"event": "prices"}]}
    office.deploy({"load": {"on": either, **TRUE}})
    for mark, name in enumerate(("orders", "prices", "orders", "prices", "orders")):
        office.event("load", name, mark=str(mark))
    office.work()
    marks = [[note.id for note in run.triggers] for run in office.runs("load")]
    assert sorted(marks) == [["0", "2"], ["1"], ["3"]]
    assert [note.id for note in office.state("load").notes] == ["4"]


def test_files_that_go_and_names_that_are_no_text_harm_no_other_file(
    office: Office, tmp_path: Path
) -> None:
    office.deploy({"load": {"on": {"file": f"{tmp_path}/in/*"}, **TRUE}})
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "gone").symlink_to("nothing")
    (folder / "round").symlink_to("round")
    names = [b"a.csv", b"caf\xe9.csv", b"z.csv"]
    for name in names:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("1")
    newest_s = max(path.stat().st_mtime for path in folder.glob("*.csv"))
    office.advance_s(max(0.0, newest_s - office.now_ms / 1000) + 10)
    office.scheduler().look_for_files()
    office.work()
    found = [run.triggers[0].value for run in office.runs("load")]
    assert sorted(found) == [
        f"{folder}/{name.decode(errors='replace')}" for name in names
    ]


class Died(BaseException):
    """Stands for SIGKILL: what is not committed never is."""


class Mortal:
    """A store whose owner dies at one of the calls that write."""

    def __init__(self, owner: Scheduler | StepWorker, at: int) -> None:
        self.calls, self._at, self._store = 0, at, owner.store
        owner.store = cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not name.startswith(("tell", "put_", "push")):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                raise Died
            return found(*arguments, **options)

        return call


def test_wherever_a_scheduler_dies_each_message_is_in_one_count(office: Office) -> None:
    both = {"all": [{"topic": "orders"}, {"topic": "prices"}]}
    workflows = {
        "by-count": {"on": {"topic": "orders", "count": 4}, **TRUE},
        "by-pair": {"on": both, **TRUE},
        "by-either": {"on": {"any": both["all"]}, **TRUE},
    }
    office.deploy(workflows)
    published: list[str] = []
    for at in itertools.count(1):
        for topic in ("orders", "prices", "orders"):
            published.append(f"{topic}-{at}-{len(published)}")
            office.site.messaging.publish(topic, [published[-1].encode()])
        scheduler = office.scheduler(f"scheduler {at}")
        mortal = Mortal(scheduler, at)
        try:
            scheduler.run_until_idle()
        except Died:
            office.scheduler(f"heir {at}").run_until_idle()
        else:
            break
    assert mortal.calls > 20  # each of them was the last one once
    office.work()
    orders = [one for one in published if one.startswith("orders")]
    prices = [one for one in published if one.startswith("prices")]
    values = {
        name: [note.value for run in office.runs(name) for note in run.triggers]
        for name in workflows
    }
    left = {
        name: [note.value for note in office.state(name).notes] for name in workflows
    }
    assert values["by-count"] + left["by-count"] == orders
    assert len(left["by-count"]) == len(orders) % 4
    assert sorted(values["by-pair"]) == sorted(orders[: len(prices)] + prices)
    assert left["by-pair"] == orders[len(prices) :]
    assert sorted(values["by-either"]) == sorted(published)
    sizes = {"by-count": {4}, "by-pair": {2}, "by-either": {1}}
    for name, wanted in sizes.items():
        assert {len(run.triggers) for run in office.runs(name)} == wanted
        assert set(office.states(name)) == {"succeeded"}


# Time


def test_times_that_were_slept_through_are_caught_up_as_the_definition_says(
    office: Office,
) -> None:
    hourly = {"on": {"cron": "0 * * * *"}, **TRUE}
    office.deploy(
        {
            "all": hourly,
            "last": {**hourly, "catch_up": "last"},
            "none": {**hourly, "catch_up": "none"},
        }
    )
    office.advance_s(5 * 3600 + 120)
    office.work()
    assert [len(office.runs(name)) for name in ("all", "last", "none")] == [5, 1, 0]
    assert run_of(office, "last").at_ms == run_of(office, "all", 5).at_ms
    office.advance_s(3600)
    office.work()
    assert [len(office.runs(name)) for name in ("all", "last")] == [6, 2]


def test_a_clock_that_is_set_back_makes_no_time_come_twice(office: Office) -> None:
    office.deploy({"tick": {"on": {"every": "1h"}, **TRUE}})
    office.advance_s(2 * 3600)
    office.work()
    before = [run.at_ms for run in office.runs("tick")]
    office.advance_s(-3600)
    office.work()
    office.advance_s(3600)
    office.work()
    assert [run.at_ms for run in office.runs("tick")] == before


# Constraints


def test_a_run_begins_no_sooner_than_the_delay_after_the_one_before(
    office: Office,
) -> None:
    office.deploy({"load": {**ON_EVENT, "delay": "60s"}})
    for mark in ("a", "b", "c"):
        office.event("load", "arrived", mark=mark)
    office.work()
    for count in (1, 2):
        assert office.states("load").count("succeeded") == count
        office.advance_s(59.9)
        office.work()
        assert office.states("load").count("succeeded") == count
        office.advance_s(0.1)
        office.work()
    assert office.states("load") == ["succeeded"] * 3
    times = [run.launched_ms for run in office.runs("load")]
    assert [later - earlier for earlier, later in pairwise(times)] == [60_000] * 2


def test_no_more_runs_than_the_concurrency_go_on_at_once(office: Office) -> None:
    office.deploy({"load": {**ON_EVENT, "concurrency": 1}})
    for _ in range(3):
        office.event("load", "arrived")
    office.scheduler().run_until_idle()
    assert office.states("load") == ["running", *["pending constraint"] * 2]
    office.work()
    assert office.states("load") == ["succeeded"] * 3


def test_a_run_waits_for_its_window(office: Office) -> None:
    window = {"from": "03:00", "to": "04:00"}
    office.deploy({"load": {**ON_EVENT, "window": window}})
    office.event("load", "arrived")
    office.work()
    waited = office.states("load") == ["pending constraint"]
    wake_ms = office.state("load").wake_ms
    minute = (wake_ms or office.now_ms) // 60_000 % 1440
    assert waited
    assert minute == 180
    office.advance_s((wake_ms - office.now_ms) / 1000)
    office.work()
    assert office.states("load") == ["succeeded"]


def test_nothing_follows_a_run_that_failed_until_one_succeeds(office: Office) -> None:
    fails = {"steps": {"only": {"command": ["false"]}}}
    office.deploy({"load": {**fails, "last_succeeded": True}})
    office.tell("run", "load")
    office.work()
    office.tell("run", "load")
    office.work()
    assert office.states("load") == ["failed", "pending constraint"]


def test_a_paused_workflow_keeps_its_triggers(office: Office) -> None:
    office.deploy({"load": ON_EVENT})
    office.tell("pause", "load")
    office.event("load", "arrived")
    office.work()
    assert office.states("load") == ["pending constraint"]
    office.tell("resume", "load")
    office.work()
    assert office.states("load") == ["succeeded"]


# Obsolete


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"delay": "2h"}, "the schedule has changed"),
        ({"enabled": False}, "the schedule has changed"),
        (None, "the schedule is disabled"),
    ],
)
def test_a_pending_job_of_a_schedule_that_is_no_more_is_obsolete(
    office: Office, change: dict[str, Any] | None, reason: str
) -> None:
    office.deploy({"load": {**ON_EVENT, "delay": "1h"}, "other": TRUE})
    office.event("load", "arrived")
    office.work()
    office.event("load", "arrived")
    office.work()
    assert office.states("load") == ["succeeded", "pending constraint"]
    changed = {} if change is None else {"load": {**ON_EVENT, **change}}
    office.deploy({**changed, "other": TRUE})
    office.work()
    assert office.states("load") == ["succeeded", "obsolete"]
    assert run_of(office, "load", 2).reason == reason


def test_a_job_that_waits_too_long_is_obsolete(office: Office) -> None:
    waits = {**ON_EVENT, "concurrency": 1, "pending_timeout": "10m"}
    office.deploy({"load": waits})
    for _ in range(2):
        office.event("load", "arrived")
    office.scheduler().run_until_idle()
    office.advance_s(601)
    office.scheduler().run_until_idle()
    assert office.states("load") == ["running", "obsolete"]


def test_a_run_goes_on_with_the_definition_that_it_began_with(office: Office) -> None:
    two = {"steps": {"a": {"command": ["true"]}}}
    two["steps"]["b"] = {"command": ["true"], "after": ["a"]}
    office.deploy({"load": two})
    office.tell("run", "load")
    office.scheduler().run_until_idle()
    office.deploy({"load": {"steps": {"c": {"command": ["true"]}}}})
    office.work()
    assert steps_of(office, "load") == {"a": "succeeded", "b": "succeeded"}
    office.tell("run", "load")
    office.work()
    assert list(run_of(office, "load", 2).steps) == ["c"]


def test_an_older_version_of_a_file_changes_nothing(office: Office) -> None:
    office.deploy({"load": {**ON_EVENT, "version": 2}})
    office.deploy({"load": {"on": {"event": "left"}, **TRUE, "version": 1}})
    office.event("load", "arrived")
    office.work()
    assert office.states("load") == ["succeeded"]


def beside(name: str) -> str:
    """Returns the name of another workflow in the same shard."""
    others = (f"other{number}" for number in itertools.count())
    return next(one for one in others if shard_of(one) == shard_of(name))


def test_a_workflow_whose_definition_cannot_be_read_is_left_out_until_it_can(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    other = beside("load")
    office.deploy({"load": ON_EVENT, other: ON_EVENT})
    table = office.site.messaging.table(
        "workflow-definitions", encode=txaware.to_json, decode=Definition
    )
    key = f"load/{office.state('load').fingerprint}".encode()
    good = table.get(key)
    assert good is not None
    table.put(key, Definition("load", '{"steps": {}, "colour": 3}'))
    for _ in range(2):
        for name in ("load", other):
            office.event(name, "arrived")
        office.work()
    assert office.states(other) == ["succeeded"] * 2
    assert office.states("load") == []
    why = "workflow load: unknown: colour"
    assert office.state("load").problem == f"left out: {why}"
    assert f"workflow load is left out: {why}" in caplog.text
    table.put(key, good)
    office.work()
    assert office.states("load") == ["succeeded"] * 2
    assert office.state("load").problem == ""
    office.work()
    assert len(office.runs("load")) == 2


def test_a_definition_that_cannot_be_read_is_mended_by_the_next_one(
    office: Office,
) -> None:
    office.deploy({"other": TRUE})
    office.tell("deploy", "load", fingerprint="gone", group="default")
    office.work()
    problem = office.state("load").problem
    assert problem == "left out: the definition gone of load is gone"
    office.event("load", "arrived", mark="early")
    office.work()
    office.deploy({"other": TRUE, "load": ON_EVENT})
    office.event("load", "arrived", mark="late")
    office.work()
    assert office.state("load").problem == ""
    marks = [[note.id for note in run.triggers] for run in office.runs("load")]
    assert marks == [["early"], ["late"]]


def test_what_a_newer_scheduler_has_written_is_left_out_and_the_others_go_on(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    other = beside("load")
    office.deploy({"load": ON_EVENT, other: ON_EVENT})
    table = office.site.messaging.table(
        "workflow-states", encode=txaware.to_json, decode=WorkflowState
    )
    key, before = f"{shard_of('load')}/load".encode(), office.state("load")
    table.put(key, attrs.evolve(before, format=2))
    office.scheduler().deploy()
    for name in ("load", other):
        office.event(name, "arrived")
    office.work()
    why = "a newer scheduler has written workflow load (format 2)"
    assert f"workflow load is left out: {why}" in caplog.text
    problems = {one.name: one.problem for one in office.store.states()}
    assert problems[other] == ""
    assert problems["load"].startswith(f"left out: {why}")
    assert office.states(other) == ["succeeded"]
    found = table.get(key)
    assert found == attrs.evolve(before, format=2), "it is not this scheduler's"
    table.put(key, before)
    office.work()
    assert office.states("load") == ["succeeded"]


def spoilt(office: Office, table: str, key: str) -> Callable[[], None]:
    """Damages a row; returns what puts it back."""
    rows = office.site.messaging.table(table)
    (at,) = [one for one, _ in rows.scan() if key in one.decode()]
    before = rows.get(at)
    assert before is not None
    rows.put(at, b'{"name": ')
    return lambda: rows.put(at, before)


def test_a_damaged_state_stops_its_workflow_alone_until_it_is_mended(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    other = beside("load")
    office.deploy({"load": ON_EVENT, other: ON_EVENT})
    mend = spoilt(office, "workflow-states", "load")
    office.work()
    why = f"row {shard_of('load')}/load of table workflow-states is damaged: "
    assert f"workflow load is left out: {why}" in caplog.text, "also without messages"
    for name in ("load", other):
        office.event(name, "arrived")
    office.work()
    assert office.states(other) == ["succeeded"]
    assert office.states("load") == []
    problems = {one.name: one.problem for one in office.store.states()}
    assert problems[other] == ""
    assert problems["load"].startswith(f"left out: {why}")
    (damaged,) = office.store.damaged()
    assert str(damaged).startswith(why)
    mend()
    office.work()
    assert office.states("load") == ["succeeded"]
    assert [*office.store.damaged()] == []


def test_a_damaged_run_or_kept_message_stops_its_workflow_alone(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    other = beside("load")
    office.deploy({"load": ON_EVENT, other: ON_EVENT})
    office.event("load", "arrived")
    office.scheduler().run_until_idle()
    mend_run = spoilt(office, "workflow-runs", "load")
    office.tell("cancel", "load", number=1)
    office.event(other, "arrived")
    office.scheduler().run_until_idle()
    why = "row load/0000000001 of table workflow-runs is damaged: "
    assert f"workflow load is left out: {why}" in caplog.text
    mend_message = spoilt(office, "workflow-aside", "load")
    mend_run()
    office.advance_s(100)
    office.work()
    assert office.states(other) == ["succeeded"]
    assert office.states("load") == ["running"]
    assert "of table workflow-aside is damaged: " in office.state("load").problem
    mend_message()
    office.advance_s(100)
    office.work()
    assert office.states("load") == ["cancelled"]


def test_what_comes_by_a_topic_to_a_damaged_workflow_is_kept_over_a_start(
    office: Office,
) -> None:
    on_topic = {"on": {"topic": "orders"}, **TRUE}
    other = beside("load")
    office.deploy({"load": on_topic, other: on_topic})
    mend = spoilt(office, "workflow-states", "load")
    office.scheduler().deploy()
    office.site.messaging.publish("orders", [b"one"])
    office.work()
    assert office.states(other) == ["succeeded"]
    mend()
    office.work()
    assert office.states("load") == ["succeeded"]


def test_damaged_rows_of_topics_and_members_are_written_anew(office: Office) -> None:
    on_topic = {"on": {"topic": "orders"}, **TRUE}
    office.deploy({"load": on_topic})
    office.scheduler("another").beat()
    spoilt(office, "workflow-members", "another")
    spoilt(office, "workflow-routes", "orders")
    scheduler = office.scheduler()
    scheduler.beat()
    assert scheduler.topics() == ["orders"]
    assert len([*office.store.damaged()]) == 2
    scheduler.deploy()
    office.scheduler("another").beat()
    assert [*office.store.damaged()] == []


# Steps


def test_a_later_step_reads_what_an_earlier_one_returned(office: Office) -> None:
    write = 'echo "[1, 2]" > $TXAWARE_RESULT; echo from $TXAWARE_RUN'
    steps = {
        "first": {"command": ["sh", "-c", write]},
        "second": {"command": ["sh", "-c", "echo $TXAWARE_STEPS"], "after": ["first"]},
    }
    office.deploy({"load": {"steps": steps}})
    office.tell("run", "load")
    office.work()
    assert run_of(office, "load").token == {"first": [1, 2], "second": None}
    said = {name: log.text for name, log in office.store.logs("load-1").items()}
    assert said == {"first/1": "from load-1\n", "second/1": '{"first": [1, 2]}\n'}


def test_a_function_commits_its_rows_with_the_end_of_its_step(office: Office) -> None:
    def load(step: StepContext) -> dict[str, str]:
        step.messaging.table("rows").put(step.run.encode(), b"here")
        step.log("loading")
        return {"day": step.parameters["day"]}

    async def report(step: StepContext) -> int:
        step.messaging.publisher("reports").publish(step.token["load"]["day"].encode())
        raise ValueError("no report today")

    office.site.messaging.create_topic("reports")
    office.deploy(
        {
            "load": {
                "parameters": {"day": "monday"},
                "steps": {
                    "load": {"call": "here:load"},
                    "report": {"call": "here:report", "after": ["load"]},
                },
            }
        },
        {("load", "load"): load, ("load", "report"): report},
    )
    office.tell("run", "load", parameters={"day": "tuesday"})
    office.work()
    run = run_of(office, "load")
    assert run.token == {"load": {"day": "tuesday"}}
    assert run.reason == "step report: ValueError: no report today"
    assert office.site.messaging.table("rows").get(b"load-1") == b"here"
    assert list(office.site.messaging.consumer("reports").poll()) == []


def test_a_step_that_failed_is_tried_again_later_each_time(office: Office) -> None:
    fails = {"command": ["false"], "retries": 2, "backoff": "10s"}
    steps = {"only": fails, "after": {"command": ["true"], "after": ["only"]}}
    office.deploy({"load": {"steps": steps}})
    office.tell("run", "load")
    assert office.work() == 1
    office.advance_s(9)
    assert office.work() == 0
    office.advance_s(2)
    assert office.work() == 1
    office.advance_s(19)
    assert office.work() == 0
    office.advance_s(2)
    assert office.work() == 1
    run = run_of(office, "load")
    assert run.state == "failed"
    assert run.reason == "step only: it ended with 1"
    assert steps_of(office, "load") == {"only": "failed", "after": "skipped"}
    assert run.steps["only"].attempt == 3


@pytest.mark.parametrize("kind", NO_RESULTS)
def test_a_step_that_returns_what_cannot_be_stored_fails_and_says_so(
    office: Office, kind: str
) -> None:
    steps = {"only": {"call": "here:only"}}
    office.deploy(
        {"load": {"steps": steps}}, {("load", "only"): lambda: NO_RESULTS[kind]}
    )
    office.tell("run", "load")
    office.work()
    assert run_of(office, "load").state == "failed"
    assert "what it returned cannot be stored" in run_of(office, "load").reason


def test_a_command_is_stopped_at_its_time_out(office: Office) -> None:
    slow = {"command": ["sleep", "60"], "timeout": "0.2s"}
    office.deploy({"load": {"steps": {"only": slow}}})
    office.tell("run", "load")
    office.work()
    assert run_of(office, "load").reason == "step only: it took longer than 0.2 s"


def test_a_step_that_killed_its_workers_is_dead_and_the_run_failed(
    office: Office,
) -> None:
    office.deploy({"load": TRUE})
    office.tell("run", "load")
    office.scheduler().run_until_idle()
    queue = office.site.messaging.queue("workflow-steps-default")
    while (job := queue.pop()) is not None:
        assert job.deliveries <= 5
        office.advance_s(31)
    office.work()
    run = run_of(office, "load")
    assert run.state == "failed"
    assert run.reason == "step only: it was handed out 5 times and never ended"


def test_what_is_no_step_is_passed_over(office: Office) -> None:
    office.deploy({"load": TRUE})
    queue = office.site.messaging.queue("workflow-steps-default-dead")
    queue.push(b"what?")
    office.tell("run", "load")
    office.work()
    assert office.states("load") == ["succeeded"]
    assert queue.stats().depth == queue.stats().in_work == 0


def test_a_function_that_floods_its_log_has_the_end_of_it_kept(office: Office) -> None:
    def flood(step: StepContext) -> None:
        for number in range(20_000):
            step.log(f"line {number}")
        step.log("x" * 10_000_000)
        step.log("last")
        assert len(step.lines) <= MOST_LOG_LINES

    steps = {"only": {"call": "here:only"}}
    office.deploy({"load": {"steps": steps}}, {("load", "only"): flood})
    office.tell("run", "load")
    office.work()
    assert office.states("load") == ["succeeded"]
    (log,) = office.store.logs("load-1").values()
    assert log.text.endswith("xxx\nlast")
    assert len(log.text) == MOST_LOG_CHARS


def test_a_step_ends_once_however_often_it_is_handed_out(office: Office) -> None:
    called: list[str] = []
    steps = {"only": {"call": "here:only"}}
    office.deploy(
        {"load": {"steps": steps}},
        {("load", "only"): lambda step: called.append(step.run)},
    )
    office.tell("run", "load")
    office.scheduler().run_until_idle()
    queue = office.site.messaging.queue("workflow-steps-default")
    first = queue.pop()
    assert first is not None
    office.worker().carry_out(first)  # and dies before the job ends
    office.advance_s(31)
    assert office.worker().loop().run_once() == 1
    office.work()
    assert called == ["load-1"]
    assert office.states("load") == ["succeeded"]


def test_wherever_a_worker_dies_its_step_ends_once_with_what_it_returned(
    office: Office,
) -> None:
    def first(step: StepContext) -> dict[str, str]:
        total = step.messaging.table("totals")
        total.put(step.run.encode(), (total.get(step.run.encode()) or b"") + b"+")
        return {"of": step.run}

    hand_on = {"command": ["sh", "-c", 'echo "$TXAWARE_STEPS" > $TXAWARE_RESULT']}
    steps = {"first": {"call": "here:first"}, "second": {**hand_on, "after": ["first"]}}
    office.deploy({"load": {**ON_EVENT, "steps": steps}}, {("load", "first"): first})
    queue = office.site.messaging.queue("workflow-steps-default")
    for at in itertools.count(1):
        office.event("load", "arrived", mark=str(at))
        worker = office.worker()
        mortal = Mortal(worker, at)
        try:
            office.scheduler().run_until_idle()
            while (job := queue.pop()) is not None:
                worker.carry_out(job)
                job.commit()
                office.scheduler().run_until_idle()
        except Died:
            office.advance_s(31)  # its lease ends
            office.work()
        else:
            break
    assert mortal.calls > 5
    totals = office.site.messaging.table("totals")
    runs = office.runs("load")
    assert len(runs) == at
    for run in runs:
        assert run.state == "succeeded", run
        first_result = {"first": {"of": run.run}}
        assert run.token == {**first_result, "second": first_result}
        assert totals.get(run.run.encode()) == b"+"


def test_the_late_end_of_an_attempt_is_none_of_the_next(office: Office) -> None:
    fails = {"command": ["false"], "retries": 1, "backoff": "1h"}
    office.deploy({"load": {"steps": {"only": fails}}})
    office.tell("run", "load")
    office.work()
    office.tell("ended", "load", number=1, step="only", attempt=1, state="succeeded")
    office.work()
    assert steps_of(office, "load") == {"only": "queued"}


def test_steps_that_return_too_much_together_fail_their_run(office: Office) -> None:
    steps = {
        f"step-{number}": {"call": "here:it", "after": [f"step-{number - 1}"][:number]}
        for number in range(18)
    }
    functions = {("load", step): lambda: "x" * 60_000 for step in steps}
    office.deploy({"load": {"steps": steps}}, functions)
    office.tell("run", "load")
    office.work()
    assert run_of(office, "load").reason == (
        "step step-17: the steps return more than 1048576 bytes in all"
    )


def test_what_cannot_be_written_holds_no_other_workflow_up(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.deploy({"load": ON_EVENT, "bad": ON_EVENT})
    put_run = Store.put_run

    def refuses(store: Store, run: Run) -> None:
        if run.workflow == "bad":
            raise txaware.RequestTooLarge("too large")
        put_run(store, run)

    monkeypatch.setattr(Store, "put_run", refuses)
    for name in ("bad", "load", "bad", "load"):
        office.event(name, "arrived")
    office.work()
    assert office.states("load") == ["succeeded"] * 2
    assert office.states("bad") == []


# By hand


def test_a_cancelled_run_begins_no_further_step(office: Office) -> None:
    steps = {
        "first": {"command": ["true"]},
        "second": {"command": ["true"], "after": ["first"]},
    }
    office.deploy({"load": {"steps": steps}})
    office.tell("run", "load")
    office.scheduler().run_until_idle()
    office.tell("cancel", "load", number=1)
    office.work()
    assert office.states("load") == ["cancelled"]
    assert set(steps_of(office, "load").values()) == {"cancelled"}


def test_a_function_whose_run_was_cancelled_meanwhile_commits_nothing(
    office: Office,
) -> None:
    def only(step: StepContext) -> None:
        step.messaging.table("rows").put(b"row", b"")
        thread = threading.Thread(target=cancel)  # which has no transaction open
        thread.start()
        thread.join()

    def cancel() -> None:
        office.tell("cancel", "load", number=1)
        office.scheduler().run_until_idle()

    steps = {"only": {"call": "here:only"}}
    office.deploy({"load": {"steps": steps}}, {("load", "only"): only})
    office.tell("run", "load")
    office.work()
    assert office.states("load") == ["cancelled"]


def test_a_run_that_takes_too_long_failed(office: Office) -> None:
    office.deploy({"load": {**TRUE, "timeout": "1h"}})
    office.tell("run", "load")
    office.scheduler().run_until_idle()
    office.advance_s(3601)
    office.work()
    assert run_of(office, "load").state == "failed"
    assert "longer than its time-out" in run_of(office, "load").reason


# Several


def test_schedulers_at_the_same_time_use_each_trigger_once(office: Office) -> None:
    names = [f"load-{number}" for number in range(6)]
    office.deploy(dict.fromkeys(names, ON_EVENT))
    published = threading.Event()
    patient = retry_on_conflict(tries=100)  # one of three may lose often

    def schedule(name: str) -> None:
        scheduler = office.scheduler(name)
        is_last = False
        while not is_last:
            is_last = published.is_set()
            for shard in range(SHARDS):
                scheduler.forget(shard)
                patient(scheduler.look_after)(shard)

    def publish() -> None:
        for number in range(30):
            office.event(names[number % 6], "arrived", mark=str(number))
        published.set()

    with ThreadPoolExecutor(4) as threads:
        ended = [threads.submit(schedule, name) for name in ("a", "b", "c")]
        ended.append(threads.submit(publish))
        for one in ended:
            one.result()
    office.work()
    marks = [
        note.id
        for name in names
        for run in office.runs(name)
        for note in run.triggers
        if run.state == "succeeded"
    ]
    assert sorted(marks, key=int) == [str(number) for number in range(30)]


def test_what_is_no_message_is_passed_over(office: Office) -> None:
    office.deploy({"load": ON_EVENT})
    for payload in (b"what?", txaware.to_json(Told("dance", "load"))):
        office.site.messaging.publish(inbox_of(shard_of("load")), [payload])
    office.event("load", "arrived")
    office.event("nobody", "arrived")
    office.work()
    assert office.states("load") == ["succeeded"]


def test_a_topic_that_is_deleted_is_told_and_waited_for(office: Office) -> None:
    office.deploy({"load": {"on": {"topic": "orders"}, **TRUE}})
    office.site.messaging.delete_topic("orders")
    office.work()
    assert office.state("load").problem == (
        "topic orders is gone; it waits until that is made again"
    )
    office.site.messaging.create_topic("orders")
    office.site.messaging.publish("orders", [b"one"])
    office.work()
    assert office.states("load") == ["succeeded"]
