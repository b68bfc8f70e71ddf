"""Workflows started by time and by events, each trigger exactly once, whatever dies.

A schedule says what triggers a workflow (time, or an event on a topic) and under which
conditions it runs. Triggers collect in one pending job until the conditions hold; then
it is launched, once for all of them. A schedule that changes makes its pending job
obsolete.

Whatever happens is one transaction: the trigger is used up, the job changes, and the
event that tells of it is published. All state is in a table and in positions of groups.
So the program may be killed at any moment, and nothing happens twice or never.

Here a day goes by in steps of ten minutes, and the program is killed six times. From
11:00 on a new release needs one order only for an ingest.

Prints:
killed before it committed that ingest 1 is pending: arrived orders 1, arrived orders 2
killed before it committed that report 1 is running: finished ingest 1
killed before it committed that backup 1 is pending: time 09:00
killed after it committed that ingest 2 is pending: arrived orders 3
killed before it committed that ingest 2 is finished: arrived orders 3, arrived orders 4
killed before it committed that ingest 3 is obsolete: arrived orders 5
backup 1, 10:00 to 10:30: time 09:00, time 10:00
backup 2, 11:00 to 11:30: time 11:00
backup 3, pending: time 12:00
ingest 1, 08:30 to 08:40: arrived orders 1, arrived orders 2
ingest 2, 09:50 to 10:00: arrived orders 3, arrived orders 4
ingest 3, obsolete: arrived orders 5
ingest 4, 11:20 to 11:30: arrived orders 6
report 1, 08:40 to 08:50: finished ingest 1
report 2, 10:30 to 10:40: finished ingest 2
report 3, 11:30 to 11:40: finished ingest 4
each trigger is in one job, and each finished job has one result
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

import txaware
from coordinator import current_transaction, retry_on_conflict

PENDING, RUNNING, FINISHED, OBSOLETE = "pending", "running", "finished", "obsolete"
Clock = Callable[[], int]  # minutes since midnight


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@attrs.frozen
class Job:
    """What was triggered: it collects notifications, and then runs once."""

    workflow: str
    number: int
    generation: int
    notifications: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    state: str = PENDING
    launched: int = 0
    finished: int = 0

    def __str__(self) -> str:
        return f"{self.workflow} {self.number}"


@attrs.frozen
class Every:
    """Triggers each time so many minutes have gone by, also those slept through."""

    minutes: int


@attrs.frozen
class On:
    """Triggers on each message of a topic whose first word is `about`."""

    topic: str
    about: str


@attrs.frozen
class Schedule:
    """What triggers a workflow, and what has to hold before it is launched."""

    workflow: str
    trigger: Every | On
    at_least: int = 1
    not_while: str = ""
    hours: tuple[int, int] = (0, 24)

    def allows(self, job: Job, *, now: int, running: set[str]) -> bool:
        """Enough notifications, another workflow not at work, the right time."""
        return (
            len(job.notifications) >= self.at_least
            and self.not_while not in running
            and self.hours[0] <= now / 60 < self.hours[1]
        )


class State:
    """The schedules and jobs, in a table; of two that change any at once one is redone.

    For a launch depends on the other jobs, too: all changes write one row more.
    """

    def __init__(self, messaging: txaware.Messaging) -> None:
        self._rows = messaging.table(
            "scheduler", encode=txaware.to_json, decode=txaware.from_json
        )

    def get(self, key: str) -> Any:
        return self._rows.get(key.encode())

    def put(self, key: str, row: Any) -> None:
        self._rows.put(key.encode(), row)
        self._rows.put(b"last change", key)

    def put_job(self, job: Job) -> None:
        self.put(f"job {job.workflow} {job.number:06}", job)

    def jobs(self, *states: str) -> list[Job]:
        """The jobs in these states, or all, in the order of their keys."""
        jobs = [Job(**row) for _, row in self._rows.scan(b"job ")]
        return [job for job in jobs if not states or job.state in states]


class Scheduler:
    """Makes jobs of triggers, and launches those whose conditions hold."""

    def __init__(
        self,
        messaging: txaware.Messaging,
        state: State,
        schedules: Sequence[Schedule],
        *,
        clock: Clock,
    ) -> None:
        self._messaging = messaging
        self._state = state
        self._schedules = {schedule.workflow: schedule for schedule in schedules}
        self._clock = clock
        triggers = [schedule.trigger for schedule in schedules]
        self._consumers = {
            topic: messaging.consumer(topic, group="scheduler")
            for topic in sorted({one.topic for one in triggers if isinstance(one, On)})
        }
        self._adopt_all()

    @retry_on_conflict
    def step(self) -> bool:
        """One transaction of work; False when there is nothing to do."""
        return self._note_time() or self._note_events() or self._decide()

    @retry_on_conflict
    def _adopt_all(self) -> None:
        with self._messaging.transaction():
            for schedule in self._schedules.values():
                self._adopt(schedule)

    def _adopt(self, schedule: Schedule) -> None:
        """A schedule that is not what it was begins a new generation of jobs."""
        key = f"schedule {schedule.workflow}"
        row = self._state.get(key) or {"generation": 0}
        if row.get("is") != repr(schedule):
            row = {"is": repr(schedule), "generation": row["generation"] + 1}
            if isinstance(schedule.trigger, Every):
                row["due"] = self._clock() + schedule.trigger.minutes
            self._state.put(key, row)

    def _note_time(self) -> bool:
        with self._messaging.transaction():
            for schedule in self._schedules.values():
                key = f"schedule {schedule.workflow}"
                row, every = self._state.get(key), schedule.trigger
                if isinstance(every, Every) and row["due"] <= self._clock():
                    self._note(f"time {shown(row['due'])}", schedule)
                    self._state.put(key, row | {"due": row["due"] + every.minutes})
                    return True
        return False

    def _note_events(self) -> bool:
        for topic, consumer in self._consumers.items():
            with self._messaging.transaction():
                page = consumer.poll()
                for message in page:
                    text = message.payload.decode()
                    trigger = On(topic, text.split()[0])
                    for schedule in self._schedules.values():
                        if schedule.trigger == trigger:
                            self._note(f"{topic} {text}", schedule)
            if page:
                return True
        return False

    def _note(self, notification: str, schedule: Schedule) -> None:
        """Adds to the job that waits, or to a new one."""
        jobs = [job for job in self._state.jobs() if job.workflow == schedule.workflow]
        new = Job(schedule.workflow, len(jobs) + 1, self._generation(schedule.workflow))
        waiting = [job for job in jobs if job.state == PENDING and self._counts(job)]
        job = waiting[0] if waiting else new
        together = (*job.notifications, notification)
        self._state.put_job(attrs.evolve(job, notifications=together))

    def _decide(self) -> bool:
        """Launches or drops one job."""
        with self._messaging.transaction():
            running = {job.workflow for job in self._state.jobs(RUNNING)}
            now = self._clock()
            for job in self._state.jobs(PENDING):
                if not self._counts(job):
                    self._state.put_job(attrs.evolve(job, state=OBSOLETE))
                    return True
                schedule = self._schedules[job.workflow]
                if schedule.allows(job, now=now, running=running):
                    launched = attrs.evolve(job, state=RUNNING, launched=now)
                    self._state.put_job(launched)
                    return True
        return False

    def _counts(self, job: Job) -> bool:
        """Whether the schedule is still the one that the job was made by."""
        return job.generation == self._generation(job.workflow)

    def _generation(self, workflow: str) -> int:
        """Of a schedule; 0 where there is none any more."""
        if workflow not in self._schedules:
            return 0
        return int(self._state.get(f"schedule {workflow}")["generation"])


@retry_on_conflict
def work(messaging: txaware.Messaging, state: State, *, now: int) -> bool:
    """Ends one run: its result, its state and the event of it are one transaction."""
    with messaging.transaction():
        for job in state.jobs(RUNNING):
            if job.launched + TAKES_MINUTES[job.workflow] <= now:
                state.put_job(attrs.evolve(job, state=FINISHED, finished=now))
                messaging.publisher("results").publish(str(job).encode())
                messaging.publisher("finished").publish(str(job).encode())
                return True
    return False


def create_topics(messaging: txaware.Messaging) -> None:
    for topic in ("arrived", "finished", "results"):
        messaging.create_topic(topic)


def shown(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


# The day of this example.

MORNING, NEW_RELEASE, NOON, STEP = 8 * 60, 11 * 60, 12 * 60, 10
TAKES_MINUTES = {"backup": 30, "ingest": 10, "report": 10}
ARRIVALS = {
    **{490: "orders 1", 500: "visits 1", 510: "orders 2", 580: "orders 3"},
    **{590: "orders 4", 650: "orders 5", 680: "orders 6"},
}


def schedules(*, orders: int) -> list[Schedule]:
    return [
        Schedule("backup", Every(60), hours=(10, 12)),
        Schedule("ingest", On("arrived", "orders"), at_least=orders),
        Schedule("report", On("finished", "ingest"), not_while="backup"),
    ]


def live(messaging: txaware.Messaging, state: State, *, until: int) -> None:
    """Goes on from the present time of the simulated world, which is in the state."""
    arrived = messaging.publisher("arrived")
    plan = schedules(orders=2 if until <= NEW_RELEASE else 1)
    now = state.get("now") or MORNING
    scheduler = Scheduler(messaging, state, plan, clock=lambda: now)
    while True:
        while work(messaging, state, now=now) or scheduler.step():
            pass
        if now >= until:
            break
        with messaging.transaction():
            state.put("now", now + STEP)
            if now + STEP in ARRIVALS:
                arrived.publish(ARRIVALS[now + STEP].encode())
        now += STEP


def verified(messaging: txaware.Messaging) -> list[Job]:
    """All jobs, once it is sure that nothing was lost, and nothing done twice."""
    with messaging.transaction():
        jobs = State(messaging).jobs()
        results = [one.payload.decode() for one in messaging.consumer("results").poll()]
    finished = [str(job) for job in jobs if job.state == FINISHED]
    assert sorted(results) == sorted(finished), f"{results} of {finished}"

    triggers = [f"time {shown(at)}" for at in range(MORNING + 60, NOON + 1, 60)]
    triggers += [f"arrived {it}" for it in ARRIVALS.values() if it.startswith("orders")]
    triggers += [f"finished {job}" for job in finished if job.startswith("ingest")]
    noted = [one for job in jobs for one in job.notifications]
    assert sorted(noted) == sorted(triggers), f"{noted} of {triggers}"
    return jobs


# What kills it.

KILLS = [
    ("before", "ingest 1 is pending: arrived orders 1, arrived orders 2"),
    ("before", "report 1 is running: finished ingest 1"),
    ("before", "backup 1 is pending: time 09:00"),
    ("after", "ingest 2 is pending: arrived orders 3"),
    ("before", "ingest 2 is finished: arrived orders 3, arrived orders 4"),
    ("before", "ingest 3 is obsolete: arrived orders 5"),
]


class DeadlyState(State):
    """Kills the process when a certain change of a job is made, or has committed."""

    def __init__(self, messaging: txaware.Messaging, moment: str, change: str) -> None:
        super().__init__(messaging)
        self._coordinator = messaging.coordinator
        self._deadly = moment, change

    def put_job(self, job: Job) -> None:
        super().put_job(job)
        change = f"{job} is {job.state}: {', '.join(job.notifications)}"
        block = current_transaction(self._coordinator)
        if ("before", change) == self._deadly:
            die()
        if ("after", change) == self._deadly and block is not None:
            block.on_commit(die)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def program(directory: str, until: str, moment: str, change: str) -> None:
    with txaware.connect(f"leveldb:{directory}") as messaging:
        live(messaging, DeadlyState(messaging, moment, change), until=int(until))


def run(directory: str, until: int, moment: str = "", change: str = "") -> None:
    """Runs the program until a time of the day, or to the death it is meant to die."""
    command = [sys.executable, __file__, directory, str(until), moment, change]
    ended = subprocess.run(command, check=False, timeout=60).returncode
    assert ended == (-signal.SIGKILL if change else 0), f"{change}: ended with {ended}"
    if change:
        print(f"killed {moment} it committed that {change}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with txaware.connect(f"leveldb:{directory}") as messaging:
            create_topics(messaging)
        *morning, at_noon = KILLS
        for until, kills in ((NEW_RELEASE, morning), (NOON, [at_noon])):
            for kill in kills:
                run(directory, until, *kill)
            run(directory, until)
        with txaware.connect(f"leveldb:{directory}") as messaging:
            jobs = verified(messaging)
        for job in jobs:
            times = f"{shown(job.launched)} to {shown(job.finished)}"
            state = times if job.state == FINISHED else job.state
            print(f"{job}, {state}: {', '.join(job.notifications)}")
        print("each trigger is in one job, and each finished job has one result")


if __name__ == "__main__":
    program(*sys.argv[1:]) if len(sys.argv) > 1 else main()
