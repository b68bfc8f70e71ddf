"""The scheduler of the examples: one run for each trigger, whenever it is killed."""

import importlib
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import retry_on_conflict
from tests.support.messagings import Site
from txaware.messaging import Messaging
from txaware.model.settings import Settings

example: Any = importlib.import_module("examples.workflow_scheduler")
DAY = {
    "backup 1": ("finished", 600, ("time 09:00", "time 10:00")),
    "backup 2": ("finished", 660, ("time 11:00",)),
    "backup 3": ("pending", 0, ("time 12:00",)),
    "ingest 1": ("finished", 510, ("arrived orders 1", "arrived orders 2")),
    "ingest 2": ("finished", 590, ("arrived orders 3", "arrived orders 4")),
    "ingest 3": ("obsolete", 0, ("arrived orders 5",)),
    "ingest 4": ("finished", 680, ("arrived orders 6",)),
    "report 1": ("finished", 520, ("finished ingest 1",)),
    "report 2": ("finished", 630, ("finished ingest 2",)),
    "report 3": ("finished", 690, ("finished ingest 4",)),
}


class Office:
    """A state, a clock that is set by hand, and schedules over them."""

    def __init__(self, messaging: Messaging) -> None:
        self.messaging = messaging
        self.state = example.State(messaging)
        self.now = 0

    def scheduler(self, *schedules: Any) -> Any:
        """As a program makes it when it starts."""
        return example.Scheduler(
            self.messaging, self.state, schedules, clock=lambda: self.now
        )

    def work(self) -> bool:
        """Ends one run, however long it takes."""
        worked: bool = example.work(self.messaging, self.state, now=self.now + 1000)
        return worked

    def jobs(self) -> dict[str, tuple[str, int, tuple[str, ...]]]:
        """State, time of the launch, and notifications of each."""
        return {
            str(job): (job.state, job.launched, job.notifications)
            for job in self.state.jobs()
        }


@pytest.fixture
def office(site: Site) -> Office:
    """With all topics, and nothing in them."""
    example.create_topics(site.messaging)
    return Office(site.messaging)


def until_idle(scheduler: Any) -> None:
    while scheduler.step():
        pass


def on_orders(**conditions: Any) -> Any:
    return example.Schedule("ingest", example.On("arrived", "orders"), **conditions)


def test_two_triggers_before_the_conditions_hold_make_one_run(office: Office) -> None:
    scheduler = office.scheduler(on_orders(hours=(10, 24)))
    for order in (b"orders 1", b"orders 2"):
        office.messaging.publish("arrived", [order])
        until_idle(scheduler)
    both = ("arrived orders 1", "arrived orders 2")
    assert office.jobs() == {"ingest 1": ("pending", 0, both)}
    office.now = 600
    until_idle(scheduler)
    assert office.jobs() == {"ingest 1": ("running", 600, both)}


def test_a_schedule_that_changes_makes_its_pending_job_obsolete(office: Office) -> None:
    office.messaging.publish("arrived", [b"orders 1"])
    until_idle(office.scheduler(on_orders(at_least=2)))
    updated = office.scheduler(on_orders(at_least=1))
    until_idle(updated)
    gone = ("obsolete", 0, ("arrived orders 1",))
    assert office.jobs() == {"ingest 1": gone}
    office.messaging.publish("arrived", [b"orders 2"])
    until_idle(updated)
    assert office.jobs()["ingest 1"] == gone
    assert office.jobs()["ingest 2"] == ("running", 0, ("arrived orders 2",))


def test_a_trigger_after_the_change_does_not_join_the_obsolete_job(
    office: Office,
) -> None:
    office.messaging.publish("arrived", [b"orders 1"])
    until_idle(office.scheduler(on_orders(at_least=2)))
    updated = office.scheduler(on_orders(at_least=1))
    office.messaging.publish("arrived", [b"orders 2"])
    until_idle(updated)
    assert office.jobs() == {
        "ingest 1": ("obsolete", 0, ("arrived orders 1",)),
        "ingest 2": ("running", 0, ("arrived orders 2",)),
    }


def test_a_restart_keeps_the_pending_job_of_an_unchanged_schedule(
    office: Office,
) -> None:
    office.messaging.publish("arrived", [b"orders 1"])
    until_idle(office.scheduler(on_orders(at_least=2)))
    again = Office(office.messaging)
    office.messaging.publish("arrived", [b"orders 2"])
    until_idle(again.scheduler(on_orders(at_least=2)))
    both = ("arrived orders 1", "arrived orders 2")
    assert again.jobs() == {"ingest 1": ("running", 0, both)}


def test_a_job_of_a_schedule_that_is_gone_is_obsolete(office: Office) -> None:
    office.messaging.publish("arrived", [b"orders 1"])
    until_idle(office.scheduler(on_orders(at_least=2)))
    until_idle(office.scheduler(example.Schedule("backup", example.Every(60))))
    assert office.jobs() == {"ingest 1": ("obsolete", 0, ("arrived orders 1",))}


def test_times_slept_through_are_one_run(office: Office) -> None:
    hourly = example.Schedule("backup", example.Every(60))
    until_idle(office.scheduler(hourly))
    office.now = 185
    until_idle(office.scheduler(hourly))
    slept = ("time 01:00", "time 02:00", "time 03:00")
    assert office.jobs() == {"backup 1": ("running", 185, slept)}


def test_a_job_waits_while_another_workflow_runs(office: Office) -> None:
    hourly = example.Schedule("backup", example.Every(60))
    until_idle(office.scheduler(hourly, on_orders(not_while="backup")))
    office.now = 60
    scheduler = office.scheduler(hourly, on_orders(not_while="backup"))
    until_idle(scheduler)
    office.messaging.publish("arrived", [b"orders 1"])
    until_idle(scheduler)
    assert office.jobs()["ingest 1"][0] == "pending"
    assert office.work()
    until_idle(scheduler)
    assert office.jobs()["ingest 1"][0] == "running"


def test_schedulers_at_the_same_time_use_each_trigger_once(office: Office) -> None:
    orders = [f"orders {number}" for number in range(40)]
    published = threading.Event()
    patient = retry_on_conflict(tries=50)  # one of three may lose often

    def schedule() -> None:
        mine = Office(office.messaging)
        scheduler = patient(mine.scheduler)(on_orders())
        work, step = patient(mine.work), patient(scheduler.step)
        while work() or step() or not published.is_set():
            pass

    def publish() -> None:
        for order in orders:
            with office.messaging.transaction():
                office.messaging.publisher("arrived").publish(order.encode())
        published.set()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(one) for one in (*[schedule] * 3, publish)]:
            done.result()
    last = office.scheduler(on_orders())
    while office.work() or last.step():
        pass
    jobs = office.jobs()
    assert {state for state, *_ in jobs.values()} == {"finished"}
    noted = [one for *_, notifications in jobs.values() for one in notifications]
    assert noted == [f"arrived {order}" for order in orders]
    results = office.messaging.consumer("results").poll(1000)
    assert sorted(one.payload.decode() for one in results) == sorted(jobs)


class Crashes:
    """Copies of the data as a kill would leave it, around the commits of a day."""

    def __init__(self, data: Path, copies: Path, *, every: int) -> None:
        self.found: list[tuple[Path, int]] = []
        self.until = 0
        self._data = data
        self._copies = copies
        self._every = every
        self._moments = 0

    def around(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        """A commit that may be the last thing somebody did, or nearly so."""

        def committed(*arguments: Any) -> Any:
            self._moment()
            found = commit(*arguments)
            self._moment()
            return found

        return committed

    def _moment(self) -> None:
        self._moments += 1
        if self._moments % self._every == 0:
            copy = self._copies / f"{self._moments}"
            shutil.copytree(
                self._data, copy, ignore=shutil.ignore_patterns("LOCK", "lock")
            )
            self.found.append((copy, self.until))


@pytest.mark.parametrize(
    "every", [31, pytest.param(1, marks=pytest.mark.soak, id="each moment")]
)
def test_a_day_is_the_same_wherever_it_was_killed(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = Crashes(tmp_path / "data", tmp_path / "copies", every=every)
    with connect(tmp_path / "data") as messaging:
        example.create_topics(messaging)
        coordinator = messaging.coordinator
        for name in ("commit", "commit_with"):
            watched = crashes.around(getattr(coordinator, name))
            monkeypatch.setattr(coordinator, name, watched)
        for crashes.until in (example.NEW_RELEASE, example.NOON):
            live(messaging, crashes.until)
        assert Office(messaging).jobs() == DAY
    assert crashes.found
    for copy, until in crashes.found:
        with connect(copy) as messaging:
            for later in sorted({until, example.NOON}):
                live(messaging, later)
            example.verified(messaging)
            assert Office(messaging).jobs() == DAY, copy.name


def connect(directory: Path) -> Messaging:
    return txaware.connect(
        f"leveldb:{directory}", settings=Settings(janitor_interval_s=0)
    )


def live(messaging: Messaging, until: int) -> None:
    example.live(messaging, example.State(messaging), until=until)
