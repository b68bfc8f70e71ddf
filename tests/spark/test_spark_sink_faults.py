"""Whatever fails in a save, and wherever: all of it is published once, or nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.support.doubles import Clock
from tests.support.lossy_proxy import LossyProxy
from tests.support.spark_faults import (
    COMMITTED,
    COMMITTING,
    PUBLISHED,
    STORED,
    STORING,
    Fault,
    Faulty,
    at,
)
from tests.support.spark_fixtures import Shared, sharing

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
TEN = list(range(10))
HOWS = ("raises", "dies")
TOLD = {"raises": "planned: ", "dies": None}


@pytest.fixture(scope="module")
def faulty(spark: SparkSession) -> SparkSession:
    """The session, which knows the source that fails."""
    spark.dataSource.register(Faulty)
    return spark


@pytest.fixture
def shared(faulty: SparkSession, tmp_path: Path) -> Iterator[Shared]:
    with sharing(faulty, tmp_path) as found:
        yield found


def save(shared: Shared, fault: Fault, *, tasks: int = 2, **options: object) -> None:
    """Saves ten rows."""
    shared.save(shared.numbers(10, tasks), source="faulty", fault=fault, **options)


def published(shared: Shared) -> list[int]:
    return sorted(map(int, shared.published("t")))


def open_ones(shared: Shared) -> list[Any]:
    coordinator: Any = shared.messaging.coordinator
    return list(coordinator.open_transactions())


# Tasks


@pytest.mark.parametrize("how", HOWS)
def test_an_attempt_that_fails_after_storing_is_repeated_and_counts_once(
    shared: Shared, tmp_path: Path, how: str
) -> None:
    fault = Fault(tmp_path, STORED, how)
    save(shared, fault)
    assert fault.attempts == 3
    assert shared.messaging.inspect("t").stored == 15
    assert published(shared) == TEN


@pytest.mark.parametrize("how", HOWS)
def test_a_task_that_always_fails_leaves_nothing(
    shared: Shared, tmp_path: Path, how: str
) -> None:
    fault = Fault(tmp_path, STORED, how, once=False)
    with pytest.raises(Exception, match=TOLD[how]):
        save(shared, fault)
    assert fault.attempts >= 3
    assert published(shared) == []
    assert shared.messaging.peek("t") == []
    assert open_ones(shared) == []


def test_a_query_that_fails_before_its_rows_are_written_leaves_nothing(
    shared: Shared,
) -> None:
    wrong = shared.numbers(10).select(f.expr("raise_error('planned') as payload"))
    shuffled = wrong.groupBy("payload").agg(f.max("payload")).select("payload")
    with pytest.raises(Exception, match="planned"):
        shared.save(shuffled.select(f.col("payload").cast("string")))
    assert open_ones(shared) == []


# The commit


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("where", "there"), [(COMMITTING, []), (PUBLISHED, []), (COMMITTED, TEN)]
)
def test_after_a_commit_that_failed_all_is_there_or_nothing_and_a_repeat_is_safe(
    shared: Shared, tmp_path: Path, where: str, there: list[int], how: str
) -> None:
    with pytest.raises(Exception, match=TOLD[how]):
        save(shared, Fault(tmp_path, where, how), save_id="once")
    assert open_ones(shared) == []
    assert published(shared) == there
    for _ in range(2):
        shared.save(shared.numbers(10), save_id="once")
        assert published(shared) == TEN


def test_without_a_save_id_a_failed_commit_leaves_all_or_nothing_too(
    shared: Shared, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="planned: committed"):
        save(shared, Fault(tmp_path, COMMITTED, "raises"))
    assert published(shared) == TEN
    assert open_ones(shared) == []


def test_lost_requests_and_answers_double_nothing(shared: Shared) -> None:
    failures = 0
    with LossyProxy(shared.messaging.reach().url, seed=3, one_in=12) as proxy:
        for number in range(5):
            try:
                shared.save(shared.frame(str(number)), url=proxy.url, save_id=number)
            except Exception:
                failures += 1
            assert len(shared.published("t")) == len(set(shared.published("t")))
        proxy.one_in = 0
        for number in range(5):
            shared.save(shared.frame(str(number)), url=proxy.url, save_id=number)
    assert proxy.lost
    assert published(shared) == list(range(5)), failures


# The driver


def test_a_cancelled_save_leaves_nothing(shared: Shared, tmp_path: Path) -> None:
    fault = Fault(tmp_path, STORED, "waits", once=False)
    context = shared.spark.sparkContext
    told = pytest.raises(Exception, match="cancelled")
    with at(fault, context.cancelAllJobs), told:
        save(shared, fault)
    assert published(shared) == []
    assert open_ones(shared) == []
    shared.save(shared.frame("1"))
    assert published(shared) == [1]


def test_nothing_is_seen_of_a_driver_that_was_killed_and_its_time_out_ends_it(
    faulty: SparkSession, tmp_path: Path
) -> None:
    clock, fault = Clock(), Fault(tmp_path, STORED, "waits")
    with sharing(faulty, tmp_path, clock_ms=clock) as shared:
        command = [
            sys.executable,
            "-m",
            "tests.support.spark_driver",
            shared.url,
            str(fault),
        ]
        driver = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        try:
            fault.wait_until_there()
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        assert shared.messaging.inspect("t").stored == 1
        assert len(open_ones(shared)) == 1
        shared.messaging.direct_publisher("t").publish(b"1")
        shared.save(shared.frame("2"))
        assert published(shared) == [1, 2]
        clock.advance_s(601)
        assert open_ones(shared) == []
        assert shared.messaging.coordinator.invalid_size() == 1


def test_others_publish_and_read_while_a_save_is_running(
    shared: Shared, tmp_path: Path
) -> None:
    messaging, fault = shared.messaging, Fault(tmp_path, STORED, "waits")
    messaging.create_topic("other")

    def publish_and_read() -> None:
        for topic in ("t", "other"):
            with messaging.transaction():
                messaging.publisher(topic).publish(b"10")
            assert shared.published(topic) == [b"10"]

    with at(fault, publish_and_read):
        save(shared, fault)
    assert published(shared) == [*TEN, 10]


# Time-outs


@pytest.mark.parametrize("where", [STORING, STORED])
def test_a_save_that_took_too_long_publishes_nothing_and_says_so(
    faulty: SparkSession, tmp_path: Path, where: str
) -> None:
    clock, fault = Clock(), Fault(tmp_path, where, "waits")
    with sharing(faulty, tmp_path, clock_ms=clock) as shared:
        with (
            at(fault, lambda: clock.advance_s(61)),
            pytest.raises(Exception, match="it timed out") as told,
        ):
            save(shared, fault, tasks=1, timeout_s=60)
        assert "timeout_s says how long all of it may take" in str(told.value)
        assert published(shared) == []
        assert open_ones(shared) == []


def test_a_save_without_a_time_out_may_take_hours(
    faulty: SparkSession, tmp_path: Path
) -> None:
    clock, fault = Clock(), Fault(tmp_path, STORED, "waits")
    with sharing(faulty, tmp_path, clock_ms=clock) as shared:
        with at(fault, lambda: clock.advance_s(23 * 3600)):
            save(shared, fault, tasks=1)
        assert published(shared) == TEN
