"""All figures of a store in HBase, in the order of their letters."""

from collections.abc import Collection, Iterator

from tests.benchmarks import (
    hbase_ends,
    hbase_memory,
    hbase_reading,
    hbase_servers,
    hbase_writing,
)
from tests.benchmarks.hbase_store import reached
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured

FIGURES = [
    Measured(
        "a",
        "messaging.publish('t', payloads) of 1,000 messages of 100 bytes, over and "
        "over, against happybase's batches of 1,000 puts of as many cells into a table "
        "made as ours. Floor 0.5. And the same by the time of the processor that this "
        "process takes, which leaves out what else runs.",
        hbase_writing.publish,
    ),
    Measured(
        "b",
        "200,000 messages of 100 bytes polled in pages of 1,000, all read from HBase, "
        "against happybase's scan of the same rows with batch_size=1000; both add up "
        "the sizes of the payloads. Floor 0.4. And a topic of one message a second, "
        "of which a page is in all buckets.",
        hbase_reading.poll,
    ),
    Measured(
        "c",
        "A poll at the end of a topic, all read from HBase: that finds nothing, and "
        "that finds the one message which was published just now. With 1,000,000 old "
        "messages against 10, and in 10,000 topics, one after the other, against the "
        "only one. At most 1.25. What is old is put into the tables as a publish does "
        "it, but without its batches.",
        hbase_ends.at_the_end,
    ),
    Measured(
        "d",
        "messaging.publish('t', [payload]) of 100 bytes against happybase's put.",
        hbase_writing.one_message,
    ),
    Measured(
        "e",
        "What a process has in memory after it has published to 10,000 topics and "
        "polled each, against before.",
        hbase_memory.resident,
    ),
    Measured(
        "f",
        "messaging.clean_up() of 10,000 topics with a message each, where nothing is "
        "due: the first one of a process, and the next. At most 60 s.",
        hbase_ends.idle_clean_up,
    ),
    Measured(
        "g",
        "Plain publishes of one message of 100 bytes to three partitions, each at its "
        "owner, of three servers with a shard each, against one server of another "
        "store. Each server has 48 connections, and HBase has run before. Floor 1.5.",
        hbase_servers.beside_one,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other, in the same HBase."""
    with reached(trial) as there:
        yield from measured(FIGURES, there, letters)
