"""Spark over a server whose messages are in HBase: saves, reads and streams."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txaware
from tests.support.spark_fixtures import Shared, Stream
from tests.support.spark_pipeline import After, At, pipeline
from tests.support.spark_stream_job import FORMAT, MESSAGES_A_BATCH
from txaware.local_hbase import LocalHBase
from txaware.model.settings import Settings

pytestmark = [
    *(pytest.mark.hbase, pytest.mark.tephra, pytest.mark.spark),
    pytest.mark.long,  # Spark at a server, and a server over HBase, are shown apart
]

SETTINGS = Settings(janitor_interval_s=0, topics="in, t")


@pytest.fixture(params=["embedded", "tephra"])
def shared(
    request: pytest.FixtureRequest, spark: SparkSession, hbase_url: str
) -> Iterator[Shared]:
    """An empty store in HBase with the topics `in` and `t`, served to Spark."""
    is_tephra = request.param == "tephra"
    coordinator = request.getfixturevalue("tephra") if is_tephra else None
    with (
        txaware.connect(
            hbase_url, coordinator=coordinator, settings=SETTINGS
        ) as messaging,
        messaging.serve() as server,
    ):
        yield Shared(messaging, server.url, spark)


def test_what_is_saved_is_read(shared: Shared) -> None:
    shared.save(shared.numbers(300, tasks=3))
    frame = shared.reader(topic="t").load()
    read = [int(bytes(row["payload"])) for row in frame.collect()]
    assert sorted(read) == list(range(300))
    assert list(map(int, shared.published("t"))) == read


def test_from_topic_to_topic_each_message_once(shared: Shared, tmp_path: Path) -> None:
    stream = Stream(shared, tmp_path / "checkpoint")
    shared.messaging.publish("in", [b"%d" % number for number in range(5)])
    stream.run()
    stream.forget_last_commit()
    shared.messaging.publish("in", [b"5", b"6"])
    stream.run()
    assert sorted(map(int, shared.published("t"))) == list(range(7))


@pytest.mark.soak
def test_kills_of_driver_server_and_hbase(
    hbase: LocalHBase, hbase_url: str, tmp_path: Path
) -> None:
    with pipeline(tmp_path, FORMAT, data=hbase_url) as stream:
        for step in ("after the publish", "after the coordinator's commit"):
            stream.publish(2 * MESSAGES_A_BATCH)
            assert stream.run(At(step)) == -signal.SIGKILL
        stream.publish(2 * MESSAGES_A_BATCH)
        stream.run(After(2, server=True))
        hbase.kill()
        hbase.start()
        stream.publish(2 * MESSAGES_A_BATCH)
        stream.run(After(4))
