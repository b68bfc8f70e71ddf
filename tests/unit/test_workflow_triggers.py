"""Triggers and definitions of the example's scheduler, as pure functions."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from examples.workflow_scheduler.definition_file import load
from examples.workflow_scheduler.definitions import Window, read_workflow
from examples.workflow_scheduler.triggers import (
    DefinitionError,
    Note,
    Trigger,
    cron,
    dataset,
    event,
    every,
    read_trigger,
    seconds,
    without,
)

STEPS = {"only": {"command": ["true"]}}
NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.builds(
    lambda name, count: event(name, count=count), NAMES, st.integers(1, 3)
) | st.builds(lambda name, n: dataset(name, partitions=n), NAMES, st.integers(1, 2))
TRIGGERS: st.SearchStrategy[Trigger] = st.recursive(
    LEAVES,
    lambda parts: (
        st.builds(lambda a, b: a & b, parts, parts)
        | st.builds(lambda a, b: a | b, parts, parts)
    ),
    max_leaves=5,
)
NOTES = st.lists(
    st.builds(
        lambda kind, name, value: Note(f"{kind} {name}", 0, value),
        st.sampled_from(["event", "dataset"]),
        NAMES,
        st.sampled_from("xy"),
    )
)


@given(TRIGGERS)
def test_a_trigger_reads_back_from_what_it_says(trigger: Trigger) -> None:
    assert read_trigger(trigger.plain()) == trigger


@given(TRIGGERS, NOTES)
def test_what_starts_a_run_is_taken_from_the_notes_and_no_more(
    trigger: Trigger, notes: list[Note]
) -> None:
    sources = {leaf.source for leaf in trigger.leaves()}
    while (chosen := trigger.chosen(notes)) is not None:
        assert chosen
        assert {note.source for note in chosen} <= sources
        assert len({id(note) for note in chosen}) == len(chosen)
        left = without(notes, chosen)
        assert len(left) == len(notes) - len(chosen)
        notes = left


@given(st.lists(NAMES), st.integers(1, 4))
def test_each_note_of_an_event_is_in_one_run(names: list[str], count: int) -> None:
    notes = [Note("event a", at) for at, name in enumerate(names) if name == "a"]
    trigger, runs = event("a", count=count), list[list[Note]]()
    while (chosen := trigger.chosen(notes)) is not None:
        runs.append(chosen)
        notes = without(notes, chosen)
    times = Counter(note.time_ms for run in runs for note in run)
    assert set(times.values()) <= {1}
    assert [len(run) for run in runs] == [count] * (names.count("a") // count)


EXPRESSIONS = [
    "0 3 * * *",
    "30 2 * * *",
    "0,30 2 * * *",
    "*/30 2 * * *",
    "15 * * * *",
    "*/20 1-4 * * *",
    "0 0 29 2 *",
    "0 12 * * 1-5",
    "30 1 25 * *",
]
# 50 days around each change of the clocks, and around a leap day.
BEGINNINGS = ["2026-03-05", "2026-10-01", "2028-02-05"]
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]


def cron_library(expression: str, begins: datetime, ends: datetime) -> list[datetime]:
    """Its own answer; a time that is skipped may come twice with what follows it."""
    times: Iterator[datetime] = iter(CronSim(expression, begins))
    found = takewhile(lambda time: time < ends, times)
    return sorted({time.astimezone(UTC) for time in found})


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("begins", BEGINNINGS)
def test_the_times_of_fifty_days_are_those_of_the_cron_library(
    expression: str, begins: str, zone: str
) -> None:
    """Looked at every 7 hours and 13 minutes, as by a scheduler that comes and goes."""
    first = datetime.fromisoformat(begins).replace(tzinfo=ZoneInfo(zone))
    last = first.astimezone(UTC) + timedelta(days=50)
    clock, found = cron(expression, zone=zone), list[datetime]()
    looked_ms, now = int(first.timestamp() * 1000), first.astimezone(UTC)
    while now < last:
        now = min(last, now + timedelta(hours=7, minutes=13))
        now_ms = int(now.timestamp() * 1000)
        for time_ms in clock.times(looked_ms, began_ms=0):
            if time_ms >= now_ms:
                break
            found.append(datetime.fromtimestamp(time_ms / 1000, UTC))
            looked_ms = time_ms
    assert found == cron_library(expression, first, last.astimezone(ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("zone", "changes"),
    [
        ("Europe/Berlin", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ],
)
def test_times_are_the_same_wherever_a_look_begins(zone: str, changes: str) -> None:
    """Each ten minutes of the twelve hours around a change of the clocks."""
    change_ms = int(datetime.fromisoformat(changes).timestamp() * 1000)
    last_ms = change_ms + 8 * 3_600_000

    def times(after_ms: int) -> list[int]:
        found = clock.times(after_ms, began_ms=0)
        return list(takewhile(lambda time_ms: time_ms <= last_ms, found))

    for expression in [*EXPRESSIONS, "* * * * *"]:
        clock = cron(expression, zone=zone)
        whole = times(change_ms - 30 * 3_600_000)
        for tens in range(-36, 37):
            after_ms = change_ms + tens * 600_000
            assert times(after_ms) == [one for one in whole if one > after_ms]


@given(st.integers(1, 10**6), st.integers(0, 10**7), st.integers(1, 100))
def test_periods_end_at_whole_periods_since_they_began(
    period_s: int, after_s: int, began_s: int
) -> None:
    clock = every(period_s)
    times = clock.times(after_s * 1000, began_ms=began_s * 1000)
    first, second = islice(times, 2)
    assert first > after_s * 1000
    assert (first - began_s * 1000) % (period_s * 1000) == 0
    assert second - first == period_s * 1000


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-11-27 12:00", "2026-11-27 22:00"),
        ("2026-11-27 22:00", "2026-11-27 22:00"),
        ("2026-11-28 05:59", "2026-11-28 05:59"),
        ("2026-11-28 06:00", "2026-11-30 22:00"),
    ],
)
def test_a_window_over_midnight_opens_in_the_evening_of_its_days(
    now: str, opens: str
) -> None:
    window = Window("22:00", "06:00", days=("mon", "tue", "wed", "thu", "fri"))
    now_ms, opens_ms = (
        int(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)
        for time in (now, opens)
    )
    assert window.opens_ms(now_ms) == opens_ms


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"on": {"cron": "0 3 * * *", "zone": "Europe/Berln"}}, "no time zone is"),
        ({"on": {"cron": "0 0 30 2 *"}}, "can never fire: there is no such day"),
        ({"on": {"cron": "0 0 31 4,6 *"}}, "can never fire: there is no such day"),
        ({"on": {"cron": "61 * * * *"}}, "not understood: Bad minute"),
        ({"on": {"cron": "0 0 32 * *"}}, "not understood: Bad day-of-month"),
        ({"on": {"cron": "0 0 * FOO *"}}, "not understood: Bad month"),
        ({"on": {"cron": "0 0 32 2 *"}}, "not understood: Bad day-of-month"),
        ({"on": {"cron": "x" * 10_000}}, "'x{99} is not understood"),
        ({"on": {"cron": "hourly"}}, "not understood: Wrong number of fields"),
        ({"on": {"cron": 5}}, "cron is a text, not 5"),
        ({"on": {"topic": "no good!"}}, "'no good!' is no topic name"),
        ({"on": {"all": []}}, "can never fire"),
        ({"on": {"event": "a", "count": 0}}, "whole number from 1 to 5000"),
        ({"on": {"event": "a", "count": 5001}}, "whole number from 1 to 5000"),
        ({"on": {"event": "a", "topic": "b"}}, "has one of"),
        ({"on": {"every": "0s"}}, "at least 0.1 s"),
        ({"on": {"every": "often"}}, "such as 4s or 15m"),
        ({"on": {"every": 10**400}}, "such as 4s or 15m"),
        ({"on": {"every": "1" * 400 + "d"}}, "such as 4s or 15m"),
        ({"concurrency": True}, "a whole number from 0 on"),
        ({"concurrency": 2**53}, "a whole number from 0 on"),
        ({"window": {"from": "10:00", "to": "10:00"}}, "never opens"),
        ({"catch_up": "some"}, "catch_up is"),
        ({"concurency": 1}, "unknown: concurency"),
        ({"steps": {}}, "has no steps"),
        ({"steps": {"a": {"command": "ls"}}}, "a list of texts"),
        ({"steps": {"a": {}}}, "one of command, call and spark"),
        (
            {"steps": {"a": {"command": ["ls"], "after": ["b"]}}},
            "step a is after b, and there is no such step",
        ),
        ({"steps": {"a": {"command": {"ls": 1}}}}, "a list of texts"),
        ({"steps": {"a": {"command": ["ls"], "after": "b"}}}, "a list of names"),
        ({"steps": {"a": {"spark": {"application": "a", "args": "b"}}}}, "args of"),
        ({"parameters": {"day": object()}}, "cannot be stored: <object object at"),
        ({"parameters": {"rate": float("nan")}}, "cannot be stored"),
        (
            {
                "steps": {
                    "a": {"command": ["ls"], "after": ["b"]},
                    "b": {"command": ["ls"], "after": ["a"]},
                }
            },
            "its steps wait for each other: [ab] -> [ab] -> [ab]",
        ),
    ],
)
def test_a_definition_that_cannot_be_carried_out_says_why(
    told: dict[str, object], error: str
) -> None:
    with pytest.raises(DefinitionError, match=error):
        read_workflow("nightly", {"steps": STEPS, **told})


def test_a_job_of_spark_is_a_spark_submit() -> None:
    spark = {"application": "job.py", "master": "local[2]", "conf": {"a": 1}}
    workflow = read_workflow("w", {"steps": {"s": {"spark": {**spark, "args": ["x"]}}}})
    assert " ".join(workflow.steps["s"].command) == (
        "spark-submit --master local[2] --conf a=1 job.py x"
    )


def test_the_files_of_the_example_and_of_its_page_are_read(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "workflow_scheduler"
    assert list(load(folder / "nightly.toml").workflows) == ["nightly", "summary"]
    _, _, page = (folder / "README.md").read_text().partition("```python\n")
    (tmp_path / "hourly.py").write_text(page.partition("```")[0])
    read = load(tmp_path / "hourly.py")
    assert list(read.workflows["hourly"].steps) == ["count"]
    assert ("hourly", "count") in read.functions


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[workflows", "no TOML"),
        ("", "no \\[workflows.NAME\\]"),
        ("[workflows]\nnightly = 3", "workflow nightly: it is a table"),
        ("group = 'no good!'\nworkflows.a.steps.s.command = ['ls']", "a group is"),
        ("[workflows.a.steps.b]\ncall = 'nowhere:f'", "no function"),
        (
            "[workflows.a]\non = {workflow = 'b'}\nsteps.s.command = ['ls']",
            "waits for workflow b, which is not defined here",
        ),
        (
            "[workflows.a]\non = {workflow = 'a'}\nsteps.s.command = ['ls']",
            "workflow a can never fire: it waits for runs of itself",
        ),
        (
            "[workflows.a]\non = {workflow = 'b'}\nsteps.s.command = ['ls']\n"
            "[workflows.b]\non = {all = [{workflow = 'a'}, {event = 'go'}]}\n"
            "steps.s.command = ['ls']",
            "workflow a, b can never fire",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    text: str, error: str, tmp_path: Path
) -> None:
    (tmp_path / "file.toml").write_text(text)
    with pytest.raises(DefinitionError, match=error):
        load(tmp_path / "file.toml")


def test_durations_have_units() -> None:
    assert [seconds(one) for one in ("250ms", "4s", "1.5h", "2d", 3)] == [
        *(0.25, 4, 5400, 172_800, 3)
    ]


def test_workflows_may_follow_each_other_where_one_of_them_can_be_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "file.toml").write_text(
        "[workflows.a]\non = {workflow = 'b', count = 2}\nsteps.s.command = ['ls']\n"
        "[workflows.b]\non = {any = [{workflow = 'a'}, {event = 'go', count = 2}]}\n"
        "steps.s.command = ['ls']"
    )
    assert list(load(tmp_path / "file.toml").workflows) == ["a", "b"]


def test_a_date_of_toml_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text(
        "[workflows.a]\nparameters = {day = 2026-11-27, at = 2026-11-27T03:00:00Z}\n"
        "steps.s.command = ['ls']"
    )
    read = load(tmp_path / "file.toml").workflows["a"]
    assert read.parameters == {"day": "2026-11-27", "at": "2026-11-27T03:00:00+00:00"}
    assert read_workflow("a", read.plain) == read
