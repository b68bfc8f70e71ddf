"""Topics of several partitions in Spark: written by key, read by partition."""

import zlib
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as f

from tests.support.spark_fixtures import Shared, Stream

pytestmark = pytest.mark.spark


def test_rows_go_where_their_keys_say_and_are_read_by_partition(
    shared: Shared,
) -> None:
    shared.messaging.create_topic("orders", partitions=3)
    frame = shared.numbers(60).withColumn("key", f.expr("cast(payload % 20 as string)"))
    for _ in range(2):  # the second save is done already
        shared.save(frame, topic="orders", save_id="once")
    wanted = Counter(zlib.crc32(b"%d" % (n % 20)) % 3 for n in range(60))
    page = shared.messaging.poll("orders", limit=1000, isolation="committed")
    assert Counter(one.partition for one in page) == wanted
    read = shared.reader(topic="orders").load()
    found = Counter(row["topic"] for row in read.select("topic").collect())
    assert found == {f"orders.{number}": count for number, count in wanted.items()}
    shared.save(shared.frame("x"), topic="orders.1")
    assert shared.messaging.poll("orders.1", limit=1000)[-1].payload == b"x"


def test_a_stream_goes_on_in_each_partition(shared: Shared, tmp_path: Path) -> None:
    messaging = shared.messaging
    messaging.create_topic("in", partitions=2)
    stream = Stream(shared, tmp_path / "checkpoint")
    for number, payload in enumerate((b"a", b"b", b"c")):
        if number == 2:
            messaging.update_topic("in", partitions=3)
        messaging.publish(f"in.{number}", [payload])
        stream.run()
        assert sorted(shared.published("t")) == [b"a", b"b", b"c"][: number + 1]
