"""Spark with executors of their own: what they need, and what they say without it.

It is long, and `test_spark_cluster.py` has executors, too:
`python -m pytest -m soak tests/spark/test_spark_local_cluster.py`.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.spark_cluster import ROOT, Driver, DriverError, driver, server
from txaware.messaging import Messaging

pytestmark = [pytest.mark.spark, pytest.mark.soak]

NUMBERS = sorted(str(number) for number in range(20))
# Executors find only what is installed, and the tests' own modules.
WITHOUT_TXAWARE = f"""
import sys
sys.path = [path for path in sys.path if path.rstrip("/") != {str(ROOT)!r}]
"""


@pytest.fixture
def url(spark_java: str, tmp_path: Path) -> Iterator[str]:
    """The address of a server in a process of its own."""
    with server(tmp_path) as found:
        yield found


@pytest.fixture
def messaging(url: str) -> Iterator[Messaging]:
    """What is served there, with a topic."""
    with txaware.connect(url) as found:
        found.create_topic("t")
        yield found


def save_read_and_store(spark: Driver, url: str, notes: Path) -> None:
    """Each once, with nothing that waits."""
    options = {"url": url, "topic": "t", "notes": str(notes)}
    spark.ask("save", rows=20, **options)
    assert spark.ask("read", **options) == NUMBERS
    assert spark.ask("frame", rows=20, waiting="", **options) == len(NUMBERS)


def published(messaging: Messaging) -> list[str]:
    """What is published, sorted."""
    page = messaging.poll("t", limit=1000, isolation="committed")
    return sorted(message.payload.decode() for message in page)


def test_executors_of_a_local_cluster_store_and_read(
    url: str, messaging: Messaging, tmp_path: Path
) -> None:
    with driver(tmp_path / "driver.log", "local-cluster[2,1,1024]") as spark:
        save_read_and_store(spark, url, tmp_path)
    assert published(messaging) == sorted(2 * NUMBERS)


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """For executors on which txaware is not installed, but all that it needs."""
    directory = tmp_path / "bare"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(WITHOUT_TXAWARE)
    (directory / "tests").symlink_to(ROOT / "tests")
    return {"spark.executorEnv.PYTHONPATH": str(directory)}


def test_executors_without_txaware_say_so_and_nothing_is_published(
    url: str, messaging: Messaging, bare: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    with driver(log, "local-cluster[1,1,1024]", conf=bare) as spark:
        options = {"url": url, "topic": "t", "notes": str(tmp_path)}
        for job in ("save", "read"):
            with pytest.raises(DriverError, match="No module named 'txaware'"):
                spark.ask(job, **({"rows": 20} if job == "save" else {}), **options)
        with pytest.raises(DriverError, match="No module named 'txaware'"):
            spark.ask("frame", rows=20, waiting="", **options)
    assert published(messaging) == []


def test_txaware_may_be_sent_along_as_a_zip(
    url: str, messaging: Messaging, bare: dict[str, str], tmp_path: Path
) -> None:
    sent = tmp_path / "txaware.zip"
    with zipfile.ZipFile(sent, "w") as file:
        for package in ("coordinator", "txaware"):
            for path in (ROOT / package).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    file.write(path, path.relative_to(ROOT))
    log = tmp_path / "driver.log"
    env = {"PYSPARK_SUBMIT_ARGS": f"--py-files {sent} pyspark-shell"}
    with driver(log, "local-cluster[1,1,1024]", conf=bare, env=env) as spark:
        save_read_and_store(spark, url, tmp_path)
    assert published(messaging) == sorted(2 * NUMBERS)
