"""Spark on a cluster of processes: slow tasks, killed ones, late ones; exactly once.

Every way to publish with every process killed:
`python -m pytest -m "soak or not soak" tests/spark/test_spark_cluster.py`.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import txaware
from tests.support.concurrency import until
from tests.support.spark_cluster import Driver, cluster, driver, server
from tests.support.spark_jobs.waiting import GO_ON, PIECE_ROWS
from txaware.messaging import Messaging

pytestmark = pytest.mark.spark

NUMBERS = sorted(str(number) for number in range(20))
NOTICED_S = 240
SETTINGS: dict[str, object] = {
    "spark.executor.memory": "600m",
    "spark.scheduler.minRegisteredResourcesRatio": 1,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": 1.1,
    "spark.speculation.quantile": 0.5,
    # How long a task that nobody waits for any more may go on.
    "spark.python.task.killTimeout": "300s",
}


@attrs.frozen
class Setting:
    """A server, a cluster with a session, and the notes of its tasks."""

    url: str
    messaging: Messaging
    driver: Driver
    notes: Path

    def noted(self, what: str) -> dict[str, int]:
        """What an attempt has noted, as soon as it has."""
        path = self.notes / what
        assert until(path.exists, timeout_s=NOTICED_S), (path, self.all_noted())
        return dict(json.loads(path.read_text()))

    def all_noted(self) -> list[str]:
        """Every note there is."""
        return sorted(p.name for p in self.notes.iterdir() if p.name[0] != ".")

    def go_on(self) -> None:
        """Lets tasks go on that wait."""
        (self.notes / GO_ON).touch()

    def payloads(self) -> list[str]:
        """What is published, sorted."""
        page = self.messaging.poll("t", limit=1000, isolation="committed")
        return sorted(message.payload.decode() for message in page)

    def options(self, *tasks: int) -> dict[str, str]:
        """Of a job in which these tasks wait."""
        found = {"url": self.url, "topic": "t", "notes": str(self.notes)}
        return {**found, "waiting": ",".join(map(str, tasks))}


@pytest.fixture(scope="module")
def places(
    spark_java: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Driver]]:
    """The address of a server, and a session on a cluster."""
    path = tmp_path_factory.mktemp("cluster")
    with (
        server(path) as url,
        cluster(path) as master,
        driver(path / "driver.log", master, conf=SETTINGS) as found,
    ):
        yield url, found


@pytest.fixture
def setting(places: tuple[str, Driver], tmp_path: Path) -> Iterator[Setting]:
    """Two executors, and a topic with nothing in it, beside one with the numbers."""
    url, found = places
    found.ask("await_executors", count=2)
    with txaware.connect(url) as messaging:
        messaging.create_topic("t")
        messaging.create_topic("numbers")
        messaging.publish("numbers", [number.encode() for number in NUMBERS])
        notes = tmp_path / "notes"
        notes.mkdir()
        begun = Setting(url, messaging, found, notes)
        yield begun
        begun.go_on()
        found.finish()
        messaging.delete_topic("t")
        messaging.delete_topic("numbers")


def begin(setting: Setting, job: str, *tasks: int) -> None:
    """Has the driver publish the numbers to the topic in one of three ways."""
    options = setting.options(*tasks)
    if job == "stream":
        checkpoint = str(setting.notes.parent / "checkpoint")
        setting.driver.begin(job, source="numbers", checkpoint=checkpoint, **options)
    else:
        setting.driver.begin(job, rows=len(NUMBERS), **options)


@pytest.mark.parametrize("job", ["save", "frame", "stream"])
@pytest.mark.long
def test_an_attempt_that_stores_after_the_commit_adds_nothing(
    setting: Setting, job: str
) -> None:
    begin(setting, job, 0)
    setting.driver.answer()
    assert setting.payloads() == NUMBERS
    # The second attempt has stored everything while the first one was on its way.
    assert (
        setting.noted("stored 0.1")["executor"]
        != setting.noted("waits 0.0")["executor"]
    )
    assert setting.messaging.inspect("t").stored == len(NUMBERS) + PIECE_ROWS
    setting.go_on()
    setting.noted("TransactionNotInProgress 0.0")
    assert setting.payloads() == NUMBERS
    assert setting.messaging.inspect("t").stored == len(NUMBERS) + PIECE_ROWS


KILLED = [
    pytest.param("save", "executor"),
    pytest.param("frame", "python"),
    pytest.param("save", "python", marks=pytest.mark.soak),
    pytest.param("frame", "executor", marks=pytest.mark.soak),
    pytest.param("stream", "python", marks=pytest.mark.soak),
    pytest.param("stream", "executor", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("job", "process"), KILLED)
def test_a_task_whose_process_is_killed_is_done_again(
    setting: Setting, job: str, process: str
) -> None:
    begin(setting, job, 0, 1)
    setting.noted("waits 1.0")
    os.kill(setting.noted("waits 0.0")[process], signal.SIGKILL)
    setting.go_on()
    setting.driver.answer()
    assert setting.payloads() == NUMBERS
    # Without its executor Python lives on for a while, and may have stored the rest.
    assert process == "executor" or "stored 0.0" not in setting.all_noted()
    assert setting.messaging.inspect("t").stored >= len(NUMBERS) + PIECE_ROWS


def test_tasks_on_two_executors_read_one_snapshot(setting: Setting) -> None:
    for number in NUMBERS:
        setting.messaging.publish("t", [number.encode() * 100])
    before = setting.payloads()
    with setting.messaging.transaction() as tx:
        planned = [b"open when the read is planned"]
        setting.messaging.publish("t", planned, transaction=tx.transaction)
        options = {**setting.options(1), "part_bytes": "1000"}
        setting.driver.begin("read", **options)
        first, second = setting.noted("read 0.0"), setting.noted("waits 1.0")
    setting.messaging.publish("t", [b"later than that"])
    assert len(setting.payloads()) == len(before) + 2
    setting.go_on()
    assert sorted(setting.driver.answer()) == before
    assert first["executor"] != second["executor"]
    assert len(setting.driver.ask("read", **options)) == len(before) + 2
