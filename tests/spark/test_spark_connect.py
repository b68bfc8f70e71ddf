"""Spark Connect and Declarative Pipelines find `txaware` by itself, and use it.

Each takes about a minute: `pytest -m soak tests/spark/test_spark_connect.py`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import StructType

import txaware
from pyspark_txaware import DefaultSource
from txaware.messaging import Messaging
from txaware.spark.data_source import TxAwareDataSource, say_that_spark_starts
from txaware.spark.sink import TopicSink
from txaware.spark.stream_sink import StreamSink
from txaware.spark.stream_source import StreamSource

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
TEN = list(range(10))


@pytest.fixture
def served(spark_java: str) -> Iterator[tuple[Messaging, str]]:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        for topic in "tuvwx":
            messaging.create_topic(topic)
        yield messaging, server.url


def published(messaging: Messaging, topic: str) -> list[int]:
    page = messaging.consumer(topic).poll(100)
    return sorted(int(message.payload) for message in page)


def run(command: list[Any], folder: Path, **environment: str) -> str:
    """What a program prints; it has to end well."""
    ran = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    return ran.stdout + ran.stderr


def test_spark_finds_the_source_by_the_name_of_its_module() -> None:
    assert DefaultSource.__module__.startswith("pyspark_")
    assert DefaultSource.name() == "txaware"


def test_the_look_up_of_sources_imports_nothing_of_txaware() -> None:
    """Spark does it once, in a process that does nothing else."""
    look = "import pyspark_txaware, sys; print('txaware' in sys.modules)"
    command = [sys.executable, "-W", "error::ImportWarning", "-c", look]
    assert subprocess.check_output(command, cwd=ROOT, text=True) == "False\n"


def test_the_source_that_is_found_does_as_the_one_that_is_registered() -> None:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("t")
        options = {"url": server.url, "topic": "t"}
        schema = StructType().add("payload", "binary")
        found, registered = DefaultSource(options), TxAwareDataSource(options)
        assert found.schema() == registered.schema()
        assert type(found.reader(schema)) is type(registered.reader(schema))
        assert isinstance(found.writer(schema, overwrite=False), TopicSink)
        assert isinstance(found.streamReader(schema), StreamSource)
        assert isinstance(found.streamWriter(schema, overwrite=False), StreamSink)


def test_a_first_save_says_once_why_it_takes_so_long(
    capfd: pytest.CaptureFixture[str],
) -> None:
    say_that_spark_starts.cache_clear()
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("t")
        source = DefaultSource({"url": server.url, "topic": "t"})
        for _ in range(2):
            source.writer(StructType().add("payload", "binary"), overwrite=False)
    assert capfd.readouterr().err.count("Spark starts Python processes") == 1


@pytest.mark.soak
def test_a_client_of_spark_connect_reads_and_writes_in_every_way(
    served: tuple[Messaging, str], tmp_path: Path
) -> None:
    messaging, url = served
    job = [
        sys.executable,
        ROOT / "tests" / "support" / "spark_connect_job.py",
        url,
        tmp_path,
    ]
    printed = run(job, tmp_path)
    assert "read 10\n" in printed
    assert "stored 10\n" in printed
    assert [published(messaging, topic) for topic in "tuvx"] == [TEN] * 4
    assert published(messaging, "w") == [*TEN, 10]


def block_of_readme(language: str, beginning: str) -> str:
    """Returns what the page on Spark shows in that language."""
    blocks = re.findall(
        rf"^```{language}\n({beginning}.*?)^```$",
        (ROOT / "docs" / "spark.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert len(blocks) == 1
    found: str = blocks[0]
    return found


def test_the_flows_that_readme_shows_are_python() -> None:
    compile(block_of_readme("py", "from pyspark import pipelines"), "flows", "exec")


@pytest.mark.soak
def test_the_declarative_pipeline_of_readme_reads_one_topic_and_writes_another(
    served: tuple[Messaging, str], tmp_path: Path
) -> None:
    messaging, url = served
    for topic in ("visits", "copies"):
        messaging.create_topic(topic)
    visits = messaging.direct_publisher("visits")
    visits.publish_all([b"%d" % number for number in TEN])
    flows = block_of_readme("py", "from pyspark import pipelines")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "flows.py").write_text(
        flows.replace("http://127.0.0.1:11015", url)
    )
    spec, storage = tmp_path / "spark-pipeline.yml", tmp_path / "storage"
    shown = block_of_readme("yaml", "name: visits")
    spec.write_text(shown.replace("file:///tmp/visits", storage.as_uri()))
    home = Path(pyspark.__file__).parent
    command = ["bash", home / "bin" / "spark-pipelines", "run", "--spec", spec]
    for _ in range(2):
        shutil.rmtree(tmp_path / "spark-warehouse", ignore_errors=True)
        printed = run(
            command, tmp_path, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1"
        )
        assert "COMPLETED" in printed
        assert published(messaging, "copies") == TEN
