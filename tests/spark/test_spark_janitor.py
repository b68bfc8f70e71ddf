"""A clean-up as a Spark job leaves what a clean-up in one process leaves."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txaware
from tests.support.clean_up_data import (
    BEGAN_MS,
    SETTINGS,
    filled,
    retention_of,
    rows_of,
)
from tests.support.cli_runs import error_of, run, run_json
from tests.support.doubles import Clock
from txaware.auth import EVERYTHING, Principal, Tokens, new_token
from txaware.cli.janitor import NOUNS
from txaware.errors import BadRequest, NotAuthorized, StoreCorrupted, Unavailable
from txaware.messaging import Messaging
from txaware.model.reports import CleanUp
from txaware.service.retention.clean_up_plan import Piece, PieceResult, Plan
from txaware.spark.addresses import StoreAddress
from txaware.spark.janitor import PieceCleaning, clean_up_with_spark

needs_spark = pytest.mark.spark


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has stores whose clocks agree give out the same pointers."""
    monkeypatch.setattr("coordinator.embedded.coordinator.new_salt", lambda: 0)


@attrs.frozen
class Served:
    """Data to clean up in a directory of this process, which serves it."""

    url: str
    messaging: Messaging


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Served]:
    url = f"leveldb:{tmp_path / 'data'}"
    with filled(Clock(BEGAN_MS), url) as messaging, messaging.serve():
        yield Served(url, messaging)


@pytest.fixture
def expected(tmp_path: Path) -> tuple[CleanUp, object]:
    """What a clean-up in one process answers, and what it leaves of the same data."""
    with filled(Clock(BEGAN_MS), f"leveldb:{tmp_path / 'copy'}") as messaging:
        return messaging.clean_up(), rows_of(messaging)


def require_counts(done: CleanUp, expected: CleanUp) -> None:
    """The same, but for what tasks beside each other may count otherwise.

    A row may be gone before somebody has marked it, and an expired reference may be
    found by both of those who remove it.
    """
    counted = attrs.evolve(
        done, marked_rows=0, expired_messages=expected.expired_messages
    )
    assert counted == attrs.evolve(expected, marked_rows=0)
    once = expected.expired_messages
    assert once <= done.expired_messages <= 2 * once


@needs_spark
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_spark_job_leaves_what_one_process_leaves(
    spark: SparkSession, data: Served, expected: tuple[CleanUp, object], pieces: int
) -> None:
    done = clean_up_with_spark(spark, data.url, pieces=pieces)
    require_counts(done, expected[0])
    assert rows_of(data.messaging) == expected[1]
    assert data.messaging.check().problems == ()
    again = clean_up_with_spark(spark, data.url)
    assert again == CleanUp(topics=done.topics, least_needed=again.least_needed)


@needs_spark
@pytest.mark.hbase
def test_a_spark_job_cleans_up_hbase(
    spark: SparkSession, hbase_url: str, expected: tuple[CleanUp, object]
) -> None:
    with filled(Clock(BEGAN_MS), hbase_url) as messaging, messaging.serve():
        done = clean_up_with_spark(spark, hbase_url, pieces=3)
        require_counts(done, expected[0])
        assert rows_of(messaging) == expected[1]


@needs_spark
@pytest.mark.parametrize("way", ["raises", "dies"])
def test_a_task_that_fails_once_has_done_no_harm(
    spark: SparkSession,
    data: Served,
    expected: tuple[CleanUp, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    marker = tmp_path / "failed"

    class FailingOnce(PieceCleaning):
        """Fails in the middle: its pieces are done, and nobody hears of it."""

        def clean(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            answers = list(PieceCleaning.clean(self, batches))
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                yield from answers
                return
            if way == "dies":
                os._exit(1)
            raise RuntimeError("this task fails once")

    monkeypatch.setattr("txaware.spark.janitor.PieceCleaning", FailingOnce)
    done = clean_up_with_spark(spark, data.url, pieces=2)
    assert marker.exists()
    require_counts(done, expected[0])
    assert rows_of(data.messaging) == expected[1]


@needs_spark
def test_a_piece_that_fails_stops_no_other_and_is_told(
    spark: SparkSession,
    data: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    retention = retention_of(data.messaging)
    clean_piece = retention.clean_piece

    def fail(plan: Plan, piece: Piece) -> PieceResult:
        if piece.topic == "a":
            raise StoreCorrupted("this topic is odd")
        return clean_piece(plan, piece)

    monkeypatch.setattr(retention, "clean_piece", fail)
    done = clean_up_with_spark(spark, data.url)
    assert (done.failed_topics, done.least_needed) == (1, None)
    assert done.topics == 5
    assert done.expired_messages > 0
    assert "piece 0 could not be done: this topic is odd" in caplog.text


@needs_spark
def test_the_token_goes_to_the_tasks_and_is_shown_nowhere(
    spark: SparkSession,
    data: Served,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TXAWARE_TOKEN", raising=False)
    caplog.set_level(logging.DEBUG)
    token, other = new_token(), new_token()
    tokens = Tokens(tmp_path / "no file")
    tokens.admit(token, Principal(name="ann", rules=(EVERYTHING,)))
    with data.messaging.serve(tokens=tokens) as server:
        done = clean_up_with_spark(spark, server.url, token=token, pieces=2)
        assert done.expired_messages > 0
        with pytest.raises(NotAuthorized) as refused:
            clean_up_with_spark(spark, server.url, token=other)
        cleaning = PieceCleaning(StoreAddress(server.url, token=token), "plan", 3, 2)
    shown = caplog.text + repr(cleaning) + str(refused.value)
    assert token not in shown
    assert other not in shown


@needs_spark
def test_data_with_nothing_to_remove_needs_no_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(url, settings=SETTINGS) as messaging, messaging.serve():
        messaging.create_topic("t")
        messaging.publish("t", [b"m"])
        assert clean_up_with_spark(spark, url) == CleanUp(topics=1)


def test_data_that_other_processes_cannot_reach_is_refused(tmp_path: Path) -> None:
    none: Any = None
    with pytest.raises(BadRequest, match="inside one process"):
        clean_up_with_spark(none, "memory:")
    url = f"leveldb:{tmp_path / 'data'}"
    with (
        txaware.connect(url, settings=SETTINGS),
        pytest.raises(Unavailable, match="is served by nobody"),
    ):
        clean_up_with_spark(none, url)


@needs_spark
def test_the_command_line_prints_the_report_of_the_job(
    spark: SparkSession, data: Served, expected: tuple[CleanUp, object]
) -> None:
    arguments = ("janitor", "--spark", "--url", data.url)
    [found] = run_json(*arguments, "--pieces", "2")
    assert found.keys() == attrs.asdict(expected[0]).keys()
    require_counts(CleanUp(**found), expected[0])
    assert rows_of(data.messaging) == expected[1]
    told = run(*arguments).stdout
    assert all(noun in told for noun in NOUNS.values())
    assert spark.range(1).count() == 1  # a session that was there before goes on


def test_the_command_line_refuses_what_is_wrong_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = error_of("janitor", "--master", "local[2]", code=2)
    assert told == "--master and --pieces are for --spark"
    assert "there is no data at" in error_of("janitor", "--spark")
    with txaware.connect("leveldb:data", settings=SETTINGS):
        told = error_of("janitor", "--spark", code=3)
    assert "is served by nobody" in told


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_pyspark_one_sentence_says_how_to_get_it(
    tmp_path: Path, missing: str
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[0] = 'txaware'\n"
        f"from txaware.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "janitor", "--spark"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "Error: --spark needs PySpark and PyArrow: pip install '.[spark]' in a "
        "checkout of txaware"
    ]


def test_the_command_line_starts_without_pyspark() -> None:
    program = (
        "import sys, txaware.cli.root\n"
        "print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "[]\n", ended.stderr
